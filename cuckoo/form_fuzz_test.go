package cuckoo

import (
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// FuzzForm: a filter is made of a form that it then has, or the error is a line; a form of a file or of another process
// takes no more memory than the device may have.
func FuzzForm(f *testing.F) {
	const most = 1 << 20
	d := openCPU(f, device.WithMemory(most))
	for i, tag := range tagWidths {
		own, err := New[uint32](d, Options{FilterOptions: table.FilterOptions{Bytes: 1 << 12, Seed: 5}, TagBits: tag})
		must(f, err)
		larger, err := own.Larger(2)
		must(f, err)
		forms := []table.FilterForm{own.Form(), larger.Form()}
		must(f, own.Close())
		must(f, larger.Close())
		for _, form := range forms {
			f.Add(form.Words, form.Make)
			f.Add(form.Words*2, strings.Replace(form.Make, `"windows":1`, `"windows":2`, 1))
		}
		if i == 0 {
			f.Add(int64(1)<<43, forms[0].Make)
			f.Add(forms[0].Words, forms[0].Make+"{")
			f.Add(forms[0].Words, strings.Replace(forms[0].Make, `"spent":0`, `"spent":9`, 1))
			f.Add(int64(-1), "{}")
			f.Add(int64(1), "null")
		}
	}
	f.Fuzz(func(t *testing.T, words int64, text string) {
		testenv.Bounded(t, len(text), func() {
			form := table.FilterForm{Words: words, Make: text}
			x, err := NewOf[uint32](d, form)
			if err != nil {
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("an error that is no line: %q", err)
				}
				return
			}
			if got := x.Form(); got != form || 8*words > most {
				t.Errorf("a filter of form %v has form %v", form, got)
			}
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		})
	})
}

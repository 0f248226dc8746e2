package warpcore

import (
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// FuzzFilterForm: a filter is made of a form that it then has, or the error is a line; a form of a file or of another
// process takes no more memory than the device may have.
func FuzzFilterForm(f *testing.F) {
	const most = 1 << 20
	d := openCPU(f, device.WithMemory(most))
	own, err := NewFilter[uint32](d, FilterOptions{FilterOptions: table.FilterOptions{Bytes: 1 << 12, Seed: 5}})
	must(f, err)
	form := own.Form()
	must(f, own.Close())
	f.Add(form.Words, form.Make)
	f.Add(form.Words*2, form.Make)
	f.Add(int64(1)<<43, form.Make)
	f.Add(form.Words, form.Make+"{")
	f.Add(form.Words, strings.ToUpper(form.Make))
	f.Add(int64(-1), "{}")
	f.Add(int64(1), "null")
	f.Fuzz(func(t *testing.T, words int64, text string) {
		testenv.Bounded(t, len(text), func() {
			form := table.FilterForm{Words: words, Make: text}
			x, err := NewFilterOf[uint32](d, form)
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

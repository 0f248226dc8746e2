package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// FuzzSize: a size is a number of bytes, or -1, and comes back when it is written; or the error says what is wanted.
func FuzzSize(f *testing.F) {
	for _, text := range []string{"0", "1000", "2GB", "512MiB", "-1", "-2", "1.5 kB", "1e3", "1,000", "0.0001", "99999999999999999999",
		"1EiB", "1.1EiB", "٣", "NaN", "Inf", "1 parsec", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		testenv.Bounded(t, len(text), func() {
			n := int64(77)
			s := &size{&n}
			if err := s.Set(text); err != nil {
				if !strings.Contains(err.Error(), "want") || n != 77 {
					t.Errorf("%q: %d, %v", text, n, err)
				}
				return
			}
			if n < -1 || n > 1<<60 {
				t.Errorf("%q is %d", text, n)
			}
			if plain, err := strconv.ParseInt(text, 10, 64); err == nil && plain <= 1<<53 && n != plain {
				t.Errorf("%q is %d", text, n)
			}
			var again int64
			if err := (&size{&again}).Set(s.String()); n != 0 && (err != nil || !near(n, again)) {
				t.Errorf("%q is %d, written %q it is %d, %v", text, n, s, again, err)
			}
		})
	})
}

// near allows for float64, by way of which sizes are read.
func near(a, b int64) bool { return max(a, b)-min(a, b) <= max(a, b, 0)>>52 }

// FuzzDeviceName: the command refuses those names alone that a device cannot have, before anything is opened.
func FuzzDeviceName(f *testing.F) {
	for _, name := range []string{"auto", "cpu", "cpu:0", "cpu:007", "cpu:+1", "cpu:", "cuda:", "cuda:2147483648", "gpu", "", "cpu:1_0", "auto:1"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		testenv.Bounded(t, len(name), func() {
			var flag deviceName
			refused := flag.Set(name) != nil
			if name == "auto" || name == "" || !refused && !strings.HasPrefix(name, "cpu") {
				return // a GPU's: there may be one
			}
			d, err := device.Open(name)
			if err == nil {
				err = d.Close()
			}
			if wrong := err != nil && strings.Contains(err.Error(), "want "); wrong != refused || !refused && err != nil {
				t.Errorf("%q is refused: %t; opened: %v", name, refused, err)
			}
		})
	})
}

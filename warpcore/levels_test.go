package warpcore

import (
	"os"
	"runtime"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// Kernels for older processors compare by other vectors, and give the same answers: of pairs of 8 bytes, and of keys of
// 4 bytes alone.
func TestLevels(t *testing.T) {
	levels := []string{runtime.GOARCH}
	if runtime.GOARCH == "amd64" {
		levels = []string{"x86-64-v2", "x86-64-v3"}
	}
	for _, level := range testenv.Some(levels, 1) {
		t.Run(level, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			ahead, err := device.OpenAhead(level, device.WithCache(dir))
			must(t, err)
			o := Options{Options: table.Options{Capacity: 3000, LoadFactor: 0.95}}
			m, err := New[uint32, uint32](ahead, o)
			must(t, err)
			must(t, m.Close())
			s, err := NewSet[uint32](ahead, o)
			must(t, err)
			must(t, s.Close())
			must(t, ahead.Close())

			t.Setenv("PATH", t.TempDir()) // so that nothing is compiled for this machine's own level
			t.Setenv("CXX", "")
			d, err := device.Open("cpu", device.WithKernels(os.DirFS(dir)), device.WithCache(""))
			must(t, err)
			defer d.Close()
			m, err = New[uint32, uint32](d, o)
			must(t, err)
			defer m.Close()
			s, err = NewSet[uint32](d, o)
			must(t, err)
			defer s.Close()
			keys, values, asked := make([]uint32, 3000), make([]uint32, 3000), make([]uint32, 6000)
			for i := range keys {
				keys[i], values[i] = uint32(i)*2654435761, uint32(i)
			}
			for i := range asked {
				asked[i] = uint32(i) * 2654435761
			}
			must(t, m.Insert(keys, values))
			added, err := s.Insert(keys, nil)
			must(t, err)
			if _, err := m.Delete(keys[:500], nil); err != nil { // whose slots the next ones take
				t.Fatal(err)
			}
			must(t, m.Insert(keys[:250], values[:250]))
			got, found, in := make([]uint32, len(asked)), make([]bool, len(asked)), make([]bool, len(asked))
			must(t, m.Find(asked, got, found))
			must(t, s.Contains(asked, in))
			for i := range asked {
				there := i < 250 || i >= 500 && i < 3000
				if found[i] != there || there && got[i] != uint32(i) || in[i] != (i < 3000) || added != 3000 {
					t.Fatalf("key %d: %v, %d; in the set %v, which has %d", i, found[i], got[i], in[i], added)
				}
			}
		})
	}
}

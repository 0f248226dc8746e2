package warpcore

import (
	"errors"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// Pages have all values, each key's once and whole, no more than fit; FindAllIn says how much room it lacks.
func TestFindPages(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			testenv.Require(t, "cuda", err)
			t.Cleanup(func() { must(t, d.Close()) })
			m, err := NewMultiMap[uint32, uint32](d, Options{})
			must(t, err)
			t.Cleanup(func() { must(t, m.Close()) })
			findPages(t, d, m)
			b, err := NewMultiBucket[uint32, uint32](d, MultiBucketOptions{})
			must(t, err)
			t.Cleanup(func() { must(t, b.Close()) })
			findPages(t, d, &b.MultiMap)
		})
	}
}

func findPages(t *testing.T, d *device.Device, m *MultiMap[uint32, uint32]) {
	var keys, values, asked []uint32
	for k := range uint32(400) {
		asked = append(asked, k)
		times := k % 7 * (k % 2) // many have none
		if k == 350 {
			times = 90
		}
		for v := range times {
			keys, values = append(keys, k), append(values, k<<8|v)
		}
	}
	must(t, m.Insert(keys, values))
	in, err := device.From(d, asked)
	must(t, err)
	defer in.Free()
	for _, most := range []int{90, 91, 128, 5000} {
		var got []uint32
		next := 0
		must(t, m.FindPages(nil, in, most, func(first int, offsets device.Slice[uint64], page device.Slice[uint32]) error {
			at, err := offsets.Host(nil)
			must(t, err)
			v, err := page.Host(nil)
			must(t, err)
			if first != next || len(v) > most || int(at[len(at)-1]) != len(v) {
				t.Fatalf("a page from key %d, want %d, of %d values, of %d at most, up to %d", first, next, len(v), most, at[len(at)-1])
			}
			next += len(at) - 1
			for i := range at[1:] {
				for _, x := range v[at[i]:at[i+1]] {
					if x>>8 != asked[first+i] {
						t.Fatalf("key %d has a value of %d", asked[first+i], x>>8)
					}
				}
			}
			got = append(got, v...)
			return nil
		}))
		slices.Sort(got)
		if next != len(asked) || !slices.Equal(got, values) {
			t.Fatalf("pages of %d: %d keys of %d, %d values of %d", most, next, len(asked), len(got), len(values))
		}
	}
	var room *table.RoomError
	none := func(int, device.Slice[uint64], device.Slice[uint32]) error { return nil }
	if err := m.FindPages(nil, in, 89, none); !errors.As(err, &room) || room.Values != 90 {
		t.Errorf("a key of 90 values in pages of 89: %v", err)
	}
	stop := errors.New("stop")
	if err := m.FindPages(nil, in, 100, func(int, device.Slice[uint64], device.Slice[uint32]) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a page's own error: %v", err)
	}
	if m.FindPages(nil, in, 0, none) == nil {
		t.Error("pages of no values: no error")
	}
	offsets, err := device.Make[uint64](d, len(asked)+1)
	must(t, err)
	defer offsets.Free()
	for _, n := range []int{len(values) - 1, len(values), len(values) + 7} {
		out, err := device.Make[uint32](d, n)
		must(t, err)
		found, err := m.FindAllIn(nil, in, offsets, out)
		if n < len(values) {
			if !errors.As(err, &room) || *room != (table.RoomError{Values: len(values), Room: n}) || found != 0 {
				t.Errorf("room for %d of %d: %d, %v", n, len(values), found, err)
			}
		} else if err != nil || found != len(values) {
			t.Errorf("room for %d: %d values, %v", n, found, err)
		} else if v, err := out.Slice(0, found).Host(nil); err != nil || !slices.Equal(sorted(v), values) {
			t.Errorf("room for %d: other values, %v", n, err)
		}
		must(t, out.Free())
	}
}

package warpcore

import (
	"errors"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Pages have all values, each key's once and, where it has no more than fit, whole; FindAllIn says how much room it lacks.
func TestFindPages(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := openFor(t, name)
			multi, err := NewMultiMap[uint32, uint32](d, Options{})
			must(t, err)
			t.Cleanup(func() { must(t, multi.Close()) })
			list, err := NewBucketList[uint32, uint32](d, ListOptions{})
			must(t, err)
			t.Cleanup(func() { must(t, list.Close()) })
			buckets, err := NewMultiBucket[uint32, uint32](d, MultiBucketOptions{})
			must(t, err)
			t.Cleanup(func() { must(t, buckets.Close()) })
			t.Run("multibucket", func(t *testing.T) { testPages(t, d, buckets) })
			t.Run("multimap", func(t *testing.T) { testPages(t, d, multi) })
			t.Run("bucketlist", func(t *testing.T) { testPages(t, d, list) })
		})
	}
}

// paged is a multimap that gives its values page by page.
type paged interface {
	table.MultiMap[uint32, uint32]
	FindAllIn(st *device.Stream, keys device.Slice[uint32], offsets device.Slice[uint64], values device.Slice[uint32]) (int, error)
	FindPages(st *device.Stream, keys device.Slice[uint32], most int, page func(first int, offsets device.Slice[uint64], values device.Slice[uint32]) error) error
}

func testPages(t *testing.T, d *device.Device, m paged) {
	var keys, values, asked []uint32
	counts := map[uint32]int{}
	for k := range uint32(400) {
		asked = append(asked, k)
		times := k % 7 * (k % 2) // many have none
		if k == 350 {
			times = 90
		}
		counts[k] = int(times)
		for v := range times {
			keys, values = append(keys, k), append(values, k<<8|v)
		}
	}
	must(t, m.Insert(keys, values))
	in, err := device.From(d, asked)
	must(t, err)
	defer in.Free()
	for _, most := range []int{1, 13, 89, 90, 91, 128, 5000} {
		var got []uint32
		next := 0
		must(t, m.FindPages(nil, in, most, func(first int, offsets device.Slice[uint64], page device.Slice[uint32]) error {
			at, err := offsets.Host(nil)
			must(t, err)
			v, err := page.Host(nil)
			must(t, err)
			if first == next-1 && counts[asked[first]] > most && len(at) == 2 {
				next-- // more of one that has too many for a page
			}
			if first != next || len(v) > most || int(at[len(at)-1]) != len(v) {
				t.Fatalf("a page from key %d, want %d, of %d values, of %d at most, up to %d", first, next, len(v), most, at[len(at)-1])
			}
			next += len(at) - 1
			for i := range at[1:] {
				if n := counts[asked[first+i]]; int(at[i+1]-at[i]) != n && (n <= most || len(at) > 2) {
					t.Fatalf("%d of the %d values of key %d on a page", at[i+1]-at[i], n, asked[first+i])
				}
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
	// What is deleted meanwhile, a key that has begun keeps.
	long, err := device.From(d, []uint32{350})
	must(t, err)
	defer long.Free()
	left := 0
	must(t, m.FindPages(nil, long, 40, func(first int, _ device.Slice[uint64], page device.Slice[uint32]) error {
		left += page.Len()
		return m.DeleteOn(nil, long, device.Slice[bool]{})
	}))
	if left != 90 {
		t.Errorf("%d values of 90, which were deleted after the first page", left)
	}
}

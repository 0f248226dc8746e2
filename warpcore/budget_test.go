package warpcore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/table"
)

func TestMaxBytesIsChecked(t *testing.T) {
	d := openCPU(t)
	m, err := New[uint32, uint32](d, Options{Options: table.Options{MaxBytes: 1 << 20}})
	must(t, err)
	l, err := NewBucketList[uint32, uint32](d, ListOptions{Options: table.Options{MaxBytes: 1 << 20}})
	must(t, err)
	st := d.Stream()
	tabletest.MaxBytesIsChecked(t, &m.core.frame, m.Check, map[string]func() error{
		"rebuild": func() error { return m.core.rebuild(st, 100, 1) },
	})
	tabletest.MaxBytesIsChecked(t, l.lists.frame(), l.Check, map[string]func() error{
		"rebuildKeys": func() error { return l.lists.rebuildKeys(st, 100, 1) },
		"movePool":    func() error { return l.lists.movePool(st, 1000) },
	})
	must(t, errors.Join(m.Close(), l.Close()))
}

// A list's Shrink never makes it larger, whatever MaxBytes and how full it is; and what it leaves takes as many pairs as before.
func TestBucketListShrinkStaysWithin(t *testing.T) {
	d := openCPU(t)
	for _, o := range []table.Options{{MaxBytes: 2 << 10, LoadFactor: 0.1}, {MaxBytes: 16 << 10, LoadFactor: 0.1}, {MaxBytes: 64 << 10, LoadFactor: 0.3}, {MaxBytes: 64 << 10}, {LoadFactor: 0.1}} {
		o.Seed = 9
		t.Run(fmt.Sprintf("%d bytes, %v", o.MaxBytes, o.LoadFactor), func(t *testing.T) {
			m, err := NewBucketList[uint32, uint32](d, ListOptions{Options: o})
			must(t, err)
			keys := make([]uint32, max(o.MaxBytes, 16<<10)/4)
			for i := range keys {
				keys[i] = uint32(i) * 0x9e3779b9
			}
			fill := func() int {
				if err := m.Insert(keys, keys); err != nil && !errors.As(err, new(*table.FullError)) {
					t.Fatal(err)
				}
				must(t, m.Check())
				n, err := m.Len()
				must(t, err)
				return n
			}
			bytes := func() int64 {
				s, err := m.Stats()
				must(t, err)
				return s.Bytes
			}
			first, before := fill(), bytes()
			must(t, m.Shrink())
			must(t, m.Check())
			if after := bytes(); after > before {
				t.Errorf("%d pairs in %d bytes; after Shrink in %d", first, before, after)
			}
			must(t, m.Clear())
			if again := fill(); again < first-first/8 {
				t.Errorf("%d pairs went in, and %d after Shrink and Clear", first, again)
			}
			must(t, m.Close())
		})
	}
}

// Lists are packed into a pool that holds just them, also where sizes are rounded up; not into one that is smaller. The kernel writes nothing behind a pool.
func TestPackAsksItsBound(t *testing.T) {
	d := openCPU(t)
	m, err := NewBucketList[uint32, uint32](d, ListOptions{Options: table.Options{Seed: 1}})
	must(t, err)
	l := m.lists
	// Two lists, one longer than the sizes that are exact, in several buckets.
	keys, values := make([]uint32, 70_003), make([]uint32, 70_003)
	for i := range keys {
		keys[i], values[i] = uint32(i/70_001), uint32(i)
	}
	for i := 0; i < len(keys); i += 30_000 {
		n := min(i+30_000, len(keys))
		must(t, m.Insert(keys[i:n], values[i:n]))
	}
	const need = 70_002 + 2 // the longer one is rounded up
	pack := func(do func(st *device.Stream) error) {
		t.Helper()
		must(t, l.frame().Writing(nil, do))
		must(t, m.Check())
	}
	all := func() []uint32 {
		_, v, err := m.FindAll([]uint32{0, 1})
		must(t, err)
		slices.Sort(v)
		return v
	}
	for _, c := range []struct {
		places int64
		done   bool
	}{{need - 1, false}, {need, true}, {need + 1, true}} {
		pack(func(st *device.Stream) error {
			was := l.room()
			done, err := l.pack(st, c.places)
			if done != c.done || done && l.room() != c.places || !done && l.room() != was {
				t.Errorf("packed into %d places: %t, a pool of %d, want %t", c.places, done, l.room(), c.done)
			}
			return err
		})
		if got := all(); !slices.Equal(got, values) {
			t.Fatalf("%d values, want %d", len(got), len(values))
		}
	}
	pack(func(st *device.Stream) error {
		err := l.packInto(st, need-1)
		if err == nil || !strings.Contains(err.Error(), "defect") {
			t.Errorf("packed into less than there is: %v", err)
		}
		return nil
	})
	if got := all(); len(got) >= len(values) { // what does not fit is dropped, and told
		t.Errorf("%d values are left of a pool of less than %d places", len(got), need)
	}
	must(t, m.Insert(keys, values))
	must(t, m.Check())
	must(t, m.Close())
}

package warpmap_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// atBound fills a table up to so many slots below the bound up to which its family inserts easily, and gives rows that name the keys that are in.
func atBound(t *testing.T, family table.Family, capacity, free, rows int, insert func(keys, values []uint32) error) []uint32 {
	t.Helper()
	n := capacity/100*98 - free
	if family == warpmap.DyCuckoo {
		n = int(0.93*float64(capacity)) - free
	}
	keys := make([]uint32, n)
	for i := range keys {
		keys[i] = uint32(i) * 2654435761
	}
	out := map[int]bool{}
	var full *table.FullError
	if err := insert(keys, keys); errors.As(err, &full) {
		for _, i := range full.Positions {
			out[i] = true
		}
	} else if err != nil {
		t.Fatal(err)
	}
	batch := make([]uint32, 0, rows)
	for i := 0; len(batch) < rows; i++ {
		if !out[i%n] {
			batch = append(batch, keys[i%n])
		}
	}
	return batch
}

// launchesAtBound counts the kernels that an operation launches on a table that is nearly full and may not grow, for more rows than it tries at once.
func launchesAtBound(t *testing.T, d *device.Device, family table.Family, capacity int, op func(keys, values device.Slice[uint32]) error,
	free int, insert func(keys, values []uint32) error) uint64 {
	t.Helper()
	batch := atBound(t, family, capacity, free, 70_000, insert)
	keys, err := device.From(d, batch)
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Free()
	values, err := device.From(d, batch)
	if err != nil {
		t.Fatal(err)
	}
	defer values.Free()
	before := d.Launches()
	if err := op(keys, values); err != nil {
		t.Fatal(err)
	}
	return d.Launches() - before
}

// A batch whose keys are all in costs a few launches, however few slots are left to a table that may not grow.
func TestLaunchesAtTheBound(t *testing.T) {
	testenv.ByTurns(t)
	const most = 40
	d := open(t, "cpu")
	o := table.Options{MaxBytes: 64 << 10, Capacity: 1 << 20, Seed: 5}
	for _, family := range warpmap.Families(table.KindMap) {
		for _, c := range []struct {
			op   string
			free []int
			run  func(m table.Map[uint32, uint32], keys, values device.Slice[uint32]) error
		}{
			{"Insert", []int{0, 1, 10, 1000}, func(m table.Map[uint32, uint32], keys, values device.Slice[uint32]) error {
				return m.InsertOn(nil, keys, values)
			}},
			{"InsertNew", []int{1}, func(m table.Map[uint32, uint32], keys, values device.Slice[uint32]) error {
				return m.InsertNewOn(nil, keys, values, device.Slice[bool]{})
			}},
			{"Update", []int{1}, func(m table.Map[uint32, uint32], keys, values device.Slice[uint32]) error {
				if u, ok := m.(table.Updater[uint32, uint32]); ok {
					return u.UpdateOn(nil, keys, values, table.Add)
				}
				return nil
			}},
			{"FindOrInsert", []int{1}, func(m table.Map[uint32, uint32], keys, values device.Slice[uint32]) error {
				if u, ok := m.(table.Updater[uint32, uint32]); ok {
					return u.FindOrInsertOn(nil, keys, values, values, device.Slice[bool]{})
				}
				return nil
			}},
			{"InsertIf", []int{1}, func(m table.Map[uint32, uint32], keys, values device.Slice[uint32]) error {
				chosen, err := device.Make[bool](d, keys.Len())
				if err != nil {
					return err
				}
				defer chosen.Free()
				err = chosen.Fill(nil, 1)
				if x, ok := m.(table.Chooser[uint32, uint32]); ok && err == nil {
					err = x.InsertIfOn(nil, keys, values, chosen)
				}
				return err
			}},
		} {
			for _, free := range c.free {
				t.Run(fmt.Sprintf("%s/%s/%d", family, c.op, free), func(t *testing.T) {
					m, err := warpmap.New[uint32, uint32](d, family, o)
					if err != nil {
						t.Fatal(err)
					}
					defer m.Close()
					stats, err := m.Stats()
					if err != nil {
						t.Fatal(err)
					}
					n := launchesAtBound(t, d, family, stats.Capacity, func(keys, values device.Slice[uint32]) error { return c.run(m, keys, values) }, free, m.Insert)
					if n > most {
						t.Errorf("%d launches, want %d at most", n, most)
					}
				})
			}
		}
	}
	t.Run("counter", func(t *testing.T) {
		m, err := warpmap.NewCounter[uint32, uint32](d, warpmap.WarpCore, table.CounterOptions{Options: o})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		stats, err := m.Stats()
		if err != nil {
			t.Fatal(err)
		}
		n := launchesAtBound(t, d, warpmap.WarpCore, stats.Capacity, func(keys, _ device.Slice[uint32]) error { return m.AddOn(nil, keys) }, 1,
			func(keys, _ []uint32) error { return m.Add(keys) })
		if n > most {
			t.Errorf("%d launches, want %d at most", n, most)
		}
	})
	t.Run("bucketlist", func(t *testing.T) {
		o := o
		o.MaxBytes, o.Capacity = 4<<20, 20_000
		m, err := warpcore.NewBucketList[uint32, uint32](d, warpcore.ListOptions{Options: o, Keys: 5000, InitialBucket: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		stats, err := m.Stats()
		if err != nil {
			t.Fatal(err)
		}
		n := launchesAtBound(t, d, warpmap.WarpCore, stats.Capacity, func(keys, values device.Slice[uint32]) error { return m.InsertOn(nil, keys, values) }, 1, m.Insert)
		if n > most {
			t.Errorf("%d launches, want %d at most", n, most)
		}
	})
}

package cuckoo

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// A filter at a load of 0.9 whose keys are replaced for long takes all new ones to the end, in the same memory, has
// every key that is in, and says so of no more others than it promised. More of them than at the beginning, for marks
// are never taken back: as many as if all were set, at most.
func TestAging(t *testing.T) {
	testenv.ByTurns(t)
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			testenv.Require(t, "cuda", err)
			defer d.Close()
			room, slices := 1<<15, 300
			if testenv.Long() {
				room, slices = 1<<17, 1000
			}
			if d.Info().CUDA() {
				room = 1 << 24
			}
			for _, c := range []struct {
				tag    int
				marked float64 // false positives if all marks are set: see doc.go
			}{{8, 0.052}, {12, 0.0046}, {16, 0.00044}} {
				t.Run(fmt.Sprintf("tags of %d bits", c.tag), func(t *testing.T) { ages(t, d, c.tag, c.marked, room, slices) })
			}
		})
	}
}

func ages(t *testing.T, d *device.Device, tag int, marked float64, room, slices int) {
	f, err := New[uint64](d, Options{FilterOptions: table.FilterOptions{Capacity: room, Seed: 1 + testenv.FirstSeed()}, TagBits: tag})
	must(t, err)
	defer f.Close()
	batch := f.Capacity() / 100
	keys, found := make([]uint64, batch), make([]bool, batch)
	first, end, absent := uint64(0), uint64(0), uint64(1)<<40
	of := func(from uint64) []uint64 {
		for i := range keys {
			keys[i] = (from + uint64(i)) * 0x9e3779b97f4a7c15
		}
		return keys
	}
	refused := 0
	var took time.Duration
	put := func() {
		began := time.Now()
		err := f.Insert(of(end))
		took += time.Since(began)
		if full := (*table.FullError)(nil); errors.As(err, &full) {
			refused += len(full.Positions)
		} else {
			must(t, err)
		}
		end += uint64(batch)
	}
	for range 90 {
		put()
	}
	type state struct {
		table.FilterStats
		wrong float64 // share of absent keys that it says are in
	}
	look := func() (s state) {
		s.FilterStats, err = f.Stats()
		must(t, err)
		for from := first; from < end; from += uint64(batch) {
			must(t, f.Contains(of(from), found))
			for i := range found {
				if !found[i] {
					t.Fatalf("key %#x is in, and is not found", keys[i])
				}
			}
		}
		n, asked := 0, 0
		for ; asked < 1<<20; asked += batch {
			must(t, f.Contains(of(absent), found))
			absent += uint64(batch)
			for _, is := range found {
				if is {
					n++
				}
			}
		}
		s.wrong = float64(n) / float64(asked)
		return s
	}
	began := look()
	t.Logf("%.0f keys in %.1f MB, %.5f of others, %d refused", began.Keys, float64(began.Bytes)/1e6, began.wrong, refused)
	for slice := 1; slice <= slices; slice++ {
		if n, err := f.Delete(of(first), nil); err != nil || n != batch {
			t.Fatalf("slice %d: %d of %d keys are taken out: %v", slice, n, batch, err)
		}
		first += uint64(batch)
		if slice == slices/10 {
			took = 0
		}
		put()
		if slice%(slices/5) == 0 {
			s := look()
			t.Logf("%d slices: %.0f keys, %.5f of others, %d refused, %.1f M/s", slice, s.Keys, s.wrong, refused,
				float64(batch*slices/5)/took.Seconds()/1e6)
			took = 0
			if s.Keys != began.Keys || s.Bytes != began.Bytes {
				t.Errorf("%.0f keys in %d bytes became %.0f in %d", began.Keys, began.Bytes, s.Keys, s.Bytes)
			}
			if s.wrong > 1.2*marked+0.0002 {
				t.Errorf("after %d slices it says of %.5f of absent keys that they are in, want %.5f at most", slice, s.wrong, marked)
			}
		}
	}
	if refused > 0 {
		t.Errorf("%d keys are refused", refused)
	}
	must(t, f.Check())
	testenv.Tried(t, slices, "slices")
}

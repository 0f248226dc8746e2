package outside_test

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// frameParams are those of the partition's kernels.
type frameParams struct{ Rows frame.Partition }

// framed is what a table has beside its algorithm: memory that a rebuild replaces, counters among it.
type framed struct {
	frame frame.Frame
	framedMemory
}

type framedMemory struct {
	mem      device.Slice[byte]
	counters frame.Counters[struct{ Live, Failed uint64 }]
}

func (x *framed) rebuild(st *device.Stream) error {
	old := x.framedMemory
	var err error
	if x.mem, err = frame.Make[byte](&x.frame, int64(old.mem.Len())+1000); err != nil {
		return err
	}
	if err := errors.Join(x.counters.Make(&x.frame, st), x.counters.Look(st)); err != nil {
		return err
	}
	return x.frame.Free(old.mem, &old.counters)
}

// A table that grows, and what it keeps for batches when that grows, waits for no other stream: memory goes back when the stream has
// passed the work on it.
func TestTablesFreeInStreamOrder(t *testing.T) {
	f, d := openFake(t)
	f.Set("params", int64(unsafe.Sizeof(frameParams{})))
	m, err := d.Compile(&device.Program{Name: "partition", Files: []device.File{{Name: "main.cu", Text: "partition_count partition_scan partition_scatter"}}, Layouts: []any{frame.Partition{}, frameParams{}}})
	must(t, err)
	partition, err := frame.NewPartitioner[frameParams](d, m)
	must(t, err)
	x := &framed{}
	must(t, x.frame.Open("framed", d, func() error { return x.rebuild(d.Stream()) }, func() error { return x.frame.Free(x.mem, &x.counters) }))
	scratch, bitmap, batch := int64(1000), int64(1<<18), int64(1000)
	rule := frame.Regions{MinRows: 1, RegionBytes: 1, RegionRows: 1, PieceRows: 1 << 20, MemoryShare: 2, Span: frame.Threads}
	for _, c := range []struct {
		name string
		grow func(st *device.Stream) error
		old  int64 // allocations that it replaces
	}{
		{"a rebuild", x.rebuild, 2},
		{"scratch memory", func(*device.Stream) error {
			l, err := x.frame.Scratch(scratch)
			l.Done()
			scratch *= 2
			return err
		}, 1},
		{"the bitmap", func(st *device.Stream) error {
			_, _, err := frame.Inserter{
				Try:    bitmap,
				Launch: func(frame.Part) error { return nil },
				Look:   func() (refused, live int64, err error) { return 0, bitmap, nil },
				Room:   func(int64, bool) (int64, error) { return 0, nil },
			}.Run(&x.frame, st, bitmap, 0)
			bitmap *= 2
			return err
		}, 1},
		{"a batch in order", func(st *device.Stream) error {
			batch *= 2
			p := frame.Placement{Regions: &rule, KeyBytes: 4, ValueBytes: 4, Params: func(r frame.Partition) any { return &frameParams{r} }}
			done, err := partition.InOrder(&x.frame, st, p, frame.Rows{N: batch}, 2, func(frame.Ordered) error { return nil })
			if !done {
				t.Error("too little memory for a batch in order")
			}
			return err
		}, 1},
		{"what is kept is given back", func(*device.Stream) error { return x.frame.Spare() }, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			grow := func() { t.Helper(); must(t, x.frame.Writing(nil, c.grow)) }
			if c.name != "what is kept is given back" {
				grow() // so that there is something to replace
			}
			must(t, d.Stream().Sync())
			for what, value := range map[string]int64{"waits": 0, "frees": 0, "hold": 1} {
				f.Set(what, value)
			}
			grow()
			during := f.Get("allocs")
			if f.Get("hold") != 1 || f.Get("waits") != 0 || f.Get("frees") != 0 {
				t.Errorf("streams stand still: %t; %d waits for all, %d frees that may be", f.Get("hold") == 1, f.Get("waits"), f.Get("frees"))
			}
			must(t, d.Stream().Sync())
			if old := during - f.Get("allocs"); old != c.old {
				t.Errorf("%d allocations went back when the stream had passed, want %d", old, c.old)
			}
		})
	}
	// Where memory is short, what is kept is waited for.
	must(t, x.frame.Writing(nil, func(*device.Stream) error {
		l, err := x.frame.Scratch(512 << 10)
		if err != nil {
			return err
		}
		l.Done()
		f.Set("hold", 1)
		s, err := frame.Make[byte](&x.frame, 768<<10)
		return errors.Join(err, x.frame.Free(s))
	}))
	must(t, x.frame.Close())
	must(t, d.Close())
	f.NoLeaks()
}

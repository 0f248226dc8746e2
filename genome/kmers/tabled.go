package kmers

import (
	"errors"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// tabled counts in a table, whose keys are mixes.
type tabled struct {
	texts
	list   device.Kernel[textParams]
	table  *warpcore.Counter[uint64, uint32]
	mixes  device.Slice[uint64]
	length device.Slice[uint64]
}

func newTabled(m *device.Module, t texts, o Options) (counter, error) {
	x := &tabled{texts: t}
	if err := device.Bind(m, "all_kmers", &x.list); err != nil {
		return nil, err
	}
	// A table that grows is there twice, and is brought out beside itself.
	options := warpcore.Options{Options: table.Options{MaxBytes: o.MaxMemory / 2}}
	var err error
	if x.table, err = warpcore.NewCounter[uint64, uint32](t.d, warpcore.CounterOptions{Options: options, Saturate: true}); err != nil {
		return nil, err
	}
	if x.mixes, err = device.Make[uint64](t.d, t.room); err == nil {
		x.length, err = device.Make[uint64](t.d, 1)
	}
	if err != nil {
		return nil, errors.Join(err, x.close())
	}
	x.p.Mixes, x.p.Cursors = x.mixes.Addr(), x.length.Addr()
	return x, nil
}

func (x *tabled) add(text []byte) error { return x.fill(text, x.flush) }

func (x *tabled) flush() error {
	if x.n == 0 {
		return nil
	}
	st := x.d.Stream()
	x.p.N = uint64(x.n)
	x.n = 0
	grid := device.GridFor(int64(x.p.N/each+1), 128)
	if err := errors.Join(x.length.Fill(st, 0), x.list.Launch(st, grid, &x.p)); err != nil {
		return err
	}
	n, err := x.length.Host(st)
	if err != nil || n[0] == 0 {
		return err
	}
	err = x.table.AddOn(st, x.mixes.Slice(0, int(n[0])))
	if full := new(table.FullError); errors.Is(err, table.ErrMaxBytes) || device.IsOutOfMemory(err) || errors.As(err, &full) {
		return errNarrow
	}
	return err
}

func (x *tabled) finish(emit func(part int, mixes []uint64, counts []uint32) error) error {
	if err := x.flush(); err != nil {
		return err
	}
	mixes, counts, err := x.table.All()
	if err != nil {
		return err
	}
	var ends [parts]int
	for _, m := range mixes {
		ends[m>>(64-partBits)]++
	}
	all := make([]counted, x.p.End)
	var work errgroup.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	for part := range all {
		all[part] = counted{make([]uint64, 0, ends[part]), make([]uint32, 0, ends[part])}
	}
	for i, m := range mixes {
		to := &all[m>>(64-partBits)]
		to.mixes, to.counts = append(to.mixes, m), append(to.counts, counts[i])
	}
	for part := range all {
		work.Go(func() error {
			all[part] = all[part].inOrder()
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	for part := int(x.p.First); part < int(x.p.End); part++ {
		if err := emit(part, all[part].mixes, all[part].counts); err != nil {
			return err
		}
	}
	return nil
}

// inOrder sorts the k-mers of a part by their mixes.
func (x counted) inOrder() counted {
	type pair struct {
		mix   uint64
		count uint32
	}
	pairs := make([]pair, len(x.mixes))
	for i, m := range x.mixes {
		pairs[i] = pair{m, x.counts[i]}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		if a.mix < b.mix {
			return -1
		}
		return 1
	})
	for i, p := range pairs {
		x.mixes[i], x.counts[i] = p.mix, p.count
	}
	return x
}

func (x *tabled) close() error {
	return errors.Join(x.table.Close(), x.mixes.Free(), x.length.Free(), x.memory.Free())
}

package kmers

import (
	"errors"
	"runtime"
	"unsafe"

	"github.com/warpmap/warpmap/device"
)

// core is what one core has alone.
type core struct {
	*cores
	st       *device.Stream
	bins     device.Host[bin]    // of stretches
	direct   device.Host[uint64] // counts of short k-mers
	deals    device.Host[dealState]
	tables   device.Host[tableState]
	parts    device.Host[bin] // lists of what is given away
	table    device.Slice[byte]
	waiting  device.Host[byte] // stretches that wait for equal ones
	pairs    device.Slice[byte]
	distinct uint64 // k-mers of the bin that was counted last in a table
	counted  uint64 // how often they came
}

// lone is the grid of a kernel for one core.
var lone = device.Grid{Blocks: 1, Threads: 32}

func newCore(c *cores) (x *core, err error) {
	x = &core{cores: c}
	if x.st, err = c.d.NewStream(); err != nil {
		return x, err
	}
	if x.bins, err = device.MakeMapped[bin](c.d, c.nbins); err != nil {
		return x, err
	}
	if c.k <= shortLetters {
		if x.direct, err = device.MakeMapped[uint64](c.d, 1<<(2*c.k)); err != nil {
			return x, err
		}
	}
	if x.deals, err = device.MakeMapped[dealState](c.d, 1); err != nil {
		return x, err
	}
	if x.tables, err = device.MakeMapped[tableState](c.d, 1); err != nil {
		return x, err
	}
	if x.waiting, err = device.MakeMapped[byte](c.d, together*waitingBytes); err != nil {
		return x, err
	}
	x.parts, err = device.MakeMapped[bin](c.d, parts)
	return x, err
}

func (x *core) close() (err error) {
	if x.st != nil {
		err = x.st.Close()
	}
	return errors.Join(err, x.bins.Free(), x.direct.Free(), x.deals.Free(), x.tables.Free(), x.parts.Free(),
		x.waiting.Free(), x.table.Free(), x.pairs.Free())
}

// deal deals out the stretches of a passage, or counts its short k-mers.
func (x *core) deal(p passage) (err error) {
	s := &x.deals.Slice()[0]
	s.Next = uint64(p.from)
	params := dealParams{Text: addressOf(p.text), N: uint64(len(p.text)), To: uint64(p.to), K: uint64(x.k),
		Canonical: x.canonical, Minimizer: uint64(minimizerOf(x.k)), Mask: uint64(x.nbins - 1),
		Bins: x.bins.Mapped().Addr(), State: x.deals.Mapped().Addr()}
	kernel := x.kernels.deal
	if x.k <= shortLetters {
		kernel, params.Bins = x.kernels.letters, x.direct.Mapped().Addr()
	}
	defer runtime.KeepAlive(p.text)
	for {
		if err := kernel.Launch(x.st, lone, &params); err != nil || s.Next == uint64(p.to) {
			return err
		}
		if s.Slab, s.End, err = x.waits.take(x.cores); err != nil {
			return err
		}
	}
}

// count counts the k-mers of a bin: those that were listed before, and those of its stretches. It lists them anew, or,
// at the end, by parts.
func (x *core) count(b int, fresh *lists, last bool) (err error) {
	waiting, kept := uint64(0), x.lists.bins.Slice()[b].Kmers
	for _, other := range x.all {
		waiting += other.bins.Slice()[b].Kmers
	}
	if waiting+kept == 0 {
		return nil
	}
	s := &x.tables.Slice()[0]
	*s = tableState{Slab: s.Slab, End: s.End}
	p := tableParams{K: uint64(x.k), Canonical: x.canonical, First: x.first, End: x.end, Seed: x.seed,
		Bin: uint64(b), Bins: x.heads.Mapped().Addr(), Cores: uint64(len(x.all)), State: x.tables.Mapped().Addr(),
		Least: uint64(x.least), Waiting: x.waiting.Mapped().Addr()}
	if last && kept == 0 && x.distinct*16 > x.counted*distinctOf16 && b%tableEach > 0 &&
		x.slabBytes() >= bypassSlab && int64(waiting)*countedBytes(x.words) < x.most/bypassShare {
		p.List = x.parts.Mapped().Addr()
		return x.untilDone(x.kernels.partStretches, &p, fresh, func() bool { return s.Core == p.Cores })
	}
	if err := x.countInTable(&p, kept, waiting); err != nil {
		return err
	}
	list := x.kernels.listTable
	if p.List = fresh.bins.Mapped().Addr(); last {
		list, p.List = x.kernels.partTable, x.parts.Mapped().Addr()
	}
	return x.untilDone(list, &p, fresh, func() bool { return s.Place == 1<<p.Bits })
}

// untilDone launches a kernel that lists k-mers, with more memory each time.
func (x *core) untilDone(k device.Kernel[tableParams], p *tableParams, fresh *lists, done func() bool) (err error) {
	s := &x.tables.Slice()[0]
	for {
		if err := k.Launch(x.st, lone, p); err != nil || done() {
			return err
		}
		if x.memory.Load() > x.most {
			return errNarrow
		}
		if s.Slab, s.End, err = fresh.take(x.cores); err != nil {
			return err
		}
	}
}

// countInTable counts the k-mers of a bin in the table.
func (x *core) countInTable(p *tableParams, kept, waiting uint64) error {
	s := &x.tables.Slice()[0]
	// Bins have about as many k-mers as one another.
	places := placesFor(min(kept+waiting, max(kept, x.distinct)+x.distinct/8))
	if err := x.reserve(&x.table, placeBytes(x.words)<<places); err != nil {
		return err
	}
	p.Bits, p.Table = uint64(places), x.table.Addr()
	if err := x.table.Slice(0, placeBytes(x.words)<<places).Fill(x.st, 0); err != nil {
		return err
	}
	if kept > 0 {
		p.List = x.lists.bins.Mapped().Addr()
		if err := x.kernels.addList.Launch(x.st, lone, p); err != nil {
			return err
		}
	}
	for {
		if err := x.kernels.addStretches.Launch(x.st, lone, p); err != nil {
			return err
		}
		if s.Waits == 0 {
			x.distinct, x.counted = s.Used, kept+waiting
			return nil
		}
		if err := x.grow(p); err != nil {
			return err
		}
	}
}

// grow brings a table into one of four times as many places.
func (x *core) grow(p *tableParams) error {
	old := x.table
	x.table = device.Slice[byte]{}
	defer func() { x.memory.Add(-old.Bytes()) }()
	p.OldBits, p.Old = p.Bits, p.Table
	p.Bits += 2
	err := x.reserve(&x.table, placeBytes(x.words)<<p.Bits)
	if err == nil {
		p.Table = x.table.Addr()
		err = x.table.Slice(0, placeBytes(x.words)<<p.Bits).Fill(x.st, 0)
	}
	if err == nil {
		err = x.kernels.growTable.Launch(x.st, lone, p)
	}
	return errors.Join(err, old.Free())
}

// reserve has so many bytes in a slice, whatever they hold.
func (x *core) reserve(s *device.Slice[byte], n int) (err error) {
	if s.Len() >= n {
		return nil
	}
	if x.memory.Add(int64(n)-s.Bytes()) > x.most {
		x.memory.Add(s.Bytes() - int64(n))
		return errNarrow
	}
	old := *s
	*s = device.Slice[byte]{}
	if err := old.Free(); err != nil {
		return err
	}
	*s, err = device.Make[byte](x.d, n)
	return err
}

// sort gives the k-mers of a part in their order, in memory that it may take from others.
func (x *core) sort(part int, free chan counted) (counted, error) {
	n := x.kmersOf(part)
	var out counted
	select {
	case out = <-free:
	default:
	}
	if cap(out.counts) < n {
		out = newCounted(x.words, n+n/8)
	}
	out = counted{x.words, out.mixes[:n*x.words], out.counts[:n]}
	if n == 0 {
		return out, nil
	}
	number := &x.tables.Slice()[0].Used
	p := partParams{Part: uint64(part), N: uint64(n), Lists: x.heads.Mapped().Addr() + 8*uint64(len(x.all)),
		Cores: uint64(len(x.all)), Pairs: x.pairs.Addr(), Mixes: addressOf(out.mixes), Counts: addressOf(out.counts),
		Least: uint64(x.least), Number: uint64(uintptr(unsafe.Pointer(number)))}
	defer runtime.KeepAlive(out)
	err := x.kernels.sortPart.Launch(x.st, lone, &p)
	return out.first(int(*number)), err
}

// addressOf is where kernels of the CPU device find a Go slice, which must be kept alive.
func addressOf[T any](s []T) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s)))) }

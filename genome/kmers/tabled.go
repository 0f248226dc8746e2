package kmers

import (
	"cmp"
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/dycuckoo"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// tabled counts in a table, whose keys are mixes. While the k-mers of a text are counted, the next text is copied to
// the device.
type tabled struct {
	texts
	st     *device.Stream // of what is counted
	list   device.Kernel[textParams]
	p      textParams
	table  tallies
	length device.Slice[uint64]
	eager  int       // bytes of text that it is given when it has nothing to do
	full   chan text // to countAll
	free   chan text // and back
}

// text is memory on the device, and how many bytes of text are in it; or, where it comes back, what went wrong by then.
type text struct {
	memory device.Slice[byte]
	n      int
	err    error
}

// textsAtOnce: one is copied while another is counted.
const textsAtOnce = 2

// tallies are a table, and memory for the list of k-mers that go into it.
type tallies interface {
	list() uint64 // its address
	add(st *device.Stream, n int) error
	all() ([]uint64, []uint32, error)
	close() error
}

// newTabledFor makes one that is cut for so many bytes of inputs, or, where there is no memory for that, for few.
func newTabledFor(m *device.Module, t texts, memory, inputs int64) (counter, error) {
	share := memory / int64(t.words)
	wide := t
	if t.words == 1 {
		wide.room = max(t.room, int(min(tabledBytes, share/tabledShare, inputs*textOfByte)))
	}
	ahead := min(inputs/bytesOfKmer, memory/aheadShare/aheadBytes(t.words))
	if t.k < wordK/2 {
		ahead = min(ahead, 1<<(2*t.k)) // there are no more
	}
	c, err := newTabledAhead(m, wide, memory, int(ahead))
	if device.IsOutOfMemory(err) {
		return newTabled(m, t, memory)
	}
	return c, err
}

func newTabled(m *device.Module, t texts, memory int64) (counter, error) {
	return newTabledAhead(m, t, memory, 0)
}

// newTabledAhead makes one with room for so many k-mers at once.
func newTabledAhead(m *device.Module, t texts, memory int64, ahead int) (_ counter, err error) {
	x := &tabled{texts: t, p: textParams{K: uint64(t.k), Canonical: t.canonical, First: t.first, End: t.end},
		eager: leastText, full: make(chan text), free: make(chan text, textsAtOnce)}
	full := x.full
	crash.Go(func() { x.countAll(full) })
	defer func() {
		if err != nil {
			err = errors.Join(err, x.close())
		}
	}()
	if err := device.Bind(m, "all_kmers", &x.list); err != nil {
		return nil, err
	}
	if err := x.list.Ahead(); err != nil {
		return nil, err
	}
	if x.st, err = t.d.NewStream(); err != nil {
		return nil, err
	}
	// A table that grows is there twice, and is brought out beside itself.
	o := table.Options{MaxBytes: memory / 2, Capacity: ahead}
	if t.words > 1 {
		x.table, err = newWide(t.d, o, t.room)
	} else {
		x.table, err = newNarrow(t.d, o, t.room)
	}
	if err != nil {
		return nil, err
	}
	if x.length, err = device.Make[uint64](t.d, 1); err != nil {
		return nil, err
	}
	x.p.Mixes, x.p.Cursors = x.table.list(), x.length.Addr()
	for range textsAtOnce - 1 {
		more, err := device.Make[byte](t.d, t.room)
		if err != nil {
			return nil, err
		}
		x.free <- text{memory: more}
	}
	return x, nil
}

// narrow counts k-mers of one word.
type narrow struct {
	table *warpcore.Counter[uint64, uint32]
	mixes device.Slice[uint64]
}

func newNarrow(d *device.Device, o table.Options, room int) (tallies, error) {
	t, err := warpcore.NewCounter[uint64, uint32](d, warpcore.CounterOptions{Options: warpcore.Options{Options: o},
		Saturate: true})
	if err != nil {
		return nil, err
	}
	x := &narrow{table: t}
	if x.mixes, err = device.Make[uint64](d, room); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return x, nil
}

func (x *narrow) list() uint64                       { return x.mixes.Addr() }
func (x *narrow) add(st *device.Stream, n int) error { return x.table.AddOn(st, x.mixes.Slice(0, n)) }
func (x *narrow) all() ([]uint64, []uint32, error)   { return x.table.All() }
func (x *narrow) close() error                       { return errors.Join(x.table.Close(), x.mixes.Free()) }

// wide counts k-mers of two words, which WarpCore's counters have not: as values of DyCuckoo's map that are added up.
// They have 64 bits, so that none overflows.
type wide struct {
	table *dycuckoo.Map[[2]uint64, uint64]
	mixes device.Slice[[2]uint64]
	ones  device.Slice[uint64]
}

func newWide(d *device.Device, o table.Options, room int) (tallies, error) {
	o.Work.Inserts = 1 // and nothing is looked up
	t, err := dycuckoo.New[[2]uint64, uint64](d, dycuckoo.Options{Options: o})
	if err != nil {
		return nil, err
	}
	x := &wide{table: t}
	if x.mixes, err = device.Make[[2]uint64](d, room); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	ones := make([]uint64, room)
	for i := range ones {
		ones[i] = 1
	}
	if x.ones, err = device.From(d, ones); err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

func (x *wide) list() uint64 { return x.mixes.Addr() }

func (x *wide) add(st *device.Stream, n int) error {
	return x.table.UpdateOn(st, x.mixes.Slice(0, n), x.ones.Slice(0, n), table.Add)
}

func (x *wide) all() ([]uint64, []uint32, error) {
	mixes, long, err := x.table.All()
	counts := make([]uint32, len(long))
	for i, n := range long {
		counts[i] = uint32(min(n, math.MaxUint32))
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(mixes))), 2*len(mixes)), counts, err
}

func (x *wide) close() error { return errors.Join(x.table.Close(), x.mixes.Free(), x.ones.Free()) }

// add takes text. While the table counts, what comes is put together, for the more k-mers come at once the faster it
// is; when it waits, it is given what there is.
func (x *tabled) add(text []byte, done func()) error {
	if err := x.fill(text, x.flush); err != nil {
		return err
	}
	done()
	if x.n < x.eager || len(x.free) == 0 {
		return nil
	}
	return x.flush()
}

// flush hands the text over, and takes memory for the next.
func (x *tabled) flush() error {
	if x.n == 0 {
		return nil
	}
	if err := x.d.Stream().Sync(); err != nil {
		return err
	}
	x.full <- text{memory: x.memory, n: x.n}
	t := <-x.free
	x.memory, x.n = t.memory, 0
	return t.err
}

// countAll counts texts until there are no more. After an error it only gives them back.
func (x *tabled) countAll(full <-chan text) {
	var err error
	for t := range full {
		if err == nil {
			err = crash.Catch(func() error { return x.count(t) })
		}
		x.free <- text{memory: t.memory, err: err}
	}
	close(x.free)
}

// stop waits until all is counted, frees the texts, and gives what went wrong. Nothing is added any more.
func (x *tabled) stop() (counting, freeing error) {
	if x.full == nil {
		return nil, nil
	}
	close(x.full)
	x.full = nil
	for t := range x.free {
		counting = cmp.Or(t.err, counting)
		freeing = errors.Join(freeing, t.memory.Free())
	}
	return counting, freeing
}

func (x *tabled) count(t text) error {
	x.p.Text, x.p.N = t.memory.Addr(), uint64(t.n)
	grid := device.GridFor(int64(x.p.N/each+1), 128)
	if err := frame.InTurn(
		func() error { return x.length.Fill(x.st, 0) },
		func() error { return x.list.Launch(x.st, grid, &x.p) },
	); err != nil {
		return err
	}
	n, err := x.length.Host(x.st)
	if err != nil || n[0] == 0 {
		return err
	}
	err = x.table.add(x.st, int(n[0]))
	if full := new(table.FullError); errors.Is(err, table.ErrMaxBytes) || device.IsOutOfMemory(err) ||
		errors.As(err, &full) {
		return errNarrow
	}
	return err
}

func (x *tabled) settle() error {
	if err := x.flush(); err != nil {
		return err
	}
	return cmp.Or(x.stop())
}

func (x *tabled) finish(emit func(part int, x counted) error) error {
	if err := x.settle(); err != nil {
		return err
	}
	mixes, counts, err := x.table.all()
	if err != nil {
		return err
	}
	return counted{x.words, mixes, counts}.inParts(int(x.first), int(x.end), x.least, emit)
}

// inParts gives what came least times or more often, part by part, and in each by the mixes.
func (x counted) inParts(first, end int, least uint32, emit func(part int, x counted) error) error {
	all := x.deal()
	return ahead(first, end, func(part int) {
		all[part] = all[part].atLeast(least)
		all[part].inOrder()
	}, func(part int) error { return emit(part, all[part]) })
}

// aheadOf is how many parts each core sorts at most before they are given away.
const aheadOf = 4

// ahead calls sort for the parts from first to end, and emit for one after the other: while parts are given away, those
// behind are sorted. Errors: those of emit; a panic of sort.
func ahead(first, end int, sort func(part int), emit func(part int) error) error {
	var sorted [parts]chan error
	for part := first; part < end; part++ {
		sorted[part] = make(chan error, 1)
	}
	n := runtime.GOMAXPROCS(0)
	next, room, done := atomic.Int64{}, make(chan struct{}, aheadOf*n), make(chan struct{})
	next.Store(int64(first))
	var work crash.WaitGroup
	defer work.Wait()
	defer close(done)
	for range n {
		work.Go(func() {
			for {
				select { // before it takes a part, so that the one that is waited for has room
				case room <- struct{}{}:
				case <-done:
					return
				}
				part := int(next.Add(1) - 1)
				if part >= end {
					return
				}
				sorted[part] <- crash.Catch(func() error { sort(part); return nil })
			}
		})
	}
	for part := first; part < end; part++ {
		err := <-sorted[part]
		if err == nil {
			err = emit(part)
		}
		if err != nil {
			return err
		}
		<-room
	}
	return nil
}

// deal gives the k-mers of each part. Those of a table lie in no order: every core brings some to their places, for one
// alone takes longer than counting them did.
func (x counted) deal() []counted {
	n, threads := len(x.counts), runtime.GOMAXPROCS(0)
	begins := make([][parts]int, threads) // of what a core has of each part
	beside := func(do func(i int, begins *[parts]int)) {
		var work crash.Group
		for t := range threads {
			work.Go(func() error {
				for i := n * t / threads; i < n*(t+1)/threads; i++ {
					do(i, &begins[t])
				}
				return nil
			})
		}
		work.Wait()
	}
	beside(func(i int, begins *[parts]int) { begins[x.part(i)]++ })
	dealt, out, at := newCounted(x.words, n), make([]counted, parts), 0
	for part := range parts {
		first := at
		for t := range begins {
			begins[t][part], at = at, at+begins[t][part]
		}
		out[part] = counted{x.words, dealt.mixes[first*x.words : at*x.words], dealt.counts[first:at]}
	}
	beside(func(i int, begins *[parts]int) {
		to := &begins[x.part(i)]
		copy(dealt.mix(*to), x.mix(i))
		dealt.counts[*to] = x.counts[i]
		*to++
	})
	return out
}

// part is the part of a k-mer.
func (x counted) part(i int) int { return int(x.mixes[i*x.words] >> (64 - partBits)) }

func (x *tabled) close() error {
	_, err := x.stop() // what went wrong in counting was told, or nobody waits for the counts
	if x.table != nil {
		err = errors.Join(err, x.table.close())
	}
	if x.st != nil {
		err = errors.Join(err, x.st.Close())
	}
	return errors.Join(err, x.length.Free(), x.memory.Free())
}

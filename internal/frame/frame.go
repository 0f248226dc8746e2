package frame

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/witness"
	"github.com/warpmap/warpmap/table"
)

// Frame is what a table has beside its algorithm: the device, a lock, the order of its operations on several streams,
// staging for Go slices, and memory that batches need in passing. A family's table has one, and calls it; it knows nothing of
// the family but its name.
//
// The lock is held while a call decides and queues. It guards the frame and whatever the family keeps beside it.
type Frame struct {
	Device *device.Device
	Family table.Family
	Why    string // see Options
	// MaxBytes is the options' MaxBytes, once they are complete. Budget asks it.
	MaxBytes int64

	order   Order
	Stage   Stage // carries Go slices
	closed  bool
	broken  error               // of a change that broke off in the middle
	changes uint64              // calls that may have changed the table: see Chunks
	perKey  float64             // values that a key of the last FindAll had on average; 0: not known
	free    func() error        // see Open
	opened  uint64              // its number among the open tables
	scratch device.Slice[byte]  // see Scratch; empty while it is lent
	refused device.Slice[byte]  // see bitmap
	ordered device.Slice[byte]  // where batches are brought in order; kept for the next; empty while it is lent
	landing device.Host[uint64] // where Counters come to
	// users are the streams that may be using the table's memory: that of the present writer, which has waited for all others.
	users     []*device.Stream
	callbacks map[string]callback // compiled, by their text: see call
	distincts map[int]device.Kernel[distinctParams]
}

// Open makes the frame of a table of that family on the device, and then the family's part. begin makes that part, with
// work on the device's own stream. free, which is called once in the end, frees it, or what there is of it after an
// error.
func (f *Frame) Open(family table.Family, d *device.Device, begin, free func() error) (err error) {
	if d == nil || d.Stream() == nil {
		return fmt.Errorf("%s: no device (see device.Open)", family)
	}
	f.Device, f.Family, f.free = d, family, free
	f.order.Init(d)
	f.Stage.Init(d)
	f.opened = opened.add(d)
	f.users = []*device.Stream{d.Stream()}
	if f.landing, err = device.MakeHost[uint64](d, landingWords); err == nil {
		f.refused, err = device.MakePooled[byte](d, leastPart/8)
	}
	if err == nil {
		if err = f.refused.Fill(nil, 0); err == nil {
			err = begin()
		}
	}
	if err == nil { // operations on other streams come behind what begin has put on the device's own
		err = f.order.markWrite(d.Stream())
	}
	if err != nil {
		d.Stream().Sync()
		f.Close()
	}
	return err
}

// Unmade makes the core of a table that no constructor has made, for zero values: all operations on its frame return an
// error, which says what that is.
func Unmade[C any](frame func(*C) *Frame, family table.Family, what string) *C {
	c := new(C)
	f := frame(c)
	f.Family, f.broken = family, fmt.Errorf("%s: %s", family, what)
	return c
}

// Or is a core, or where no constructor has made that, unmade.
func Or[C any](core, unmade *C) *C {
	if core == nil {
		return unmade
	}
	return core
}

// MustBeMade panics if no constructor has made the table. It is for methods without an error.
func (f *Frame) MustBeMade() {
	if f.Device == nil {
		panic(f.broken.Error())
	}
}

// CheckOn checks the device arguments of a batch: see table.Family.CheckNamedOn.
func (f *Frame) CheckOn(names string, st *device.Stream, slices ...DeviceSlice) error {
	if f.Device == nil {
		return f.broken
	}
	return f.Family.CheckNamedOn(names, f.Device, st, slices...)
}

// Locked runs do with the table's lock held, unless the table is closed.
func (f *Frame) Locked(do func() error) error {
	f.order.Lock()
	defer f.order.Unlock()
	if f.closed {
		return fmt.Errorf("%s: %w", f.Family, table.ErrClosed)
	}
	if f.broken != nil {
		return f.broken
	}
	return OneLine(do())
}

// Usable is an error if the table is closed. It is for operations that take memory before they have the lock, so that a
// closed table tells that it is closed, and not that memory is short.
func (f *Frame) Usable() error { return f.Locked(func() error { return nil }) }

// Guard runs do with the table's lock held, closed or not.
func (f *Frame) Guard(do func()) {
	f.order.Lock()
	defer f.order.Unlock()
	do()
}

// Reading runs queue with the lock held: it puts work on the stream (nil: the device's own) that only reads the table.
func (f *Frame) Reading(st *device.Stream, queue func(st *device.Stream) error) error {
	return f.Locked(func() error {
		return f.order.Read(st, func() error { return queue(f.order.stream(st)) })
	})
}

// ReadingSeen does what Reading does, on the device's own stream, once look has waited for it and read the counters.
func (f *Frame) ReadingSeen(look func(*device.Stream) (int64, error), queue func(st *device.Stream) error) error {
	return f.Reading(nil, func(st *device.Stream) error {
		if _, err := look(st); err != nil {
			return err
		}
		return queue(st)
	})
}

// Writing runs queue with the lock held: it puts work on the stream (nil: the device's own) that changes the table.
func (f *Frame) Writing(st *device.Stream, queue func(st *device.Stream) error) error {
	begun := false
	return f.writing(st, &begun, func(st *device.Stream) error {
		begun = true
		return queue(st)
	})
}

// writing does what Writing does. A call that is refused breaks the table once queue has set begun. So does a kernel that
// cannot be loaded behind one that was launched; the first of an operation does not, and can be tried again.
func (f *Frame) writing(st *device.Stream, begun *bool, queue func(st *device.Stream) error) error {
	return f.Locked(func() error {
		var launches uint64 // of all tables of the device: breaking is on the safe side
		err := f.alone(st, func(st *device.Stream) error {
			f.changes++
			launches = f.Device.Launches()
			return queue(st)
		})
		if err != nil && *begun && (errors.As(err, new(*device.CallError)) ||
			errors.As(err, new(interface{ Unloaded() })) && f.Device.Launches() > launches) {
			f.broken = &device.CallError{Broken: true,
				Err: fmt.Errorf("%s: a change broke off in the middle, make a new table: %w", f.Family, err)}
			return f.broken
		}
		return err
	})
}

// Alone does what Writing does, for work that leaves the table as it is, but uses its scratch memory or its counters.
func (f *Frame) Alone(st *device.Stream, queue func(st *device.Stream) error) error {
	return f.Locked(func() error { return f.alone(st, queue) })
}

func (f *Frame) alone(st *device.Stream, queue func(st *device.Stream) error) error {
	return f.order.Write(st, func() error {
		st := f.order.stream(st)
		f.users = []*device.Stream{st}
		return queue(st)
	})
}

// WritingBoth does what Writing does, for two different tables of one device at once. Whoever needs two takes them in
// one order, so that nobody waits for another who waits for him.
func (f *Frame) WritingBoth(other *Frame, st *device.Stream, queue func(st *device.Stream) error) error {
	first, then := f, other
	if other.opened < f.opened {
		first, then = other, f
	}
	begun := false // not before both are held: one that is broken already does not break the other
	return first.writing(st, &begun, func(st *device.Stream) error {
		if f.Device != other.Device {
			return fmt.Errorf("%s: the two tables are on different devices, %v and %v", f.Family, f.Device, other.Device)
		}
		return then.writing(st, &begun, func(st *device.Stream) error {
			begun = true
			return queue(st)
		})
	})
}

// WritingFrom does what Writing does, on the device's own stream, as a reader of another table of the device: what breaks
// off there leaves that whole. Whoever needs two takes them in one order, as for WritingBoth.
func (f *Frame) WritingFrom(other *Frame, queue func(st *device.Stream) error) error {
	st := f.Device.Stream()
	writing := func(queue func() error) error {
		return f.Writing(st, func(*device.Stream) error { return queue() })
	}
	reading := func(queue func() error) error {
		return other.Reading(st, func(*device.Stream) error { return queue() })
	}
	outer, inner := writing, reading
	if other.opened < f.opened {
		outer, inner = reading, writing
	}
	return outer(func() error { return inner(func() error { return queue(st) }) })
}

// Using does what Writing does, for a kernel of the user's that is to insert up to `room` items. Before that, look,
// which may be nil, waits for the stream and counts.
func (f *Frame) Using(st *device.Stream, room int, look func(*device.Stream) (int64, error), queue func(st *device.Stream) error) error {
	if err := f.CheckOn("", st); err != nil {
		return err
	}
	if room < 0 || room > 1<<46 {
		return fmt.Errorf("%s: room for %d items (want 0 to 2⁴⁶)", f.Family, room)
	}
	return f.Writing(st, func(st *device.Stream) error {
		if look != nil {
			if _, err := look(st); err != nil {
				return err
			}
		}
		return queue(st)
	})
}

// Batch carries Go slices to op, chunk by chunk: see Stage.Run.
func (f *Frame) Batch(n int, cols []Column, op ChunkOp) error {
	if err := f.Locked(func() error { return nil }); err != nil {
		return err
	}
	err := f.Stage.Run(n, cols, op)
	if errors.Is(err, table.ErrClosed) && err == table.ErrClosed { // closed since
		err = fmt.Errorf("%s: %w", f.Family, err)
	}
	return err
}

// Threads is the number of threads of a block, for kernels that take an item to a lane.
const Threads = 256

// Grid covers n items that lanes work on alone. A GPU gets at most the given number of blocks for each multiprocessor,
// and its threads go on in strides. On the CPU one lane of a block does the work of all, for items in a row, so blocks
// are of few lanes and many items; a worker that is done takes the next block. No thread has more than mostOfLane.
func (f *Frame) Grid(n, blocks int64) device.Grid { return gridOf(f.Device.Info(), n, blocks) }

// FedGrid is a Grid for kernels that give a lane the next item as soon as it is done (kernel/drive.cuh). On a GPU each
// lane has several items, where that leaves leastBlocks for each multiprocessor: on an H200 warpcore's look-ups of 1, 4
// and 10 million keys run at 19.6, 31.7 and 31.7 G/s so, and at 14.8, 18.6 and 23.7 with an item or two a lane. Kernels
// whose lanes take items in strides, or ask for them far ahead, as slab's, gph's and stadium's, are slower so.
func (f *Frame) FedGrid(n, blocks int64) device.Grid { return fedGridOf(f.Device.Info(), n, blocks) }

func fedGridOf(info device.Info, n, blocks int64) device.Grid {
	if info.CUDA() && !info.Stress {
		blocks = min(blocks, max(leastBlocks, n/(Threads*fewOfLane*int64(info.Multiprocessors))))
	}
	return gridOf(info, n, blocks)
}

// LongGrid is a Grid for kernels whose lanes keep what they learn for the items that follow: on the CPU its blocks are
// longer, but there are still some for each worker.
func (f *Frame) LongGrid(n, blocks int64) device.Grid {
	info := f.Device.Info()
	g := gridOf(info, n, blocks)
	if !info.CUDA() && !info.Stress {
		items := min(max(n/(longBlocks*int64(info.Multiprocessors)), cpuItems), cpuItemsLong)
		g.Blocks = max(1, (n+items-1)/items)
	}
	return g
}

// BlockGrid covers n items by blocks of Threads threads that work together. On a GPU it is Grid.
func (f *Frame) BlockGrid(n, blocks int64) device.Grid {
	if !f.Device.Info().CUDA() {
		return device.GridFor(n, Threads)
	}
	return f.Grid(n, blocks)
}

const (
	// mostOfLane is how many items a thread of a Grid has at most: kernels count what they did with them in 16 bits.
	mostOfLane = 1 << 14
	// A thread of a FedGrid has fewOfLane items or more, where that leaves leastBlocks for each multiprocessor.
	fewOfLane, leastBlocks = 32, 8
	// A block of the CPU device has cpuItems items, which take 50 to 500 µs, so that workers end at about one time, and
	// batches of fewer items run on the caller's thread; and the lanes of one warp.
	cpuItems, cpuThreads = 1 << 13, 32
	// A LongGrid has so many blocks for each worker at least, of so many items at most.
	longBlocks, cpuItemsLong = 4, 1 << 18
)

func gridOf(info device.Info, n, blocks int64) device.Grid {
	switch {
	case info.Stress: // many warps at once, with an item a lane: what they do to one another is what is looked for
		return device.GridFor(n, Threads)
	case !info.CUDA():
		return device.Grid{Blocks: max(1, (n+cpuItems-1)/cpuItems), Threads: cpuThreads}
	}
	const most = Threads * mostOfLane
	g := device.GridFor(n, Threads)
	g.Blocks = min(g.Blocks, max(int64(info.Multiprocessors)*blocks, (n+most-1)/most))
	return g
}

// WarpGrid has a warp for each of n items, or on the CPU what grid gives for as many lanes.
func (f *Frame) WarpGrid(n int64, grid func(items int64) device.Grid) device.Grid {
	if f.Device.Info().CUDA() {
		return device.GridFor(32*max(1, n), Threads)
	}
	return grid(32 * max(1, n))
}

// Spanned covers n items by blocks that take span items in a row.
func Spanned(n, span int64) device.Grid {
	return device.Grid{Blocks: max(1, (n+span-1)/span), Threads: Threads}
}

// Align rounds up to where a column may begin.
func Align(bytes int64) int64 { return (bytes + 255) &^ 255 }

// Make does what device.MakePooled does. Where memory is short, the table first gives back what it keeps for the next
// batch, and the device what it keeps for staging, but never what is lent: see Lease. The caller is in Writing.
func Make[T any](f *Frame, n int64) (device.Slice[T], error) {
	s, err := device.MakePooled[T](f.Device, int(n))
	if device.IsOutOfMemory(err) {
		f.Spare()
		ReleaseStaging(f.Device)
		s, err = device.MakePooled[T](f.Device, int(n))
	}
	return s, err
}

// Free gives memory of the table back behind the work that is queued on it, such as memory that a rebuild leaves. It
// waits for nothing if the memory is of Make. Zero slices, and Counters that were not made, have none. The caller is in
// Writing, or in Open or Close.
func (f *Frame) Free(parts ...interface {
	FreeAfter(...*device.Stream) error
}) (err error) {
	for _, p := range parts {
		err = errors.Join(err, p.FreeAfter(f.users...))
	}
	return err
}

func (f *Frame) release(s *device.Slice[byte]) error {
	freed := *s
	*s = device.Slice[byte]{}
	return f.Free(freed)
}

// ReadingAlone lets a caller in Reading use scratch memory, as if it were in Writing. The caller waits for the stream
// before it ends.
func (f *Frame) ReadingAlone(st *device.Stream) { f.users = []*device.Stream{st} }

// Lease is memory that a table lends of what it keeps for batches. Until Done it is its holder's alone: whatever is allocated meanwhile, and
// however short memory is, nobody frees it, and others that need scratch memory get another piece.
type Lease struct {
	Mem  device.Slice[byte]
	f    *Frame
	kept *device.Slice[byte] // where the frame keeps it while it is not lent
}

// lend takes what the frame keeps there.
func (f *Frame) lend(kept *device.Slice[byte]) Lease {
	l := Lease{*kept, f, kept}
	*kept = device.Slice[byte]{}
	return l
}

// Done ends the lease: the memory is kept for the next batch, whose work comes behind all that is queued now. A second call, and that of a zero
// Lease, do nothing. The caller is where the lease began, in Writing.
func (l *Lease) Done() {
	if l.f == nil {
		return
	}
	other := *l.kept // what was lent and is back
	*l.kept = l.Mem
	l.f.Free(other) // an error is the device's, which returns it again
	*l = Lease{}
}

// Scratch lends memory of so many bytes, at least. The caller is in Writing, so that whoever uses it next comes behind.
func (f *Frame) Scratch(bytes int64) (l Lease, err error) { return f.lendOf(&f.scratch, bytes) }

// LargeScratch does what Scratch does, with the memory in which batches are brought in order: for a caller that wants as much, and brings none in
// order meanwhile.
func (f *Frame) LargeScratch(bytes int64) (l Lease, err error) { return f.lendOf(&f.ordered, bytes) }

func (f *Frame) lendOf(kept *device.Slice[byte], bytes int64) (l Lease, err error) {
	if int64(kept.Len()) < bytes {
		if err := f.release(kept); err != nil {
			return l, err
		}
		if *kept, err = Make[byte](f, bytes); err != nil {
			return l, err
		}
	}
	return f.lend(kept), nil
}

// Spare gives back the memory that is kept for the next batch, except what is lent: a table that grows may need it
// more. An allocation that finds too little waits for what is given back. The caller is in Writing.
func (f *Frame) Spare() error {
	return errors.Join(f.release(&f.ordered), f.release(&f.scratch))
}

// Tell completes Stats that have Len and Capacity. It sets the load factor, the memory in passing, and the probe
// lengths, by a histogram of len(Stats.Probes) bins with the sum of all behind them. Without a histogram, every look-up
// that hits reads once.
func (f *Frame) Tell(s *table.Stats, histogram []uint64) {
	s.Family, s.Why = f.Family, f.Why
	s.LoadFactor = float64(s.Len) / float64(s.Capacity)
	s.ScratchBytes = int64(f.scratch.Len() + f.ordered.Len() + f.refused.Len())
	onDevice, pinned := StagingBytes(f.Device)
	s.StagingBytes = onDevice + pinned
	sum := uint64(s.Len)
	if s.Probes[0] = s.Len; histogram != nil {
		for i := range s.Probes {
			s.Probes[i] = int(histogram[i])
		}
		sum = histogram[len(s.Probes)]
	}
	if s.Len > 0 {
		s.MeanProbes = float64(sum) / float64(s.Len)
	}
}

// Measure implements a table's Stats: look waits for the stream and counts, probes runs a kernel that adds to a
// histogram of len(Stats.Probes) bins and the sum, and tell says what the family knows.
func (f *Frame) Measure(look func(*device.Stream) (int64, error), probes func(st *device.Stream, histogram uint64) error, tell func(live int64) table.Stats) (s table.Stats, err error) {
	err = f.Alone(nil, func(st *device.Stream) error { // the histogram is scratch memory
		live, err := look(st)
		if err != nil {
			return err
		}
		h, err := f.Histogram(st, len(s.Probes)+1, func(addr uint64) error { return probes(st, addr) })
		if err != nil {
			return err
		}
		s = tell(live)
		f.Tell(&s, h)
		return nil
	})
	return s, err
}

// Count implements a table's Len: look waits for the stream and counts.
func (f *Frame) Count(look func(*device.Stream) (int64, error)) (n int, err error) {
	err = f.Reading(nil, func(st *device.Stream) error {
		live, err := look(st)
		n = int(live)
		return err
	})
	return n, err
}

// GrowTo implements a table's Grow to n items in all: look waits for the stream and counts, grow makes the room.
func (f *Frame) GrowTo(n int, look func(*device.Stream) (int64, error), grow func(st *device.Stream, live int64) error) error {
	if n < 0 || n > 1<<46 {
		return fmt.Errorf("%s: grow to %d pairs (want 0 to 2⁴⁶)", f.Family, n)
	}
	return f.Writing(nil, func(st *device.Stream) error {
		live, err := look(st)
		if err != nil {
			return err
		}
		return grow(st, live)
	})
}

// AtMaxBytes is the error of a table that does not grow because of MaxBytes.
func AtMaxBytes(limit int64) error {
	return fmt.Errorf("%w (%s)", table.ErrMaxBytes, device.Bytes(limit))
}

// Budget returns an error if a table's own memory of so many bytes, all of it together, is more than MaxBytes allows.
// Whoever allocates any of it, or lays it anew, asks before, and Check asks afterwards: so a wrong plan is refused
// instead of exceeding the bound.
func (f *Frame) Budget(bytes int64) error {
	if f.MaxBytes > 0 && bytes > f.MaxBytes {
		return fmt.Errorf("%s: a table of %d bytes, more than allowed: %w", f.Family, bytes, AtMaxBytes(f.MaxBytes))
	}
	return nil
}

// NoRoomFor is the error of a Grow to n pairs that would take so many bytes.
func (f *Frame) NoRoomFor(n int, bytes, limit int64) error {
	return fmt.Errorf("%s: room for %d pairs takes %s: %w", f.Family, n, device.Bytes(bytes), AtMaxBytes(limit))
}

// Close implements a table's Close: it waits for all work on the table, and frees its memory. A second call does
// nothing.
func (f *Frame) Close() error {
	defer f.Stage.Close() // without the lock, which a batch that holds the stage may wait for
	f.order.Lock()
	defer f.order.Unlock()
	if f.closed || f.Device == nil {
		return nil
	}
	f.closed = true
	opened.remove(f.opened)
	busy, err := f.order.Idle()
	f.order.Close()
	f.users = busy
	err = OneLine(errors.Join(err, f.Spare(), f.release(&f.refused), f.free(), f.landing.Free()))
	if errors.Is(err, device.ErrClosed) {
		return nil // the device freed all
	}
	return err
}

// Inspect downloads a table's memory for its Check. look waits for the stream and reads the counters; walk walks the
// invariants.
func (f *Frame) Inspect(look func(*device.Stream) (int64, error), mem func() device.Slice[byte], walk func(mem []byte) error) error {
	return f.ReadingSeen(look, func(st *device.Stream) error {
		image, err := Host(st, mem())
		if err != nil {
			return err
		}
		return walk(image)
	})
}

// Counters is a struct of counts in device memory, each u64, to which kernels add. Seen is what the host last saw of
// it.
type Counters[T any] struct {
	Seen T

	counts
}

// counts are Counters whatever their names.
type counts struct {
	f   *Frame
	mem device.Slice[uint64]
}

// landingWords is the most counts of a Counters.
const landingWords = 64

// words are the counts.
func words[T any](counts *T) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(counts)), unsafe.Sizeof(*counts)/8)
}

// Make makes the counters, all 0 on the stream. The caller is in Writing or Open.
func (c *Counters[T]) Make(f *Frame, st *device.Stream) error { return c.make(f, st, words(&c.Seen)) }

func (c *counts) make(f *Frame, st *device.Stream, seen []uint64) (err error) {
	c.f = f
	if c.mem, err = Make[uint64](f, int64(len(seen))); err == nil {
		err = c.clear(st, seen)
	}
	return err
}

// Addr is the counters' device address.
func (c *counts) Addr() uint64 { return c.mem.Addr() }

// Look waits for the stream, and reads the counters into Seen. The caller holds the lock.
func (c *Counters[T]) Look(st *device.Stream) error { return c.look(st, words(&c.Seen)) }

func (c *counts) look(st *device.Stream, seen []uint64) error {
	err := errors.Join(c.mem.ReadAsync(st, c.f.landing, c.mem.Len()), st.SyncOf(c.f.Device))
	if err == nil {
		copy(seen, c.f.landing.Slice())
	}
	return err
}

// Set writes Seen back.
func (c *Counters[T]) Set(st *device.Stream) error { return c.mem.Write(st, words(&c.Seen)) }

// ClearFrom sets the counters to 0 on the device, from an offset in bytes on, and leaves those before.
func (c *counts) ClearFrom(st *device.Stream, offset uintptr) error {
	raw := c.mem.Raw()
	return raw.Slice(int(offset), raw.Len()).Fill(st, 0)
}

// Clear sets all to 0.
func (c *Counters[T]) Clear(st *device.Stream) error { return c.clear(st, words(&c.Seen)) }

func (c *counts) clear(st *device.Stream, seen []uint64) error {
	clear(seen)
	return c.mem.Fill(st, 0)
}

// FreeAfter frees the memory: see Frame.Free. Counters that were not made have none.
func (c *counts) FreeAfter(streams ...*device.Stream) error {
	mem := c.mem
	c.mem = device.Slice[uint64]{}
	return mem.FreeAfter(streams...)
}

// Histogram gives so many words of u64, which begin as 0. launch's kernel adds to them, at the address that launch is
// given. The caller is in Writing.
func (f *Frame) Histogram(st *device.Stream, words int, launch func(addr uint64) error) ([]uint64, error) {
	mem, err := f.Scratch(8 * int64(words))
	if err != nil {
		return nil, err
	}
	defer mem.Done()
	h := device.View[uint64](mem.Mem, 0, words)
	if err := InTurn(
		func() error { return h.Fill(st, 0) },
		func() error { return launch(h.Addr()) },
	); err != nil {
		return nil, err
	}
	return h.Host(st)
}

// opened are the tables that are not closed.
var opened openTables

type openTables struct {
	mu    sync.Mutex
	last  uint64
	where map[uint64]openTable
}

type openTable struct {
	d   *device.Device
	pcs [6]uintptr
}

func (o *openTables) add(d *device.Device) uint64 {
	x := openTable{d: d}
	runtime.Callers(3, x.pcs[:])
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.where == nil {
		o.where = map[uint64]openTable{}
	}
	o.last++
	o.where[o.last] = x
	return o.last
}

func (o *openTables) remove(number uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.where, number)
}

// any tells whether the device has an open table.
func (o *openTables) any(d *device.Device) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, x := range o.where {
		if x.d == d {
			return true
		}
	}
	return false
}

// OpenTables lists the device's tables that are not closed, by where they were made, for tests that must not forget
// any. A table of a device that is closed is still open.
func OpenTables(d *device.Device) (list []string) {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	for _, x := range opened.where {
		if x.d != d {
			continue
		}
		frames, calls := runtime.CallersFrames(x.pcs[:]), []string{}
		for {
			c, more := frames.Next()
			if c.Line > 0 {
				calls = append(calls, fmt.Sprintf("%s:%d", c.File, c.Line))
			}
			if !more {
				break
			}
		}
		list = append(list, strings.Join(calls, " < "))
	}
	slices.Sort(list)
	return list
}

// AheadOfFinds begins to compile a table's kernel for look-ups, unless its work is known to have none.
func AheadOfFinds(w table.Work, find interface{ Ahead() error }) error {
	if w.Inserts > 0 && w.Finds == 0 {
		return nil
	}
	return find.Ahead()
}

// AheadOfLate loads a table's kernels for large batches at once on a device that compiles for GPUs of others. Nothing
// runs there: tables stay empty, so that some are never moved, and nobody learns how many keys a batch has.
func AheadOfLate(d *device.Device, load func() bool) {
	if ahead(d) {
		load()
	}
}

// ahead tells whether a device compiles for GPUs of others, in the background: Device.Ready waits, and tells what is wrong.
func ahead(d *device.Device) bool { return d.Info().CUDA() && witness.ForOthers(d) }

// Late are kernels that are compiled when they are first needed, and that a table can do without.
type Late struct{ asked, loaded bool }

// Load compiles the kernels when it is first called, and tells whether they are there. If there is no compiler for
// them, they never are, and Load does not try again.
func (l *Late) Load(d *device.Device, program func() *device.Program, bind func(m *device.Module) error) bool {
	if !l.asked {
		m, err := d.CompileApart(program())
		if err == nil {
			err = bind(m)
		}
		if err == nil && !ahead(d) {
			err = m.Ready()
		}
		l.asked, l.loaded = true, err == nil
	}
	return l.loaded
}

// Loaded tells whether the kernels are there.
func (l *Late) Loaded() bool { return l.loaded }

// Needed are kernels that are compiled when they are first needed.
type Needed struct{ ready bool }

// Load compiles the kernels, unless they are there already.
func (n *Needed) Load(d *device.Device, program func() *device.Program, bind func(m *device.Module) error) error {
	if n.ready {
		return nil
	}
	m, err := d.CompileApart(program())
	if err == nil {
		err = bind(m)
	}
	n.ready = err == nil
	return err
}

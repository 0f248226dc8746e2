package frame

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bulk"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/huge"
	"github.com/warpmap/warpmap/table"
)

// Column is a Go slice seen as bytes: one argument of a batch.
type Column struct {
	p    unsafe.Pointer // nil for a column that is left out
	n    int            // elements
	size int            // bytes of each
	out  bool

	pinned device.Host[byte] // the same memory, where it is of device.MakeHost: then it is copied without staging
	direct bool

	own device.Slice[byte] // where its items lie on the device; without, they lie in a slot

	past bool // it is copied past the caches
	huge bool // what is copied to it is cut where huge pages begin
}

// In gives a column that the device reads. A nil slice, or one whose elements have no bytes, gives a column that is
// left out, at address 0.
func In[T any](s []T) Column { return column(s, false) }

// Out gives a column that the device writes. Otherwise it is as In.
func Out[T any](s []T) Column { return column(s, true) }

func column[T any](s []T, out bool) Column {
	var zero T
	c := Column{n: len(s), size: int(unsafe.Sizeof(zero)), out: out}
	if c.size > 0 {
		c.p = unsafe.Pointer(unsafe.SliceData(s))
	}
	return c
}

// optional does what OptionalLen does, for the slice.
func (c *Column) optional() int {
	if c.p == nil {
		return -1
	}
	return c.n
}

// check says why c cannot be a column of a batch of n items.
func (c *Column) check(n int) error {
	if c.p != nil && c.n < n {
		return fmt.Errorf("table: a column of %d elements in a batch of %d", c.n, n)
	}
	return nil
}

// bytes are the column's items first … first+n-1.
func (c *Column) bytes(first, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(c.p, first*c.size)), n*c.size)
}

// on is the device's memory of a chunk's items, which stand at a byte of the slot if it is there that they lie.
func (c *Column) on(slot *stageSlot, at int) device.Slice[byte] {
	if c.own.Len() > 0 {
		at = slot.first * c.size
		return c.own.Slice(at, at+slot.n*c.size)
	}
	return slot.mem.Slice(at, at+slot.n*c.size)
}

// Stage carries a table's batches of Go slices through a device, in chunks: while one chunk's kernel runs, the next are copied
// in and those before are copied out. Slices of pinned memory (device.MakeHost) go straight. Batches may run beside each
// other. The pinned buffers, device buffers and streams are the device's, which all its tables share: see StagingBytes.
type Stage struct {
	Chunk int // items of a chunk at most; 0 means as many as fit

	copies bool // is of no table, and a batch that would have to wait for its first slot does nothing

	mu     sync.RWMutex // held for reading by each batch
	d      *device.Device
	closed bool
	member atomic.Bool // counted among the tables that use the device's slots
}

// Init names the device.
func (s *Stage) Init(d *device.Device) { s.d = d }

// ChunkOp is what a family does with one chunk of a batch: items first … first+n-1, with the columns' device addresses. It
// queues work on the stream. It may take the table's lock; it must not run another batch.
type ChunkOp func(st *device.Stream, first, n int, addr []uint64) error

// Run calls op for each chunk of a batch of n items, in order, and returns when every output is in its Go slice, or with the
// first error: then op is not called again, and nothing of the batch is under way. On the CPU device the slices are device
// memory already, so the whole batch is one chunk. The caller holds no lock that another batch's op may wait for.
//
// Errors: ErrClosed; device.ErrClosed; a column that is too short; op's; *device.OutOfMemoryError, but only before op is first
// called, where not even a chunk of 4 KiB has room. A panic of op goes on to the caller, once nothing of the batch is under way.
func (s *Stage) Run(n int, cols []Column, op ChunkOp) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return table.ErrClosed
	}
	for i := range cols {
		if err := cols[i].check(n); err != nil {
			return err
		}
	}
	if n == 0 {
		return nil
	}
	defer runtime.KeepAlive(cols)
	if addr, ok := borrow(s.d, cols); ok {
		return op(s.d.Stream(), 0, n, addr)
	}
	p := stagingOf(s.d)
	if !s.copies && !s.member.Swap(true) {
		p.join()
	}
	b := newStaged(p, n, s.Chunk, cols)
	b.modest = s.copies
	b.run(op)
	if b.crash != nil {
		panic(b.crash)
	}
	return b.err
}

// Close waits for the batches under way. The last table of a device frees the buffers.
func (s *Stage) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.closed
	s.closed = true
	if !first || s.d == nil {
		return
	}
	if p := stagingOf(s.d); s.member.Load() {
		p.leave()
	} else {
		p.unused()
	}
}

// staged is one batch on its way through the device's slots.
type staged struct {
	p     *staging
	cols  []Column
	n     int
	chunk int          // items, at most
	width int          // bytes of an item in all columns
	next  int          // the first item that no slot holds yet
	ahead []*stageSlot // filled, or being filled, in order; op is not done with them

	modest bool // waits for none before it has one, and takes none that is small

	// Guarded by p.mu.
	held  int        // slots
	most  int        // of them
	spare *stageSlot // is kept, so that one is there until the end
	ended bool

	drains crash.WaitGroup
	passed chan struct{} // closed when the device is done with the chunk that was launched last; nil before the first

	mu    sync.Mutex
	err   error // the first
	crash any   // what a copy panicked with
}

// stageLeast is a chunk's bytes where it makes no sense to have smaller ones: a batch of a few of them is cut for the sake of
// copies in, kernels and copies out at the same time.
const stageLeast = 1 << 20

// stageRamp is the bytes of the first chunk of many, and of the last.
const stageRamp = 2 << 20

const (
	// stagePast is a batch's bytes from which on its copies go past the caches: its user has not all of it in them when it ends. A core copies up to
	// twice as fast so.
	stagePast = 8 << 20
	// stageHuge is the bytes of an output from which on it is asked to lie on huge pages. Where its pages are new, the system clears them when they
	// are first written, and two who write to one at a time would clear it twice.
	stageHuge = 32 << 20
)

func newStaged(p *staging, n, chunk int, cols []Column) *staged {
	b := &staged{p: p, cols: slices.Clone(cols), n: n, most: p.tune.slots}
	for i := range b.cols {
		if c := &b.cols[i]; c.p != nil {
			b.width += c.size
			c.pinned, c.direct = p.d.Pinned(c.p, n*c.size)
		}
	}
	for i := range b.cols {
		c, bytes := &b.cols[i], n*b.cols[i].size
		if c.p == nil || c.direct {
			continue
		}
		past := p.tune.pastIn
		if c.out {
			past = p.tune.pastOut
			if c.huge = bytes >= p.tune.huge; c.huge {
				huge.Advise(uintptr(c.p), uintptr(bytes))
			}
		}
		c.past = past && n*b.width >= stagePast
	}
	b.chunk = n
	if b.width > 0 {
		most := max(1, b.fit(p.tune.slot))
		chunks := max((n+most-1)/most, min(p.tune.slots, n*b.width/stageLeast), 1)
		b.chunk = (n + chunks - 1) / chunks
	}
	if chunk > 0 {
		b.chunk = min(b.chunk, chunk)
	}
	return b
}

// fit is how many items so many bytes hold: the columns stand one behind the other, each aligned to 256 bytes.
func (b *staged) fit(bytes int) int {
	if b.width == 0 {
		return b.n
	}
	return (bytes - 256*len(b.cols)) / b.width
}

// need is how many bytes n items take.
func (b *staged) need(n int) int { return n*b.width + 256*len(b.cols) }

// offsets are where the columns of a chunk of n items stand.
func (b *staged) offsets(n int) (at []int) {
	o := 0
	for _, c := range b.cols {
		at = append(at, o)
		if c.p != nil {
			o += (n*c.size + 255) &^ 255
		}
	}
	return at
}

// run leaves the outcome in err and crash.
func (b *staged) run(op ChunkOp) {
	if b.err = b.p.enter(); b.err != nil {
		return
	}
	defer b.end()
	for done := 0; done < b.n && b.fine(); {
		b.fillAhead()
		if len(b.ahead) == 0 {
			return
		}
		slot := b.ahead[0]
		slot.wait()
		if !b.fine() {
			return
		}
		if err := b.launch(slot, op); err != nil {
			b.fail(err)
			return
		}
		b.ahead = b.ahead[1:]
		before, passed := b.passed, make(chan struct{})
		b.passed = passed
		if done += slot.n; done == b.n {
			b.drain(slot, before, passed)
			continue
		}
		b.drains.Go(func() { b.drain(slot, before, passed) })
	}
}

// end waits until nothing of the batch is under way, whatever happened, and gives the slots back.
func (b *staged) end() {
	for _, slot := range b.ahead {
		slot.wait()
		b.fail(slot.st.Sync()) // columns of pinned memory are the caller's
		b.p.give(b, slot)
	}
	b.drains.Wait()
	b.p.exit(b)
}

// fine tells that the batch may go on.
func (b *staged) fine() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err == nil && b.crash == nil
}

func (b *staged) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
}

// fillAhead fills as many slots as can be had, and waits for one if it has none to go on with.
func (b *staged) fillAhead() {
	for b.next < b.n {
		slot, err := b.p.take(b, len(b.ahead) == 0 && (b.next > 0 || !b.modest))
		if err != nil {
			b.fail(err)
		}
		if slot == nil {
			return
		}
		if b.modest && b.next == 0 && slot.mem.Len() < min(stageLeast, b.p.tune.slot, b.need(b.n)) {
			b.p.give(b, slot)
			return
		}
		b.ahead = append(b.ahead, slot)
		b.fill(slot)
	}
}

// ramp is how many items the next chunk has at most. The first chunks and the last are small: at the beginning nothing can be copied out, and at the end
// nothing is left to be copied in, until a chunk is through.
func (b *staged) ramp() int {
	if b.width == 0 {
		return b.chunk
	}
	least := stageRamp / b.width
	return max(1, min(b.chunk, max(b.next, least), max((b.n-b.next)/2, least)))
}

// fill begins to copy the next items into the slot. Who copies the last piece queues the copies to the device, so that the bus
// does not wait for an op before that waits.
func (b *staged) fill(slot *stageSlot) {
	slot.first, slot.n = b.next, min(b.n-b.next, b.ramp(), b.fit(slot.mem.Len()))
	b.next += slot.n
	slot.begin(func() { b.fail(b.write(slot, false)) })
	b.fail(b.write(slot, true))
	for i, at := range b.offsets(slot.n) {
		if c := &b.cols[i]; c.p != nil && !c.out && !c.direct {
			b.copy(slot, c, slot.pinned.Slice()[at:at+slot.n*c.size], c.bytes(slot.first, slot.n))
		}
	}
	slot.done()
}

// write queues the copies in of the columns that go straight, or of the others.
func (b *staged) write(slot *stageSlot, direct bool) error {
	for i, at := range b.offsets(slot.n) {
		c := &b.cols[i]
		if c.p == nil || c.out || c.direct != direct {
			continue
		}
		from := slot.pinned.Sub(at)
		if direct {
			from = c.pinned.Sub(slot.first * c.size)
		}
		if err := c.on(slot, at).WriteAsync(slot.st, from, slot.n*c.size); err != nil {
			return err
		}
	}
	return nil
}

// launch queues op, and the copies out.
func (b *staged) launch(slot *stageSlot, op ChunkOp) error {
	offsets, addr := b.offsets(slot.n), make([]uint64, len(b.cols))
	for i, at := range offsets {
		if b.cols[i].p != nil {
			addr[i] = b.cols[i].on(slot, at).Addr()
		}
	}
	if err := op(slot.st, slot.first, slot.n, addr); err != nil {
		return err
	}
	for i, at := range offsets {
		c := &b.cols[i]
		if c.p == nil || !c.out {
			continue
		}
		to := slot.pinned.Sub(at)
		if c.direct {
			to = c.pinned.Sub(slot.first * c.size)
		}
		if err := c.on(slot, at).ReadAsync(slot.st, to, slot.n*c.size); err != nil {
			return err
		}
	}
	return nil
}

// drain waits for the chunk in the slot, copies its outputs to where they belong, and gives the slot back. One goroutine at a time
// waits for the device, because the driver waits by spinning, and in the order of the chunks, so that no slot is kept for a later one.
func (b *staged) drain(slot *stageSlot, before <-chan struct{}, passed chan<- struct{}) {
	defer b.p.give(b, slot)
	if before != nil {
		<-before
	}
	next := sync.OnceFunc(func() { close(passed) })
	defer next() // of a panic, too
	err := slot.st.Sync()
	next()
	if err != nil {
		b.fail(err)
		return
	}
	slot.begin(func() {})
	for i, at := range b.offsets(slot.n) {
		if c := &b.cols[i]; c.p != nil && c.out && !c.direct {
			b.copy(slot, c, c.bytes(slot.first, slot.n), slot.pinned.Slice()[at:at+slot.n*c.size])
		}
	}
	slot.done()
	slot.wait()
}

// stageInline is how many bytes are copied at once: to hand them to another goroutine takes longer.
const stageInline = 64 << 10

// copy copies little at once, and hands the rest out in pieces: the slot waits for them.
func (b *staged) copy(slot *stageSlot, c *Column, dst, src []byte) {
	if len(src) <= stageInline {
		b.copyNow(dst, src, c.past)
		return
	}
	for len(src) > 0 {
		n := b.p.tune.piece
		if c.huge {
			n = huge.Page - int(uintptr(unsafe.Pointer(&dst[0]))%huge.Page)
		}
		n = min(n, len(src))
		slot.left.Add(1)
		b.p.copies.add(copyPiece{b, slot, dst[:n], src[:n], c.past}, b.p.tune.copiers)
		dst, src = dst[n:], src[n:]
	}
}

// copyNow keeps a panic, which a fault in the caller's memory becomes here, for the caller: in a goroutine of our own it would
// end the process.
func (b *staged) copyNow(dst, src []byte, past bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if x := recover(); x != nil {
			b.mu.Lock()
			b.crash = x
			b.mu.Unlock()
		}
	}()
	if past {
		bulk.Copy(dst, src)
	} else {
		copy(dst, src)
	}
}

// borrow gives the columns' addresses on the CPU device, where Go slices are device memory already; false on a GPU.
func borrow(d *device.Device, cols []Column) (addr []uint64, ok bool) {
	if d.Info().CUDA() && !ahead(d) { // a device that compiles for others has the host's memory, and large batches come whole
		return nil, false
	}
	addr = make([]uint64, 0, len(cols))
	for _, c := range cols {
		if c.own.Len() > 0 || c.p != nil && uintptr(c.p)%uintptr(c.size) != 0 {
			return nil, false // a copy; values of 16 bytes that Go aligns to 8
		}
		addr = append(addr, uint64(uintptr(c.p)))
	}
	return addr, true
}

// Count counts the true elements.
func Count(flags []bool) int {
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(flags))), len(flags))
	const part = 4 << 20 // one core reads memory more slowly than the bus brings flags
	if len(bytes) <= part {
		return countOnes(bytes)
	}
	var n atomic.Int64
	var wait crash.WaitGroup
	for b := range slices.Chunk(bytes, max(part, (len(bytes)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))) {
		wait.Go(func() { n.Add(int64(countOnes(b))) })
	}
	wait.Wait()
	return int(n.Load())
}

// countOnes counts the bytes that are 1, of bytes that are 0 or 1.
func countOnes(b []byte) (n int) {
	for ; len(b) >= 32; b = b[32:] {
		w := binary.LittleEndian.Uint64(b) | binary.LittleEndian.Uint64(b[8:])<<1
		w |= binary.LittleEndian.Uint64(b[16:])<<2 | binary.LittleEndian.Uint64(b[24:])<<3
		n += bits.OnesCount64(w)
	}
	for _, x := range b {
		n += int(x)
	}
	return n
}

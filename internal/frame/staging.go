package frame

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/crash"
)

// stageTune is how staging is cut to the machine.
type stageTune struct {
	slot    int // bytes of a slot, at most
	slots   int // that batches have before each has no more than one; twice as many with those
	piece   int // bytes that a goroutine copies at a time
	copiers int // goroutines that copy

	pastIn, pastOut bool // large batches are copied in, and out, past the caches
	huge            int  // bytes of an output from which on it is asked to lie on huge pages
}

// By trial on an H200 with 16 cores (BenchmarkStage). Slots are for: one that is filled, the next, one on the bus, one in a kernel, one on the way back,
// one that is copied out, and two more, with which no core waits. Two threads are left to those who launch and who wait for the device. Look-ups of 4+4
// bytes need twice the bus's rate of all cores together. In GB/s each way, of 51 that plain copies do both ways at once:
//
//	copied in, and out     6 × 32 MiB   5 × 16   8 × 16   12 × 8
//	past the caches both         32.5     29.7     33.0     32.9
//	past them out alone          37.7     34.3     45.5     36.8
//	by the caches both           33.2     31.0     38.0     32.5
//
// Inputs alone move at 44 GB/s past the caches and at 50 by them, outputs alone at 50 and at 41 to 51; pinned slices at 47 to 48 each way in all.
func newStageTune() stageTune {
	return stageTune{slot: 16 << 20, slots: 8, piece: 256 << 10, copiers: max(1, min(16, runtime.GOMAXPROCS(0)-2)), pastOut: true, huge: stageHuge}
}

const (
	stageShare = 64       // a slot takes no more than this part of the free device memory
	stageFew   = 64 << 10 // bytes of a slot below which a batch makes do with one; that may take an eighth of the memory
	stageSmall = 4 << 10  // bytes of a slot, at least
)

// staging is what the tables of a device share to stage their batches: slots, which batches borrow for a chunk and give back.
// A batch keeps one to its end, so that it can go on whatever others take. The device carries it, and closes it before itself.
type staging struct {
	d      *device.Device
	tune   stageTune
	copies copier
	bytes  atomic.Int64 // of all slots, in device memory and in pinned memory

	mu     sync.Mutex
	moved  sync.Cond // a slot was given back, or is gone
	idle   []*stageSlot
	made   int  // slots, idle or not
	hungry int  // batches that wait for their first slot: they come before those that want more
	active int  // batches
	users  int  // tables
	short  bool // a table needs the memory: until no batch is active, each has one slot
	closed bool
}

func newStaging(d *device.Device) *staging {
	p := &staging{d: d, tune: newStageTune()}
	p.moved.L = &p.mu
	return p
}

func stagingOf(d *device.Device) *staging { return device.Carried(d, newStaging) }

// StagingBytes tells how much memory of the device, and how much pinned host memory, staging holds for all tables of the device.
func StagingBytes(d *device.Device) (onDevice, pinned int64) {
	n := stagingOf(d).bytes.Load()
	return n, n
}

// ReleaseStaging frees the buffers of staging that no batch uses now, and has the batches under way make do with one
// each. It tells how many bytes of device memory came free: 0 means that it is of no use to try again. It waits for no
// batch, but for what is queued on the device. A table calls it when it has too little memory, even within a batch's
// op.
func ReleaseStaging(d *device.Device) (freed int64) { return stagingOf(d).release() }

func (p *staging) release() (freed int64) {
	p.mu.Lock()
	p.short = p.active > 0
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, slot := range idle {
		freed += int64(slot.mem.Len())
	}
	p.drop(idle...)
	return freed
}

// drop frees slots that nobody else knows.
func (p *staging) drop(slots ...*stageSlot) {
	if len(slots) == 0 {
		return
	}
	for _, slot := range slots {
		p.free(slot)
	}
	p.mu.Lock()
	p.made -= len(slots)
	p.moved.Broadcast()
	p.mu.Unlock()
}

func (p *staging) join() {
	p.mu.Lock()
	p.users++
	p.mu.Unlock()
}

// leave frees all when the last table leaves.
func (p *staging) leave() {
	p.mu.Lock()
	p.users--
	p.mu.Unlock()
	p.unused()
}

// unused frees the idle slots of a device without tables. One that has any has batches or copies to come, of other tables or of theirs.
func (p *staging) unused() {
	p.mu.Lock()
	idle := p.users == 0 && p.active == 0 && len(p.idle) > 0
	p.mu.Unlock()
	if idle && !opened.any(p.d) {
		p.release()
	}
}

func (p *staging) enter() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return p.errClosed()
	}
	p.active++
	return nil
}

func (p *staging) errClosed() error {
	return fmt.Errorf("%s: %w", p.d.Info().Name, device.ErrClosed)
}

// Close ends the batches under way at their next chunk, waits for them, and frees the slots.
func (p *staging) Close() {
	p.mu.Lock()
	p.closed = true
	p.moved.Broadcast()
	for p.active > 0 {
		p.moved.Wait()
	}
	p.mu.Unlock()
	p.release()
}

// exit is the end of a batch, which has no slot but the spare one.
func (p *staging) exit(b *staged) {
	p.mu.Lock()
	b.ended = true
	spare := b.spare
	b.spare = nil
	p.mu.Unlock()
	if spare != nil {
		p.give(b, spare)
	}
	p.mu.Lock()
	p.active--
	p.short = p.short && p.active > 0
	p.moved.Broadcast()
	p.mu.Unlock()
}

// give takes a slot back. The stream is done.
func (p *staging) give(b *staged, slot *stageSlot) {
	p.mu.Lock()
	drop := false
	if b.held == 1 && !b.ended {
		b.spare = slot
	} else {
		b.held--
		if drop = p.short; !drop {
			p.idle = append(p.idle, slot)
		}
	}
	p.moved.Broadcast()
	p.mu.Unlock()
	if drop {
		p.drop(slot)
	}
}

// take gives the batch a slot. If there is none, it returns nil, or waits: then b has a slot that comes back without b's
// doing, or none at all. Errors: *device.OutOfMemoryError, where b has none and no other batch could give one.
func (p *staging) take(b *staged, wait bool) (*stageSlot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for tried := false; ; {
		if p.closed {
			return nil, p.errClosed()
		}
		if slot := b.spare; slot != nil {
			b.spare = nil
			return slot, nil
		}
		more := b.held == 0 || b.held < b.most && p.made-len(p.idle) < p.tune.slots && p.hungry == 0 && !p.short
		switch {
		case more && len(p.idle) > 0, more && !tried && p.made < 2*p.tune.slots:
			slot, err := p.grab(b)
			if slot != nil || err != nil && (!device.IsOutOfMemory(err) || p.made == 0) {
				return slot, err
			}
			tried = true
		case !wait:
			return nil, nil
		default:
			if b.held == 0 {
				p.hungry++
			}
			p.moved.Wait()
			if b.held == 0 {
				p.hungry--
			}
			tried = false
		}
	}
}

// grab takes an idle slot, or makes one. nil without an error means that the batch makes do with those it has. The caller holds
// p.mu, which is let go while memory is allocated.
func (p *staging) grab(b *staged) (*stageSlot, error) {
	var old *stageSlot
	if n := len(p.idle); n > 0 {
		old, p.idle = p.idle[n-1], p.idle[:n-1]
	} else {
		p.made++
	}
	b.held++
	if old != nil && old.mem.Len() >= max(b.need(1), min(p.tune.slot, b.need(b.n))) {
		return old, nil
	}
	first := b.held == 1
	p.mu.Unlock()
	slot, err := p.make(b, old, first)
	p.mu.Lock()
	if slot != nil {
		return slot, nil
	}
	p.made--
	b.held--
	p.moved.Broadcast()
	if device.IsOutOfMemory(err) && !first {
		err = nil
	}
	if err == nil {
		b.most = b.held
	}
	return nil, err
}

// make makes a slot, in place of old, which was made when memory was short, if there is more now. A batch's first slot may be
// small; no others are made then.
func (p *staging) make(b *staged, old *stageSlot, first bool) (*stageSlot, error) {
	free, _, err := p.d.Memory()
	share := free / stageShare
	if first {
		share = max(share, min(stageFew, free/8))
	}
	bytes := int(min(int64(p.tune.slot), share)) &^ 255
	least := max(stageSmall, (b.need(1)+255)&^255)
	if old != nil {
		if n := old.mem.Len(); err == nil && n >= least && bytes < 2*n {
			return old, nil
		}
		p.free(old)
	}
	if err != nil || !first && bytes < max(min(stageFew, p.tune.slot), least) {
		return nil, err
	}
	for bytes = max(bytes, least); ; bytes = max(bytes/4&^255, least) {
		slot, err := newSlot(p.d, bytes)
		if err == nil {
			p.bytes.Add(int64(bytes))
			return slot, nil
		}
		if !device.IsOutOfMemory(err) || !first || bytes == least {
			return nil, err
		}
	}
}

func (p *staging) free(slot *stageSlot) {
	p.bytes.Add(-int64(slot.mem.Len()))
	slot.free()
}

// stageSlot holds a chunk.
type stageSlot struct {
	st     *device.Stream
	pinned device.Host[byte]
	mem    device.Slice[byte]
	first  int // the chunk: items first … first+n-1
	n      int

	// Copies between Go's memory and pinned, from begin on. Who begins calls done, too.
	busy   bool
	then   func() // is called when all are done
	left   atomic.Int64
	copied chan struct{}
}

func newSlot(d *device.Device, bytes int) (*stageSlot, error) {
	slot := &stageSlot{copied: make(chan struct{}, 1)}
	var err error
	if slot.st, err = d.NewStream(); err == nil {
		if slot.pinned, err = device.MakeHost[byte](d, bytes); err == nil {
			slot.mem, err = device.Make[byte](d, bytes)
		}
	}
	if err != nil {
		slot.free()
		return nil, err
	}
	return slot, nil
}

func (slot *stageSlot) free() {
	if slot.st != nil {
		slot.st.Close()
	}
	if slot.pinned.Len() > 0 {
		slot.pinned.Free()
	}
	if slot.mem.Len() > 0 {
		slot.mem.FreeAfter() // the stream is done
	}
}

func (slot *stageSlot) begin(then func()) {
	slot.busy, slot.then = true, then
	slot.left.Store(1)
}

// done is the end of one copy; it tells whether it was the last.
func (slot *stageSlot) done() bool {
	last := slot.left.Add(-1) == 0
	if last {
		slot.then()
		slot.copied <- struct{}{}
	}
	return last
}

// wait waits for the copies, if any were begun.
func (slot *stageSlot) wait() {
	if slot.busy {
		<-slot.copied
		slot.busy = false
	}
}

// copier copies pieces of memory, in the order in which they come, by a few goroutines. One thread alone is slower than the
// bus; and as a goroutine takes the next piece when it is done with one, whatever chunk that belongs to, none waits for
// the slowest. They end when there is nothing to copy.
type copier struct {
	mu      sync.Mutex
	queue   []copyPiece
	running int
}

type copyPiece struct {
	b        *staged
	slot     *stageSlot
	dst, src []byte
	past     bool // past the caches
}

func (c *copier) add(x copyPiece, most int) {
	c.mu.Lock()
	c.queue = append(c.queue, x)
	start := c.running < most
	if start {
		c.running++
	}
	c.mu.Unlock()
	if start {
		crash.Go(c.work)
	}
}

func (c *copier) work() {
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.queue = nil
			c.running--
			c.mu.Unlock()
			return
		}
		x := c.queue[0]
		c.queue[0] = copyPiece{}
		c.queue = c.queue[1:]
		c.mu.Unlock()
		x.b.copyNow(x.dst, x.src, x.past)
		if x.slot.done() {
			runtime.Gosched() // to who waits for the slot: it has the bus to feed
		}
	}
}

package table

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/warpmap/warpmap/device"
)

// Column is a Go slice seen as bytes: one argument of a batch.
type Column struct {
	p    unsafe.Pointer
	size int
	out  bool

	pinned device.Host[byte] // the same memory, where it is of device.MakeHost: then it is copied without staging
	direct bool
}

// In is a column that the device reads.
func In[T any](s []T) Column {
	var zero T
	return Column{p: unsafe.Pointer(unsafe.SliceData(s)), size: int(unsafe.Sizeof(zero))}
}

// Out is a column that the device writes; nil gives a column that is left out, at address 0.
func Out[T any](s []T) Column {
	var zero T
	if s == nil {
		return Column{size: int(unsafe.Sizeof(zero)), out: true}
	}
	return Column{p: unsafe.Pointer(unsafe.SliceData(s)), size: int(unsafe.Sizeof(zero)), out: true}
}

// Stage carries batches of Go slices through a device, in chunks: while one chunk's kernel runs, the next is copied
// in and the one before is copied out. Slices of pinned memory (device.MakeHost) go straight. Its pinned buffers and streams are kept
// for the next batch. One batch at a time.
type Stage struct {
	Chunk int // items of a chunk at most; 0 means stageItems

	mu     sync.Mutex
	d      *device.Device
	slots  []stageSlot
	closed bool
}

const (
	stageSlots = 4
	stageItems = 1 << 22 // of a chunk
)

type stageSlot struct {
	st     *device.Stream
	pinned device.Host[byte]
	mem    device.Slice[byte]
	first  int // the chunk in flight: items first … first+n-1
	n      int
	idle   chan error // gets the outcome of each chunk when its outputs are out
}

// Init names the device.
func (s *Stage) Init(d *device.Device) { s.d = d }

// ChunkOp is what a family does with one chunk of a batch: items first … first+n-1, with the columns' device addresses. It
// queues work on the stream.
type ChunkOp func(st *device.Stream, first, n int, addr []uint64) error

// Run calls op for each chunk of a batch of n items, and returns when every output is in its Go slice. On the CPU device the
// slices are device memory already, so the whole batch is one chunk.
func (s *Stage) Run(n int, cols []Column, op ChunkOp) error {
	if n == 0 {
		return nil
	}
	defer runtime.KeepAlive(cols)
	if addr, ok := borrow(s.d, cols); ok {
		return op(s.d.Stream(), 0, n, addr)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	bytes := 0
	for _, c := range cols {
		bytes += c.size
	}
	for i := range cols {
		if c := &cols[i]; c.p != nil {
			c.pinned, c.direct = s.d.Pinned(c.p, n*c.size)
		}
	}
	chunk := min(n, stageItems)
	if s.Chunk > 0 {
		chunk = min(n, s.Chunk)
	}
	if err := s.reserve(chunk*bytes + 256*len(cols)); err != nil {
		return err
	}
	// The copies out run beside the copies in: either alone may be slower than the bus. One goroutine waits for the
	// device, because the driver waits by spinning, on a core that copies could use.
	flying := make(chan *stageSlot, stageSlots)
	go func() {
		for slot := range flying {
			slot.idle <- s.drain(slot, cols)
		}
	}()
	defer close(flying)
	var first error
	for from, turn := 0, 0; from < n && first == nil; from, turn = from+chunk, turn+1 {
		slot := &s.slots[turn%stageSlots]
		if first = <-slot.idle; first == nil {
			first = s.feed(slot, cols, from, min(chunk, n-from), op)
		}
		flying <- slot
	}
	for i := range s.slots {
		if err := <-s.slots[i].idle; first == nil {
			first = err
		}
		s.slots[i].idle <- nil
	}
	return first
}

// offsets lays the columns of a chunk of n items one behind the other.
func offsets(cols []Column, n int) (at []int) {
	o := 0
	for _, c := range cols {
		at = append(at, o)
		if c.p != nil {
			o += (n*c.size + 255) &^ 255
		}
	}
	return at
}

func (s *Stage) feed(slot *stageSlot, cols []Column, first, n int, op ChunkOp) error {
	at := offsets(cols, n)
	addr := make([]uint64, len(cols))
	for i, c := range cols {
		if c.p == nil {
			continue
		}
		addr[i] = slot.mem.Addr() + uint64(at[i])
		if c.out {
			continue
		}
		from := slot.pinned.Sub(at[i])
		if c.direct {
			from = c.pinned.Sub(first * c.size)
		} else {
			parallelCopy(from.Slice()[:n*c.size], unsafe.Slice((*byte)(unsafe.Add(c.p, first*c.size)), n*c.size))
		}
		if err := slot.mem.Slice(at[i], at[i]+n*c.size).WriteAsync(slot.st, from, n*c.size); err != nil {
			return err
		}
	}
	if err := op(slot.st, first, n, addr); err != nil {
		return err
	}
	slot.first, slot.n = first, n
	for i, c := range cols {
		if c.p == nil || !c.out {
			continue
		}
		to := slot.pinned.Sub(at[i])
		if c.direct {
			to = c.pinned.Sub(first * c.size)
		}
		if err := slot.mem.Slice(at[i], at[i]+n*c.size).ReadAsync(slot.st, to, n*c.size); err != nil {
			return err
		}
	}
	return nil
}

// drain waits for the chunk in the slot, and copies its outputs to where they belong.
func (s *Stage) drain(slot *stageSlot, cols []Column) error {
	if slot.n == 0 {
		return nil
	}
	n := slot.n
	slot.n = 0
	if err := slot.st.Sync(); err != nil {
		return err
	}
	at := offsets(cols, n)
	for i, c := range cols {
		if c.p != nil && c.out && !c.direct {
			parallelCopy(unsafe.Slice((*byte)(unsafe.Add(c.p, slot.first*c.size)), n*c.size), slot.pinned.Slice()[at[i]:at[i]+n*c.size])
		}
	}
	return nil
}

func (s *Stage) reserve(bytes int) error {
	if len(s.slots) > 0 && s.slots[0].mem.Len() >= bytes {
		return nil
	}
	s.release()
	for range stageSlots {
		slot := stageSlot{idle: make(chan error, 1)}
		slot.idle <- nil
		var err error
		if slot.st, err = s.d.NewStream(); err == nil {
			if slot.pinned, err = device.MakeHost[byte](s.d, bytes); err == nil {
				slot.mem, err = device.Make[byte](s.d, bytes)
			}
		}
		s.slots = append(s.slots, slot)
		if err != nil {
			s.release()
			return err
		}
	}
	return nil
}

func (s *Stage) release() {
	for _, slot := range s.slots {
		if slot.st != nil {
			slot.st.Close()
		}
		if slot.pinned.Len() > 0 {
			slot.pinned.Free()
		}
		if slot.mem.Len() > 0 {
			slot.mem.Free()
		}
	}
	s.slots = nil
}

// Close waits for the batch under way, and frees the buffers.
func (s *Stage) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.release()
}

// parallelCopy copies with several threads: one alone is slower than the bus.
func parallelCopy(dst, src []byte) {
	const piece = 256 << 10
	workers := min(runtime.GOMAXPROCS(0), 16, (len(src)+piece-1)/piece)
	if workers <= 1 {
		copy(dst, src)
		return
	}
	var wg sync.WaitGroup
	each := (len(src)/workers + 4096) &^ 4095
	for from := 0; from < len(src); from += each {
		to := min(from+each, len(src))
		wg.Add(1)
		go func() {
			defer wg.Done()
			copy(dst[from:to], src[from:to])
		}()
	}
	wg.Wait()
}

// borrow gives the columns' addresses on the CPU device, where Go slices are device memory already; false on a GPU.
func borrow(d *device.Device, cols []Column) (addr []uint64, ok bool) {
	if d.Info().CUDA() {
		return nil, false
	}
	for _, c := range cols {
		if c.p != nil && uintptr(c.p)%uintptr(c.size) != 0 {
			return nil, false // values of 16 bytes that Go aligns to 8
		}
		addr = append(addr, uint64(uintptr(c.p)))
	}
	return addr, true
}

// Count counts the true elements.
func Count(flags []bool) (n int) {
	for _, f := range flags {
		if f {
			n++
		}
	}
	return n
}

package device

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// allocation is one piece of device or pinned host memory, shared by all slices cut from it.
type allocation struct {
	d     *Device
	addr  uint64
	host  unsafe.Pointer // nil for device memory
	bytes int64
	freed atomic.Bool
}

func (a *allocation) free() error {
	if a == nil {
		return nil
	}
	return a.d.do(func() error {
		if a.freed.Swap(true) {
			return fmt.Errorf("free: %w", ErrFreed)
		}
		a.d.liveMu.Lock()
		delete(a.d.live, a)
		a.d.liveMu.Unlock()
		if a.host != nil {
			return a.d.b.freeHost(a.host)
		}
		return a.d.b.free(a.addr)
	})
}

// Slice is n elements of device memory: a view that costs nothing to copy, as a Go slice is. Its zero value is empty.
type Slice[T any] struct {
	a    *allocation
	addr uint64
	n    int
}

// Make allocates n elements of device memory, aligned to 256 bytes, with undefined content. T holds no Go pointers.
// Errors: *OutOfMemoryError; ErrClosed.
func Make[T any](d *Device, n int) (Slice[T], error) {
	var zero T
	size := int64(unsafe.Sizeof(zero))
	if n < 0 || size > 0 && int64(n) > (1<<62)/size {
		return Slice[T]{}, fmt.Errorf("device.Make: %d elements of %d bytes: not a size", n, size)
	}
	a := &allocation{d: d, bytes: int64(n) * size}
	err := d.do(func() (err error) {
		d.liveMu.Lock()
		defer d.liveMu.Unlock()
		if d.cfg.memory > 0 && a.bytes > d.room() {
			return &OutOfMemoryError{d.infos.Name, a.bytes, d.room()}
		}
		if a.addr, err = d.b.alloc(max(a.bytes, 16)); err == nil {
			d.live[a] = struct{}{}
		}
		return err
	})
	if err != nil {
		return Slice[T]{}, err
	}
	return Slice[T]{a, a.addr, n}, nil
}

// From allocates device memory and copies src into it.
func From[T any](d *Device, src []T) (Slice[T], error) {
	s, err := Make[T](d, len(src))
	if err != nil {
		return s, err
	}
	if err := s.Write(nil, src); err != nil {
		s.Free()
		return Slice[T]{}, err
	}
	return s, nil
}

// Len is the number of elements.
func (s Slice[T]) Len() int { return s.n }

// Bytes is the size in bytes.
func (s Slice[T]) Bytes() int64 { var zero T; return int64(s.n) * int64(unsafe.Sizeof(zero)) }

// Addr is the address a kernel sees; 0 for an empty zero Slice.
func (s Slice[T]) Addr() uint64 { return s.addr }

// Device is where the memory lies; nil for the zero Slice.
func (s Slice[T]) Device() *Device {
	if s.a == nil {
		return nil
	}
	return s.a.d
}

// Slice is the view s[from:to]; it panics where a Go slice would.
func (s Slice[T]) Slice(from, to int) Slice[T] {
	if from < 0 || to < from || to > s.n {
		panic(fmt.Sprintf("device.Slice: [%d:%d] of %d elements", from, to, s.n))
	}
	var zero T
	return Slice[T]{s.a, s.addr + uint64(from)*uint64(unsafe.Sizeof(zero)), to - from}
}

// Free gives the whole allocation back, whichever view of it s is. Work on it that is still queued is waited for.
// Freeing twice is ErrFreed.
func (s Slice[T]) Free() error { return s.a.free() }

// check says why s cannot be used on d.
func (s Slice[T]) check(what string) error {
	if s.a == nil {
		if s.n == 0 {
			return nil
		}
		return fmt.Errorf("%s: a slice of no device", what)
	}
	if s.a.freed.Load() {
		return fmt.Errorf("%s: %w", what, ErrFreed)
	}
	return nil
}

// On says why s cannot be used on d: it lies on another device, or is freed.
func (s Slice[T]) On(d *Device) error {
	if s.a != nil && s.a.d != d {
		return fmt.Errorf("a slice of device %s given to device %s", s.a.d.infos.Name, d.infos.Name)
	}
	return s.check("device slice")
}

// Write copies src to the start of s on the stream, and returns when src may be changed again.
func (s Slice[T]) Write(st *Stream, src []T) error {
	if len(src) > s.n {
		return fmt.Errorf("device.Slice.Write: %d elements into %d", len(src), s.n)
	}
	if err := s.check("device.Slice.Write"); err != nil || len(src) == 0 {
		return err
	}
	d := s.a.d
	err := d.do(func() error {
		p := unsafe.Pointer(unsafe.SliceData(src))
		if err := d.b.copyIn(d.handle(st), s.addr, p, bytesOf(src)); err != nil {
			return err
		}
		return d.b.syncStream(d.handle(st))
	})
	runtime.KeepAlive(src)
	return err
}

// Read copies the start of s into dst on the stream, and returns when dst is filled.
func (s Slice[T]) Read(st *Stream, dst []T) error {
	if len(dst) > s.n {
		return fmt.Errorf("device.Slice.Read: %d elements from %d", len(dst), s.n)
	}
	if err := s.check("device.Slice.Read"); err != nil || len(dst) == 0 {
		return err
	}
	d := s.a.d
	err := d.do(func() error {
		p := unsafe.Pointer(unsafe.SliceData(dst))
		if err := d.b.copyOut(d.handle(st), p, s.addr, bytesOf(dst)); err != nil {
			return err
		}
		return d.b.syncStream(d.handle(st))
	})
	runtime.KeepAlive(dst)
	return err
}

// Host copies the whole of s into a new Go slice.
func (s Slice[T]) Host(st *Stream) ([]T, error) {
	out := make([]T, s.n)
	return out, s.Read(st, out)
}

// WriteAsync queues a copy of the first n elements of pinned memory to the start of s, and returns at once: src must
// stay unchanged until the stream has passed it.
func (s Slice[T]) WriteAsync(st *Stream, src Host[T], n int) error {
	if n > s.n || n > src.Len() {
		return fmt.Errorf("device.Slice.WriteAsync: %d elements from %d into %d", n, src.Len(), s.n)
	}
	if err := s.check("device.Slice.WriteAsync"); err != nil || n == 0 {
		return err
	}
	var zero T
	d := s.a.d
	return d.do(func() error {
		return d.b.copyIn(d.handle(st), s.addr, unsafe.Pointer(unsafe.SliceData(src.mem)), int64(n)*int64(unsafe.Sizeof(zero)))
	})
}

// ReadAsync queues a copy of the first n elements of s to the start of pinned memory, and returns at once.
func (s Slice[T]) ReadAsync(st *Stream, dst Host[T], n int) error {
	if n > s.n || n > dst.Len() {
		return fmt.Errorf("device.Slice.ReadAsync: %d elements from %d into %d", n, s.n, dst.Len())
	}
	if err := s.check("device.Slice.ReadAsync"); err != nil || n == 0 {
		return err
	}
	var zero T
	d := s.a.d
	return d.do(func() error {
		return d.b.copyOut(d.handle(st), unsafe.Pointer(unsafe.SliceData(dst.mem)), s.addr, int64(n)*int64(unsafe.Sizeof(zero)))
	})
}

// CopyFrom queues a copy of src, of the same device, to the start of s.
func (s Slice[T]) CopyFrom(st *Stream, src Slice[T]) error {
	if src.n > s.n {
		return fmt.Errorf("device.Slice.CopyFrom: %d elements into %d", src.n, s.n)
	}
	if err := s.check("device.Slice.CopyFrom"); err != nil || src.n == 0 {
		return err
	}
	if err := src.On(s.a.d); err != nil {
		return err
	}
	d := s.a.d
	return d.do(func() error { return d.b.copyWithin(d.handle(st), s.addr, src.addr, src.Bytes()) })
}

// Fill queues setting every byte of s to value.
func (s Slice[T]) Fill(st *Stream, value byte) error {
	if err := s.check("device.Slice.Fill"); err != nil || s.n == 0 {
		return err
	}
	d := s.a.d
	return d.do(func() error { return d.b.fill(d.handle(st), s.addr, value, s.Bytes()) })
}

func bytesOf[T any](s []T) int64 { var zero T; return int64(len(s)) * int64(unsafe.Sizeof(zero)) }

// Host is pinned host memory: copies to and from it run beside kernels, at the bus's full rate.
type Host[T any] struct {
	a   *allocation
	mem []T
}

// MakeHost allocates n elements of pinned host memory.
func MakeHost[T any](d *Device, n int) (Host[T], error) { return makeHost[T](d, n, false) }

// MakeMapped allocates n elements of host memory that kernels read and write across the bus, at the address that
// Mapped gives.
func MakeMapped[T any](d *Device, n int) (Host[T], error) { return makeHost[T](d, n, true) }

func makeHost[T any](d *Device, n int, mapped bool) (Host[T], error) {
	var zero T
	size := int64(unsafe.Sizeof(zero))
	if n < 0 || size > 0 && int64(n) > (1<<62)/size {
		return Host[T]{}, fmt.Errorf("device.MakeHost: %d elements of %d bytes: not a size", n, size)
	}
	a := &allocation{d: d, bytes: int64(n) * size}
	err := d.do(func() (err error) {
		a.host, a.addr, err = d.b.allocHost(max(a.bytes, 16), mapped)
		if err == nil {
			d.liveMu.Lock()
			d.live[a] = struct{}{}
			d.liveMu.Unlock()
		}
		return err
	})
	if err != nil {
		return Host[T]{}, err
	}
	return Host[T]{a, unsafe.Slice((*T)(a.host), n)}, nil
}

// Pinned gives n bytes at p as pinned memory, if they lie in a Host of the device: a Go slice of MakeHost's memory can then
// be copied to the device without a copy in between.
func (d *Device) Pinned(p unsafe.Pointer, n int) (Host[byte], bool) {
	d.liveMu.Lock()
	defer d.liveMu.Unlock()
	for a := range d.live {
		if from := uintptr(p) - uintptr(a.host); a.host != nil && uintptr(p) >= uintptr(a.host) && int64(from)+int64(n) <= a.bytes {
			return Host[byte]{a, unsafe.Slice((*byte)(p), n)}, true
		}
	}
	return Host[byte]{}, false
}

// Len is the number of elements.
func (h Host[T]) Len() int { return len(h.mem) }

// Slice is the memory as a Go slice. It must not be used after Free.
func (h Host[T]) Slice() []T { return h.mem }

// Mapped is the same memory as kernels see it; the zero Slice unless h comes from MakeMapped.
func (h Host[T]) Mapped() Slice[T] {
	if h.a == nil || h.a.addr == 0 {
		return Slice[T]{}
	}
	return Slice[T]{h.a, h.a.addr, len(h.mem)}
}

// Free gives the memory back.
func (h Host[T]) Free() error { return h.a.free() }

// Stream is a queue of work that runs in order; streams run beside each other. A nil *Stream stands for the device's
// own. On the CPU device work runs within the call that queues it, which is one of the orders a GPU may choose.
type Stream struct {
	d      *Device
	h      uintptr
	closed atomic.Bool
}

// NewStream makes a stream.
func (d *Device) NewStream() (*Stream, error) {
	s := &Stream{d: d}
	err := d.do(func() (err error) { s.h, err = d.b.newStream(); return err })
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Stream is the device's own stream: the one that a nil *Stream stands for.
func (d *Device) Stream() *Stream { return d.stream }

func (d *Device) handle(st *Stream) uintptr {
	if st == nil {
		return d.stream.h
	}
	return st.h
}

// On says why st cannot be used on d; a nil stream can.
func (st *Stream) On(d *Device) error {
	if st == nil {
		return nil
	}
	if st.d != d {
		return fmt.Errorf("a stream of device %s given to device %s", st.d.infos.Name, d.infos.Name)
	}
	if st.closed.Load() {
		return fmt.Errorf("stream: %w", ErrClosed)
	}
	return nil
}

// Sync waits until all work on the stream is done, and returns the error that any of it met.
func (st *Stream) Sync() error {
	if err := st.On(st.d); err != nil {
		return err
	}
	return st.d.do(func() error { return st.d.b.syncStream(st.h) })
}

// SyncOf is Sync, also for a nil stream: then of the device's own.
func (st *Stream) SyncOf(d *Device) error {
	if st == nil {
		return d.stream.Sync()
	}
	return st.Sync()
}

// Close waits for the stream's work and frees it.
func (st *Stream) Close() error {
	if st.closed.Swap(true) {
		return nil
	}
	return st.d.do(func() error { return st.d.b.freeStream(st.h) })
}

// Wait holds back the stream's later work until the event has passed.
func (st *Stream) Wait(e *Event) error {
	if err := errors.Join(st.On(e.d), e.open()); err != nil {
		return err
	}
	return e.d.do(func() error { return e.d.b.wait(e.d.handle(st), e.h) })
}

// Event marks a point in a stream.
type Event struct {
	d      *Device
	h      uintptr
	closed atomic.Bool
}

// NewEvent makes an event.
func (d *Device) NewEvent() (*Event, error) {
	e := &Event{d: d}
	err := d.do(func() (err error) { e.h, err = d.b.newEvent(); return err })
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Record sets the event to the stream's present end.
func (e *Event) Record(st *Stream) error {
	if err := errors.Join(st.On(e.d), e.open()); err != nil {
		return err
	}
	return e.d.do(func() error { return e.d.b.record(e.h, e.d.handle(st)) })
}

// Sync waits until the event has passed.
func (e *Event) Sync() error {
	if err := e.open(); err != nil {
		return err
	}
	return e.d.do(func() error { return e.d.b.syncEvent(e.h) })
}

func (e *Event) open() error {
	if e.closed.Load() {
		return fmt.Errorf("event: %w", ErrClosed)
	}
	return nil
}

// Since is the device's time from an earlier event to this one; both must have passed.
func (e *Event) Since(from *Event) (t time.Duration, err error) {
	if err := errors.Join(e.open(), from.open()); err != nil {
		return 0, err
	}
	err = e.d.do(func() (err error) { t, err = e.d.b.elapsed(from.h, e.h); return err })
	return t, err
}

// Close frees the event.
func (e *Event) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	return e.d.do(func() error { return e.d.b.freeEvent(e.h) })
}

// Sub is the same pinned memory from an element on.
func (h Host[T]) Sub(from int) Host[T] { return Host[T]{h.a, h.mem[from:]} }

// View is n elements of T that begin at a byte of raw memory.
func View[T any](raw Slice[byte], from, n int) Slice[T] {
	var zero T
	part := raw.Slice(from, from+n*int(unsafe.Sizeof(zero)))
	return Slice[T]{part.a, part.addr, n}
}

// Elem is the type of the elements.
func (s Slice[T]) Elem() reflect.Type { return reflect.TypeFor[T]() }

package device

import (
	"fmt"
	"reflect"
	"runtime"
	"unsafe"

	"github.com/warpmap/warpmap/internal/faults"
)

// Slice is n elements of device memory: a view that costs nothing to copy, as a Go slice is. Its zero value is empty.
type Slice[T any] struct {
	a    *allocation
	addr uint64
	n    int
}

// Make allocates n elements of device memory, aligned to 256 bytes, with undefined content. T holds no Go pointers.
// Errors: *OutOfMemoryError; ErrClosed.
func Make[T any](d *Device, n int) (Slice[T], error) { return makeSlice[T](d, n, plain) }

// MakePooled does what Make does, for memory that comes and goes while other work runs, such as scratch. FreeAfter
// gives the memory back in the order of streams, and neither call waits for work on others. Where the driver has no
// memory pools, it is Make.
func MakePooled[T any](d *Device, n int) (Slice[T], error) { return makeSlice[T](d, n, pooled) }

func makeSlice[T any](d *Device, n int, from origin) (Slice[T], error) {
	var zero T
	a, err := newAllocation(d, "Make", n, unsafe.Sizeof(zero))
	if err == nil {
		err = a.take(from)
	}
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
	var zero T
	return Slice[T]{s.a, s.addr + sliced(from, to, s.n)*uint64(unsafe.Sizeof(zero)), to - from}
}

// sliced is from, where [from:to] are of n elements.
func sliced(from, to, n int) uint64 {
	if from < 0 || to < from || to > n {
		panic(fmt.Sprintf("device.Slice: [%d:%d] of %d elements", from, to, n))
	}
	return uint64(from)
}

// Free gives the whole allocation back, whichever view of it s is. It waits for all work that is queued on the device.
// Freeing twice is ErrFreed, and Free after the device's Close is ErrClosed. A zero Slice has nothing to free, which is
// no error.
func (s Slice[T]) Free() error { return s.a.free() }

// FreeAfter does what Free does, if you know which streams use the memory. The memory goes back when these
// streams have passed the work that is on them now, and nothing else is waited for. A nil stream is the device's own.
// If you pass no streams, you promise that nothing uses the memory any more. For memory of MakePooled the call
// returns at once; for other memory it waits for these streams (and the driver may wait for others). A zero Slice has
// nothing to free.
func (s Slice[T]) FreeAfter(streams ...*Stream) error { return s.a.freeAfter(streams) }

// span is the memory of a Slice without the type of its elements: what is long of the methods is of it, and so compiled once for all types.
type span struct {
	a     *allocation
	addr  uint64
	bytes int64
}

func (s Slice[T]) span() span { return span{s.a, s.addr, s.Bytes()} }

// check says why s cannot be used, or not on the stream.
func (s span) check(what string, st *Stream) error {
	if s.a == nil {
		if s.bytes == 0 {
			return nil
		}
		return fmt.Errorf("%s: a slice of no device", what)
	}
	err := st.On(s.a.d)
	if err == nil && s.a.freed.Load() { // a device that is closed has freed all
		err = ErrFreed
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// On says why kernels on d cannot use s: it lies on another device, is freed, or lies where kernels cannot read its
// elements. Elements of 2, 4, 8 and 16 bytes must lie at multiples of their size, and others at multiples of the
// largest power of two that divides their size.
func (s Slice[T]) On(d *Device) error {
	var zero T
	return s.span().on(d, s.Elem(), uint64(unsafe.Sizeof(zero)))
}

func (s span) on(d *Device, elem reflect.Type, size uint64) error {
	if s.a == nil {
		return s.check("device slice", nil)
	}
	if !d.made() {
		return errUnmade
	}
	if !s.a.d.same(d) {
		return fmt.Errorf("a slice of device %s given to device %s", s.a.d.infos.Name, d.infos.Name)
	}
	if err := s.check("device slice", nil); err != nil {
		return err
	}
	if size > 0 {
		if align := min(size&-size, 16); s.addr%align != 0 {
			return fmt.Errorf("device slice: %v at address %#x: kernels read elements of %d bytes at multiples of %d only", elem, s.addr, size, align)
		}
	}
	return nil
}

// Write copies src to the start of s on the stream, and waits for the stream: src may be changed again when Write
// returns. src may be shorter than s, and what is behind it in s stays. If src is longer, that is an error, and nothing
// is copied. A nil stream is that of s's device.
func (s Slice[T]) Write(st *Stream, src []T) error {
	if len(src) > s.n {
		return beyond("device.Slice.Write", len(src), "into", s.n)
	}
	err := s.span().write(st, unsafe.Pointer(unsafe.SliceData(src)), bytesOf(src))
	runtime.KeepAlive(src)
	return err
}

func beyond(what string, n int, way string, room int) error {
	return fmt.Errorf("%s: %d elements %s %d", what, n, way, room)
}

func (s span) write(st *Stream, src unsafe.Pointer, bytes int64) error {
	if err := s.check("device.Slice.Write", st); err != nil || bytes == 0 {
		return err
	}
	d := s.a.d
	h := st.handleOn(d)
	return d.waiting(func() error {
		if err := d.copyIn(h, s.addr, src, bytes); err != nil {
			return err
		}
		return d.syncStream(h)
	}, h)
}

// Read copies the start of s into dst on the stream, and waits for the stream: all of dst is filled when Read returns.
// dst may be shorter than s. If it is longer, that is an error, and nothing is copied. A nil stream is that of s's
// device.
func (s Slice[T]) Read(st *Stream, dst []T) error {
	if len(dst) > s.n {
		return beyond("device.Slice.Read", len(dst), "from", s.n)
	}
	err := s.span().read(st, unsafe.Pointer(unsafe.SliceData(dst)), bytesOf(dst))
	runtime.KeepAlive(dst)
	return err
}

func (s span) read(st *Stream, dst unsafe.Pointer, bytes int64) error {
	if err := s.check("device.Slice.Read", st); err != nil || bytes == 0 {
		return err
	}
	d := s.a.d
	h := st.handleOn(d)
	return d.waiting(func() error {
		if err := d.copyOut(h, dst, s.addr, bytes); err != nil {
			return err
		}
		return d.syncStream(h)
	}, h)
}

// Host copies the whole of s into a new Go slice, as Read does.
func (s Slice[T]) Host(st *Stream) ([]T, error) {
	out := make([]T, s.n)
	return out, s.Read(st, out)
}

// WriteAsync queues a copy of the first n elements of pinned memory, of any device, to the start of s, and returns at
// once: src must stay unchanged until the stream has passed it. If s or src has fewer than n elements, or n is below 0,
// that is an error, and nothing is queued.
func (s Slice[T]) WriteAsync(st *Stream, src Host[T], n int) error {
	const what = "device.Slice.WriteAsync"
	if n < 0 || n > s.n || n > src.Len() {
		return notBetween(what, n, s.n, src.Len())
	}
	return s.span().async(what, st, src.a, unsafe.Pointer(unsafe.SliceData(src.mem)), bytesOf(src.mem[:n]), true)
}

// ReadAsync queues a copy of the first n elements of s to the start of pinned memory, of any device, and returns at
// once: dst has the elements once the stream has passed the copy. If s or dst has fewer than n elements, or n is below
// 0, that is an error, and nothing is queued.
func (s Slice[T]) ReadAsync(st *Stream, dst Host[T], n int) error {
	const what = "device.Slice.ReadAsync"
	if n < 0 || n > s.n || n > dst.Len() {
		return notBetween(what, n, s.n, dst.Len())
	}
	return s.span().async(what, st, dst.a, unsafe.Pointer(unsafe.SliceData(dst.mem)), bytesOf(dst.mem[:n]), false)
}

func notBetween(what string, n, device, host int) error {
	return fmt.Errorf("%s: %d elements between %d of the device and %d of the host", what, n, device, host)
}

// async queues a copy between s and pinned memory.
func (s span) async(what string, st *Stream, pinned *allocation, host unsafe.Pointer, bytes int64, in bool) error {
	if pinned != nil && pinned.freed.Load() {
		return fmt.Errorf("%s: host memory: %w", what, ErrFreed)
	}
	if err := s.check(what, st); err != nil || bytes == 0 {
		return err
	}
	d := s.a.d
	h := st.handleOn(d)
	return d.use(func() error {
		if in {
			return d.copyIn(h, s.addr, host, bytes)
		}
		return d.copyOut(h, host, s.addr, bytes)
	}, h)
}

// CopyFrom queues a copy of all of src to the start of s. src may be shorter than s, and what is behind it in s stays.
// If src is longer, that is an error, and nothing is queued. src may be of another device of the same kind. Then the
// stream may be of either device, and a nil stream is that of s's device. The memory goes straight from one GPU to the
// other where they have peer access (see PeerAccess), else by way of the host.
func (s Slice[T]) CopyFrom(st *Stream, src Slice[T]) error {
	const what = "device.Slice.CopyFrom"
	if src.n > s.n {
		return beyond(what, src.n, "into", s.n)
	}
	return s.span().copyFrom(what, st, src.span())
}

func (s span) copyFrom(what string, st *Stream, src span) error {
	if s.a != nil && src.a != nil && !src.a.d.same(s.a.d) {
		return s.copyAcross(what, st, src)
	}
	if err := s.check(what, st); err != nil || src.bytes == 0 {
		return err
	}
	if err := src.check(what, nil); err != nil {
		return err
	}
	d := s.a.d
	h := st.handleOn(d)
	return d.use(func() error {
		return d.call(faults.CopyWithin, src.bytes, func() error { return d.b.copyWithin(h.h, s.addr, src.addr, src.bytes) })
	}, h)
}

func (s span) copyAcross(what string, st *Stream, src span) error {
	d, other := s.a.d, src.a.d
	on, wanted := s, src // what must be of the stream's device
	if st != nil && st.On(other) == nil {
		d, other = other, d
		on, wanted = src, s
	}
	if err := on.check(what, st); err != nil {
		return err
	}
	if err := wanted.check(what, nil); err != nil || src.bytes == 0 {
		return err
	}
	if d.infos.CUDA() != other.infos.CUDA() {
		return fmt.Errorf("%s: from device %s to device %s: only devices of one kind copy to one another (Read and Write go by way of Go slices)",
			what, src.a.d.infos.Name, s.a.d.infos.Name)
	}
	h := st.handleOn(d)
	return d.with(other, func() error {
		return d.hold([]*handle{h}, func() error {
			return d.call(faults.PeerCopy, src.bytes, func() error {
				return d.b.copyAcross(h.h, s.addr, s.a.d.b, src.addr, src.a.d.b, src.bytes)
			})
		})
	})
}

// Fill queues setting every byte of s to value.
func (s Slice[T]) Fill(st *Stream, value byte) error { return s.span().fill(st, value) }

func (s span) fill(st *Stream, value byte) error {
	if err := s.check("device.Slice.Fill", st); err != nil || s.bytes == 0 {
		return err
	}
	d := s.a.d
	h := st.handleOn(d)
	return d.use(func() error {
		return d.call(faults.CopyWithin, s.bytes, func() error { return d.b.fill(h.h, s.addr, value, s.bytes) })
	}, h)
}

// Raw is the memory of s as bytes.
func (s Slice[T]) Raw() Slice[byte] { return Slice[byte]{s.a, s.addr, int(s.Bytes())} }

func bytesOf[T any](s []T) int64 { var zero T; return int64(len(s)) * int64(unsafe.Sizeof(zero)) }

// Host is pinned host memory: copies to and from it run beside kernels, at the bus's full rate.
type Host[T any] struct {
	a   *allocation
	mem []T
}

// MakeHost allocates n elements of pinned host memory. Up to 512 bytes come from 64 KiB that the device keeps for such
// small pieces until it closes, and takes when the first is asked for, and again whenever no piece is free.
func MakeHost[T any](d *Device, n int) (Host[T], error) { return makeHost[T](d, n, false) }

// MakeMapped allocates n elements of host memory that kernels read and write across the bus, at the address that
// Mapped gives.
func MakeMapped[T any](d *Device, n int) (Host[T], error) { return makeHost[T](d, n, true) }

func makeHost[T any](d *Device, n int, mapped bool) (Host[T], error) {
	var zero T
	a, err := newAllocation(d, "MakeHost", n, unsafe.Sizeof(zero))
	if err == nil {
		err = a.takeHost(mapped)
	}
	if err != nil {
		return Host[T]{}, err
	}
	return Host[T]{a, unsafe.Slice((*T)(a.host), n)}, nil
}

// takeHost takes pinned host memory.
func (a *allocation) takeHost(mapped bool) error {
	d := a.d
	return d.do(func() (err error) {
		if err := d.met(faults.HostAlloc, a.bytes); err != nil {
			return err
		}
		if a.line = !mapped && a.bytes <= lineBytes; a.line {
			a.host, err = d.lines.take(d.b)
		} else {
			a.host, a.addr, err = d.b.allocHost(max(a.bytes, 16), mapped)
		}
		if err != nil {
			return asCall(err)
		}
		d.liveMu.Lock()
		defer d.liveMu.Unlock()
		d.live[a], d.pinned[a] = struct{}{}, struct{}{}
		return nil
	})
}

// Pinned gives n bytes at p as pinned memory, if they lie in a Host of the device. So a Go slice of MakeHost's memory
// can be copied to the device without a copy in between.
func (d *Device) Pinned(p unsafe.Pointer, n int) (Host[byte], bool) {
	d.liveMu.Lock()
	defer d.liveMu.Unlock()
	for a := range d.pinned {
		if from := uintptr(p) - uintptr(a.host); uintptr(p) >= uintptr(a.host) && int64(from)+int64(n) <= a.bytes {
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
	from := uintptr(unsafe.Pointer(unsafe.SliceData(h.mem))) - uintptr(h.a.host)
	return Slice[T]{h.a, h.a.addr + uint64(from), len(h.mem)}
}

// Free gives the memory back. Nothing may use it any more, and a zero Host has none. Freeing twice is ErrFreed, and
// Free after the device's Close is ErrClosed.
func (h Host[T]) Free() error { return h.a.free() }

// Sub is the same pinned memory from an element on.
func (h Host[T]) Sub(from int) Host[T] { return Host[T]{h.a, h.mem[from:]} }

// View is n elements of T that begin at a byte of raw memory; it panics where raw.Slice would. Tables refuse a view
// that is not aligned as On says.
func View[T any](raw Slice[byte], from, n int) Slice[T] {
	var zero T
	return Slice[T]{raw.a, viewed(raw, from, n, int(unsafe.Sizeof(zero))), n}
}

// viewed is the address of byte from, where n elements of so many bytes lie within raw.
func viewed(raw Slice[byte], from, n, size int) uint64 {
	if n < 0 || from < 0 || from > raw.n || size > 0 && n > (raw.n-from)/size {
		panic(fmt.Sprintf("device.View: %d elements of %d bytes from byte %d of %d", n, size, from, raw.n))
	}
	return raw.addr + uint64(from)
}

// Elem is the type of the elements.
func (s Slice[T]) Elem() reflect.Type { return reflect.TypeFor[T]() }

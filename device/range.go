package device

import (
	"fmt"
	"math"
)

// Range is device memory that grows in place: a range of addresses, with memory from its beginning on. What is in it
// stays where it is, so it need not be copied. On a GPU this is CUDA's virtual memory management; on the CPU, mmap. Its
// methods are for one goroutine at a time.
type Range struct{ a *allocation }

// ranged is what an allocation of a Range has.
type ranged struct {
	reserved, granule int64
	parts             []part // in the order of addresses
}

// part is memory behind a part of a range.
type part struct {
	bytes  int64
	memory uintptr
}

// Reserve reserves addresses for so many bytes; they have no memory yet. Errors: a size of 0 or less;
// errors.ErrUnsupported, if the device has no such memory; *OutOfMemoryError, if there are not so many addresses;
// ErrClosed. Cost: some 20 µs.
func Reserve(d *Device, bytes int64) (*Range, error) {
	if bytes <= 0 || bytes > math.MaxInt64/2 {
		return nil, fmt.Errorf("device.Reserve: %d bytes: not a size", bytes)
	}
	a, err := newAllocation(d, "Reserve", 0, 1)
	if err != nil {
		return nil, err
	}
	a.ranged, a.release = &ranged{}, a.giveBack
	err = d.do(func() (err error) {
		if a.addr, a.ranged.granule, err = d.b.reserve(bytes); err != nil {
			return asCall(err)
		}
		a.ranged.reserved = bytes
		d.liveMu.Lock()
		defer d.liveMu.Unlock()
		d.live[a] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &Range{a}, nil
}

// made is the range, or one without addresses, if Reserve has not made it.
func (r *Range) made() *allocation {
	if r.a == nil {
		return &allocation{ranged: &ranged{granule: 1}}
	}
	return r.a
}

// Granule is what sizes are rounded up to: 2 MiB on most GPUs, a page on the CPU.
func (r *Range) Granule() int64 { return r.made().ranged.granule }

// Reserved is how far the range can grow, in bytes.
func (r *Range) Reserved() int64 { return r.made().ranged.reserved }

// Slice is the memory that the range has now. Its content is undefined where nothing was written.
func (r *Range) Slice() Slice[byte] {
	if r.a == nil {
		return Slice[byte]{}
	}
	return Slice[byte]{r.a, r.a.addr, int(r.a.bytes)}
}

// Resize gives the range memory for so many bytes, or takes back what it has beyond that; nothing may use what is taken
// back. Memory that came at one time is taken back whole or not at all. Errors: *OutOfMemoryError, and the range is as
// it was; ErrFreed. Cost on an H200: 45 to 160 µs, from 8 to 512 MiB.
func (r *Range) Resize(bytes int64) error {
	a := r.made()
	g := a.ranged
	if bytes < 0 || bytes > g.reserved {
		return fmt.Errorf("device.Range: resizing to %d bytes of %d reserved", bytes, g.reserved)
	}
	bytes = (bytes + g.granule - 1) / g.granule * g.granule
	d := a.d
	return d.do(func() error {
		if a.freed.Load() {
			return fmt.Errorf("resize: %w", ErrFreed)
		}
		for len(g.parts) > 0 && a.bytes-g.parts[len(g.parts)-1].bytes >= bytes {
			last := g.parts[len(g.parts)-1]
			if err := d.b.unback(a.addr+uint64(a.bytes-last.bytes), last); err != nil {
				return err
			}
			g.parts = g.parts[:len(g.parts)-1]
			d.unclaim(last.bytes, a, -last.bytes)
		}
		more := bytes - a.bytes
		if more <= 0 {
			return nil
		}
		if err := d.claim(more); err != nil {
			return err
		}
		memory, err := d.b.back(a.addr+uint64(a.bytes), more)
		if err != nil {
			d.unclaim(more, a, 0)
			return asCall(err)
		}
		g.parts = append(g.parts, part{more, memory})
		d.unclaim(0, a, more)
		return nil
	})
}

// Free gives memory and addresses back. It waits for all work that is queued on the device.
func (r *Range) Free() error { return r.a.free() }

// FreeAfter does what Free does, but waits only for the work on these streams: see Slice.FreeAfter. A nil Range has
// nothing to free.
func (r *Range) FreeAfter(streams ...*Stream) error {
	if r == nil {
		return nil
	}
	return r.a.freeAfter(streams)
}

// giveBack frees a range when nothing uses it.
func (a *allocation) giveBack() (err error) {
	at := a.addr
	for _, p := range a.ranged.parts {
		err = firstErr(err, a.d.b.unback(at, p))
		at += uint64(p.bytes)
	}
	return firstErr(err, a.d.b.unreserve(a.addr, a.ranged.reserved))
}

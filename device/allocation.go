package device

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/warpmap/warpmap/internal/faults"
)

// allocation is one piece of device or pinned host memory, shared by all slices cut from it.
type allocation struct {
	d      *Device
	addr   uint64
	host   unsafe.Pointer // nil for device memory
	line   bool           // host is one of the device's lines
	bytes  int64
	pooled bool    // can be given back in the order of a stream
	ranged *ranged // of a Range
	others bool    // not made here: it counts for nothing
	// release gives back what the back end's alloc did not make, once nothing uses it; nil for all else.
	release func() error
	freed   atomic.Bool
	by      [12]uintptr // who made it: see Live
}

// newAllocation describes n elements of a size, which are yet to be allocated.
func newAllocation(d *Device, what string, n int, size uintptr) (*allocation, error) {
	if !d.made() {
		return nil, fmt.Errorf("device.%s: no device (see Open)", what)
	}
	if n < 0 || size > 0 && int64(n) > (1<<62)/int64(size) {
		return nil, fmt.Errorf("device.%s: %d elements of %d bytes: not a size", what, n, size)
	}
	a := &allocation{d: d, bytes: int64(n) * int64(size)}
	runtime.Callers(3, a.by[:])
	return a, nil
}

// leaving is device memory that FreeAfter has queued to be given back. It counts against WithMemory until the event has passed.
type leaving struct {
	passed uintptr
	bytes  int64
}

// settle takes off the books what streams have given back. Where that leaves less than need, it waits for more, if that can help.
// The caller holds liveMu.
func (d *Device) settle(need int64) error {
	var pending int64
	for _, l := range d.leaving {
		pending += l.bytes
	}
	for _, wait := range []bool{false, true} {
		for i := 0; i < len(d.leaving); {
			l := d.leaving[i]
			done, err := true, error(nil)
			if !wait {
				done, err = d.b.passed(l.passed)
			} else if room := d.cfg.memory - d.used; need > room && need <= room+pending {
				err = d.b.syncEvent(l.passed)
			} else {
				return nil
			}
			if err != nil {
				return err
			}
			if !done {
				i++
				continue
			}
			d.b.freeEvent(l.passed)
			d.used -= l.bytes
			pending -= l.bytes
			d.leaving = append(d.leaving[:i], d.leaving[i+1:]...)
		}
	}
	return nil
}

// claim puts memory on the books, within WithMemory's bound.
func (d *Device) claim(bytes int64) error {
	if err := d.met(faults.Alloc, bytes); err != nil {
		return err
	}
	d.liveMu.Lock()
	defer d.liveMu.Unlock()
	if d.cfg.memory > 0 {
		if err := d.settle(bytes); err != nil {
			return asCall(err)
		}
		if room := max(0, d.cfg.memory-d.used); bytes > room {
			return &OutOfMemoryError{d.infos.Name, bytes, room}
		}
	}
	d.used += bytes
	return nil
}

// unclaim takes memory off the books, and changes what an allocation has.
func (d *Device) unclaim(bytes int64, a *allocation, change int64) {
	d.liveMu.Lock()
	defer d.liveMu.Unlock()
	d.used -= bytes
	a.bytes += change
}

// origin is where device memory comes from.
type origin int

const (
	plain  origin = iota
	pooled        // see MakePooled
	shared        // see MakeShared
)

// take allocates device memory.
func (a *allocation) take(from origin) error {
	d := a.d
	return d.do(func() error {
		err := d.claim(a.bytes)
		if err != nil {
			return err
		}
		switch size := max(a.bytes, 16); from {
		case pooled:
			a.addr, a.pooled, err = d.b.allocPooled(size)
		case shared:
			a.addr, err = d.b.allocShared(size)
		default:
			a.addr, err = d.b.alloc(size)
		}
		d.liveMu.Lock()
		defer d.liveMu.Unlock()
		if err != nil {
			d.used -= a.bytes
			return asCall(err)
		}
		d.live[a] = struct{}{}
		return nil
	})
}

// forget takes what is freed off the books, now or when the event has passed.
func (a *allocation) forget(passed uintptr) {
	d := a.d
	d.liveMu.Lock()
	defer d.liveMu.Unlock()
	delete(d.live, a)
	delete(d.pinned, a)
	switch {
	case passed != 0:
		d.leaving = append(d.leaving, leaving{passed, a.bytes})
	case a.host == nil && !a.others:
		d.used -= a.bytes
	}
}

func (a *allocation) free() error {
	if a == nil {
		return nil
	}
	return a.d.do(func() error {
		if a.freed.Swap(true) {
			return fmt.Errorf("free: %w", ErrFreed)
		}
		var err error
		switch {
		case a.line:
			err = a.d.lines.give(a.d.b, a.host)
		case a.host != nil:
			err = a.d.b.freeHost(a.host)
		case a.release != nil:
			err = firstErr(a.d.b.syncAll(), a.release())
		default:
			err = a.d.b.free(a.addr)
		}
		a.forget(0)
		return err
	})
}

func (a *allocation) freeAfter(streams []*Stream) error {
	if a == nil || a.host != nil {
		return a.free()
	}
	d := a.d
	var of []*handle
	var raw []uintptr
	for _, st := range streams {
		if h := st.handleOn(d); !slices.Contains(of, h) {
			of, raw = append(of, h), append(raw, h.h)
		}
	}
	return d.waiting(func() (err error) {
		if a.freed.Swap(true) {
			return fmt.Errorf("free: %w", ErrFreed)
		}
		if a.release != nil {
			for _, st := range raw {
				err = firstErr(err, d.b.syncStream(st))
			}
			err = firstErr(err, a.release())
			a.forget(0)
			return err
		}
		var passed uintptr
		if a.pooled && d.cfg.memory > 0 {
			if passed, err = d.newEvent(); errors.As(err, new(*CallError)) {
				err = nil // callers that free do not try again: what nothing uses needs no event
				for _, st := range of {
					err = firstErr(err, d.syncStream(st))
				}
			}
			if err != nil {
				a.freed.Store(false)
				return err
			}
		}
		if err = d.b.freeAfter(a.addr, a.pooled, raw, passed); err != nil { // Live goes on to tell of it, and Close frees it
			if passed != 0 {
				d.b.freeEvent(passed)
			}
			a.freed.Store(false)
			return err
		}
		a.forget(passed)
		return nil
	}, of...)
}

// Live describes the device's allocations that are not freed, the largest first. If a test closes all it opens, what is
// left at its end was forgotten.
func (d *Device) Live() []Allocation {
	d.liveMu.Lock()
	defer d.liveMu.Unlock()
	var out []Allocation
	for a := range d.live {
		out = append(out, Allocation{a.bytes, a.host != nil, a.makers()})
	}
	slices.SortFunc(out, func(a, b Allocation) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.By, b.By))
	})
	return out
}

// Allocation describes an allocation: see Live.
type Allocation struct {
	Bytes int64
	Host  bool   // pinned host memory
	By    string // the functions that asked for it, the innermost first
}

func (a Allocation) String() string {
	kind := "device"
	if a.Host {
		kind = "host"
	}
	return fmt.Sprintf("%s of %s memory by %s", Bytes(a.Bytes), kind, a.By)
}

// makers names the functions outside this package that led to the allocation.
func (a *allocation) makers() string {
	var names []string
	frames := runtime.CallersFrames(a.by[:])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if f.Function != "" && !strings.HasPrefix(f.Function, reflect.TypeFor[Device]().PkgPath()+".") && !strings.HasPrefix(f.Function, "runtime.") {
			names = append(names, path.Base(f.Function))
		}
	}
	return strings.Join(names, " < ")
}

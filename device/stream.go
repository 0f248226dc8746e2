package device

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warpmap/warpmap/internal/faults"
)

// handle is what streams and events have in common: the back end's name for them, until they are closed.
type handle struct {
	d      *Device
	h      uintptr
	what   string
	free   func(b backend, h uintptr) error
	mu     sync.RWMutex // held for reading during every call that uses h, for writing by shut
	closed atomic.Bool

	outside atomic.Bool // others may be capturing it: see Stream.Capturing
}

// open makes x what create creates.
func (x *handle) open(d *Device, what string, create func() (uintptr, error), free func(backend, uintptr) error) error {
	x.d, x.what, x.free = d, what, free
	return d.do(func() (err error) {
		if x.h, err = create(); err != nil {
			return err
		}
		d.liveMu.Lock()
		defer d.liveMu.Unlock()
		d.handles[x] = struct{}{}
		return nil
	})
}

// on says why x cannot be used on d.
func (x *handle) on(d *Device) error {
	if !x.d.made() || !d.made() {
		return errUnmade
	}
	if !x.d.same(d) {
		return fmt.Errorf("%s of device %s given to device %s", x.what, x.d.infos.Name, d.infos.Name)
	}
	if x.closed.Load() {
		return fmt.Errorf("%s: %w", x.what, ErrClosed)
	}
	return nil
}

// shut waits for the calls that use x, and frees it. The caller is in do, or closes the device.
func (x *handle) shut() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed.Swap(true) {
		return nil
	}
	x.d.liveMu.Lock()
	delete(x.d.handles, x)
	x.d.liveMu.Unlock()
	return x.free(x.d.b, x.h)
}

// follow tells that x may become part of a capture that y is part of.
func (x *handle) follow(y *handle) {
	if y.outside.Load() {
		x.outside.Store(true)
	}
}

func (x *handle) close() error {
	if x.d == nil || x.closed.Load() {
		return nil
	}
	return x.d.do(x.shut)
}

// use runs a call of the back end that uses streams and events: none of them can be closed meanwhile, by their own device either.
func (d *Device) use(call func() error, of ...*handle) error {
	return d.do(func() error { return d.hold(of, call) })
}

func (d *Device) hold(of []*handle, call func() error) error {
	if len(of) == 0 {
		return call()
	}
	x := of[0]
	if !slices.Contains(of[1:], x) {
		x.mu.RLock()
		defer x.mu.RUnlock()
	}
	if err := x.on(d); err != nil {
		return err
	}
	return d.hold(of[1:], call)
}

// openHandles is every stream and event of the device.
func (d *Device) openHandles() (all []*handle) {
	d.liveMu.Lock()
	defer d.liveMu.Unlock()
	for x := range d.handles {
		all = append(all, x)
	}
	return all
}

// Stream is a queue of work that runs in order; streams run beside each other. As an argument, a nil *Stream stands for
// the device's own. Of its own methods only On, SyncOf and Wait take a nil *Stream. On the CPU device, work runs within
// the call that queues it, and that call waits for the calls of others on the same stream.
type Stream struct{ x handle }

// NewStream makes a stream.
func (d *Device) NewStream() (*Stream, error) { return d.newStream(backend.newStream) }

func (d *Device) newStream(create func(backend) (uintptr, error)) (*Stream, error) {
	s := &Stream{}
	err := s.x.open(d, "stream", func() (uintptr, error) { return d.creating(faults.Stream, create) }, backend.freeStream)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// NewUrgentStream makes a stream whose kernels go before the waiting kernels of other streams; blocks of those that run
// already end first. It is for what must not wait until a large kernel is through, such as what goes to other devices.
// On the CPU device it is a stream like any other.
func (d *Device) NewUrgentStream() (*Stream, error) { return d.newStream(backend.newUrgentStream) }

// Device is where the stream is.
func (st *Stream) Device() *Device { return st.x.d }

// Stream is the device's own stream: the one that a nil *Stream stands for.
func (d *Device) Stream() *Stream { return d.stream }

// handleOn is the stream's handle; the device's own stream's for nil.
func (st *Stream) handleOn(d *Device) *handle {
	if st == nil {
		return &d.stream.x
	}
	return &st.x
}

// On says why st cannot be used on d; a nil stream can.
func (st *Stream) On(d *Device) error {
	if st == nil {
		return nil
	}
	return st.x.on(d)
}

// Sync waits until all work on the stream is done, and returns the error that any of it met.
func (st *Stream) Sync() error {
	d := st.x.d
	return d.waiting(func() error { return d.syncStream(&st.x) }, &st.x)
}

// SyncOf does what Sync does, also for a nil stream, which stands for d's own.
func (st *Stream) SyncOf(d *Device) error {
	if st == nil {
		if !d.made() {
			return errUnmade
		}
		return d.stream.Sync()
	}
	return st.Sync()
}

// Close waits for the stream's work and frees it.
func (st *Stream) Close() error { return st.x.close() }

// Wait holds back the stream's later work until the event has passed. The event may be of another device of the same
// kind. A nil stream stands for the own stream of the event's device.
func (st *Stream) Wait(e *Event) error {
	if e == nil || e.x.d == nil || st != nil && st.x.d == nil {
		return errUnmade
	}
	d := e.x.d
	if st == nil || st.x.d.same(d) {
		h := st.handleOn(d)
		h.follow(&e.x)
		return d.use(func() error { return d.wait(h, &e.x) }, h, &e.x)
	}
	on := st.x.d
	if on.infos.CUDA() != d.infos.CUDA() {
		return fmt.Errorf("event of device %s given to device %s", d.infos.Name, on.infos.Name)
	}
	st.x.follow(&e.x)
	return on.with(d, func() error {
		return on.hold([]*handle{&st.x}, func() error { return d.hold([]*handle{&e.x}, func() error { return on.wait(&st.x, &e.x) }) })
	})
}

// Event marks a point in a stream.
type Event struct{ x handle }

// NewEvent makes an event.
func (d *Device) NewEvent() (*Event, error) {
	e := &Event{}
	if err := e.x.open(d, "event", d.newEvent, backend.freeEvent); err != nil {
		return nil, err
	}
	return e, nil
}

// Record sets the event to the stream's present end. A nil stream is the own stream of the event's device. A stream of
// another device is an error.
func (e *Event) Record(st *Stream) error {
	d := e.x.d
	if d == nil {
		return errUnmade
	}
	h := st.handleOn(d)
	e.x.follow(h)
	return d.use(func() error {
		return d.call(faults.Event, 0, func() error { return d.b.record(e.x.h, h.h) })
	}, h, &e.x)
}

// Sync waits until the event has passed.
func (e *Event) Sync() error {
	d := e.x.d
	return d.use(func() error {
		return d.call(faults.Sync, 0, func() error { return d.b.syncEvent(e.x.h) })
	}, &e.x)
}

// Since is the device's time from an earlier event of the same device to this one. Both must have been recorded, and
// must have passed.
func (e *Event) Since(from *Event) (t time.Duration, err error) {
	if from == nil {
		return 0, errUnmade
	}
	d := e.x.d
	err = d.use(func() (err error) { t, err = d.b.elapsed(from.x.h, e.x.h); return err }, &from.x, &e.x)
	return t, err
}

// Close frees the event.
func (e *Event) Close() error { return e.x.close() }

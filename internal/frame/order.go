package frame

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
)

// Order makes the operations of one table see one another in the order of the calls, though they may be on several
// streams: readers run beside each other, a writer beside nothing. The table holds the lock while it queues.
type Order struct {
	mu     sync.Mutex
	d      *device.Device
	atOnce bool // work ends within the call that queues it, under the lock
	write  mark
	reads  []mark
}

// mark is the end of an operation in a stream.
type mark struct {
	st *device.Stream
	ev *device.Event
}

// Init names the device. Without it an Order must not be used.
func (o *Order) Init(d *device.Device) { o.d, o.atOnce = d, !d.Info().CUDA() }

// unmarked tells that nothing has to be marked, as on the CPU device: a mark takes a sixth of a batch of one row. Where a
// test has calls fail, there are marks nevertheless, so that theirs fail, too.
func (o *Order) unmarked() bool { return o.atOnce && !faults.Any() }

// Read runs queue, which puts work on the stream that only reads the table. Work that goes into a CUDA graph cannot
// wait for work outside it, and runs nobody knows when. So the host waits for the last change, and no later change
// waits for the graph.
func (o *Order) Read(st *device.Stream, queue func() error) (err error) {
	st = o.stream(st)
	if captured, err := st.Capturing(); err != nil {
		return err
	} else if captured {
		if o.write.ev != nil {
			if err := o.write.ev.Sync(); err != nil {
				return err
			}
		}
		return queue()
	}
	if err := o.after(st, &o.write); err != nil {
		return err
	}
	defer o.leave(st, o.markRead, &err)
	return queue()
}

// leave marks the end of what an operation has put on the stream, be it less than all for an error or a panic. Work that cannot be
// marked is waited for.
func (o *Order) leave(st *device.Stream, set func(*device.Stream) error, err *error) {
	if o.unmarked() {
		if *err == nil { // it may have queued nothing: then the mark is what finds that the device is closed or lost
			*err = o.d.Current(func() error { return st.On(o.d) })
		}
		return
	}
	if set(st) == nil {
		return
	}
	if e := st.Sync(); *err == nil {
		*err = e
	}
}

func (o *Order) markRead(st *device.Stream) error {
	for i := range o.reads {
		if o.reads[i].st == st {
			return o.reads[i].ev.Record(st)
		}
	}
	if len(o.reads) == maxReads { // this stream's mark stands for them all
		for i := range o.reads {
			if err := o.after(st, &o.reads[i]); err != nil {
				return err
			}
		}
		o.forget()
	}
	m := mark{st: st}
	if err := m.set(o.d, st); err != nil {
		return err
	}
	o.reads = append(o.reads, m)
	return nil
}

func (o *Order) markWrite(st *device.Stream) error { return o.write.set(o.d, st) }

// maxReads bounds the streams that an Order remembers.
const maxReads = 32

// Write runs queue, which puts work on the stream that changes the table.
func (o *Order) Write(st *device.Stream, queue func() error) (err error) {
	st = o.stream(st)
	if captured, err := st.Capturing(); err != nil {
		return err
	} else if captured {
		return fmt.Errorf("%w: what changes a table, or needs memory of its own, cannot be part of one", device.ErrCapturing)
	}
	if err := o.after(st, &o.write); err != nil {
		return err
	}
	for i := range o.reads {
		if err := o.after(st, &o.reads[i]); err != nil {
			return err
		}
	}
	o.forget()
	defer o.leave(st, o.markWrite, &err)
	return queue()
}

func (o *Order) forget() {
	for _, m := range o.reads {
		m.ev.Close()
	}
	o.reads = o.reads[:0]
}

// Idle waits until all work queued on the table is done. Where the wait for a mark is refused, it waits for the mark's
// stream. busy are those streams for which that is refused, too: what they may be using is to be freed behind them.
func (o *Order) Idle() (busy []*device.Stream, err error) {
	for _, m := range append([]mark{o.write}, o.reads...) {
		if m.ev == nil {
			continue
		}
		e := m.ev.Sync()
		if errors.As(e, new(*device.CallError)) {
			if e = nil; m.st.On(o.d) == nil { // else it is closed, and its Close has waited
				e = m.st.Sync()
			}
		}
		if e != nil {
			busy = append(busy, m.st)
			err = cmp.Or(err, e)
		}
	}
	return busy, err
}

// Lock and Unlock guard the table while a call decides and queues.
func (o *Order) Lock()   { o.mu.Lock() }
func (o *Order) Unlock() { o.mu.Unlock() }

// Close frees the events.
func (o *Order) Close() {
	for _, m := range append([]mark{o.write}, o.reads...) {
		if m.ev != nil {
			m.ev.Close()
		}
	}
	o.write, o.reads = mark{}, nil
}

func (o *Order) stream(st *device.Stream) *device.Stream {
	if st == nil {
		return o.d.Stream()
	}
	return st
}

func (o *Order) after(st *device.Stream, m *mark) error {
	if m.ev == nil || m.st == st {
		return nil
	}
	return st.Wait(m.ev)
}

func (m *mark) set(d *device.Device, st *device.Stream) error {
	if m.ev == nil {
		ev, err := d.NewEvent()
		if err != nil {
			return err
		}
		if err := ev.Record(st); err != nil {
			ev.Close()
			return err
		}
		m.ev, m.st = ev, st
		return nil
	}
	m.st = st
	return m.ev.Record(st)
}

package shard

import (
	"errors"
	"time"

	"github.com/warpmap/warpmap/device"
)

// Steps tells how long the steps of exchanges took, with Options.Apart. Each time is the sum over all exchanges, and
// over the rounds of each. Of a round it counts the time of the device where the step took longest.
type Steps struct {
	Count time.Duration `json:"count"` // each source counts its rows for each owner; 0 where all devices are asked
	Split time.Duration `json:"split"` // sources bring rows in the order of owners; includes remote writes
	Send  time.Duration `json:"send"`  // copies from outboxes to inboxes, in the place of remote writes
	Work  time.Duration `json:"work"`  // the tables' own operations
	Fetch time.Duration `json:"fetch"` // sources read results at the owners, and write them in the batch's order
}

// step is one of Steps.
type step int

const (
	countStep step = iota
	splitStep
	sendStep
	workStep
	fetchStep
	steps
)

// watch measures steps on a stream by events, if steps are apart; nil does nothing.
type watch struct{ from, to *device.Event }

func newWatch(d *device.Device) (w *watch, err error) {
	w = &watch{}
	if w.from, err = d.NewEvent(); err == nil {
		w.to, err = d.NewEvent()
	}
	return w, err
}

func (w *watch) begin(st *device.Stream) error {
	if w == nil {
		return nil
	}
	return w.from.Record(st)
}

func (w *watch) end(st *device.Stream) error {
	if w == nil {
		return nil
	}
	return w.to.Record(st)
}

// took waits for the end, and gives the time since the beginning.
func (w *watch) took() (time.Duration, error) {
	if w == nil {
		return 0, nil
	}
	if err := w.to.Sync(); err != nil {
		return 0, err
	}
	return w.to.Since(w.from)
}

func (w *watch) close() error {
	if w == nil {
		return nil
	}
	var err error
	for _, ev := range []*device.Event{w.from, w.to} {
		if ev != nil {
			err = errors.Join(err, ev.Close())
		}
	}
	return err
}

// clock waits for a stream, if steps are apart, and notes how long a step of a round took. The next begins there.
func (f *flight) clock(r int, which step, st *device.Stream, w *watch) error {
	if w == nil {
		return nil
	}
	if err := w.end(st); err != nil {
		return err
	}
	t, err := w.took()
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.took[r][which] = max(f.took[r][which], t)
	return w.begin(st)
}

package shard

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
)

// figureBatch measures the time of inserts and look-ups that have few rows on each device.
func figureBatch(d *device.Device, o bench.FigOptions) (fig *bench.Fig, err error) {
	fig = &bench.Fig{
		Title:   fmt.Sprintf("small batches over several devices, room for %d pairs of 4+4 bytes on each", o.N),
		Columns: []string{"devices", "batch", "insert µs", "find µs", "wrong"},
		Notes: []string{"batch: rows on each device; its time, by the wall clock, ends when all devices are done",
			"inserts are into an empty table, look-ups in a full one"},
		Plots: []bench.Plot{
			{Name: "insert", Title: "Small batches of inserts", X: "batch", Y: "insert µs", Series: "devices",
				LogX: true, LogY: true},
			{Name: "find", Title: "Small batches of look-ups", X: "batch", Y: "find µs", Series: "devices",
				LogX: true, LogY: true},
		},
	}
	devices, closeAll, err := devicesOf(d, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	for _, n := range []int{1, len(devices)} {
		if n == 1 && len(fig.Rows) > 0 {
			break // there is one device
		}
		o.Step(fmt.Sprintf("%d devices", n))
		if err := batches(fig, devices[:n], o.N); err != nil {
			return nil, err
		}
	}
	return fig, nil
}

func batches(fig *bench.Fig, devices []*device.Device, n int) (err error) {
	w, err := newWork[uint32](devices, devices, 0, len(devices), Options{N: n, Load: load, Hits: hits})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for batch := 1000; batch <= min(n, 10_000_000); batch *= 10 {
		pairs, ask := firstOf(w.pairs, batch), firstOf(w.ask, batch)
		insert, err := w.clocked(batchRuns, w.clear, func() error { return w.insert(pairs) })
		if err != nil {
			return err
		}
		wrong := 0
		if got, err := w.table.Len(); err != nil {
			return err
		} else if got != batch*len(devices) {
			wrong++
		}
		if err := w.insert(w.pairs); err != nil {
			return err
		}
		find, err := w.clocked(batchRuns, w.ready, func() error { return w.find(ask) })
		if err != nil {
			return err
		}
		answers, err := w.wrong(ask, 1)
		if err != nil {
			return err
		}
		fig.Add(len(devices), batch, bench.Round(float64(insert)/1e3), bench.Round(float64(find)/1e3), wrong+answers)
	}
	return nil
}

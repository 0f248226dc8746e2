package shard

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/shard"
)

// batchRuns is the number of runs of a small batch. Their times differ more than those of large ones.
const batchRuns = 25

// figureAsk measures batches of look-ups on one device, in a table over several. Either all devices look up all keys,
// or keys go to their owners.
func figureAsk(d *device.Device, o bench.FigOptions) (fig *bench.Fig, err error) {
	fig = &bench.Fig{
		Title:   fmt.Sprintf("look-ups on one device of a table over several, %d pairs a device", o.N),
		Columns: []string{"devices", "batch", "way", "µs", "M/s", "wrong", "note"},
		Notes:   []string{"a batch is on the first device; its time, by the wall clock, ends with the results"},
		Plots: []bench.Plot{{Name: "time", Title: "Small batches of look-ups", X: "batch", Y: "µs", Series: "way",
			Facet: "devices", LogX: true, LogY: true}},
	}
	devices, closeAll, err := devicesOf(d, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	for _, n := range counts(len(devices)) {
		for _, w := range []way{{name: "to owners", o: shard.Options{AskAll: -1}},
			{name: "of all", o: shard.Options{AskAll: 1 << 40}}} {
			if n == 1 && w.o.AskAll > 0 {
				continue
			}
			o.Step(fmt.Sprintf("%d devices, %s", n, w.name))
			if err := ask(fig, devices[:n], o.N, w); err != nil {
				return nil, err
			}
		}
	}
	return fig, nil
}

func ask(fig *bench.Fig, devices []*device.Device, n int, way way) (err error) {
	w, err := newWork[uint32](devices, devices, 0, len(devices), Options{N: n, Load: load, Hits: hits, Shard: way.o})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.insert(w.pairs); err != nil {
		return err
	}
	for batch := 1 << 8; batch <= min(n, 1<<22); batch *= 4 {
		parts := firstOf(w.ask[:1], batch)
		t, err := w.clocked(batchRuns, w.ready, func() error { return w.find(parts) })
		if err != nil {
			return err
		}
		wrong, err := w.wrong(parts, 1)
		if err != nil {
			return err
		}
		fig.Add(len(devices), batch, way.name, bench.Round(float64(t)/1e3), bench.Round(1e3*bench.Rate(batch, t)),
			wrong, "")
	}
	return nil
}

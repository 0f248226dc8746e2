package shard

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/shard"
)

// figureAsk measures batches of look-ups on one device, of a table over all: those that are asked of all devices, and those that go to the owners of their keys.
func figureAsk(d *device.Device, o bench.FigOptions) (fig *bench.Fig, err error) {
	fig = &bench.Fig{
		Title:   fmt.Sprintf("look-ups on one device of a table over several, %d pairs a device", o.N),
		Columns: []string{"devices", "batch", "way", "µs", "M/s", "wrong", "note"},
		Notes:   []string{"a batch is on the first device; its time, by the wall clock, is until the results are there"},
		Plots:   []bench.Plot{{Name: "time", Title: "Small batches of look-ups", X: "batch", Y: "µs", Series: "way", Facet: "devices", LogX: true, LogY: true}},
	}
	devices, closeAll, err := devicesOf(d, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	for _, n := range counts(len(devices)) {
		for _, w := range []way{{name: "to owners", o: shard.Options{AskAll: -1}}, {name: "of all", o: shard.Options{AskAll: 1 << 40}}} {
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
	w, err := newWork(devices, Options{Family: warpmap.WarpCore, N: n, Load: 0.8, Hits: 0.5, Shard: way.o})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.m.InsertEach(w.pairs); err != nil {
		return err
	}
	for batch := 1 << 8; batch <= min(n, 1<<22); batch *= 4 {
		part := w.ask[0]
		part.Keys, part.Values, part.Flags = part.Keys.Slice(0, batch), part.Values.Slice(0, batch), part.Flags.Slice(0, batch)
		parts := []shard.Part[uint32, uint32]{part}
		t, err := w.clocked(25, nil, func() error { return w.m.FindEach(parts) })
		if err != nil {
			return err
		}
		wrong, err := w.drawn[0].check(part)
		if err != nil {
			return err
		}
		fig.Add(len(devices), batch, way.name, bench.Round(float64(t)/1e3), bench.Round(1e3*bench.Rate(batch, t)), wrong, "")
	}
	return nil
}

package library

import (
	"errors"
	"fmt"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
)

// growBatches are the shares of all pairs that come at once.
var growBatches = []int{1000, 100, 10, 1}

// grow inserts pairs into maps that are made with no capacity, batch by batch, so that they grow from nothing.
func grow(d *device.Device, o bench.FigOptions) (fig *bench.Fig, err error) {
	fig = &bench.Fig{
		Title:   fmt.Sprintf("maps that grow from nothing to %d pairs, keys and values of 4 bytes", o.N),
		Columns: []string{"family", "batch", "G/s", "least", "most", "ms", "MB", "wrong"},
		Notes: []string{"keys and values lie in the device's memory; the time is the wall clock's, of making the map, of all inserts and of waiting " +
			"for them; the median of 5 runs, and the least and the most; MB: of the map in the end"},
		Plots: []bench.Plot{{Title: "Growing from nothing", X: "batch", Y: "G/s", Series: "family", LogX: true}},
	}
	w, err := bench.NewWork[uint32, uint32](d, bench.TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: o.N, Queries: o.N, Hits: 0.5, Seed: 1})
	if err != nil {
		return nil, err
	}
	defer w.Free()
	for _, family := range warpmap.Families(table.KindMap) {
		for _, share := range growBatches {
			w.Options.Batch = max(1, o.N/share)
			o.Step(fmt.Sprintf("%s, %d at a time", family, w.Options.Batch))
			if err := growOne(d, fig, w, family); err != nil {
				return nil, fmt.Errorf("%s, %d at a time: %w", family, w.Options.Batch, err)
			}
		}
	}
	return fig, nil
}

// growOne adds a row.
func growOne(d *device.Device, fig *bench.Fig, w *bench.Work[uint32, uint32], family table.Family) error {
	var m table.Map[uint32, uint32]
	wrong, bytes := 0, int64(0)
	times, err := bench.Runtimes(d, func() (err error) {
		if m, err = bench.NewMap(d, family, table.Options{}); err != nil {
			return err
		}
		return errors.Join(w.Map(m).Fill(), d.Stream().Sync())
	}, func() error {
		s, err := m.Stats()
		bytes = s.Bytes
		if err == nil {
			err = w.Map(m).Find()
		}
		some, counted := w.Count()
		wrong += some
		return errors.Join(err, counted, m.Close())
	})
	if err != nil {
		return err
	}
	rate := func(t time.Duration) float64 { return bench.Round(bench.Rate(w.Options.N, t)) }
	median := times[len(times)/2]
	fig.Add(string(family), w.Options.Batch, rate(median), rate(times[len(times)-1]), rate(times[0]), bench.Round(median.Seconds()*1e3),
		bench.Round(float64(bytes)/1e6), wrong)
	return nil
}

package library

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
)

// mostDirect is how many goroutines ask the table itself: with more of them it takes seconds till each has had a turn.
const mostDirect = 100

// batcher measures look-ups of one key, through a Batcher and without, by the number of goroutines that wait for one each.
func batcher(d *device.Device, o bench.FigOptions) (fig *bench.Fig, err error) {
	fig = &bench.Fig{
		Title:   fmt.Sprintf("look-ups of one key each, of %d pairs of 8+8 bytes", o.N),
		Columns: []string{"goroutines", "way", "K/s", "least", "most", "p50 µs", "p99 µs", "wrong"},
		Notes:   []string{"half of the keys are there; the median of 5 runs, and the least and the most; a goroutine asks for its next key when it has the last"},
		Plots: []bench.Plot{
			{Name: "rate", Title: "Look-ups of one key", X: "goroutines", Y: "K/s", Least: "least", Most: "most", Series: "way", LogX: true, LogY: true},
			{Name: "p99", Title: "The slowest hundredth of look-ups of one key", X: "goroutines", Y: "p99 µs", Series: "way", LogX: true, LogY: true},
		},
	}
	m, err := warpmap.New[uint64, uint64](d, warpmap.WarpCore, table.Options{Capacity: o.N})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	keys := make([]uint64, o.N)
	for i := range keys {
		keys[i] = uint64(i)
	}
	if err := m.Insert(keys, keys); err != nil {
		return nil, err
	}
	b, err := table.NewBatcher(m, table.BatcherOptions{})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	each := min(2*time.Second, max(20*time.Millisecond, time.Duration(o.N)*2*time.Microsecond))
	for goroutines := 1; goroutines <= 10_000; goroutines *= 10 {
		for _, w := range []struct {
			name string
			get  func(k uint64) (uint64, bool, error)
		}{
			{"Batcher.Get", func(k uint64) (uint64, bool, error) { return b.Get(context.Background(), k) }},
			{"table.Get", func(k uint64) (uint64, bool, error) { return warpmap.Get(m, k) }},
		} {
			if w.name == "table.Get" && goroutines > mostDirect {
				continue
			}
			o.Step(fmt.Sprintf("%d goroutines, %s", goroutines, w.name))
			a, least, most, wrong, err := bench.AskRuns(goroutines, each, func(rng *rand.Rand) (bool, error) {
				k := rng.Uint64N(2 * uint64(o.N))
				v, found, err := w.get(k)
				return found == (k < uint64(o.N)) && (!found || v == k), err
			})
			if err != nil {
				return nil, err
			}
			fig.Add(goroutines, w.name, bench.Round(a.PerSecond()/1e3), bench.Round(least/1e3), bench.Round(most/1e3), bench.Round(a.Micros(50)), bench.Round(a.Micros(99)), wrong)
		}
	}
	return fig, nil
}

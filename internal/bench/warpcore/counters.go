package warpcore

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// figureCounter is how fast keys are counted that come often, the more unevenly the harder: n keys drawn from a tenth as many, each as likely or by
// Zipf's law, and one key n times. Beside the Counter stand the Map that adds values up, and the one that keeps any of a key's.
func figureCounter(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	const load = 0.8
	fig := &bench.Fig{
		Title:   fmt.Sprintf("WarpCore, counters: %d keys of 4 bytes at load factor %v, by how they are distributed", o.N, load),
		Columns: []string{"keys are", "exponent", "table", "distinct", "rows G/s", "find G/s", "bytes a key", "wrong", "note"},
		Notes: []string{"keys are drawn from a tenth as many; distinct: how many came, of which each is looked up once; exponent: of Zipf's law, 0 where each is " +
			"as likely"},
		Plots: []bench.Plot{
			{Name: "rows", Title: "Counting and adding up", X: "keys are", Y: "rows G/s", Series: "table"},
			{Name: "zipf", Title: "Counting and adding up, by the exponent of Zipf's law", X: "exponent", Y: "rows G/s", Series: "table"},
		},
	}
	for _, keys := range []struct {
		name     string
		exponent any
		kind     string
		distinct int
	}{
		{"uniform", 0.0, "rand", max(1, o.N/10)},
		{"Zipf 0.5", 0.5, "zipf:0.5", max(1, o.N/10)},
		{"Zipf 0.75", 0.75, "zipf:0.75", max(1, o.N/10)},
		{"Zipf 1", 1.0, "zipf:1", max(1, o.N/10)},
		{"Zipf 1.25", 1.25, "zipf:1.25", max(1, o.N/10)},
		{"Zipf 1.5", 1.5, "zipf:1.5", max(1, o.N/10)},
		{"Zipf 1.75", 1.75, "zipf:1.75", max(1, o.N/10)},
		{"Zipf 2", 2.0, "zipf:2", max(1, o.N/10)},
		{"one key", nil, "rand", 1},
	} {
		w, err := bench.NewWork[uint32, uint32](d, bench.TableOptions{Keys: keys.kind, KeyBytes: 4, ValueBytes: 4, N: o.N, Distinct: keys.distinct, Seed: 1})
		if err != nil {
			return nil, err
		}
		for _, x := range Counting {
			o.Step(fmt.Sprintf("%s: %s", keys.name, x.name))
			row, err := measured(w, x.make, load)
			if err != nil {
				note, fatal := bench.Refusal(err)
				if fatal != nil {
					w.Free()
					return nil, fatal
				}
				fig.Add(keys.name, keys.exponent, x.name, w.Different(), nil, nil, nil, nil, note)
				continue
			}
			fig.Add(keys.name, keys.exponent, x.name, w.Different(), bench.Round(row.Insert), bench.Round(row.Find), bench.Round(float64(row.Bytes)/float64(w.Different())),
				row.Wrong, "")
		}
		w.Free()
	}
	return fig, nil
}

// Counting are the tables of figureCounter, with room for the keys that they are drawn from.
var Counting = []subject{
	{name: "Counter", make: func(w *work, load float64) (s bench.Subject, err error) {
		c, err := warpcore.NewCounter[uint32, uint32](w.Device, warpcore.CounterOptions{Options: roomFor(w, load)})
		if err != nil {
			return s, err
		}
		s, err = bench.Counter(w, c)
		return closedAfter(s, err, c)
	}},
	{name: "Map, Update with Add", make: func(w *work, load float64) (s bench.Subject, err error) {
		m, err := warpcore.New[uint32, uint32](w.Device, roomFor(w, load))
		if err != nil {
			return s, err
		}
		s, err = bench.Updated(w, m)
		return closedAfter(s, err, m)
	}},
	{name: "Map, Insert", make: func(w *work, load float64) (s bench.Subject, err error) {
		m, err := warpcore.New[uint32, uint32](w.Device, roomFor(w, load))
		if err != nil {
			return s, err
		}
		return w.Map(m), nil
	}},
}

func roomFor(w *work, load float64) warpcore.Options {
	return warpcore.Options{Options: table.Options{Capacity: w.Options.Room(), LoadFactor: load}}
}

// closedAfter closes the table where there is an error.
func closedAfter(s bench.Subject, err error, table interface{ Close() error }) (bench.Subject, error) {
	if err != nil {
		err = errors.Join(err, table.Close())
	}
	return s, err
}

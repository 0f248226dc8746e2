package slabhash

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/baseline"
	"github.com/warpmap/warpmap/table"
)

// figure6 is Figure 6: batches of 1/64, 1/32 and 1/16 of o.N pairs (of 2 million: 32k, 64k, 128k).
func figure6(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	const final = 0.65 // utilization, and load factor
	fig := &bench.Fig{
		Title:   fmt.Sprintf("SlabHash, Figure 6: %d pairs of 4+4 bytes in batches, inserted or rebuilt from scratch", o.N),
		Columns: []string{"batch", "table", "pairs", "total ms", "slab is faster", "wrong", "note"},
		Notes: []string{fmt.Sprintf("slab: batches inserted into one table that ends at a utilization of %v; others: tables of a load factor of %v "+
			"at the end, cleared for each batch and filled with all pairs so far; cuckoo has that load factor each time", final, final), baseline.CuckooNote},
		Plots: []bench.Plot{{Title: "SlabHash, Figure 6: time for all batches", X: "pairs", Y: "total ms", Series: "table", Facet: "batch", LogY: true}},
	}
	w, err := newWork(d, o.N)
	if err != nil {
		return nil, err
	}
	defer w.Free()
	for _, part := range []int{64, 32, 16} {
		batch := max(1, (o.N+part-1)/part)
		var slabTimes []time.Duration
		for _, kind := range []string{"slab", "warpcore", "gph", "cuckoo"} {
			o.Step(fmt.Sprintf("batches of %d: %s", batch, kind))
			load := final
			if kind == "slab" {
				load = min(1, betaFor(final))
			}
			ends, times, wrong, err := incremental(w, kind, load, batch)
			if err != nil {
				note, err := bench.Refusal(err)
				if err != nil {
					return nil, err
				}
				fig.Add(batch, kind, nil, nil, nil, nil, note)
				continue
			}
			if kind == "slab" {
				slabTimes = times
			}
			every := max(1, len(ends)/16)
			for i := range ends {
				if (i+1)%every != 0 && i+1 != len(ends) {
					continue
				}
				var faster any
				if kind != "slab" && slabTimes != nil {
					faster = bench.Round(float64(times[i]) / max(1, float64(slabTimes[i])))
				}
				fig.Add(batch, kind, ends[i], bench.Round(float64(times[i])/1e6), faster, wrong, "")
			}
		}
	}
	return fig, nil
}

// batched is a table that batches are inserted into.
type batched interface {
	Clear() error
	InsertOn(st *device.Stream, keys, values device.Slice[uint32]) error
	FindOn(st *device.Stream, keys, values device.Slice[uint32], found device.Slice[bool]) error
	Close() error
}

func newBatched(d *device.Device, kind string, n int, load float64) (batched, error) {
	if kind == "cuckoo" {
		return baseline.NewCuckoo(d, n, load)
	}
	return bench.NewMap(d, table.Family(kind), table.Options{Capacity: n, LoadFactor: load})
}

// incremental times all batches, of the run of median time: the time until each was in. slab gets each batch; other
// tables are rebuilt.
func incremental(w *bench.Work[uint32, uint32], kind string, load float64, batch int) (ends []int, times []time.Duration, wrong int, err error) {
	st, n := w.Device.Stream(), w.Options.N
	m, err := newBatched(w.Device, kind, n, load)
	if err != nil {
		return nil, nil, 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	for end := batch; end-batch < n; end += batch {
		ends = append(ends, min(end, n))
	}
	events := make([]*device.Event, len(ends)+1)
	for i := range events {
		if events[i], err = w.Device.NewEvent(); err != nil {
			return nil, nil, 0, err
		}
		defer events[i].Close()
	}
	var all [][]time.Duration
	for run := range bench.Runs + 1 {
		if err := errors.Join(m.Clear(), st.Sync(), events[0].Record(st)); err != nil {
			return nil, nil, 0, err
		}
		first := 0
		for i, end := range ends {
			if kind != "slab" {
				if err := m.Clear(); err != nil {
					return nil, nil, 0, err
				}
				first = 0
			}
			if err := m.InsertOn(st, w.Keys.Slice(first, end), w.Values.Slice(first, end)); err != nil {
				return nil, nil, 0, err
			}
			if err := events[i+1].Record(st); err != nil {
				return nil, nil, 0, err
			}
			first = end
		}
		if err := st.Sync(); err != nil {
			return nil, nil, 0, err
		}
		one := make([]time.Duration, len(ends))
		for i := range ends {
			if one[i], err = events[i+1].Since(events[0]); err != nil {
				return nil, nil, 0, err
			}
		}
		if run > 0 {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b []time.Duration) int { return int(a[len(a)-1] - b[len(b)-1]) })
	if err := m.FindOn(st, w.Queries, w.Results, w.Found); err != nil {
		return nil, nil, 0, err
	}
	wrong, err = w.Count()
	return ends, all[len(all)/2], wrong, err
}

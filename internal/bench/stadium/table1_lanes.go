package stadium

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/baseline"
	"github.com/warpmap/warpmap/stadium"
	"github.com/warpmap/warpmap/table"
)

// insertKernels are all that an insert launches.
const insertKernels = "^(stash_insert|cuckoo_build|insert|partition)"

// Batch says what InsertOnce does. Table is Stash, clStash, stadium or cuckoo, the last without tickets.
type Batch struct {
	Table     string
	Ticket, N int
	Load      float64
}

var (
	laneLoads = []float64{0.8, 0.85, 0.9, 0.95}
	// laneRows are Table I's, with what the paper has for each load factor, and package stadium's.
	laneRows = []struct {
		Batch
		paper [4]any
	}{
		{Batch{Table: "cuckoo"}, [4]any{25.45, 24.5, 23.5, 22.4}},
		{Batch{Table: "Stash", Ticket: 4}, [4]any{49.45, 47.0, 44.2, 40.6}},
		{Batch{Table: "clStash", Ticket: 4}, [4]any{87.95, 87.45, 86.85, 86.1}},
		{Batch{Table: "stadium", Ticket: 4}, [4]any{}},
		{Batch{Table: "stadium", Ticket: 8}, [4]any{}},
	}
)

// table1 is the share of a warp's lanes that are active. The counters are those of the GPU, read by Nsight Compute, under which this program
// runs again.
func table1(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	if !d.Info().CUDA() {
		return nil, fmt.Errorf("stadium/1 reads the counters of a GPU, and this is %s", d.Info().Name)
	}
	if len(o.Self) == 0 {
		return nil, errors.New("stadium/1 needs FigOptions.Self, to run this program again")
	}
	ncu, err := bench.FindNCU()
	if err != nil {
		return nil, err
	}
	return laneFig(o, func(b Batch) (bench.Lanes, error) {
		arg, err := json.Marshal(b)
		if err != nil {
			return bench.Lanes{}, err
		}
		return bench.ProfileLanes(ncu, slices.Concat(o.Self, []string{"insert-once", string(arg)}), insertKernels)
	})
}

// laneFig is the figure of what profile counts. Where it counts nothing, its last error is the figure's.
func laneFig(o bench.FigOptions, profile func(b Batch) (bench.Lanes, error)) (*bench.Fig, error) {
	const title = "Stadium hashing, Table I: warp execution efficiency of inserts"
	fig := &bench.Fig{
		Title:   fmt.Sprintf("%s, %d pairs of 4+4 bytes in device memory", title, o.N),
		Columns: []string{"load factor", "table", "ticket", "efficiency %", "paper %", "instructions, billions", "ms", "kernels", "note"},
		Notes: append(scaled(o.N, widthPairs), "efficiency: lanes that were active, of 32, over all instructions of all kernels of an insert, as Nsight Compute counts them; the paper's is of a GTX 780",
			namesNote, baseline.CuckooNote),
		Plots: []bench.Plot{{Title: title, X: "load factor", Y: "efficiency %", Series: "table"}},
	}
	counted, why := 0, error(nil)
	for i, load := range laneLoads {
		for _, r := range laneRows {
			b := r.Batch
			b.N, b.Load = o.N, load
			name, ticket := b.Table, any(nil)
			if b.Ticket > 0 {
				name, ticket = fmt.Sprintf("%s %d", b.Table, b.Ticket), b.Ticket
			}
			o.Step(fmt.Sprintf("under ncu: %s, load factor %v", name, load))
			l, err := profile(b)
			if err != nil {
				why = err
				fig.Add(load, name, ticket, nil, r.paper[i], nil, nil, nil, err.Error())
				continue
			}
			counted++
			fig.Add(load, name, ticket, bench.Round(l.Active), r.paper[i], bench.Round(l.Instructions/1e9), bench.Round(l.Milliseconds), l.Kernels, "")
		}
	}
	if counted == 0 {
		return nil, why
	}
	return fig, nil
}

// InsertOnce inserts random pairs of 4+4 bytes into an empty table, once, for a profiler to watch; then looks them up. Wrong answers are an error.
func InsertOnce(d *device.Device, b Batch) error {
	if b.N < 1 || b.Load <= 0 || b.Load > 1 {
		return fmt.Errorf("%d pairs, load factor %v: nothing to insert", b.N, b.Load)
	}
	var t interface {
		InsertOn(st *device.Stream, keys, values device.Slice[uint32]) error
		FindOn(st *device.Stream, keys, values device.Slice[uint32], found device.Slice[bool]) error
		Close() error
	}
	var err error
	switch b.Table {
	case plain.String():
		t, err = newStash[uint32, uint32](d, stashOptions{pairs: b.N, load: b.Load, ticket: b.Ticket, lanes: plain})
	case together.String():
		t, err = newStash[uint32, uint32](d, stashOptions{pairs: b.N, load: b.Load, ticket: b.Ticket, lanes: together})
	case "stadium":
		t, err = stadium.New[uint32, uint32](d, stadium.Options{Options: table.Options{Capacity: b.N, LoadFactor: b.Load}, Ticket: b.Ticket})
	case "cuckoo":
		t, err = baseline.NewCuckoo(d, b.N, b.Load)
	default:
		return fmt.Errorf("table %q: want Stash, clStash, stadium or cuckoo", b.Table)
	}
	if err != nil {
		return err
	}
	defer t.Close()
	w, err := bench.NewWork[uint32, uint32](d, bench.TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: b.N, Queries: b.N, Hits: 1, Seed: seed})
	if err != nil {
		return err
	}
	defer w.Free()
	st := d.Stream()
	if err := errors.Join(t.InsertOn(st, w.Keys, w.Values), t.FindOn(st, w.Queries, w.Results, w.Found)); err != nil {
		return err
	}
	wrong, err := w.Count()
	if err == nil && wrong > 0 {
		err = fmt.Errorf("%s at %v: %d wrong answers of %d", b.Table, b.Load, wrong, b.N)
	}
	return err
}

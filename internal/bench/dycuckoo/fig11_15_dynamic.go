package dycuckoo

import (
	"errors"
	"fmt"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/workload"
)

const (
	cudaBatches = 100 // of RAND's first round: of a million inserts each, in the paper
	cpuBatches  = 8
)

// batchOf is the paper's batch of so many inserts, in millions, for n pairs.
func batchOf(d *device.Device, o bench.FigOptions, millions float64) int {
	batches := o.Batches
	if batches == 0 {
		batches = cpuBatches
		if d.Info().CUDA() {
			batches = cudaBatches
		}
	}
	return max(1, int(millions*float64(o.N)/float64(batches)+0.5))
}

// dynamic is a dynamic workload on the device.
type dynamic struct {
	*workload.Churn
	w            *bench.Work[uint32, uint32]
	keys, values device.Slice[uint32] // of the deletions
}

func newDynamic(d *device.Device, set workload.DataSet, batch int, r float64) (x *dynamic, err error) {
	x = &dynamic{Churn: workload.NewChurn(set, batch, r)}
	defer func() {
		if err != nil {
			x.free()
		}
	}()
	if x.w, err = fill(d, set, len(x.Finds)); err != nil {
		return nil, err
	}
	values := make([]uint32, len(x.Deleted))
	for i, k := range x.Deleted {
		values[i] = uint32(workload.Value(uint64(k)))
	}
	var errs [2]error
	x.keys, errs[0] = device.From(d, x.Deleted)
	x.values, errs[1] = device.From(d, values)
	st := d.Stream()
	return x, errors.Join(errs[0], errs[1], x.w.Queries.Write(st, x.Finds), x.w.Expect.Write(st, x.Expect))
}

func (x *dynamic) free() {
	if x.w != nil {
		x.w.Free()
	}
	bench.Free(x.keys, x.values)
}

// step queues one batch.
func (x *dynamic) step(t store, s workload.ChurnStep) error {
	st := x.w.Device.Stream()
	part := func(of device.Slice[uint32], r [2]int) device.Slice[uint32] { return of.Slice(r[0], r[1]) }
	insert := func(keys, values device.Slice[uint32], r [2]int) error {
		if r[0] == r[1] {
			return nil
		}
		return t.InsertOn(st, part(keys, r), part(values, r))
	}
	erase := func(keys device.Slice[uint32], r [2]int) error {
		if r[0] == r[1] {
			return nil
		}
		return t.DeleteOn(st, part(keys, r), device.Slice[bool]{})
	}
	find := func() error {
		return t.FindOn(st, part(x.w.Queries, s.Finds), part(x.w.Results, s.Finds), x.w.Found.Slice(s.Finds[0], s.Finds[1]))
	}
	if s.Second {
		return errors.Join(erase(x.w.Keys, s.Pairs), find(), insert(x.keys, x.values, s.Deleted))
	}
	return errors.Join(insert(x.w.Keys, x.w.Values, s.Pairs), find(), erase(x.keys, s.Deleted))
}

// measure runs all batches on a table that is empty, and small, at first: all operations over all the time from the first to the end of the last.
func (x *dynamic) measure(sub subject, s settings) (rate float64, wrong int, err error) {
	var t store
	again := func() (err error) {
		if t != nil {
			err = t.Close()
			t = nil
		}
		if err == nil {
			t, err = sub.make(x.w.Device, s)
		}
		return err
	}
	defer func() {
		if t != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	took, err := bench.Timed(x.w.Device, x.w.Device.Stream(), bench.Runs, again, func() error {
		for _, s := range x.Steps {
			if err := x.step(t, s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	if wrong, err = x.w.Count(); err != nil {
		return 0, 0, err
	}
	stats, err := t.Stats()
	live := x.Steps[len(x.Steps)-1].Live
	return bench.Rate(x.Ops, took), wrong + max(stats.Len-live, live-stats.Len), err
}

// one is a setting of a dynamic figure, and what the column of the figure says of it.
type one struct {
	cell, millions, r float64
	s                 settings
}

func normal() one { return one{0, 1, ratio, settings{0, low, high, subtables}} }

// varied makes a setting for each value.
func varied(values []float64, set func(x *one, v float64)) (list []one) {
	for _, v := range values {
		x := normal()
		x.cell = v
		set(&x, v)
		list = append(list, x)
	}
	return list
}

func figure11(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	return vary(d, o, "11: by the share of deletions", "r", subjects(), varied([]float64{0.1, 0.2, 0.3, 0.4, 0.5}, func(x *one, v float64) { x.r = v }))
}

func figure13(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	return vary(d, o, "13: by the size of batches", "inserts a batch", subjects(), varied([]float64{0.2, 0.4, 0.6, 0.8, 1}, func(x *one, v float64) { x.millions, x.cell = v, float64(batchOf(d, o, v)) }))
}

func figure14(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	tables := slices.DeleteFunc(subjects(), func(x subject) bool { return !x.alpha })
	return vary(d, o, "14: by α", "α", tables, varied([]float64{0.20, 0.25, 0.30, 0.35, 0.40}, func(x *one, v float64) { x.s.low = v }))
}

func figure15(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	return vary(d, o, "15: by β", "β", subjects(), varied([]float64{0.70, 0.75, 0.80, 0.85, 0.90}, func(x *one, v float64) { x.s.high = v }))
}

func dynamicNotes(n int) []string {
	return append(scaleNotes(n), "batches of a million inserts (scaled: pairs of RAND over the number of batches), as many look-ups of keys that came before, and r times as many deletions; then again, inserts and deletions exchanged (§6.1)",
		"tables have no pairs, and the least memory, at first; G/s: all operations over all time on the device, waits and resizing included", subjectsNote, megakvNote)
}

// vary measures all tables on all data sets. A workload serves all settings that differ in the tables alone.
func vary(d *device.Device, o bench.FigOptions, title, column string, tables []subject, list []one) (*bench.Fig, error) {
	title = "DyCuckoo, Figure " + title
	fig := &bench.Fig{Title: title + ", pairs of 4+4 bytes", Notes: dynamicNotes(o.N), Columns: []string{"data", column, "table", "batches", "operations", "G/s", "wrong", "note"},
		Plots: []bench.Plot{{Title: title, X: column, Y: "G/s", Series: "table", Facet: "data"}}}
	sets, err := sets(o.N)
	if err != nil {
		return nil, err
	}
	for _, set := range sets {
		var x *dynamic
		for i, c := range list {
			if i == 0 || c.millions != list[i-1].millions || c.r != list[i-1].r {
				if x != nil {
					x.free()
				}
				o.Step(fmt.Sprintf("%s, %s %v: making batches", set.Name, column, c.cell))
				if x, err = newDynamic(d, set, batchOf(d, o, c.millions), c.r); err != nil {
					return nil, err
				}
			}
			for _, t := range tables {
				o.Step(fmt.Sprintf("%s, %s %v: %s", set.Name, column, c.cell, t.name))
				rate, wrong, err := x.measure(t, c.s)
				if err != nil {
					note, err := bench.Refusal(err)
					if err != nil {
						x.free()
						return nil, err
					}
					fig.Add(set.Name, c.cell, t.name, len(x.Steps), x.Ops, nil, nil, note)
					continue
				}
				fig.Add(set.Name, c.cell, t.name, len(x.Steps), x.Ops, bench.Round(rate), wrong, "")
			}
		}
		x.free()
	}
	return fig, nil
}

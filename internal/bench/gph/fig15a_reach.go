package gph

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/workload"
)

// figure15a is Figure 15(a): the load factor at which a table that cannot grow refuses a pair for the first time.
func figure15a(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	var settings []gph.Setting
	for _, m := range []int{4, 8, 16} {
		for _, r := range []int{2, 4, 8, 16, 32} {
			settings = append(settings, gph.Setting{Bucket: m, VirtualBuckets: r})
		}
	}
	return reaches(d, o, settings)
}

func reaches(d *device.Device, o bench.FigOptions, settings []gph.Setting) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title:   fmt.Sprintf("GPH, Figure 15(a): load factor at the first refusal, %d slots filled in small batches", o.N),
		Columns: []string{"M", "R", "slots a cell", "load", "refused", "moves", "rings a move", "wrong", "note"},
		Notes:   []string{"refused: pairs of the batch that was the first to be refused any; wrong: answers, of look-ups of every pair offered, and of as many not offered as are left"},
		Plots:   []bench.Plot{{Title: "Load factor at the first refusal", X: "R", Y: "load", Series: "M", LogX: true}},
	}
	t := bench.TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: o.N, Queries: o.N, Hits: 1, Seed: 1}
	w, err := bench.NewWork[uint32, uint32](d, t)
	if err != nil {
		return nil, err
	}
	defer w.Free()
	if err := w.Queries.CopyFrom(d.Stream(), w.Keys); err != nil {
		return nil, err
	}
	for _, s := range settings {
		o.Step(fmt.Sprintf("M = %d, R = %d", s.Bucket, s.VirtualBuckets))
		row, err := reach(w, s)
		if err != nil {
			note, err := bench.Refusal(err)
			if err != nil {
				return nil, err
			}
			row = []any{nil, nil, nil, nil, nil, nil, note}
		}
		fig.Add(append([]any{s.Bucket, s.VirtualBuckets}, row...)...)
	}
	return fig, nil
}

// reach fills one table until it refuses, and checks what is in it then: the pairs that it did not refuse, and no others.
func reach(w *bench.Work[uint32, uint32], s gph.Setting) (row []any, err error) {
	m, err := fixed(w.Device, w.Options.N, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	st := w.Device.Stream()
	expect := make([]byte, w.Options.N)
	var out []int
	batch, first := max(16, w.Options.N/256), 0
	for first < w.Options.N && len(out) == 0 {
		n := min(batch, w.Options.N-first)
		if out, err = refused(m.InsertOn(st, w.Keys.Slice(first, first+n), w.Values.Slice(first, first+n))); err != nil {
			return nil, err
		}
		for i := range n {
			expect[first+i] = workload.Hit
		}
		for _, i := range out {
			expect[first+i] = workload.Miss
		}
		first += n
	}
	note := ""
	if len(out) == 0 {
		note = "refused none"
	}
	if err := w.Expect.Write(st, expect); err != nil {
		return nil, err
	}
	if err := m.FindOn(st, w.Queries, w.Results, w.Found); err != nil {
		return nil, err
	}
	wrong, err := w.Count()
	if err != nil {
		return nil, err
	}
	x, err := m.IndexStats()
	return []any{bench.Round(float64(x.Capacity) / float64(x.Cells)), bench.Round(x.LoadFactor), len(out), x.Moves, per(x.Rings, x.Moves), wrong, note}, err
}

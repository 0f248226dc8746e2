package gph

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
)

// table2 is Table 2 with Figures 3 and 11: does the time of a batch of look-ups grow as EI · CPI / AO (section 3.4)?
// The counters are those of the GPU, read by Nsight Compute, under which this program runs a second time.
func table2(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	if !d.Info().CUDA() {
		return nil, fmt.Errorf("gph/2 reads the counters of a GPU: it needs a CUDA device, and this is %s", d.Info().Name)
	}
	if len(o.Self) == 0 {
		return nil, errors.New("gph/2 runs this program again: FigOptions.Self is empty")
	}
	ncu, err := bench.FindNCU()
	if err != nil {
		return nil, err
	}
	settings := slices.Concat(bySize, byHits)
	slices.SortStableFunc(settings, func(a, b setting) int { return cmp.Or(cmp.Compare(a.Hits, b.Hits), cmp.Compare(a.GB, b.GB)) })
	settings = slices.Compact(settings)
	runs := map[table.Family][]bench.Counters{}
	notes := map[table.Family]string{}
	for _, family := range warpmap.Families(table.KindMap) {
		o.Step("under ncu: " + string(family))
		b := Batches{Table: family, N: o.N, Queries: 2 * o.N}
		for _, s := range settings {
			b.Loads, b.Hits = append(b.Loads, loadOf(random, s.GB)), append(b.Hits, s.Hits)
		}
		arg, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		if runs[family], err = bench.ProfileNCU(ncu, slices.Concat(o.Self, []string{"find-once", string(arg)}), len(settings)); err != nil {
			notes[family] = err.Error()
		}
	}
	return modelFig(o.N, settings, runs, notes)
}

// modelFig makes the figure of what ncu counted: a list for each family, in the order of the settings.
func modelFig(n int, settings []setting, runs map[table.Family][]bench.Counters, notes map[table.Family]string) (*bench.Fig, error) {
	gb := sized(byHits[0].GB, n)
	fig := &bench.Fig{
		Title: fmt.Sprintf("GPH, Table 2, Figures 3 and 11: %d look-ups of Random, as Time ∝ EI · CPI / AO", 2*n),
		Columns: []string{"table GB", "hits %", "table", "AO %", "EI billions", "CPI", "time ms", "EI · CPI billions", "time · AO ms",
			"kernels", "note"},
		Notes: scaleNote(n),
		Plots: []bench.Plot{
			{Name: "model", Title: "Time · AO against EI · CPI", X: "EI · CPI billions", Y: "time · AO ms", Series: "table", Fit: true},
			{Name: "ao-size", Title: "Achieved occupancy, 50% hits", X: "table GB", Y: "AO %", Series: "table", Only: map[string]any{"hits %": 50.0}},
			{Name: "ao-hits", Title: fmt.Sprintf("Achieved occupancy in %g GB", gb), X: "hits %", Y: "AO %", Series: "table", Only: map[string]any{"table GB": gb}},
			{Name: "cycles-size", Title: "Cycles of all warps, 50% hits", X: "table GB", Y: "EI · CPI billions", Series: "table", Only: map[string]any{"hits %": 50.0}},
			{Name: "cycles-hits", Title: fmt.Sprintf("Cycles of all warps in %g GB", gb), X: "hits %", Y: "EI · CPI billions", Series: "table", Only: map[string]any{"table GB": gb}},
		},
	}
	var x, y []float64
	var problems []error
	for i, s := range settings {
		for _, family := range warpmap.Families(table.KindMap) {
			if i >= len(runs[family]) {
				fig.Add(sized(s.GB, n), 100*s.Hits, string(family), nil, nil, nil, nil, nil, nil, nil, notes[family])
				if i == 0 {
					problems = append(problems, fmt.Errorf("%s: %s", family, notes[family]))
				}
				continue
			}
			c := runs[family][i]
			cycles, busy := c.Instructions*c.CPI/1e9, c.Milliseconds*c.Occupancy/100
			x, y = append(x, cycles), append(y, busy)
			fig.Add(sized(s.GB, n), 100*s.Hits, string(family), bench.Round(c.Occupancy), bench.Round(c.Instructions/1e9), bench.Round(c.CPI), bench.Round(c.Milliseconds),
				bench.Round(cycles), bench.Round(busy), c.Kernels, "")
		}
	}
	if len(x) == 0 {
		return nil, errors.Join(problems...)
	}
	var err error
	if fig.Fit, err = bench.FitLine(x, y); err != nil {
		return nil, err
	}
	fig.Notes = append(fig.Notes, fmt.Sprintf("%d points: Pearson's r of time · AO and EI · CPI is %.4f; time · AO is %.5f ms for each 10⁹ cycles of EI · CPI",
		fig.Fit.N, fig.Fit.R, fig.Fit.Slope), clusterNote(fig))
	return fig, nil
}

// fewClusters: with no more heaps of points than this, r says little.
const fewClusters = 3

// clusterNote says how much the fit rests on.
func clusterNote(fig *bench.Fig) string {
	note := fmt.Sprintf("the points lie in %d clusters by EI · CPI", fig.Fit.Clusters)
	if fig.Fit.Clusters <= fewClusters {
		note += ": r says that these lie on a line, not that the model holds within one"
	}
	for _, family := range warpmap.Families(table.KindMap) {
		var x, y []float64
		for _, r := range fig.Rows {
			if cycles, ok := bench.Number(r[fig.Column("EI · CPI billions")]); ok && r[fig.Column("table")] == string(family) {
				busy, _ := bench.Number(r[fig.Column("time · AO ms")])
				x, y = append(x, cycles), append(y, busy)
			}
		}
		if fit, err := bench.FitLine(x, y); err == nil {
			note += fmt.Sprintf("; %s alone: %.4g to %.4g, r = %.2f", family, slices.Min(x), slices.Max(x), fit.R)
		}
	}
	return note
}

// Batches say what FindOnce does: for each load factor and share of hits, one batch.
type Batches struct {
	Table      table.Family
	N, Queries int
	Loads      []float64
	Hits       []float64
}

// FindOnce makes a table for each of b's settings, inserts N random pairs of 4+4 bytes, and looks up one batch, once:
// nothing else in it launches a look-up, so that a profiler can tell the batches by their order. Wrong answers are an
// error.
func FindOnce(d *device.Device, b Batches) error {
	if b.N < 1 || b.Queries < 1 || len(b.Loads) == 0 || len(b.Hits) != len(b.Loads) {
		return fmt.Errorf("bench: %d pairs, %d look-ups, %d load factors and %d shares of hits: nothing to do", b.N, b.Queries, len(b.Loads), len(b.Hits))
	}
	t := bench.TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: b.N, Queries: b.Queries, Hits: b.Hits[0], Seed: 1}
	w, err := bench.NewWork[uint32, uint32](d, t)
	if err != nil {
		return err
	}
	defer w.Free()
	for i, load := range b.Loads {
		if b.Hits[i] != w.Options.Hits {
			if err := w.Ask(b.Hits[i], 0); err != nil {
				return err
			}
		}
		if err := once(w, b.Table, load); err != nil {
			return fmt.Errorf("%s, load factor %.3f, %v%% hits: %w", b.Table, load, 100*b.Hits[i], err)
		}
	}
	return nil
}

func once(w *bench.Work[uint32, uint32], family table.Family, load float64) (err error) {
	m, err := bench.NewMap(w.Device, family, table.Options{Capacity: w.Options.N, LoadFactor: load})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	st := w.Device.Stream()
	if err := m.InsertOn(st, w.Keys, w.Values); err != nil {
		return err
	}
	if err := m.FindOn(st, w.Queries, w.Results, w.Found); err != nil {
		return err
	}
	wrong, err := w.Count()
	if err == nil && wrong > 0 {
		err = fmt.Errorf("%d wrong answers of %d", wrong, w.Options.Queries)
	}
	return err
}

package bench

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Fit says how well a figure's points lie on a line through 0.
type Fit struct {
	R     float64 `json:"r"`     // Pearson's correlation coefficient
	Slope float64 `json:"slope"` // of y over x, by least squares
	N     int     `json:"n"`     // points
}

// fit needs two different points.
func fit(x, y []float64) (*Fit, error) {
	if len(x) < 2 || slices.Min(x) == slices.Max(x) || slices.Min(y) == slices.Max(y) {
		return nil, fmt.Errorf("%d points do not make a line", len(x))
	}
	_, slope := stat.LinearRegression(x, y, nil, true)
	return &Fit{stat.Correlation(x, y, nil), slope, len(x)}, nil
}

// gphModel is Table 2 with Figures 3 and 11: does the time of a batch of look-ups grow as EI · CPI / AO (section 3.4)?
// The counters are those of the GPU, read by Nsight Compute, under which this program runs a second time.
func gphModel(d *device.Device, o FigOptions) (*Fig, error) {
	if !d.Info().CUDA() {
		return nil, fmt.Errorf("gph/2 reads the counters of a GPU: it needs a CUDA device, and this is %s", d.Info().Name)
	}
	if len(o.Self) == 0 {
		return nil, errors.New("gph/2 runs this program again: FigOptions.Self is empty")
	}
	ncu, err := findNCU()
	if err != nil {
		return nil, err
	}
	settings := slices.Concat(gphBySize, gphByHits)
	slices.SortStableFunc(settings, func(a, b gphSetting) int { return cmp.Or(cmp.Compare(a.Hits, b.Hits), cmp.Compare(a.GB, b.GB)) })
	settings = slices.Compact(settings)
	runs := map[string][]Counters{}
	notes := map[string]string{}
	for _, family := range warpmap.Families(table.KindMap) {
		kind := string(family)
		o.Step("under ncu: " + kind)
		b := Batches{Table: kind, N: o.N, Queries: 2 * o.N}
		for _, s := range settings {
			b.Loads, b.Hits = append(b.Loads, gphLoad(gphRandom, s.GB)), append(b.Hits, s.Hits)
		}
		arg, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		if runs[kind], err = profile(ncu, slices.Concat(o.Self, []string{string(arg)}), len(settings)); err != nil {
			notes[kind] = err.Error()
		}
	}
	return modelFig(o.N, settings, runs, notes)
}

// modelFig makes the figure of what ncu counted: a list for each kind, in the order of the settings.
func modelFig(n int, settings []gphSetting, runs map[string][]Counters, notes map[string]string) (*Fig, error) {
	fig := &Fig{
		Title: fmt.Sprintf("GPH, Table 2, Figures 3 and 11: %d look-ups of Random, as Time ∝ EI · CPI / AO", 2*n),
		Columns: []string{"table GB", "hits %", "table", "AO %", "EI billions", "CPI", "time ms", "EI · CPI billions", "time · AO ms",
			"kernels", "note"},
		Notes: scaleNote(n),
		Plots: []Plot{
			{Name: "model", Title: "Time · AO against EI · CPI", X: "EI · CPI billions", Y: "time · AO ms", Series: "table", Fit: true},
			{Name: "ao-size", Title: "Achieved occupancy, 50% hits", X: "table GB", Y: "AO %", Series: "table", Only: map[string]any{"hits %": 50.0}},
			{Name: "ao-hits", Title: "Achieved occupancy in 1.5 GB", X: "hits %", Y: "AO %", Series: "table", Only: map[string]any{"table GB": 1.5}},
			{Name: "cycles-size", Title: "Cycles of all warps, 50% hits", X: "table GB", Y: "EI · CPI billions", Series: "table", Only: map[string]any{"hits %": 50.0}},
			{Name: "cycles-hits", Title: "Cycles of all warps in 1.5 GB", X: "hits %", Y: "EI · CPI billions", Series: "table", Only: map[string]any{"table GB": 1.5}},
		},
	}
	var x, y []float64
	var problems []error
	for i, s := range settings {
		for _, family := range warpmap.Families(table.KindMap) {
			kind := string(family)
			if i >= len(runs[kind]) {
				fig.add(s.GB, 100*s.Hits, kind, nil, nil, nil, nil, nil, nil, nil, notes[kind])
				if i == 0 {
					problems = append(problems, fmt.Errorf("%s: %s", kind, notes[kind]))
				}
				continue
			}
			c := runs[kind][i]
			cycles, busy := c.Instructions*c.CPI/1e9, c.Milliseconds*c.Occupancy/100
			x, y = append(x, cycles), append(y, busy)
			fig.add(s.GB, 100*s.Hits, kind, round(c.Occupancy), round(c.Instructions/1e9), round(c.CPI), round(c.Milliseconds),
				round(cycles), round(busy), c.Kernels, "")
		}
	}
	if len(x) == 0 {
		return nil, errors.Join(problems...)
	}
	var err error
	if fig.Fit, err = fit(x, y); err != nil {
		return nil, err
	}
	fig.Notes = append(fig.Notes, fmt.Sprintf("%d points: Pearson's r of time · AO and EI · CPI is %.4f; time · AO is %.5f ms for each 10⁹ cycles of EI · CPI",
		fig.Fit.N, fig.Fit.R, fig.Fit.Slope))
	return fig, nil
}

// Batches say what FindOnce does: for each load factor and share of hits, one batch.
type Batches struct {
	Table      string
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
	t := TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: b.N, Queries: b.Queries, Hits: b.Hits[0], Seed: 1}
	w, err := newWork[uint32, uint32](d, t)
	if err != nil {
		return err
	}
	defer w.free()
	for i, load := range b.Loads {
		if b.Hits[i] != w.o.Hits {
			if err := w.ask(b.Hits[i], 0); err != nil {
				return err
			}
		}
		if err := w.once(b.Table, load); err != nil {
			return fmt.Errorf("%s, load factor %.3f, %v%% hits: %w", b.Table, load, 100*b.Hits[i], err)
		}
	}
	return nil
}

func (w *work[K, V]) once(kind string, load float64) (err error) {
	m, err := warpmap.New[K, V](w.d, table.Family(kind), table.Options{Capacity: w.o.N, LoadFactor: load})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	st := w.d.Stream()
	if err := m.InsertOn(st, w.keys, w.values); err != nil {
		return err
	}
	if err := m.FindOn(st, w.queries, w.results, w.found); err != nil {
		return err
	}
	wrong, err := w.count(st)
	if err == nil && wrong > 0 {
		err = fmt.Errorf("%d wrong answers of %d", wrong, w.o.Queries)
	}
	return err
}

package bench

import (
	"fmt"
	"math"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
)

// Fig is a measured figure: a table with named columns, and what to plot of it.
type Fig struct {
	Where   Where    `json:"where"`
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	Columns []string `json:"columns"`
	Rows    [][]any  `json:"rows"` // numbers and strings; nil where there is nothing to report
	Notes   []string `json:"notes,omitempty"`
	Fit     *Fit     `json:"fit,omitempty"`
	Plots   []Plot   `json:"-"`
}

// FigOptions say how to measure a figure.
type FigOptions struct {
	N       int               // pairs; 0: the paper's number on a GPU, and a small one on the CPU
	Batches int               // of slab/churn; 0: 1,000 on a GPU, and 50 on the CPU
	Step    func(what string) // progress; may be nil
	// Self is a command line that runs FindOnce on the Batch that its last argument, added to these, holds as JSON: for
	// figures that watch this program from outside.
	Self []string
}

// A figure has its own idea of how many pairs suit a GPU and the CPU.
type figure struct {
	run       func(d *device.Device, o FigOptions) (*Fig, error)
	cuda, cpu int
}

var figures = map[string]figure{
	"gph/2":         {gphModel, gphRandom, 1 << 18},
	"gph/9":         {gphSizes, gphRandom, 1 << 18},
	"gph/10":        {gphHits, gphRandom, 1 << 18},
	"gph/12":        {gphJoin, 1 << 24, 1 << 17},
	"gph/13":        {gphLookups, gphRandom, 1 << 18},
	"gph/14":        {gphInserts, gphRandom, 1 << 18},
	"gph/15a":       {gphReach, 1 << 24, 1 << 16},
	"gph/15b":       {gphPairs, gphRandom, 1 << 18},
	"gph/15c":       {gphSkew, gphRandom, 1 << 18},
	"gph/overwrite": {gphOverwrite, gphRandom, 1 << 18},
	"gph/theorem":   {gphTheorem, 1 << 24, 1 << 16},
	"host":          {hostBatches, 1 << 28, 1 << 18},
	"slab/4":        {slabLoads, 1 << 22, 1 << 16},
	"slab/5":        {slabSizes, 1 << 27, 1 << 18},
	"slab/6":        {slabIncremental, 1 << 21, 1 << 14},
	"slab/7a":       {slabMixed, 1 << 22, 1 << 15},
	"slab/7b":       {slabMisra, 1_000_000, 1 << 14},
	"slab/alloc":    {slabAlloc, 1_000_000, 1 << 16},
	"slab/churn":    {slabChurn, 1 << 22, 1 << 14},
	"warpcore/5":    {warpcoreDensity, 1 << 28, 1 << 18},
	"warpcore/7":    {warpcoreMultiplicity, 1 << 28, 1 << 18},
}

// Figures are the names that Figure takes.
func Figures() (names []string) {
	for name := range figures {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Figure measures one figure.
func Figure(d *device.Device, name string, o FigOptions) (*Fig, error) {
	f, ok := figures[name]
	if !ok {
		return nil, fmt.Errorf("no figure %q (want one of %v)", name, Figures())
	}
	if o.N < 0 || o.N > 1<<32 {
		return nil, fmt.Errorf("figure %s with %d pairs: want 1 to 2³², or 0 for the figure's own number", name, o.N)
	}
	if o.Batches < 0 {
		return nil, fmt.Errorf("figure %s with %d batches", name, o.Batches)
	}
	if o.N == 0 {
		o.N = f.cpu
		if d.Info().CUDA() {
			o.N = f.cuda
		}
	}
	if o.Step == nil {
		o.Step = func(string) {}
	}
	fig, err := f.run(d, o)
	if err == nil {
		fig.Name, fig.Where = name, Here(d)
		if gph.Profiled(d.Info()) {
			fig.Notes = append(fig.Notes, "tables of gph take options from this device's profile, where the figure leaves them open (WARPMAP_PROFILES=off: none)")
		}
	}
	return fig, err
}

func (f *Fig) add(cells ...any) { f.Rows = append(f.Rows, cells) }

// round keeps what is worth reading: three decimals, and six where the number is small.
func round(x float64) float64 {
	if x < 0.1 {
		return math.Round(x*1e6) / 1e6
	}
	return math.Round(x*1e3) / 1e3
}

package bench

import (
	"errors"
	"slices"
	"strings"

	"github.com/warpmap/warpmap/device"
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
	Spread  *Spread  `json:"spread,omitempty"`
	Plots   []Plot   `json:"plots,omitempty"`
}

// Add adds a row.
func (f *Fig) Add(cells ...any) { f.Rows = append(f.Rows, cells) }

// Column is the place of a column in every row; -1: there is none of this name.
func (f *Fig) Column(name string) int { return slices.Index(f.Columns, name) }

// FigOptions say how to measure a figure.
type FigOptions struct {
	N       int // pairs; 0: the study's number for a GPU, or its small one for the CPU
	Batches int // of slab/churn; 0: 1,000 on a GPU, and 50 on the CPU. Of RAND in dycuckoo's; 0: 100 and 8. Slices of
	// library/aging; 0: 1,000
	Operations int               // of library/churn; 0: 1,000,000,000 on a GPU, and 200 for each pair on the CPU
	Step       func(what string) // progress; a study need not look whether it is nil
	Devices    []*device.Device  // of figures over several; nil: the study's own choice
	// Point is called when a point is measured, with the figure so far, by studies of points that take long; an error ends the study. It may be nil, and a study
	// calls Done.
	Point func(fig *Fig) error
	// Self is a command line that runs this program on the device again, for figures that watch it from outside. Behind it come find-once and a
	// gph.Batches as JSON, for gph.FindOnce, or insert-once and a stadium.Batch, for stadium.InsertOnce. Its first word alone is the program.
	Self []string
}

// Done tells of a point that is measured.
func (o FigOptions) Done(fig *Fig) error {
	if o.Point == nil {
		return nil
	}
	return o.Point(fig)
}

// Study is what measures a figure. A package of studies lists its own, in Studies, and the command lists the packages.
type Study struct {
	Name  string // what the command calls it: paper/figure
	About string // one line
	Run   func(d *device.Device, o FigOptions) (*Fig, error)
	// Every figure has its own idea of how many pairs suit a GPU, where it is mostly the paper's number, and the CPU.
	CUDA, CPU int
	// Takes are the options that this figure has besides N: batches, operations, devices.
	Takes []string
}

// Measure measures the figure. Errors: numbers out of range, before anything is measured; what a device cannot go on after.
func (s Study) Measure(d *device.Device, o FigOptions) (*Fig, error) {
	if o.N < 0 || o.N > 1<<32 {
		return nil, WrongOption("figure %s with %d pairs: want 1 to 2³², or 0 for the figure's own number", s.Name, o.N)
	}
	if o.Batches < 0 {
		return nil, WrongOption("figure %s with %d batches: want 1 or more, or 0 for the figure's own number", s.Name, o.Batches)
	}
	if o.Operations < 0 {
		return nil, WrongOption("figure %s with %d operations: want 1 or more, or 0 for the figure's own number", s.Name, o.Operations)
	}
	if o.N == 0 {
		o.N = s.CPU
		if d.Info().CUDA() {
			o.N = s.CUDA
		}
	}
	if o.Step == nil {
		o.Step = func(string) {}
	}
	if point := o.Point; point != nil {
		where := Here(d)
		o.Point = func(fig *Fig) error {
			fig.Name, fig.Where = s.Name, where
			return point(fig)
		}
	}
	spreads(d).take()
	fig, err := s.Run(d, o)
	if err == nil {
		fig.Name, fig.Where, fig.Spread = s.Name, Here(d), spreads(d).take()
		if !d.Info().CUDA() {
			fig.inMillions()
		}
	}
	return fig, err
}

// inMillions gives rates in millions a second: those of a CPU are too small in billions.
func (f *Fig) inMillions() {
	for c, name := range f.Columns {
		short := strings.Replace(name, "G/s", "M/s", 1)
		if short == name || f.Column(short) >= 0 {
			continue
		}
		f.Columns[c] = short
		for _, r := range f.Rows {
			if x, ok := Number(r[c]); ok {
				r[c] = Round(1e3 * x)
			}
		}
		for i := range f.Plots {
			for _, column := range []*string{&f.Plots[i].X, &f.Plots[i].Y, &f.Plots[i].Bound} {
				if *column == name {
					*column = short
				}
			}
		}
	}
}

// Refusal is why a table has no figure: any error that leaves the device working. Those that do not, it passes on.
func Refusal(err error) (note string, fatal error) {
	var fault *device.FaultError
	var compile *device.CompileError
	if errors.As(err, &fault) || errors.As(err, &compile) || errors.Is(err, device.ErrNoNVRTC) || errors.Is(err, device.ErrNoCompiler) {
		return "", err
	}
	return err.Error(), nil
}

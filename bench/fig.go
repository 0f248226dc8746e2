package bench

import (
	"fmt"
	"slices"

	"github.com/warpmap/warpmap/device"
)

// Fig is a measured figure: a table with named columns.
type Fig struct {
	Where   Where    `json:"where"`
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	Columns []string `json:"columns"`
	Rows    [][]any  `json:"rows"`
}

var figures = map[string]func(d *device.Device, n int) (*Fig, error){
	"host":       hostBatches,
	"warpcore/5": warpcoreDensity,
	"warpcore/7": warpcoreMultiplicity,
}

// Figures are the names that Figure takes.
func Figures() (names []string) {
	for name := range figures {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Figure measures one figure with n pairs; 0 stands for the paper's number on a GPU, and a small one on the CPU.
func Figure(d *device.Device, name string, n int) (*Fig, error) {
	f, ok := figures[name]
	if !ok {
		return nil, fmt.Errorf("no figure %q (want one of %v)", name, Figures())
	}
	if n == 0 {
		n = 1 << 18
		if d.Info().CUDA() {
			n = 1 << 28
		}
	}
	fig, err := f(d, n)
	if err == nil {
		fig.Name, fig.Where = name, Here(d)
	}
	return fig, err
}

func round(x float64) float64 { return float64(int(x*1000+0.5)) / 1000 }

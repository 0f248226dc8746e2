package bench

import (
	"fmt"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Fit says how well a figure's points lie on a line through 0.
type Fit struct {
	R     float64 `json:"r"`     // Pearson's correlation coefficient
	Slope float64 `json:"slope"` // of y over x, by least squares
	N     int     `json:"n"`     // points
	// Clusters is how many heaps the points lie in, with a tenth of their range in x between any two. Where these are few, the fit says that they lie on a
	// line with 0, and no more: any two heaps have a high R.
	Clusters int `json:"clusters"`
}

// FitLine fits a line through 0. It needs two different points.
func FitLine(x, y []float64) (*Fit, error) {
	if len(x) < 2 || slices.Min(x) == slices.Max(x) || slices.Min(y) == slices.Max(y) {
		return nil, fmt.Errorf("%d points do not make a line", len(x))
	}
	_, slope := stat.LinearRegression(x, y, nil, true)
	return &Fit{stat.Correlation(x, y, nil), slope, len(x), clusters(x)}, nil
}

func clusters(x []float64) int {
	sorted, n := slices.Sorted(slices.Values(x)), 1
	gap := (sorted[len(sorted)-1] - sorted[0]) / 10
	for i := 1; i < len(sorted); i++ {
		if sorted[i]-sorted[i-1] > gap {
			n++
		}
	}
	return n
}

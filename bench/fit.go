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
}

// FitLine fits a line through 0. It needs two different points.
func FitLine(x, y []float64) (*Fit, error) {
	if len(x) < 2 || slices.Min(x) == slices.Max(x) || slices.Min(y) == slices.Max(y) {
		return nil, fmt.Errorf("%d points do not make a line", len(x))
	}
	_, slope := stat.LinearRegression(x, y, nil, true)
	return &Fit{stat.Correlation(x, y, nil), slope, len(x)}, nil
}

package bench

import "testing"

// Two heaps make a line, whatever is within them; the fit says so.
func TestClusters(t *testing.T) {
	for want, x := range map[int][]float64{2: {58.5, 47, 48.1, 58.7, 46.8, 49.1}, 3: {1, 10, 5}, 1: {1, 1.02, 1.05, 1.09, 1.11, 1.03, 1.07, 1.1, 1.06, 1.08, 1.04, 1.01}} {
		y := make([]float64, len(x))
		for i := range x {
			y[i] = 2 * x[i]
		}
		fit, err := FitLine(x, y)
		if err != nil || fit.Clusters != want {
			t.Errorf("%v: %+v, %v; want %d clusters", x, fit, err, want)
		}
	}
}

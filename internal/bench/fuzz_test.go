package bench

import (
	"bytes"
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// FuzzFig: a kept figure of any content is drawn into files of one folder, or the error is a line.
func FuzzFig(f *testing.F) {
	for _, text := range []string{
		`{"name":"gph/9","columns":["x","y"],"rows":[[1,2],[2,3.5],[null,4]],"plots":[{"x":"x","y":"y"}]}`,
		`{"name":"../../x","columns":["x","y","z"],"rows":[["a",1e308,"b"],["c",-1e308,"b"]],` +
			`"plots":[{"name":"/p","x":"x","y":"y","facet":"z","by":"z","bound":"y"}]}`,
		`{"columns":["x"],"rows":[[],[1,2,3]]}`,
		`{"columns":["x","y"],"rows":[[0,0]],"plots":[{"x":"x","y":"y","log_x":true,"log_y":true},{"x":"none","y":"y"}]}`,
		`{"columns":["x","y"],"rows":[[{"a":1},[1]]],"plots":[{"x":"x","y":"y","only":{"x":1}}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		testenv.Bounded(t, len(text), func() {
			var fig Fig
			if json.Unmarshal(text, &fig) != nil || len(fig.Columns) == 0 {
				return
			}
			if len(fig.Plots) > 2 || len(fig.Rows) > 10 {
				return // a plot takes 50 ms
			}
			files, err := fig.Files()
			if err != nil {
				if strings.Contains(err.Error(), "\n") && !bytes.Contains(text, []byte(`\`)) {
					t.Errorf("an error that is no line: %q", err)
				}
				return
			}
			for _, file := range files {
				if file.Name != filepath.Base(file.Name) || strings.HasPrefix(file.Name, ".") {
					t.Errorf("a file %q", file.Name)
				}
			}
		})
	})
}

// FuzzNCU: what Nsight Compute prints is counters, or an error.
func FuzzNCU(f *testing.F) {
	for _, text := range []string{ncuWide, ncuLong, "", `"ID",`, "\"ID\",\"Kernel Name\"\n\"0\",\"f(\"\n", "x\"ID\",\"Kernel Name\"\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		testenv.Bounded(t, len(text), func() {
			all, err := parseNCU(text)
			if err == nil && len(all) > strings.Count(text, "\n") {
				t.Errorf("%d launches of %d lines", len(all), strings.Count(text, "\n"))
			}
			for _, c := range all {
				for _, x := range []float64{c.Occupancy, c.Instructions, c.CPI, c.Milliseconds} {
					if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
						t.Errorf("a counter of %v: %+v", x, c)
					}
				}
			}
			lanesNCU(text)
			if strings.Contains(complaint(text), "\n") {
				t.Errorf("a complaint that is no line: %q", complaint(text))
			}
		})
	})
}

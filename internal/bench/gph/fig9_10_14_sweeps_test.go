package gph

import (
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
	"github.com/warpmap/warpmap/table"
)

// TaoBenchmark does not fit into 1.25 GB: an empty cell, with the reason beside it. All else is measured, and right.
func TestFigures9And10And14(t *testing.T) {
	d := benchtest.CPU(t)
	for _, name := range []string{"gph/9", "gph/10", "gph/14"} {
		steps := 0
		fig, err := benchtest.Study(t, Studies, name).Measure(d, bench.FigOptions{N: 2000, Step: func(string) { steps++ }})
		if err != nil {
			t.Fatal(err)
		}
		if steps < len(dataSets) || len(fig.Rows) < 16*len(warpmap.Families(table.KindMap)) {
			t.Errorf("%s: %d steps, %d rows", name, steps, len(fig.Rows))
		}
		sets := map[any]bool{}
		for _, r := range fig.Rows {
			at := benchtest.At(fig, r)
			sets[at("data")] = true
			if at("data") == "TaoBenchmark" && at("load").(float64) > 1 {
				if r[6] != nil || at("note") == "" {
					t.Errorf("%s: a load factor over 1 is measured: %v", name, r)
				}
				continue
			}
			if at("table") == "warpcore" && (r[6] == nil || at("wrong") != 0 || at("note") != "") {
				t.Errorf("%s: %v", name, r)
			}
		}
		if len(sets) != 4 {
			t.Errorf("%s: data sets %v", name, sets)
		}
	}
}

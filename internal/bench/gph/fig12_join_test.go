package gph

import (
	"testing"

	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
)

func TestFigure12(t *testing.T) {
	fig, err := benchtest.Study(t, Studies, "gph/12").Measure(benchtest.CPU(t), bench.FigOptions{N: 500})
	if err != nil {
		t.Fatal(err)
	}
	before := 0.0
	for _, r := range fig.Rows {
		at := benchtest.At(fig, r)
		if at("table") != "warpcore" {
			continue
		}
		probe, _ := bench.Number(at("probe ms"))
		if at("note") != "" || at("wrong") != 0 || probe <= 0 {
			t.Errorf("join: %v", r)
		}
		if size := at("|S| / |R|").(int); size > joinPiece && probe <= before {
			t.Errorf("%d · |R| takes %v ms, and half of it %v", size, probe, before)
		}
		before = probe
	}
	if before == 0 {
		t.Errorf("no join: %v", fig.Rows)
	}
}

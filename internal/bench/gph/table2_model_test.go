package gph

import (
	"bytes"
	"strings"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
	"github.com/warpmap/warpmap/table"
)

func TestFindOnce(t *testing.T) {
	d := benchtest.CPU(t)
	for _, family := range warpmap.Families(table.KindMap) {
		if err := FindOnce(d, Batches{family, 1000, 2000, []float64{0.5, 0.5, 0.6}, []float64{0.5, 1, 0}}); err != nil {
			t.Error(err)
		}
	}
	if err := FindOnce(d, Batches{"warpcore", 1000, 0, nil, nil}); err == nil {
		t.Error("nothing to do, and done")
	}
}

func TestStudiesRefuse(t *testing.T) {
	d := benchtest.CPU(t)
	for want, f := range map[string]func() (*bench.Fig, error){
		"CUDA": func() (*bench.Fig, error) { return benchtest.Study(t, Studies, "gph/2").Measure(d, bench.FigOptions{}) },
		"pairs": func() (*bench.Fig, error) {
			return benchtest.Study(t, Studies, "gph/9").Measure(d, bench.FigOptions{N: -1})
		},
		"batches": func() (*bench.Fig, error) {
			return benchtest.Study(t, Studies, "gph/9").Measure(d, bench.FigOptions{Batches: -1})
		},
	} {
		if _, err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestModelFig(t *testing.T) {
	family := warpmap.Families(table.KindMap)[0]
	settings := []setting{{1.5, 0.5}, {1.25, 0.5}}
	counters := []bench.Counters{
		{Kernels: "find", Occupancy: 80, Instructions: 2e9, CPI: 20, Milliseconds: 10},
		{Kernels: "find", Occupancy: 90, Instructions: 3e9, CPI: 20, Milliseconds: 14},
	}
	fig, err := modelFig(1000, settings, map[table.Family][]bench.Counters{family: counters}, map[table.Family]string{})
	if err != nil || len(fig.Rows) != 2*len(warpmap.Families(table.KindMap)) || fig.Fit == nil || fig.Rows[0][7] != 40.0 || fig.Rows[0][8] != 8.0 {
		t.Fatalf("%+v, %v", fig, err)
	}
	fig.Name = "gph/2"
	files, err := fig.Files()
	if err != nil || len(files) != 11 || !bytes.Contains(files[1].Data, []byte("fit, r = 1.0000,")) {
		t.Errorf("%d files, %v", len(files), err)
	}
	// A family that could not be watched has a note, and no points.
	fig.Add(1.5, 50.0, "other", nil, nil, nil, nil, nil, nil, nil, "not seen")
	if more, err := fig.Files(); err != nil || !bytes.Contains(more[1].Data, []byte("fit, r = 1.0000,")) {
		t.Errorf("with empty cells: %v", err)
	}
	notes := map[table.Family]string{}
	for _, k := range warpmap.Families(table.KindMap) {
		notes[k] = "no permission"
	}
	if _, err := modelFig(1000, settings, nil, notes); err == nil || !strings.Contains(err.Error(), "no permission") {
		t.Errorf("nothing counted: %v", err)
	}
}

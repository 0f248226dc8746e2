package gph

import (
	"errors"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

var fewWays = []gph.Setting{{Bucket: 16, FindGroup: 1}, {Bucket: 8, FindGroup: 4}}

func TestFigure13(t *testing.T) {
	testenv.ByTurns(t)
	seen := map[any]int{}
	fig := benchtest.Rows(t, few("gph/13", ways, fewWays), "gph/13", 3000, 6, func(at func(string) any) {
		seen[at("way")]++
		benchtest.AtLeast(t, "find", at("find G/s"), 1e-9)
	})
	benchtest.Draw(t, fig)
	if len(seen) != 3 || seen[brOnPhOn] != seen[brOffPhOff] {
		t.Errorf("ways %v", seen)
	}
}

// The other ways of Figure 13 compile for GPUs, on machines that have none.
func TestFigure13CompilesForGPUs(t *testing.T) {
	d := benchtest.CPU(t)
	settings := fewWays // whose tables are compiled already
	if testenv.Long() {
		settings = append(slices.Clone(settings), gph.Setting{Bucket: 16, FindGroup: 8}, gph.Setting{Bucket: 4, FindGroup: 4})
	}
	for _, s := range settings {
		m, err := gph.New[uint32, uint32](d, s.Options(table.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		p := lookups(m, s.FindGroup)
		for _, arch := range testenv.Some([]string{"sm_90", "sm_70"}, 1) {
			_, err := device.CompileFor(arch, p)
			if errors.Is(err, device.ErrNoNVRTC) {
				testenv.RequireNVRTC(t, err)
			}
			if err != nil {
				t.Errorf("%+v, %s: %v", s, arch, err)
			}
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

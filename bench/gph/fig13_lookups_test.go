package gph

import (
	"errors"
	"testing"

	"github.com/warpmap/warpmap/bench/benchtest"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

func TestFigure13(t *testing.T) {
	ways := map[any]int{}
	benchtest.Rows(t, Studies, "gph/13", 3000, 9, func(at func(string) any) {
		ways[at("way")]++
		benchtest.AtLeast(t, "find", at("find G/s"), 1e-9)
	})
	if len(ways) != 3 || ways[brOnPhOn] != ways[brOffPhOff] {
		t.Errorf("ways %v", ways)
	}
}

// The other ways of Figure 13 compile for GPUs, on machines that have none.
func TestFigure13CompilesForGPUs(t *testing.T) {
	d := benchtest.CPU(t)
	for _, s := range []gph.Setting{{Bucket: 16, FindGroup: 1}, {Bucket: 16, FindGroup: 8}, {Bucket: 4, FindGroup: 4}} {
		m, err := gph.New[uint32, uint32](d, s.Options(table.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		p := lookups(m, s.FindGroup)
		for _, arch := range []string{"sm_70", "sm_90"} {
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

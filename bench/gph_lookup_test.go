package bench

import (
	"errors"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// The other ways of Figure 13 compile for GPUs, on machines that have none.
func TestLookupWaysCompileForGPUs(t *testing.T) {
	d := cpu(t)
	for _, s := range []gph.Setting{{Bucket: 16, FindGroup: 1}, {Bucket: 16, FindGroup: 8}, {Bucket: 4, FindGroup: 4}} {
		m, err := gph.New[uint32, uint32](d, s.Options(table.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		p := m.Program("gph_lookup", gphLookupCU)
		p.Defines = append(p.Defines, device.Define{Name: "BENCH_GROUP", Value: s.FindGroup})
		p.Layouts = append(p.Layouts, LookupParams{})
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

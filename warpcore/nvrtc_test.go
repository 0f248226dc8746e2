package warpcore

import (
	"errors"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// All kernels compile for GPUs, on machines that have none: every fourth variant that TestVariants runs, in long
// runs every other, each for one architecture in turn, and the kernels of these tests.
func TestKernelsCompileForGPUs(t *testing.T) {
	archs := []string{"sm_70", "sm_80", "sm_90"}
	step := 4
	if testenv.Long() {
		step = 2
	}
	for i, v := range variants() {
		if i%step != 0 {
			continue
		}
		arch := archs[i/step%len(archs)]
		if v.layout == Packed && v.keyBytes+v.valueBytes > 8 {
			arch = "sm_90"
		}
		c := &core{opts: v.options(tableOptions(0, 1)), cfg: config{keyBytes: v.keyBytes, valueBytes: v.valueBytes, layout: v.layout, window: v.window}}
		programs := []*device.Program{c.program("warpcore", kernelsCU)}
		if i == 0 {
			probe := c.program("probe", probeKernel)
			probe.Layouts = append(probe.Layouts, probeTestParams{}, probeStep{})
			programs = append(programs, c.mixed(4), probe)
		}
		for _, p := range programs {
			t.Run(p.Name+" "+v.String()+" "+arch, func(t *testing.T) {
				t.Parallel()
				_, err := device.CompileFor(arch, p)
				if errors.Is(err, device.ErrNoNVRTC) {
					testenv.RequireNVRTC(t, err)
				}
				must(t, err)
			})
		}
	}
}

package warpcore

import (
	"errors"
	"reflect"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// All kernels compile for GPUs, on machines that have none: two programs of a variant that compiles fast; in long runs a layout and a width of words
// for each architecture, and every variant that TestVariants runs, each for one architecture in turn.
func TestKernelsCompileForGPUs(t *testing.T) {
	testenv.ByTurns(t)
	archs := []string{"sm_75", "sm_90", "sm_80", "sm_70"}
	all := testenv.Some([]variant{{4, 4, Packed, 1, 1, 1}, {16, 0, Packed, 4, 1, 4}, {4, 0, Packed, 16, 1, 4}}, 1)
	if testenv.Long() {
		all = append(all, variant{4, 4, Packed, 8, 4, 8}, variant{8, 8, Packed, 2, 8, 4}, variant{4, 16, SoA, 1, 4, 8})
		all = append(all, variants()...)
	}
	for i, v := range all {
		arch := archs[i%len(archs)]
		wide := v.layout == Packed && v.keyBytes+v.valueBytes > 8
		if wide {
			arch = "sm_90"
		}
		c := &core{opts: v.options(tableOptions(0, 1)), cfg: config{keyBytes: v.keyBytes, valueBytes: v.valueBytes, layout: v.layout, window: v.window}}
		programs := []*device.Program{c.bulkProgram()}
		if !c.cfg.set() && i > 0 { // what both kinds have is compiled once
			multi := &core{opts: c.opts, cfg: c.cfg.ofMultimap(), kind: table.KindMultiMap}
			programs[0] = defining("WARPCORE_MULTI", true, multi.program("warpcore", kernelsCU))
		}
		if i == 0 {
			multi := &core{opts: c.opts, cfg: c.cfg.ofMultimap(), kind: table.KindMultiMap}
			probe := c.program("probe", probeKernel)
			probe.Layouts = append(probe.Layouts, probeTestParams{}, probeStep{})
			ones := c.program("add_ones", addOnes)
			ones.Layouts = append(ones.Layouts, probeTestParams{})
			count, err := frame.CountHeader[uint32]()
			must(t, err)
			least, err := frame.CombineHeader(table.Min, reflect.TypeFor[float32]())
			must(t, err)
			code, err := frame.CombineHeader(table.Combine("old + 2 * value"), reflect.TypeFor[int32]())
			must(t, err)
			programs = append(programs, c.mixed(4), multi.bulkProgram(), probe, ones, c.updateProgram(count), c.updateProgram(least), c.updateProgram(code), c.updateProgram(device.File{}), c.choosingProgram())
		}
		for _, p := range testenv.Some(programs, 2) {
			t.Run(p.Name+" "+v.String()+" "+arch, func(t *testing.T) {
				testenv.Turn(t)
				t.Parallel()
				info, err := device.InfoFor(arch)
				if err == nil && wide && !info.CAS128 {
					t.Skipf("%s has no 128-bit compare-and-swap", info.Compiler)
				}
				_, err = device.CompileFor(arch, p)
				if errors.Is(err, device.ErrNoNVRTC) {
					testenv.RequireNVRTC(t, err)
				}
				must(t, err)
			})
		}
	}
}

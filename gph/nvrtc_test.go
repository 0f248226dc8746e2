package gph

import (
	"errors"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// All kernels compile for GPUs, on machines that have none: a variant that compiles fast; in long runs a width of words for each
// architecture, and every variant that TestVariants runs, each for one architecture in turn; and the kernels of callbacks and of
// these tests.
func TestKernelsCompileForGPUs(t *testing.T) {
	testenv.ByTurns(t)
	archs := []string{"sm_75", "sm_90", "sm_70", "sm_80"}
	all := []variant{{4, 4, 4, 2, 2, 4, 4}}
	if testenv.Long() {
		all = append(all, variant{8, 8, 4, 4, 1, 2, 2}, variant{2, 2, 4, 8, 1, 4, 2})
		all = append(all, variants()...)
	}
	for i, v := range all {
		arch := archs[i%len(archs)]
		info, _ := device.InfoFor(arch) // an error comes again below
		c := &core{opts: v.options(table.Options{}), cfg: config{keyBytes: v.keyBytes, valueBytes: v.valueBytes, bucket: v.bucket, virtual: v.virtual, cellBytes: v.cellBytes}}
		c.cfg.packed = c.cfg.slotBytes() <= 8 || v.valueBytes <= 8 && info.CAS128
		programs := []*device.Program{c.program("gph", kernelsCU), c.buildProgram(), c.stretchProgram()}
		if i == 0 {
			twin := c.program("twin", twinKernel)
			twin.Layouts = append(twin.Layouts, twinParams{})
			each := c.program("foreach", foreachCU, device.File{Name: "callback.h",
				Text: "__device__ void callback(const forEachParams& p, C::key, C::value, u64) { add(at<u64>(p.args[0]), (u64)1); }"})
			each.Layouts = append(each.Layouts, forEachParams{})
			programs = append(programs, twin, each)
		}
		for _, p := range testenv.Some(programs, 1) {
			t.Run(p.Name+" "+v.String()+" "+arch, func(t *testing.T) {
				testenv.Turn(t)
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

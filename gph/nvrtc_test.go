package gph

import (
	"errors"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// All kernels compile for GPUs, on machines that have none: some of the variants that TestVariants runs, each for one
// architecture, and the kernels of callbacks and of these tests.
func TestKernelsCompileForGPUs(t *testing.T) {
	archs := []string{"sm_70", "sm_80", "sm_90"}
	for i, v := range variants() {
		if i%4 != 2 || i > 14 {
			continue
		}
		arch := archs[i/4%len(archs)]
		c := &core{opts: v.options(table.Options{}), cfg: config{keyBytes: v.keyBytes, valueBytes: v.valueBytes, bucket: v.bucket, virtual: v.virtual, cellBytes: v.cellBytes}}
		c.cfg.packed = c.cfg.slotBytes() <= 8 || v.valueBytes <= 8 && arch == "sm_90"
		programs := []*device.Program{c.program("gph", kernelsCU)}
		if i == 2 {
			twin := c.program("twin", twinKernel)
			twin.Layouts = append(twin.Layouts, twinParams{})
			each := c.program("foreach", foreachCU, device.File{Name: "callback.h",
				Text: "__device__ void callback(const forEachParams& p, C::key, C::value, u64) { add(at<u64>(p.args[0]), (u64)1); }"})
			each.Layouts = append(each.Layouts, forEachParams{})
			programs = append(programs, twin, each)
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

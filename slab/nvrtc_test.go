package slab

import (
	"errors"
	"fmt"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// All kernels compile for GPUs, on machines that have none: each variant for one architecture, in short runs two of them.
func TestKernelsCompileForGPUs(t *testing.T) {
	for i, v := range []struct {
		key, value, group int
		light, multi      bool
		arch              string
	}{
		{8, 8, 8, false, false, "sm_90"},
		{8, 16, 4, true, false, "sm_70"},
		{4, 4, 8, false, true, "sm_80"},
		{4, 4, 8, false, false, "sm_90"},
		{4, 4, 32, false, false, "sm_70"},
		{8, 0, 8, false, false, "sm_80"},
	} {
		if i >= 2 && !testenv.Long() {
			break
		}
		info, _ := device.InfoFor(v.arch) // an error comes again below
		c := &core{cfg: config{keyBytes: v.key, valueBytes: v.value, light: v.light, multi: v.multi}, opts: Options{Group: v.group}}
		c.cfg.packed = c.cfg.canPack(info.CAS128)
		programs := []*device.Program{c.program("slab", kernelsCU)}
		if i < 2 {
			each := c.program("foreach", foreachCU, device.File{Name: "callback.h",
				Text: "__device__ void callback(const forEachParams& p, C::key k, C::value v, u64 i) { if (i == p.n) add(at<u32>(p.args[0]) + k, (u32)(sizeof v)); }"})
			each.Layouts = append(each.Layouts, forEachParams{})
			programs = append(programs, each)
			programs = append(programs, allocatorProgram(i == 1, "allocate", allocateKernels, allocateParams{}))
		}
		for _, p := range programs {
			t.Run(fmt.Sprintf("%s %+v", p.Name, v), func(t *testing.T) {
				t.Parallel()
				_, err := device.CompileFor(v.arch, p)
				if errors.Is(err, device.ErrNoNVRTC) {
					testenv.RequireNVRTC(t, err)
				}
				must(t, err)
			})
		}
	}
}

package cuckoo

import (
	"errors"
	"fmt"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// All kernels compile for GPUs, on machines that have none: in long runs each width of tags for each architecture.
func TestKernelsCompileForGPUs(t *testing.T) {
	for i, c := range testenv.Some([]config{{8, 16, 0}, {4, 12, 0}, {16, 8, 0}}, 1) {
		for j, arch := range []string{"sm_90", "sm_75", "sm_70", "sm_80"} {
			if j != i%4 && !testenv.Long() {
				continue
			}
			programs := []*device.Program{c.program("cuckoo", kernelsCU), c.stretchProgram(), c.program("beside", besideCU)}
			for _, p := range testenv.Some(programs, 2) {
				t.Run(fmt.Sprintf("%s %d bits %s", p.Name, c.tag, arch), func(t *testing.T) {
					testenv.Turn(t)
					t.Parallel()
					if p.Name == "beside" {
						p.Layouts = append(p.Layouts, besideParams{})
					}
					_, err := device.CompileFor(arch, p)
					if errors.Is(err, device.ErrNoNVRTC) {
						testenv.RequireNVRTC(t, err)
					}
					must(t, err)
				})
			}
		}
	}
}

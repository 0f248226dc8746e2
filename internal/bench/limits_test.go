package bench

import (
	"errors"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// The frame's own kernels compile for GPUs, on machines that have none.
func TestKernelsCompileForGPUs(t *testing.T) {
	for _, arch := range []string{"sm_70", "sm_90"} {
		_, err := device.CompileFor(arch, program())
		if errors.Is(err, device.ErrNoNVRTC) {
			testenv.RequireNVRTC(t, err)
		}
		if err != nil {
			t.Errorf("%s: %v", arch, err)
		}
	}
}

package bench

import (
	"errors"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// Limits have a figure each, however few accesses there are: fewer than are asked for ahead, and more than a block of the CPU device has.
func TestLimitsOfTheCPU(t *testing.T) {
	for _, opts := range [][]device.Option{nil, {device.WithStress(1)}, {device.WithWorkers(1)}} {
		d, err := device.Open("cpu", opts...)
		testenv.Require(t, "cpu", err)
		defer d.Close()
		for _, n := range []int{1, 40, 20_000} {
			l, err := MeasureLimits(d, 1<<16+40, n)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range []float64{l.Lookup32, l.Lookup64, l.Lookup128, l.Swap64, l.Swap128, l.ReadSwap, l.CopyGB} {
				if !(x > 0) {
					t.Errorf("%v, %d accesses: %+v", d, n, l)
				}
			}
		}
	}
}

// The frame's own kernels compile for GPUs, on machines that have none.
func TestKernelsCompileForGPUs(t *testing.T) {
	for _, arch := range testenv.Some([]string{"sm_90", "sm_70"}, 1) {
		_, err := device.CompileFor(arch, program())
		if errors.Is(err, device.ErrNoNVRTC) {
			testenv.RequireNVRTC(t, err)
		}
		if err != nil {
			t.Errorf("%s: %v", arch, err)
		}
	}
}

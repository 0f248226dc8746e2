// Package outside_test tries what devices share with others: streams, memory and captures of other code, processes, and
// tables. It is no part of device's own tests, for these have all that they import compiled a second time.
package outside_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/device/internal/cu/cufake"
	"github.com/warpmap/warpmap/device/internal/nvrtc"
	"github.com/warpmap/warpmap/internal/testenv"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func contains(t *testing.T, err error, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", fmt.Sprint(err), want)
		}
	}
}

// opened is a device that the test closes in the end, if nobody has.
func opened(t *testing.T, name string, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open(name, opts...)
	if name == "cuda" {
		testenv.Require(t, "cuda", err)
	}
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

func openCPU(t *testing.T, opts ...device.Option) *device.Device { return opened(t, "cpu", opts...) }

func openGPU(t *testing.T) *device.Device { return opened(t, "cuda", device.WithCache("")) }

// openFake opens a GPU of a fake driver and a fake NVRTC.
func openFake(t *testing.T) (*cufake.Fake, *device.Device) {
	t.Helper()
	f := cufake.New(t)
	t.Setenv("WARPMAP_LIBCUDA", f.Path)
	t.Setenv(nvrtc.Env, f.Path)
	return f, opened(t, "cuda:1", device.WithCache(""))
}

// addParams is the parameter of the kernel "add", which the fake has, too.
type addParams struct {
	Addr, N uint64
	Value   uint32
}

var addProgram = &device.Program{
	Name: "add",
	Files: []device.File{{Name: "add.cu", Text: `
#include "warpmap.cuh"
#include "layout.h"
WARPMAP_KERNEL(add, outside_test::addParams) {
    if (grid_thread() < p.n) at<u32>(p.addr)[grid_thread()] += p.value;
}
`}},
	Layouts: []any{addParams{}},
}

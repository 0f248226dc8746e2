package slab

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// All kernels compile for GPUs, on machines that have none: each variant for one architecture; in short runs one, without what few call.
func TestKernelsCompileForGPUs(t *testing.T) {
	testenv.ByTurns(t)
	for i, v := range []struct {
		key, value, group int
		light, multi      bool
		arch              string
	}{
		{8, 8, 8, false, false, "sm_90"},
		{8, 16, 4, true, false, "sm_70"},
		{4, 4, 8, false, true, "sm_80"},
		{4, 4, 8, false, false, "sm_90"},
		{4, 4, 32, false, false, "sm_75"},
		{8, 0, 8, false, false, "sm_80"},
	} {
		if i >= 1 && !testenv.Long() {
			break
		}
		info, _ := device.InfoFor(v.arch) // an error comes again below
		c := &core{cfg: config{keyBytes: v.key, valueBytes: v.value, light: v.light, multi: v.multi}, opts: Options{Group: v.group}}
		c.cfg.packed = c.cfg.canPack(info.CAS128)
		programs := []*device.Program{c.program("slab", kernelsCU)}
		if !v.multi && v.value <= 8 {
			programs = append(programs, c.stretchProgram())
		}
		if !v.multi {
			programs = append(programs, c.chooseProgram())
		}
		if i < 2 {
			each := c.program("foreach", foreachCU, device.File{Name: "callback.h",
				Text: "__device__ void callback(const forEachParams& p, C::key k, C::value v, u64 i) { if (i == p.n) add(at<u32>(p.args[0]) + k, (u32)(sizeof v)); }"})
			each.Layouts = append(each.Layouts, forEachParams{})
			programs = append(programs, each)
			programs = append(programs, allocatorProgram(i == 1, "allocate", allocateKernels, allocateParams{}))
		}
		compiles(t, v.arch, fmt.Sprintf("%+v", v), testenv.Some(programs, 1)...)
	}
}

// Stretches of all layouts: short runs have one.
func TestStretchesCompileForGPUs(t *testing.T) {
	testenv.ByTurns(t)
	for i, v := range []struct {
		key, value int
		arch       string
	}{{4, 4, "sm_90"}, {4, 0, "sm_90"}, {8, 8, "sm_75"}, {4, 8, "sm_75"}, {8, 4, "sm_90"}} {
		if i >= 1 && !testenv.Long() {
			break
		}
		info, _ := device.InfoFor(v.arch) // an error comes again below
		c := &core{cfg: config{keyBytes: v.key, valueBytes: v.value}, opts: Options{Group: 8}}
		c.cfg.packed = c.cfg.canPack(info.CAS128)
		compiles(t, v.arch, fmt.Sprintf("%+v", v), c.stretchProgram())
	}
}

func compiles(t *testing.T, arch, what string, programs ...*device.Program) {
	for _, p := range programs {
		t.Run(p.Name+" "+what, func(t *testing.T) {
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

func TestUpdatesCompileForGPUs(t *testing.T) {
	testenv.ByTurns(t)
	for i, v := range []struct {
		key, value int
		of         reflect.Type
		with       table.Combine
		arch       string
	}{
		{4, 4, reflect.TypeFor[uint32](), table.Add, "sm_90"},
		{8, 8, reflect.TypeFor[float64](), table.Min, "sm_90"},
		{4, 8, reflect.TypeFor[int64](), "old * value", "sm_70"},
		{8, 4, reflect.TypeFor[float32](), table.Add, "sm_80"},
		{4, 4, reflect.TypeFor[int32](), "old * value", "sm_90"},
		{8, 8, reflect.TypeFor[uint64](), table.Or, "sm_80"},
	} {
		if i >= 1 && !testenv.Long() {
			break
		}
		info, _ := device.InfoFor(v.arch) // an error comes again below
		c := &core{cfg: config{keyBytes: v.key, valueBytes: v.value}, opts: Options{Group: 8}}
		c.cfg.packed = c.cfg.canPack(info.CAS128)
		header, err := frame.CombineHeader(v.with, v.of)
		must(t, err)
		compiles(t, v.arch, fmt.Sprintf("%d+%d %v %s %s", v.key, v.value, v.of, v.with, v.arch), testenv.Some([]*device.Program{c.updateProgram(header), c.program("add_ones", addOnes)}, 1)...)
	}
}

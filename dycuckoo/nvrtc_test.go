package dycuckoo

import (
	"errors"
	"reflect"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// All kernels compile for GPUs, on machines that have none: the main program of one layout; in long runs
// every layout, width of words and size of buckets, each for one architecture, and the kernels of callbacks.
func TestKernelsCompileForGPUs(t *testing.T) {
	testenv.ByTurns(t)
	type compiled struct {
		arch string
		w    frame.Width
		o    Options
	}
	all := []compiled{
		{"sm_90", frame.Width{Key: 8, Value: 8}, Options{}},
	}
	if testenv.Long() {
		all = append(all,
			compiled{"sm_70", frame.Width{Key: 16, Value: 8}, Options{Subtables: 3}},
			compiled{"sm_75", frame.Width{Key: 4, Value: 4}, Options{Subtables: 5, Balance: Theorem1}},
			compiled{"sm_90", frame.Width{Key: 4, Value: 8}, Options{Subtables: 8, Bucket: 128}},
			compiled{"sm_70", frame.Width{Key: 4, Value: 4}, Options{Subtables: 2, Bucket: 32}},
			compiled{"sm_75", frame.Width{Key: 32, Value: 32}, Options{}},
			compiled{"sm_70", frame.Width{Key: 4, Value: 4}, Options{Layout: PackedLocked}},
			compiled{"sm_90", frame.Width{Key: 8, Value: 8}, Options{Layout: PackedLocked, Coordination: Voter}},
			compiled{"sm_70", frame.Width{Key: 32, Value: 32}, Options{Coordination: Voter, Balance: Theorem1}})
	}
	for i, v := range all {
		info, err := device.InfoFor(v.arch)
		if errors.Is(err, device.ErrNoNVRTC) {
			testenv.RequireNVRTC(t, err)
		}
		must(t, err)
		c := &core{opts: v.o, cfg: config{keyBytes: v.w.Key, valueBytes: v.w.Value}}
		must(t, c.opts.complete(info, &c.cfg))
		programs := []*device.Program{c.program("dycuckoo", kernelsCU)}
		if c.cfg.layout != PackedLocked && c.cfg.slots() <= stagedSlots {
			programs = append(programs, c.stagedProgram())
		}
		if i == 0 || v.w.Value == 4 {
			programs = append(programs, c.chooseProgram(), c.program("add_ones", addOnes))
			ofs := map[table.Combine]reflect.Type{table.Add: reflect.TypeFor[float64](), "old * value": reflect.TypeFor[int64](), table.Min: reflect.TypeFor[uint64]()}
			if v.w.Value == 4 {
				ofs = map[table.Combine]reflect.Type{"old * value": reflect.TypeFor[float32]()}
			}
			for with, of := range ofs {
				header, err := frame.CombineHeader(with, of)
				must(t, err)
				programs = append(programs, c.updateProgram(header))
			}
		}
		if i == 0 || v.w.Key == 32 {
			each := c.program("foreach", foreachCU, device.File{Name: "callback.h",
				Text: "__device__ void callback(const forEachParams& p, C::key, C::value, u64) { add(at<u64>(p.args[0]), (u64)1); }"})
			each.Layouts = append(each.Layouts, forEachParams{})
			programs = append(programs, each)
		}
		for _, p := range testenv.Some(programs, 1) {
			t.Run(p.Name+" "+c.cfg.layout.String()+" "+v.arch, func(t *testing.T) {
				testenv.Turn(t)
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

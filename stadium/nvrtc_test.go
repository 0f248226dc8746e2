package stadium

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

const emptyCallback = "__device__ void callback(const forEachParams& p, C::key, C::value, u64 i) { at<u64>(p.args[0])[0] = i; }"

// The kernels compile for GPUs, where there are none: for one size of tickets, in long runs for all, and other widths.
func TestCompileForGPUs(t *testing.T) {
	testenv.ByTurns(t)
	variants := map[config]string{{8, 8, 8, 0}: "sm_90"}
	if testenv.Long() {
		variants[config{256, 8, 8, 0}], variants[config{4, 8, 16, 0}] = "sm_75", "sm_90"
		for i, ticket := range []int{1, 2, 4, 8, 16} {
			variants[config{4, 4, ticket, 0}] = []string{"sm_70", "sm_80", "sm_90"}[i%3]
			variants[config{[]int{12, 16, 20, 32, 256}[i], []int{0, 64, 100, 8, 4096}[i], ticket, 0}] = []string{"sm_90", "sm_75", "sm_80"}[i%3]
		}
	}
	for cfg, arch := range variants {
		c := &core{cfg: cfg}
		each := c.program("foreach", foreachCU, device.File{Name: "callback.h", Text: emptyCallback})
		each.Layouts = append(each.Layouts, forEachParams{})
		programs := []*device.Program{c.program("stadium", kernelsCU), c.program("stadium-panes", panesCU), each}
		programs = append(programs, c.chooseProgram())
		of := map[int][]reflect.Type{4: {reflect.TypeFor[float32]()}, 8: {reflect.TypeFor[float64](), reflect.TypeFor[int64]()}}[cfg.valueBytes]
		for i, v := range of {
			header, err := frame.CombineHeader([]table.Combine{table.Add, "old * value"}[i], v)
			must(t, err)
			programs = append(programs, c.updateProgram(header))
			if i == 0 && cfg.keyBytes <= 8 {
				programs = append(programs, c.program("add_ones", addOnes))
			}
		}
		if cfg.staged() {
			programs = append(programs, c.stagedProgram())
		}
		if cfg.stretches() {
			programs = append(programs, c.stretchProgram())
		}
		for _, p := range testenv.Some(programs, 1) {
			t.Run(fmt.Sprintf("%s/%d+%d/ticket=%d/%s", p.Name, cfg.keyBytes, cfg.valueBytes, cfg.ticket, arch), func(t *testing.T) {
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

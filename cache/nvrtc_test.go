package cache

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

// All kernels compile for GPUs, on machines that have none: in long runs each layout for each architecture.
func TestKernelsCompileForGPUs(t *testing.T) {
	widths := [][2]int{{8, 8}, {4, 4}, {8, 64}, {4, 12}, {8, 0}, {4, 0}, {8, 16}, {4, 4096}}
	for i, w := range testenv.Some(widths, 1) {
		for j, arch := range []string{"sm_90", "sm_75", "sm_70", "sm_80"} {
			if j != i%4 && !testenv.Long() {
				continue
			}
			c := &core{cfg: config{keyBytes: w[0], valueBytes: w[1], policy: policies[i%4], expires: i%3 == 0}}
			c.opts.group = c.group(true)
			t.Run(fmt.Sprintf("%d+%d %s", w[0], w[1], arch), func(t *testing.T) {
				testenv.Turn(t)
				t.Parallel()
				_, err := device.CompileFor(arch, c.program("cache", kernelsCU))
				if w == [2]int{8, 8} && err == nil {
					header, wrong := frame.CombineHeader(table.Add, reflect.TypeFor[float64]())
					must(t, wrong)
					_, err = device.CompileFor(arch, c.updateProgram(header))
				}
				if i == 0 && err == nil {
					c.cfg.tile = tileRows
					_, err = device.CompileFor(arch, c.coverProgram())
				}
				if i%4 < 2 && c.cfg.paired() && err == nil { // with values, and without
					_, err = device.CompileFor(arch, c.orderProgram())
					if err == nil {
						_, err = device.CompileFor(arch, c.stretchProgram())
					}
				}
				if i < 3 && err == nil { // with a value that has a name, and without
					p := c.program("cache_score", scoreCU)
					p.Files = append(p.Files, scoreHeader(c.cfg, "time + old", reflect.TypeFor[uint64](), reflect.TypeFor[int32]()))
					if w == [2]int{8, 8} {
						p.Files[len(p.Files)-1] = scoreHeader(c.cfg, "value + key", reflect.TypeFor[uint64](),
							reflect.TypeFor[float64]())
					}
					if w[0] == 8 {
						_, err = device.CompileFor(arch, p)
					}
				}
				if errors.Is(err, device.ErrNoNVRTC) {
					testenv.RequireNVRTC(t, err)
				}
				must(t, err)
			})
		}
	}
}

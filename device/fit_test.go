package device

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// fitProgram has kernels with 40 KiB of static shared memory, and with as much dynamic memory as is left of a limit.
func fitProgram(dynamic int64) *Program {
	return &Program{Name: "fit", Files: []File{{"fit.cu", fmt.Sprintf(`
#include "warpmap.cuh"
#include "layout.h"
struct Room { u32 x[%d]; };
WARPMAP_KERNEL_WIDE(both, device::fitParams, 512, Room) {
    __shared__ u32 own[40 << 8];
    u32* x = ((Room*)dynamic_shared())->x;
    own[thread_index()] = x[thread_index()];
    block_sync();
    at<u32>(p.addr)[thread_index()] = own[511 - thread_index()];
}
WARPMAP_KERNEL(none, device::fitParams) { at<u32>(p.addr)[thread_index()] = 1; }
`, dynamic/4)}}, Layouts: []any{fitParams{}}, Threads: 512}
}

type fitParams struct{ Addr uint64 }

// A kernel whose static and dynamic shared memory together are more than an architecture has does not compile for it.
// One that has exactly the limit does.
func TestKernelThatDoesNotFit(t *testing.T) {
	const static = 40 << 10
	for _, arch := range []string{"sm_70", "sm_75", "sm_80", "sm_86", "sm_90"} {
		most := sharedOf(arch)
		cubin, err := CompileFor(arch, fitProgram(most-static))
		testenv.Require(t, "nvrtc", only(err, ErrNoNVRTC))
		if err != nil {
			t.Errorf("%s: %v", arch, err)
			continue
		}
		all := kernelNeeds(arch, cubin)
		at := slices.IndexFunc(all, func(k needs) bool { return k.kernel == "both" })
		if len(all) != 2 || at < 0 {
			t.Fatalf("%s: %+v", arch, all)
		}
		if k := all[at]; k.shared != most || k.threads != 512 || k.registers < 1 || k.registers > 128 {
			t.Errorf("%s: %+v, want %d bytes of shared memory for 512 threads", arch, k, most)
		}
		_, err = CompileFor(arch, fitProgram(most-static+16))
		want := fmt.Sprintf("kernel both: a block needs %d bytes of shared memory, and %s has %d", most+16, arch, most)
		if e := (*CompileError)(nil); !errors.As(err, &e) || !strings.Contains(e.Log, want) {
			t.Errorf("%s: %v, want %q", arch, err, want)
		}
		if _, err = CompileFor(arch, fitProgram(most+16)); err == nil || !strings.Contains(err.Error(), "a block has less shared memory") {
			t.Errorf("%s: %v", arch, err)
		}
	}
}

// A kernel is compared with the shared memory that the GPU's driver reports, and not with that of the architecture which
// it is compiled for: a GPU that is newer than the NVRTC may have less, or more.
func TestKernelFitsTheGPU(t *testing.T) {
	const static = 40 << 10
	c, err := openNVRTC(t.Context(), "", "sm_86", 0)
	testenv.Require(t, "nvrtc", only(err, ErrNoNVRTC))
	for _, g := range []struct {
		reported, needed int64
		fits             bool
	}{{120 << 10, 120 << 10, true}, {120 << 10, 120<<10 + 16, false}, {80 << 10, 80 << 10, true}, {80 << 10, 80<<10 + 16, false}} {
		c.shared = g.reported
		src, err := fitProgram(g.needed-static).source(true, g.reported, fast)
		if err != nil {
			t.Fatal(err)
		}
		_, err = src.compile(c)
		want := fmt.Sprintf("kernel both: a block needs %d bytes of shared memory, and sm_86 has %d", g.needed, g.reported)
		if e := (*CompileError)(nil); g.fits && err != nil || !g.fits && (!errors.As(err, &e) || !strings.Contains(e.Log, want)) {
			t.Errorf("%+v: %v", g, err)
		}
	}
}

// A kernel that is to have more blocks on a multiprocessor than that has threads for gets the registers that the most
// blocks can have. This kernel wants 254.
func TestRegistersOfResidentBlocks(t *testing.T) {
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, "u32 x%d = load_relaxed(x + %d * i);\n", i, i)
	}
	text.WriteString("block_sync();\n")
	for i := range 100 {
		fmt.Fprintf(&text, "store_relaxed(x + %d * i + 7, x%d ^ x%d);\n", i, i, 99-i)
	}
	for _, c := range []struct {
		arch              string
		blocks, registers int64
	}{{"sm_75", 4, 64}, {"sm_75", 5, 64}, {"sm_75", 6, 64}, {"sm_86", 6, 40}, {"sm_86", 8, 40}, {"sm_89", 8, 40}, {"sm_70", 8, 32}, {"sm_80", 8, 32}, {"sm_90", 8, 32}} {
		cubin, err := CompileFor(c.arch, &Program{Name: "many", Files: []File{{"many.cu", fmt.Sprintf(`
#include "warpmap.cuh"
#include "layout.h"
WARPMAP_KERNEL_RESIDENT(many, device::fitParams, %d) { u32 i = thread_index(), *x = at<u32>(p.addr); %s }`, c.blocks, &text)}}, Layouts: []any{fitParams{}}})
		testenv.Require(t, "nvrtc", only(err, ErrNoNVRTC))
		if err != nil {
			t.Fatal(err)
		}
		if all := kernelNeeds(c.arch, cubin); len(all) != 1 || all[0].registers > c.registers {
			t.Errorf("%s, %d blocks: %+v, want %d registers", c.arch, c.blocks, all, c.registers)
		}
	}
}

// only returns err if it is the given one.
func only(err, want error) error {
	if errors.Is(err, want) {
		return err
	}
	return nil
}

// A kernel with more registers than a thread or a block can have is named. NVRTC makes none, because WARPMAP_KERNEL
// bounds them.
func TestTooManyRegisters(t *testing.T) {
	for _, c := range []struct {
		threads, registers int64
		fits               bool
	}{{256, 255, true}, {256, 256, false}, {512, 128, true}, {512, 129, false}, {1024, 64, true}, {1024, 65, false}, {32, 255, true}} {
		log := needs{kernel: "wide", threads: c.threads, registers: c.registers}.misfit("sm_75", sharedOf("sm_75"))
		want := fmt.Sprintf("kernel wide: a block needs %d threads with %d registers each, and sm_75 has 255", c.threads, c.registers)
		if fits := log == ""; fits != c.fits || !fits && !strings.HasPrefix(log, want) {
			t.Errorf("%d threads with %d registers: %q, want %q: %t", c.threads, c.registers, log, want, !c.fits)
		}
	}
}

package device_test

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// These tests want a GPU, and are skipped without one (see testenv.Require).

func openGPU(t *testing.T) *device.Device {
	t.Helper()
	d, err := device.Open("cuda", device.WithCache(""))
	testenv.Require(t, "cuda", err)
	t.Cleanup(func() { d.Close() })
	return d
}

type wideParams struct {
	Out   uint64
	Words [510]uint64
	Last  uint64
}

var gpuProgram = &device.Program{
	Name: "gpu",
	Files: []device.File{{Name: "gpu.cu", Text: `
#include "warpmap.cuh"
#include "layout.h"

WARPMAP_KERNEL(add, device_test::addParams) {
    u64 i = block_index() * block_threads() + thread_index();
    if (i < p.n) ((u32*)p.addr)[i] += p.value;
}

WARPMAP_KERNEL(crash, device_test::addParams) { *(volatile u32*)p.addr = p.value; }

WARPMAP_KERNEL(stop, device_test::addParams) { asm volatile("trap;"); }

// Runs for p.n nanoseconds.
WARPMAP_KERNEL(spin, device_test::addParams) {
    u64 from, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(from));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - from < p.n);
}

// A block of 1024 threads, with 60 KiB of shared memory: every GPU has them, and above 48 KiB a launch must ask for them.
struct Large { u32 x[15 << 10]; };
WARPMAP_KERNEL_WIDE(large, device_test::addParams, 1024, Large) {
    u32* x = ((Large*)dynamic_shared())->x;
    for (u32 i = thread_index(); i < 15 << 10; i += block_threads()) x[i] = i;
    block_sync();
    u64 sum = 0, all;
    for (u32 i = thread_index(); i < 15 << 10; i += block_threads()) sum += x[(15 << 10) - 1 - i];
    block_scan(sum, all);
    if (thread_index() == 0) *(u64*)p.addr = all;
}

WARPMAP_KERNEL(wide, device_test::wideParams) {
    u64 sum = p.last;
    for (int i = 0; i < 510; i++) sum += p.words[i];
    if (thread_index() == 0) *(u64*)p.out = sum;
}
`}},
	Layouts: []any{addParams{}, wideParams{}},
}

func compileGPU(t *testing.T, d *device.Device) *device.Module {
	t.Helper()
	m, err := d.Compile(gpuProgram)
	if errors.Is(err, device.ErrNoNVRTC) {
		testenv.Require(t, "nvrtc", err)
	}
	must(t, err)
	return m
}

// The kernels of these tests must compile where there is an NVRTC, GPU or not.
func TestGPUProgramCompiles(t *testing.T) {
	for _, arch := range []string{"sm_75", "sm_90"} {
		image, err := device.CompileFor(arch, gpuProgram)
		if errors.Is(err, device.ErrNoNVRTC) {
			testenv.Require(t, "nvrtc", err)
		}
		must(t, err)
		sizes := variables(t, image)
		for name, want := range map[string]uint64{"add_params": 24, "spin_params": 24, "wide_params": 4096, "large_params": 24, "large_warps": 32, "large_shared": 60<<10>>4 + 1, "add_warps": 8, "add_shared": 1} {
			if sizes[name] != want {
				t.Errorf("%s: %s has %d bytes, want %d: KernelOf could not compare", arch, name, sizes[name], want)
			}
		}
	}
}

// variables gives the size of each symbol of a cubin.
func variables(t *testing.T, cubin []byte) map[string]uint64 {
	t.Helper()
	image := bytes.Clone(cubin)
	image[6], image[20] = 1, 1 // the version of ELF, where cubins have that of CUDA
	f, err := elf.NewFile(bytes.NewReader(image))
	must(t, err)
	symbols, err := f.Symbols()
	must(t, err)
	sizes := map[string]uint64{}
	for _, s := range symbols {
		sizes[s.Name] = s.Size
	}
	return sizes
}

func TestGPUInfo(t *testing.T) {
	d := openGPU(t)
	i := d.Info()
	t.Logf("%v: %+v", d, i)
	if i.Name != "cuda:0" || i.Model == "" || i.Multiprocessors < 1 || i.Memory < 1<<30 || i.L2 < 1<<16 || i.Shared < 64<<10 || i.Driver == "" {
		t.Errorf("%+v", i)
	}
	free, total, err := d.Memory()
	if err != nil || free <= 0 || free > total || total > i.Memory {
		t.Errorf("%d of %d bytes free, %v", free, total, err)
	}
}

func TestGPUMemory(t *testing.T) { roundTrip(t, openGPU(t)) }

func TestGPULaunch(t *testing.T) {
	d := openGPU(t)
	m := compileGPU(t, d)
	k, err := device.KernelOf[addParams](m, "add")
	must(t, err)
	launch(t, d, k)
	_, err = device.KernelOf[addParams](m, "no_such_kernel")
	contains(t, err, "no_such_kernel")
	sizes(t, d, gpuProgram)

	wide, err := device.KernelOf[wideParams](m, "wide")
	must(t, err)
	out, err := device.Make[uint64](d, 1)
	must(t, err)
	p := wideParams{Out: out.Addr(), Last: 1000}
	for i := range p.Words {
		p.Words[i] = uint64(i)
	}
	must(t, wide.Launch(nil, device.Grid{Blocks: 1, Threads: 32}, &p))
	if got, err := out.Host(nil); err != nil || got[0] != 1000+510*509/2 {
		t.Errorf("a parameter of 4,096 bytes adds up to %v, %v", got, err)
	}
}

// A kernel says itself how many threads and how much shared memory its blocks have.
func TestGPUWideKernel(t *testing.T) {
	d := openGPU(t)
	large, err := device.KernelOf[addParams](compileGPU(t, d), "large")
	must(t, err)
	if large.Threads() != 1024 {
		t.Errorf("a block of %d threads, want 1024", large.Threads())
	}
	out, err := device.Make[uint64](d, 1)
	must(t, err)
	must(t, large.Launch(nil, device.Grid{Blocks: 3, Threads: large.Threads()}, &addParams{Addr: out.Addr()}))
	const n = 15 << 10
	if got, err := out.Host(nil); err != nil || got[0] != n*(n-1)/2 {
		t.Errorf("shared memory adds up to %v, %v; want %d", got, err, n*(n-1)/2)
	}
	contains(t, large.Launch(nil, device.Grid{Blocks: 1, Threads: 2048}, &addParams{Addr: out.Addr()}), "1024")
}

// Events measure the device's time; streams run beside each other, and Free waits.
func TestGPUTime(t *testing.T) {
	d := openGPU(t)
	spin, err := device.KernelOf[addParams](compileGPU(t, d), "spin")
	must(t, err)
	one, grid := 50*time.Millisecond, device.Grid{Blocks: 1, Threads: 32}
	must(t, spin.Launch(nil, grid, &addParams{N: 1}))
	must(t, d.Stream().Sync())
	var events [2]*device.Event
	for i := range events {
		events[i], err = d.NewEvent()
		must(t, err)
	}
	must(t, events[0].Record(nil))
	must(t, spin.Launch(nil, grid, &addParams{N: uint64(one)}))
	must(t, events[1].Record(nil))
	if _, err := events[1].Since(events[0]); err == nil {
		t.Error("an event that has not passed has a time")
	}
	must(t, events[1].Sync())
	if took, err := events[1].Since(events[0]); err != nil || took < one-time.Millisecond || took > 4*one {
		t.Errorf("a kernel of %v took %v, %v", one, took, err)
	}

	a, err := d.NewStream()
	must(t, err)
	b, err := d.NewUrgentStream()
	must(t, err)
	from := time.Now()
	must(t, spin.Launch(a, grid, &addParams{N: uint64(one)}))
	must(t, spin.Launch(b, grid, &addParams{N: uint64(one)}))
	must(t, a.Sync())
	must(t, b.Sync())
	if took := time.Since(from); took < one-time.Millisecond || took > 2*one-time.Millisecond {
		t.Errorf("two kernels of %v on two streams took %v", one, took)
	}

	s, err := device.Make[uint32](d, 1)
	must(t, err)
	from = time.Now()
	must(t, spin.Launch(a, grid, &addParams{N: uint64(one)}))
	must(t, s.Free())
	if took := time.Since(from); took < one-time.Millisecond {
		t.Errorf("Free returned %v into a kernel of %v", took, one)
	}
}

// FreeAfter returns at once, and an allocation beside a kernel does not wait for it either; Free waits.
func TestGPUFreeAfter(t *testing.T) {
	d := openGPU(t)
	spin, err := device.KernelOf[addParams](compileGPU(t, d), "spin")
	must(t, err)
	busy, err := d.NewStream()
	must(t, err)
	idle, err := d.NewStream()
	must(t, err)
	one, grid := 200*time.Millisecond, device.Grid{Blocks: 1, Threads: 32}
	get := func() device.Slice[uint32] {
		s, err := device.MakePooled[uint32](d, 1<<20)
		must(t, err)
		return s
	}
	must(t, spin.Launch(busy, grid, &addParams{N: 1}))
	must(t, get().FreeAfter(idle)) // the pool is made by the first
	must(t, busy.Sync())

	a, b, c := get(), get(), get()
	from := time.Now()
	must(t, spin.Launch(busy, grid, &addParams{N: uint64(one)}))
	must(t, a.Fill(idle, 1))
	must(t, a.FreeAfter(idle))
	must(t, b.FreeAfter(busy, idle))
	for range 10 {
		s := get()
		must(t, s.Fill(idle, 2))
		must(t, s.FreeAfter(idle))
	}
	must(t, idle.Sync())
	if took := time.Since(from); took > one/2 {
		t.Errorf("frees and allocations beside a kernel of %v took %v", one, took)
	} else {
		t.Logf("frees and allocations took %v", took)
	}
	must(t, c.Free())
	if took := time.Since(from); took < one-time.Millisecond {
		t.Errorf("Free returned %v into a kernel of %v", took, one)
	}
	free, _, err := d.Memory()
	must(t, err)
	big, err := device.MakePooled[byte](d, 1<<30)
	must(t, err)
	must(t, big.FreeAfter(idle))
	must(t, idle.Sync())
	if now, _, err := d.Memory(); err != nil || now < free-64<<20 {
		t.Errorf("%d bytes free before an allocation of 1 GiB, %d after it, %v", free, now, err)
	}
}

// Memory that streams have yet to give back, or that the pool holds, is given to who needs it before an allocation is refused.
func TestGPUPoolGivesBack(t *testing.T) {
	d := openGPU(t)
	free, _, err := d.Memory()
	must(t, err)
	for _, get := range []func(*device.Device, int) (device.Slice[byte], error){device.Make[byte], device.MakePooled[byte]} {
		s, err := device.MakePooled[byte](d, int(free/3*2))
		must(t, err)
		must(t, s.FreeAfter(nil))
		s, err = get(d, int(free/3*2))
		must(t, err)
		must(t, s.Free())
	}
}

// Two Opens of a GPU work on one another's memory.
func TestGPUDevicesWorkTogether(t *testing.T) {
	a, b := openGPU(t), openGPU(t)
	k, err := device.KernelOf[addParams](compileGPU(t, b), "add")
	must(t, err)
	s, err := device.From(a, []uint32{1, 2, 3})
	must(t, err)
	must(t, s.On(b))
	st, err := a.NewStream()
	must(t, err)
	must(t, k.Launch(st, device.GridFor(3, 32), &addParams{s.Addr(), 3, 10}))
	e, err := b.NewEvent()
	must(t, err)
	must(t, e.Record(st))
	own, err := device.Make[uint32](b, 3)
	must(t, err)
	must(t, b.Stream().Wait(e))
	must(t, own.CopyFrom(nil, s))
	if got, err := own.Host(nil); err != nil || got[0] != 11 || got[2] != 13 {
		t.Errorf("%v, %v", got, err)
	}
	must(t, a.Close())
	roundTrip(t, b)
}

func TestGPUOutOfMemory(t *testing.T) {
	d := openGPU(t)
	_, err := device.Make[byte](d, 1<<50)
	var oom *device.OutOfMemoryError
	if !errors.As(err, &oom) || oom.Asked != 1<<50 || oom.Free <= 0 || oom.Free > d.Info().Memory {
		t.Fatalf("%v", err)
	}
	if _, err = device.MakeHost[byte](d, 1<<50); !errors.As(err, &oom) {
		t.Errorf("host memory: %v", err)
	}
	roundTrip(t, d)
}

func TestGPUConcurrently(t *testing.T) {
	d := openGPU(t)
	k, err := device.KernelOf[addParams](compileGPU(t, d), "add")
	must(t, err)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 20 {
				roundTrip(t, d)
				launch(t, d, k)
			}
		})
	}
	wg.Wait()
}

// A fault loses the device, for good: CUDA does not forgive the process that faulted, so it runs in one of its own, and
// opening the device again says so.
func TestGPUFault(t *testing.T) {
	const env = "WARPMAP_TEST_FAULT"
	if os.Getenv(env) == "" {
		compileGPU(t, openGPU(t))
		for _, kernel := range []string{"crash", "stop"} {
			cmd := exec.Command(os.Args[0], "-test.run=^TestGPUFault$", "-test.v")
			cmd.Env = append(os.Environ(), env+"="+kernel)
			out, err := cmd.CombinedOutput()
			t.Logf("%s:\n%s", kernel, out)
			if err != nil {
				t.Errorf("%s: %v", kernel, err)
			}
		}
		return
	}
	d := openGPU(t)
	k, err := device.KernelOf[addParams](compileGPU(t, d), os.Getenv(env))
	must(t, err)
	must(t, k.Launch(nil, device.Grid{Blocks: 1, Threads: 32}, &addParams{Addr: 64}))
	err = d.Stream().Sync()
	t.Log(err)
	if !errors.As(err, new(*device.FaultError)) {
		t.Fatalf("%v", err)
	}
	if _, later := device.Make[uint32](d, 1); later != err {
		t.Errorf("a later call says %v", later)
	}
	must(t, d.Close())
	if again, err := device.Open("cuda"); err == nil {
		defer again.Close()
		roundTrip(t, again)
	} else if !strings.Contains(err.Error(), "CUDA_ERROR") {
		t.Errorf("opened again: %v", err)
	}
}

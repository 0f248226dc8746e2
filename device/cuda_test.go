package device_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/device/internal/cu/cufake"
	"github.com/warpmap/warpmap/device/internal/nvrtc"
	"github.com/warpmap/warpmap/internal/quick"
	"github.com/warpmap/warpmap/internal/testenv"
)

// These tests drive the CUDA back end through a fake driver and a fake NVRTC, one library, which package cufake builds.

// fake makes Open use a fake driver, and returns an option that has it compile with the fake NVRTC and no cache.
func fake(t *testing.T) (*cufake.Fake, device.Option) {
	t.Helper()
	f := cufake.New(t)
	t.Setenv("WARPMAP_LIBCUDA", f.Path)
	t.Setenv(nvrtc.Env, f.Path)
	return f, device.WithCache("")
}

func openFake(t *testing.T) (*cufake.Fake, *device.Device) {
	t.Helper()
	f, opt := fake(t)
	d, err := device.Open("cuda:1", opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return f, d
}

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

// addParams is the parameter of the fake's kernel "add", and of gpu_test.go's.
type addParams struct {
	Addr, N uint64
	Value   uint32
}

// fakeProgram has the fake's kernels.
var fakeProgram = &device.Program{
	Name:    "fake",
	Files:   []device.File{{Name: "fake.cu", Text: "add crash"}},
	Layouts: []any{addParams{}},
}

func kernelOf(t *testing.T, d *device.Device, p *device.Program, name string) device.Kernel[addParams] {
	t.Helper()
	m, err := d.Compile(p)
	must(t, err)
	k, err := device.KernelOf[addParams](m, name)
	must(t, err)
	return k
}

func TestCUDAInfo(t *testing.T) {
	f, d := openFake(t)
	got := d.Info()
	if !strings.HasPrefix(got.Driver, "CUDA 12.8") {
		t.Errorf("driver %q", got.Driver)
	}
	got.Driver = ""
	want := device.Info{Name: "cuda:1", Model: "Fake GPU 1", Arch: "sm_90", Compiler: "NVRTC 12.4", Multiprocessors: 3, Memory: 1 << 20, L2: 4096, Shared: 227 << 10, CAS128: true,
		UUID: "GPU-02020202-0202-0202-0202-020202020202", PCI: "00fa:02:00.0", NUMA: -1}
	if got != want || !got.CUDA() {
		t.Errorf("%+v, want %+v", got, want)
	}
	f.Set("mig", 0x70)
	m, err := device.Open("cuda:1")
	must(t, err)
	if id := m.Info().UUID; id != "MIG-72727272-7272-7272-7272-727272727272" {
		t.Errorf("a MIG instance is %s", id)
	}
	must(t, m.Close())
	f.Set("mig", 0)
	f.Set("capability", 86)
	e, err := device.Open("cuda")
	must(t, err)
	defer e.Close()
	if i := e.Info(); i.CAS128 || i.Arch != "sm_86" || i.Name != "cuda:0" {
		t.Errorf("%+v", i)
	}
}

func TestCUDAMemory(t *testing.T) {
	f, d := openFake(t)
	roundTrip(t, d)
	free, total, err := d.Memory()
	if err != nil || free != 1<<20 || total != 1<<20 {
		t.Errorf("%d of %d bytes free, %v", free, total, err)
	}
	must(t, d.Close())
	f.NoLeaks()
}

// roundTrip copies through every kind of memory, on a GPU or a fake.
func roundTrip(t *testing.T, d *device.Device) {
	t.Helper()
	in := make([]uint32, 5000)
	for i := range in {
		in[i] = uint32(i) * 2654435761
	}
	a, err := device.From(d, in)
	must(t, err)
	b, err := device.Make[uint32](d, len(in))
	must(t, err)
	st, err := d.NewStream()
	must(t, err)
	must(t, b.CopyFrom(st, a))
	must(t, b.Slice(1, 3).Fill(st, 0xff))
	out, err := b.Host(st)
	must(t, err)
	in[1], in[2] = ^uint32(0), ^uint32(0)
	if !slices.Equal(in, out) {
		t.Error("copies within the device differ")
	}
	pinned, err := device.MakeHost[uint32](d, len(in))
	must(t, err)
	copy(pinned.Slice(), in)
	must(t, a.WriteAsync(st, pinned, len(in)))
	must(t, st.Sync())
	clear(pinned.Slice())
	must(t, a.ReadAsync(st, pinned, len(in)))
	must(t, st.Sync())
	if !slices.Equal(in, pinned.Slice()) {
		t.Error("copies through pinned memory differ")
	}
	if pinned.Mapped().Addr() != 0 {
		t.Error("memory that is only pinned has an address")
	}
	mapped, err := device.MakeMapped[uint32](d, len(in))
	must(t, err)
	must(t, mapped.Mapped().CopyFrom(st, a))
	must(t, st.Sync())
	if !slices.Equal(in, mapped.Slice()) {
		t.Error("copies to mapped memory differ")
	}
	for _, free := range []func() error{a.Free, b.Free, pinned.Free, mapped.Free, st.Close} {
		must(t, free())
	}
	if err := b.Free(); !errors.Is(err, device.ErrFreed) {
		t.Errorf("freed twice: %v", err)
	}
}

func TestCUDALaunch(t *testing.T) {
	f, d := openFake(t)
	launch(t, d, kernelOf(t, d, fakeProgram, "add"))
	m, err := d.Compile(fakeProgram)
	must(t, err)
	_, err = device.KernelOf[addParams](m, "no_such_kernel")
	contains(t, err, "no_such_kernel", "named symbol not found")
	must(t, d.Close())
	f.NoLeaks()
}

func TestCUDAKernelHeap(t *testing.T) {
	f, d := openFake(t)
	must(t, d.KernelHeap(3<<30))
	if got := f.Get("heap"); got != 3<<30 {
		t.Errorf("kernels have a heap of %d bytes, want 3 GiB", got)
	}
	contains(t, d.KernelHeap(-1), "-1 bytes")
	must(t, d.Close())
	if err := d.KernelHeap(1); !errors.Is(err, device.ErrClosed) {
		t.Errorf("a heap of a closed device: %v", err)
	}
}

// The driver is told of a launch with more shared memory than kernels usually may have, once.
func TestCUDASharedMemory(t *testing.T) {
	f, d := openFake(t)
	k := kernelOf(t, d, fakeProgram, "add")
	grid := device.GridFor(1, 32)
	for _, shared := range []int{0, 1000, 227 << 10, 100 << 10} {
		grid.Shared = shared
		must(t, k.Launch(nil, grid, &addParams{}))
		if got := f.Get("shared"); got != int64(shared) {
			t.Errorf("launched with %d bytes of shared memory, want %d", got, shared)
		}
	}
	if got := f.Get("dynamic"); got != 227<<10 {
		t.Errorf("a kernel that was launched with 227 KiB of shared memory may have %d bytes now", got)
	}
	for _, shared := range []int{-1, 227<<10 + 1} {
		grid.Shared = shared
		contains(t, k.Launch(nil, grid, &addParams{}), fmt.Sprint(shared)+" bytes of shared memory")
	}
	f.Set("wide", 228<<10) // the kernel's own
	grid.Shared = 0
	contains(t, kernelOf(t, d, fakeProgram, "crash").Launch(nil, grid, &addParams{}), "233472 bytes of shared memory (want 0 to 232448)")
}

// launch runs "add" twice between events, on two streams.
func launch(t *testing.T, d *device.Device, k device.Kernel[addParams]) {
	t.Helper()
	const n = 1000
	s, err := device.Make[uint32](d, n)
	must(t, err)
	defer s.Free()
	st, err := d.NewStream()
	must(t, err)
	defer st.Close()
	from, err := d.NewEvent()
	must(t, err)
	defer from.Close()
	to, err := d.NewEvent()
	must(t, err)
	defer to.Close()
	must(t, s.Fill(nil, 0))
	must(t, from.Record(nil))
	must(t, k.Launch(nil, device.GridFor(n, 256), &addParams{s.Addr(), n, 40}))
	must(t, to.Record(nil))
	must(t, st.Wait(to))
	must(t, k.Launch(st, device.GridFor(n-1, 256), &addParams{s.Addr(), n - 1, 2}))
	got, err := s.Host(st)
	must(t, err)
	if got[0] != 42 || got[n-2] != 42 || got[n-1] != 40 {
		t.Errorf("%d, …, %d, %d; want 42, …, 42, 40", got[0], got[n-2], got[n-1])
	}
	must(t, to.Sync())
	if took, err := to.Since(from); err != nil || took < 0 || took.Seconds() > 10 {
		t.Errorf("took %v, %v", took, err)
	}
}

func TestCUDACloseFreesAll(t *testing.T) {
	f, d := openFake(t)
	other, err := device.Open("cuda:1", device.WithCache(""))
	must(t, err)
	s, err := device.Make[uint64](d, 100)
	must(t, err)
	_, err = device.MakeMapped[uint64](d, 100)
	must(t, err)
	st, err := d.NewStream()
	must(t, err)
	_, err = d.NewEvent()
	must(t, err)
	k := kernelOf(t, d, fakeProgram, "add")
	must(t, d.Close())
	must(t, d.Close())
	if n := f.Get("allocs") + f.Get("host") + f.Get("events") + f.Get("modules"); n != 0 || f.Get("streams") != 1 {
		t.Errorf("%d things and %d streams are left beside the other device's stream", n, f.Get("streams"))
	}
	for what, err := range map[string]error{
		"free":   s.Free(),
		"fill":   s.Fill(nil, 0),
		"sync":   st.Sync(),
		"launch": k.Launch(nil, device.GridFor(1, 32), &addParams{}),
	} {
		if !errors.Is(err, device.ErrClosed) && !errors.Is(err, device.ErrFreed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
	roundTrip(t, other)
	must(t, other.Close())
	f.NoLeaks()
}

func TestCUDAOutOfMemory(t *testing.T) {
	f, d := openFake(t)
	s, err := device.Make[uint64](d, 1<<16)
	must(t, err)
	_, err = device.Make[uint64](d, 1<<17)
	var oom *device.OutOfMemoryError
	if !errors.As(err, &oom) || oom.Asked != 1<<20 || oom.Free != 1<<19 {
		t.Fatalf("%v", err)
	}
	contains(t, err, "cuda:1: out of memory: 1.0 MiB asked, 512.0 KiB free")
	if _, err := device.MakeHost[byte](d, 1<<41); !errors.As(err, &oom) || oom.Asked != 1<<41 {
		t.Errorf("%v", err)
	}
	must(t, s.Free()) // the device still works
	_, err = device.Make[uint64](d, 1<<17)
	must(t, err)
	must(t, d.Close())
	f.NoLeaks()
}

// Memory that is given back behind streams is given back, too, where the driver refuses a call by which that goes
// without a wait; and it is not given back while the streams may be using it. Where nothing can be done, the error says
// so, the memory is still among what lives, and Close frees it.
func TestCUDAFreeAfterRefused(t *testing.T) {
	for _, bounded := range []bool{false, true} {
		for _, kind := range []string{"refused records", "refused frees", "refused waits"} {
			for _, streams := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s/streams=%d/bounded=%t", kind, streams, bounded), func(t *testing.T) {
					f, opt := fake(t)
					opts := []device.Option{opt}
					if bounded {
						opts = append(opts, device.WithMemory(1<<16))
					}
					d, err := device.Open("cuda:1", opts...)
					must(t, err)
					var of []*device.Stream
					for range streams {
						st, err := d.NewStream()
						must(t, err)
						of = append(of, st)
					}
					work, err := d.NewEvent()
					must(t, err)
					s, err := device.MakePooled[byte](d, 1<<15)
					must(t, err)
					f.Set("hold", 1) // from here on the streams stand still
					must(t, work.Record(of[0]))
					f.Set(kind, 1)
					if kind == "refused waits" { // and what has no need of a wait
						f.Set("refused frees", 1)
					}
					err = s.FreeAfter(of...)
					if kind == "refused waits" {
						if live := d.Live(); err == nil || errors.Is(err, device.ErrFreed) || len(live) != 1 || f.Get("allocs") != 1 {
							t.Errorf("%v; %v lives, %d pieces", err, live, f.Get("allocs"))
						}
					} else {
						if live := d.Live(); err != nil || len(live) > 0 {
							t.Errorf("%v; %v lives", err, live)
						}
						if f.Get("hold") == 1 && f.Get("allocs") != 1 {
							t.Error("the memory is given back while a stream may be using it")
						}
						if bounded { // all of it can be had again
							again, err := device.MakePooled[byte](d, 1<<16)
							must(t, err)
							must(t, again.FreeAfter(of...))
						}
					}
					must(t, d.Close())
					f.NoLeaks()
				})
			}
		}
	}
}

// An allocation that is refused for another reason than short memory is a call that was refused.
func TestCUDAAllocationRefused(t *testing.T) {
	f, d := openFake(t)
	for what, alloc := range map[string]func() error{
		"Make":       func() error { _, err := device.Make[byte](d, 100); return err },
		"MakePooled": func() error { _, err := device.MakePooled[byte](d, 100); return err },
		"MakeHost":   func() error { _, err := device.MakeHost[byte](d, 100); return err },
	} {
		f.Set("refused memory", 1)
		if err := alloc(); !errors.As(err, new(*device.CallError)) || device.IsOutOfMemory(err) {
			t.Errorf("%s: %v, want a call that was refused", what, err)
		}
		must(t, alloc())
	}
	f.Set("refused waits", 1)
	if _, err := device.MakePooled[byte](d, 100); !errors.As(err, new(*device.CallError)) || f.Get("allocs") != 2 {
		t.Errorf("%v; of 2 allocations there are %d", err, f.Get("allocs"))
	}
	must(t, d.Close())
	f.NoLeaks()
}

func TestCUDAFault(t *testing.T) {
	f, opt := fake(t)
	for _, code := range []int64{700, 715, 716, 717, 718, 719, 710, 714, 702, 214, 810, 911, 999, 806} {
		f.Set("fault", code)
		d, err := device.Open("cuda:0", opt)
		must(t, err)
		s, err := device.Make[uint32](d, 10)
		must(t, err)
		must(t, kernelOf(t, d, fakeProgram, "crash").Launch(nil, device.GridFor(1, 32), &addParams{}))
		err = d.Stream().Sync()
		var fault *device.FaultError
		if !errors.As(err, &fault) || fault.Device != "cuda:0" {
			t.Fatalf("fault %d: %v", code, err)
		}
		if code == 700 {
			contains(t, err, "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)", "the device is lost")
		}
		_, makeErr := device.Make[uint32](d, 1)
		_, readErr := s.Host(nil)
		_, _, memoryErr := d.Memory()
		_, compileErr := d.Compile(fakeProgram)
		for _, later := range []error{makeErr, readErr, memoryErr, compileErr, s.Free(), d.Stream().Sync()} {
			if later != err {
				t.Errorf("a later call says %v", later)
			}
		}
		must(t, d.Close())
	}
	d, err := device.Open("cuda:0", opt)
	must(t, err)
	defer d.Close()
	roundTrip(t, d)
}

// A call that queues work can be the one that reports a fault of earlier work.
func TestCUDAFaultAtLaunch(t *testing.T) {
	_, d := openFake(t)
	add, crash := kernelOf(t, d, fakeProgram, "add"), kernelOf(t, d, fakeProgram, "crash")
	must(t, crash.Launch(nil, device.GridFor(1, 32), &addParams{}))
	err := add.Launch(nil, device.GridFor(1, 32), &addParams{})
	if !errors.As(err, new(*device.FaultError)) {
		t.Errorf("%v", err)
	}
}

func TestCUDANoDevice(t *testing.T) {
	open := func(name string) error {
		d, err := device.Open(name, device.WithCache(""))
		if err == nil {
			d.Close()
		}
		return err
	}
	f, _ := fake(t)
	err := open("cuda:2")
	if !errors.Is(err, device.ErrNoGPU) {
		t.Errorf("%v", err)
	}
	contains(t, err, "cuda:2", "there are 2, from cuda:0 to cuda:1")

	f.Set("capability", 61)
	err = open("cuda:0")
	contains(t, err, "cuda:0: Fake GPU 0 has compute capability 6.1", "7.0 or newer")
	f.Set("capability", 70)
	must(t, open("cuda:0"))

	f.Set("devices", 0)
	err = open("cuda:0")
	if !errors.Is(err, device.ErrNoGPU) {
		t.Errorf("%v", err)
	}
	contains(t, err, "no GPU")

	for _, code := range []int64{34, 803, 999} { // the toolkit's stub; a driver of two versions; unknown
		f.Set("init", code)
		err = open("cuda")
		if !errors.Is(err, device.ErrNoDriver) {
			t.Errorf("%v", err)
		}
		contains(t, err, "install NVIDIA's driver")
	}
	f.NoLeaks()

	missing := filepath.Join(t.TempDir(), "libcuda.so.1")
	t.Setenv("WARPMAP_LIBCUDA", missing)
	err = open("cuda")
	if !errors.Is(err, device.ErrNoDriver) {
		t.Errorf("%v", err)
	}
	contains(t, err, missing, "install NVIDIA's driver", "WARPMAP_LIBCUDA")
}

// A GPU for which nothing can be compiled is refused when it is opened, with what to install; auto takes the CPU.
func TestGPUWithoutNVRTC(t *testing.T) {
	f, opt := fake(t)
	t.Setenv("WARPMAP_CACHE", t.TempDir()) // for List
	missing := filepath.Join(t.TempDir(), "libnvrtc.so")
	t.Setenv(nvrtc.Env, missing)
	_, err := device.Open("cuda:0", opt)
	if !errors.Is(err, device.ErrNoNVRTC) {
		t.Errorf("%v", err)
	}
	contains(t, err, "cuda:0", missing, "libnvrtc12", "nvidia-cuda-nvrtc", nvrtc.Env)
	d, err := device.Open("auto", opt)
	must(t, err)
	defer d.Close()
	if s := d.String(); d.Info().CUDA() || !strings.Contains(s, "no NVRTC") || !strings.Contains(s, missing) || !strings.Contains(s, "libnvrtc12") {
		t.Errorf("auto is %s", s)
	}
	m, err := d.Compile(cpuProgram) // and it works
	must(t, err)
	_, err = device.KernelOf[addParams](m, "add")
	must(t, err)
	found, problems := device.List()
	if len(found) != 1 || len(problems) != 2 || !errors.Is(problems[0], device.ErrNoNVRTC) {
		t.Errorf("%v, %v", found, problems)
	}
	f.NoLeaks()

	must(t, os.Symlink(f.Path, missing)) // installed at last
	d, err = device.Open("auto", opt)
	must(t, err)
	defer d.Close()
	if !d.Info().CUDA() {
		t.Errorf("auto is %v", d)
	}
	_, err = device.CompileFor("sm_9", fakeProgram)
	contains(t, err, `architecture "sm_9"`)
}

// What was compiled ahead, where no GPU is, a GPU takes from the cache where no NVRTC is.
func TestAhead(t *testing.T) {
	f, _ := fake(t)
	cache := device.WithCache(t.TempDir())
	a, err := device.OpenAhead("sm_90", cache)
	must(t, err)
	if i := a.Info(); !i.CUDA() || !i.CAS128 || i.Arch != "sm_90" {
		t.Errorf("%+v", i)
	}
	roundTrip(t, a)
	mem, err := device.From(a, []uint32{7})
	must(t, err)
	must(t, kernelOf(t, a, fakeProgram, "add").Launch(nil, device.GridFor(1, 32), &addParams{Addr: mem.Addr(), N: 1, Value: 1}))
	if got, err := mem.Host(nil); err != nil || got[0] != 7 {
		t.Errorf("a kernel ran: %v, %v", got, err)
	}
	must(t, a.Close())
	_, err = device.OpenAhead("sm_90", device.WithCache(""))
	contains(t, err, "no cache to compile into")

	missing := filepath.Join(t.TempDir(), "libnvrtc.so")
	t.Setenv(nvrtc.Env, missing)
	if _, err = device.OpenAhead("sm_90", cache); !errors.Is(err, device.ErrNoNVRTC) {
		t.Errorf("%v", err)
	}
	d, err := device.Open("cuda:0", cache)
	must(t, err)
	if i := d.Info(); i.Compiler != "" || !i.CAS128 {
		t.Errorf("%+v", i)
	}
	kernelOf(t, d, fakeProgram, "add")
	other := *fakeProgram
	other.Name = "other"
	_, err = d.Compile(&other)
	if !errors.Is(err, device.ErrNoNVRTC) {
		t.Errorf("%v", err)
	}
	contains(t, err, "other is not in the cache", missing, "libnvrtc12")
	must(t, d.Close())
	f.NoLeaks()
}

// An NVRTC below the minimum is refused by its name; one that does not know 16 bytes as one value leaves out their swap.
func TestOldNVRTC(t *testing.T) {
	f, opt := fake(t)
	f.Set("nvrtc version", 11020)
	_, err := device.Open("cuda:0", opt)
	if !errors.Is(err, device.ErrNoNVRTC) {
		t.Errorf("%v", err)
	}
	contains(t, err, "NVRTC 11.2", f.Path, "too old", "11.8 or newer", "nvidia-cuda-nvrtc")
	for version, want := range map[int64]bool{11080: false, 12000: false, 12020: false, 12030: true, 13000: true} {
		for _, capability := range []int64{80, 90} {
			f, opt := fake(t)
			f.Set("nvrtc version", version)
			f.Set("capability", capability)
			d, err := device.Open("cuda:0", opt)
			must(t, err)
			if want := want && capability == 90; d.Info().CAS128 != want {
				t.Errorf("NVRTC %d, sm_%d: a 128-bit swap %v, want %v", version, capability, !want, want)
			}
			must(t, d.Close())
		}
	}
}

// A GPU newer than the NVRTC is given code for the newest older GPU whose code it runs.
func TestGPUNewerThanNVRTC(t *testing.T) {
	f, opt := fake(t)
	f.Set("capability", 89)
	f.Set("nvrtc newest", 86)
	cache := t.TempDir()
	d, err := device.Open("cuda:0", device.WithCache(cache))
	must(t, err)
	_, err = d.Compile(fakeProgram)
	must(t, err)
	must(t, d.Close())
	files, _ := filepath.Glob(filepath.Join(cache, "*.cubin"))
	if len(files) != 1 {
		t.Fatalf("cache: %v", files)
	}
	if image, err := os.ReadFile(files[0]); err != nil || !strings.HasPrefix(string(image), "\x7fELF --gpu-architecture=sm_86 --std=c++17\n") {
		t.Errorf("compiled as %.60q, %v", image, err)
	}

	for capability, arch := range map[int64]string{120: "sm_120", 87: "sm_87"} { // 8.7 is a Tegra
		f.Set("capability", capability)
		_, err = device.Open("cuda:0", opt)
		if !errors.Is(err, device.ErrNoNVRTC) {
			t.Errorf("%v", err)
		}
		contains(t, err, "cannot compile for "+arch, "only for sm_50 sm_70 sm_75 sm_80 sm_86:")
	}
}

func TestCUDACompileError(t *testing.T) {
	f, d := openFake(t)
	_, err := d.Compile(&device.Program{Name: "bad", Files: []device.File{{Name: "bad.cu", Text: "#error"}}})
	var e *device.CompileError
	if !errors.As(err, &e) || e.Program != "bad" {
		t.Fatalf("%v", err)
	}
	contains(t, err, "NVRTC 12.4 for sm_90", "bad.cu(1): error")
	f.Set("nvrtc fail", 5)
	_, err = d.Compile(fakeProgram)
	contains(t, err, "INVALID_OPTION")
	f.Set("nvrtc fail", 0)
	_, err = d.Compile(fakeProgram) // neither failure is remembered
	must(t, err)
}

// NVRTC begins nothing when the context is done.
func TestNVRTCWhenTheContextIsDone(t *testing.T) {
	_, opt := fake(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	d, err := device.Open("cuda:1", opt, device.WithContext(ctx))
	must(t, err)
	defer d.Close()
	_, err = d.Compile(fakeProgram)
	must(t, err)
	enough := errors.New("it is enough")
	cancel(enough)
	other := *fakeProgram
	other.Defines = append(slices.Clone(other.Defines), device.Define{Name: "OTHER", Value: 1})
	if _, err := d.Compile(&other); !errors.Is(err, enough) {
		t.Errorf("another program gives %v", err)
	}
	_, err = d.Compile(fakeProgram) // it is there
	must(t, err)
	roundTrip(t, d)
}

func TestNVRTCCompileError(t *testing.T) {
	_, err := device.CompileFor("sm_90", &device.Program{Name: "bad", Files: []device.File{{Name: "bad.cu", Text: "#include \"bad.cuh\"\n"}, {Name: "bad.cuh", Text: "\nint f() { return x; }\n"}}})
	if errors.Is(err, device.ErrNoNVRTC) {
		testenv.Require(t, "nvrtc", err)
	}
	var e *device.CompileError
	if !errors.As(err, &e) || e.Program != "bad" {
		t.Fatalf("%v", err)
	}
	contains(t, err, "compiling bad with NVRTC", `bad.cuh(2): error: identifier "x" is undefined`)
}

// The front end alone finds what is wrong behind templates, too, and is done with what is right.
func TestFrontEndFindsErrors(t *testing.T) {
	was := quick.Checks
	quick.Checks = true
	t.Cleanup(func() { quick.Checks = was })
	compile := func(text string) error {
		_, err := device.CompileFor("sm_90", &device.Program{Name: "some", Files: []device.File{{Name: "some.cu", Text: text}}})
		if errors.Is(err, device.ErrNoNVRTC) {
			testenv.Require(t, "nvrtc", err)
		}
		return err
	}
	const template = `
template <int N, class X> __device__ int of(X x) { static_assert(N < 3, "too many"); return x.y; }
struct Pair { int y; };
extern "C" __global__ void some(int* p) { *p = of<%d>(%s); }`
	must(t, compile(fmt.Sprintf(template, 2, "Pair{1}")))
	contains(t, compile(fmt.Sprintf(template, 3, "Pair{1}")), "too many")
	contains(t, compile(fmt.Sprintf(template, 2, "1")), "some.cu(2): error")
}

func TestCUDAConcurrently(t *testing.T) {
	f, d := openFake(t)
	f.Set("memory", 64<<20)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				roundTrip(t, d)
				launch(t, d, kernelOf(t, d, fakeProgram, "add"))
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	must(t, d.Close())
	f.NoLeaks()
}

// An NVRTC that is newer than the driver is passed over, because the driver does not load what it compiles. One that is
// named is taken.
func TestNVRTCNewerThanDriver(t *testing.T) {
	f, opt := fake(t)
	f.Set("driver", 11080)
	newer := cufake.New(t)
	newer.Set("nvrtc version", 12040)
	f.Set("nvrtc version", 11080)
	must(t, os.Unsetenv(nvrtc.Env))
	toolkit := t.TempDir()
	t.Setenv("CUDA_HOME", toolkit)
	must(t, os.Mkdir(filepath.Join(toolkit, "lib64"), 0o755))
	must(t, os.Symlink(newer.Path, filepath.Join(toolkit, "lib64", "libnvrtc.so.12")))
	must(t, os.Symlink(f.Path, filepath.Join(toolkit, "lib64", "libnvrtc.so.11.2")))
	for want, opts := range map[string][]device.Option{"NVRTC 11.8": {opt}, "NVRTC 12.4": {opt, device.WithCompiler(newer.Path)}} {
		d, err := device.Open("cuda:0", opts...)
		must(t, err)
		if got := d.Info().Compiler; got != want {
			t.Errorf("compiles with %s, want %s", got, want)
		}
		must(t, d.Close())
	}
}

package device_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warpmap/warpmap/device"
)

// These tests drive the CPU device, with the system's compiler.

func openCPU(t *testing.T, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open("cpu", opts...)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

var cpuProgram = &device.Program{
	Name: "cpu test",
	Files: []device.File{{Name: "cpu.cu", Text: `
#include "warpmap.cuh"
#include "layout.h"
WARPMAP_KERNEL(add, device_test::addParams) {
    if (grid_thread() < p.n) at<u32>(p.addr)[grid_thread()] += p.value;
}
WARPMAP_KERNEL(crash, device_test::addParams) { *(volatile u32*)p.addr = p.value; }
`}},
	Layouts: []any{addParams{}},
}

func TestCPUInfo(t *testing.T) {
	d := openCPU(t)
	i := d.Info()
	if i.Name != "cpu" || i.Model == "" || i.Arch != runtime.GOARCH || i.Compiler == "" || i.Multiprocessors < 1 || i.Memory < 1<<20 || i.Shared < 48<<10 || !i.CAS128 || i.CUDA() {
		t.Errorf("%+v", i)
	}
	if s := d.String(); s != "cpu ("+i.Model+")" {
		t.Errorf("%q", s)
	}
	free, total, err := d.Memory()
	if err != nil || free <= 0 || free > total || total != i.Memory {
		t.Errorf("%d of %d bytes free, %v", free, total, err)
	}
}

func TestOpenUnknown(t *testing.T) {
	for _, name := range []string{"gpu", "cpu:", "cpu:-1", "cuda:x", "cuda:-1", "CPU"} {
		if _, err := device.Open(name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Auto says which device it is and why.
func TestAutoWithoutGPU(t *testing.T) {
	t.Setenv("WARPMAP_LIBCUDA", filepath.Join(t.TempDir(), "none.so"))
	d, err := device.Open("auto")
	must(t, err)
	defer d.Close()
	if s := d.String(); d.Info().Name != "cpu" || !strings.Contains(s, "because no GPU can be used") || !strings.Contains(s, "none.so") {
		t.Errorf("%q", s)
	}
	found, problems := device.List()
	if len(found) != 1 || found[0].Name != "cpu" || len(problems) != 1 || !errors.Is(problems[0], device.ErrNoDriver) {
		t.Errorf("%+v, %v", found, problems)
	}
	t.Setenv("PATH", "")
	t.Setenv("CXX", "")
	t.Setenv("WARPMAP_CACHE", t.TempDir())
	_, err = device.Open("auto")
	if !errors.Is(err, device.ErrNoCompiler) {
		t.Error(err)
	}
	contains(t, err, "no GPU", "none.so", "apt install g++")
	if found, problems := device.List(); len(found) != 0 || len(problems) != 2 {
		t.Errorf("%+v, %v", found, problems)
	}
}

func TestCompileErrors(t *testing.T) {
	d := openCPU(t)
	for _, c := range []struct {
		files []device.File
		wants []string
	}{
		{[]device.File{{Name: "broken.cu", Text: "#include \"warpmap.cuh\"\n\nint f() { return nothing; }\n"}}, []string{"broken.cu:3", "nothing", "compiling oops"}},
		{[]device.File{{Name: "a.cu", Text: "#include \"b.cuh\"\n"}, {Name: "b.cuh", Text: "\n#error so it is\n"}}, []string{"b.cuh:2", "so it is"}},
		{[]device.File{{Name: "a.cu", Text: "#include \"missing.cuh\"\n"}}, []string{"a.cu:1", "missing.cuh"}},
		{nil, []string{"oops has no files"}},
	} {
		_, err := d.Compile(&device.Program{Name: "oops", Files: c.files})
		contains(t, err, c.wants...)
		if c.files != nil && !errors.As(err, new(*device.CompileError)) {
			t.Errorf("%v", err)
		}
	}
}

func TestCPUMemory(t *testing.T) { roundTrip(t, openCPU(t)) }

func TestCPULaunch(t *testing.T) {
	for _, opts := range [][]device.Option{nil, {device.WithWorkers(1)}, {device.WithWorkers(7)}, {device.WithStress(4)}} {
		d := openCPU(t, opts...)
		launch(t, d, kernelOf(t, d, cpuProgram, "add"))
		m, err := d.Compile(cpuProgram)
		must(t, err)
		_, err = device.KernelOf[addParams](m, "no_such_kernel")
		contains(t, err, "no_such_kernel")
	}
	var none device.Kernel[addParams]
	contains(t, none.Launch(nil, device.Grid{Blocks: 1, Threads: 32}, &addParams{}), "not compiled")
}

func TestCPUOutOfMemory(t *testing.T) {
	d := openCPU(t)
	var oom *device.OutOfMemoryError
	for name, ask := range map[string]func() error{
		"Make":       func() error { _, err := device.Make[byte](d, 1<<50); return err },
		"MakeHost":   func() error { _, err := device.MakeHost[byte](d, 1<<50); return err },
		"MakeMapped": func() error { _, err := device.MakeMapped[byte](d, 1<<50); return err },
	} {
		err := ask()
		if !errors.As(err, &oom) || oom.Asked != 1<<50 || oom.Free <= 0 || oom.Free > d.Info().Memory {
			t.Errorf("%s: %v", name, err)
		}
		contains(t, err, "1.0 PiB asked", "free")
	}
	for _, n := range []int{-1, 1 << 61} {
		if _, err := device.Make[uint64](d, n); err == nil {
			t.Errorf("%d elements: no error", n)
		}
		if _, err := device.MakeHost[uint64](d, n); err == nil {
			t.Errorf("%d elements of host memory: no error", n)
		}
	}
	roundTrip(t, d)
}

func TestMemoryBound(t *testing.T) {
	d := openCPU(t, device.WithMemory(1000))
	first, err := device.Make[byte](d, 600)
	must(t, err)
	var oom *device.OutOfMemoryError
	if _, err := device.Make[byte](d, 401); !errors.As(err, &oom) || oom.Asked != 401 || oom.Free != 400 {
		t.Errorf("401 bytes of 400: %v", err)
	}
	if free, total, err := d.Memory(); free != 400 || total != 1000 || err != nil {
		t.Errorf("%d bytes free of %d, %v", free, total, err)
	}
	must(t, first.Free())
	_, err = device.Make[byte](d, 1000)
	must(t, err)
}

// Sizes that do not fit are errors, and copy nothing.
func TestSliceSizes(t *testing.T) {
	d := openCPU(t)
	_, other := openFake(t)
	s, err := device.From(d, []uint32{1, 2, 3})
	must(t, err)
	elsewhere, err := device.From(other, []uint32{4})
	must(t, err)
	pinned, err := device.MakeHost[uint32](d, 2)
	must(t, err)
	for name, call := range map[string]func() error{
		"Write":      func() error { return s.Write(nil, make([]uint32, 4)) },
		"Read":       func() error { return s.Read(nil, make([]uint32, 4)) },
		"WriteAsync": func() error { return s.WriteAsync(nil, pinned, 3) },
		"ReadAsync":  func() error { return s.ReadAsync(nil, pinned, 3) },
		"CopyFrom":   func() error { return s.Slice(0, 2).CopyFrom(nil, s) },
		"of another": func() error { return s.CopyFrom(nil, elsewhere) },
		"On":         func() error { return elsewhere.On(d) },
		"no device":  func() error { return device.Slice[uint32]{}.Slice(0, 0).Write(nil, []uint32{1}) },
	} {
		if call() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if got, err := s.Host(nil); err != nil || !slices.Equal(got, []uint32{1, 2, 3}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bounds := range [][2]int{{-1, 2}, {2, 1}, {0, 4}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("s[%d:%d] does not panic", bounds[0], bounds[1])
				}
			}()
			s.Slice(bounds[0], bounds[1])
		}()
	}
	empty, err := device.Make[uint32](d, 0)
	must(t, err)
	must(t, empty.Write(nil, nil))
	must(t, empty.Free())
}

func TestUseAfterFree(t *testing.T) {
	d := openCPU(t)
	s, err := device.From(d, []uint32{1, 2, 3})
	must(t, err)
	view := s.Slice(1, 2)
	whole, err := device.From(d, []uint32{1, 2, 3})
	must(t, err)
	pinned, err := device.MakeHost[uint32](d, 3)
	must(t, err)
	must(t, view.Free()) // frees the whole
	must(t, pinned.Free())
	for name, call := range map[string]func() error{
		"Free":      s.Free,
		"view.Free": view.Free,
		"pinned":    pinned.Free,
		"Write":     func() error { return s.Write(nil, []uint32{1}) },
		"Read":      func() error { return s.Read(nil, make([]uint32, 1)) },
		"Host":      func() error { _, err := s.Host(nil); return err },
		"Fill":      func() error { return s.Fill(nil, 0) },
		"CopyFrom":  func() error { return s.CopyFrom(nil, whole) },
		"CopyTo":    func() error { return whole.CopyFrom(nil, s) },
		"On":        func() error { return s.On(d) },
	} {
		if err := call(); !errors.Is(err, device.ErrFreed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUseAfterClose(t *testing.T) {
	d, err := device.Open("cpu")
	must(t, err)
	m, err := d.Compile(cpuProgram)
	must(t, err)
	k, err := device.KernelOf[addParams](m, "add")
	must(t, err)
	s, err := device.From(d, []uint32{1, 2, 3})
	must(t, err)
	pinned, err := device.MakeHost[uint32](d, 3)
	must(t, err)
	st, err := d.NewStream()
	must(t, err)
	closed, err := d.NewStream()
	must(t, err)
	e, err := d.NewEvent()
	must(t, err)
	must(t, closed.Close())
	must(t, closed.Close())
	for name, call := range map[string]func() error{
		"Sync":   closed.Sync,
		"Wait":   func() error { return closed.Wait(e) },
		"Record": func() error { return e.Record(closed) },
		"Launch": func() error { return k.Launch(closed, device.Grid{Blocks: 1, Threads: 32}, &addParams{}) },
	} {
		if err := call(); !errors.Is(err, device.ErrClosed) {
			t.Errorf("%s of a closed stream: %v", name, err)
		}
	}
	must(t, d.Close())
	must(t, d.Close())
	for name, call := range map[string]func() error{
		"Make":         func() error { _, err := device.Make[byte](d, 1); return err },
		"From":         func() error { _, err := device.From(d, []byte{1}); return err },
		"MakeHost":     func() error { _, err := device.MakeHost[byte](d, 1); return err },
		"MakeMapped":   func() error { _, err := device.MakeMapped[byte](d, 1); return err },
		"Memory":       func() error { _, _, err := d.Memory(); return err },
		"NewStream":    func() error { _, err := d.NewStream(); return err },
		"NewUrgent":    func() error { _, err := d.NewUrgentStream(); return err },
		"NewEvent":     func() error { _, err := d.NewEvent(); return err },
		"Compile":      func() error { _, err := d.Compile(cpuProgram); return err },
		"KernelOf":     func() error { _, err := device.KernelOf[addParams](m, "add"); return err },
		"Launch":       func() error { return k.Launch(nil, device.Grid{Blocks: 1, Threads: 32}, &addParams{}) },
		"Sync":         st.Sync,
		"Wait":         func() error { return st.Wait(e) },
		"Record":       func() error { return e.Record(nil) },
		"Event.Sync":   e.Sync,
		"Since":        func() error { _, err := e.Since(e); return err },
		"device's own": d.Stream().Sync,
	} {
		if err := call(); !errors.Is(err, device.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, call := range map[string]func() error{
		"Free":       s.Free,
		"Write":      func() error { return s.Write(nil, []uint32{1}) },
		"Read":       func() error { return s.Read(nil, make([]uint32, 1)) },
		"Fill":       func() error { return s.Fill(nil, 0) },
		"WriteAsync": func() error { return s.WriteAsync(nil, pinned, 1) },
		"Host.Free":  pinned.Free,
	} {
		if err := call(); !errors.Is(err, device.ErrClosed) && !errors.Is(err, device.ErrFreed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A closed event is of no more use.
func TestEventAfterClose(t *testing.T) {
	d := openCPU(t)
	e, err := d.NewEvent()
	must(t, err)
	other, err := d.NewEvent()
	must(t, err)
	if _, err := other.Since(e); err == nil {
		t.Error("events that were never recorded have a time between them")
	}
	must(t, e.Record(nil))
	must(t, other.Record(nil))
	must(t, e.Close())
	must(t, e.Close())
	for name, call := range map[string]func() error{
		"Record": func() error { return e.Record(nil) },
		"Sync":   e.Sync,
		"Wait":   func() error { return d.Stream().Wait(e) },
		"Since":  func() error { _, err := e.Since(other); return err },
		"since":  func() error { _, err := other.Since(e); return err },
	} {
		if err := call(); !errors.Is(err, device.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A fault is an error at the launch, the device is lost, and another is not.
func TestCPUFault(t *testing.T) {
	d, other := openCPU(t), openCPU(t)
	s, err := device.Make[uint32](d, 1)
	must(t, err)
	err = kernelOf(t, d, cpuProgram, "crash").Launch(nil, device.Grid{Blocks: 3, Threads: 32}, &addParams{Addr: 64})
	var fault *device.FaultError
	if !errors.As(err, &fault) || fault.Device != "cpu" || !strings.Contains(fault.Kernel, "crash") {
		t.Fatalf("%v", err)
	}
	contains(t, err, "bad memory access at address 0x40", "lost")
	for name, later := range map[string]error{
		"Fill": s.Fill(nil, 0),
		"Free": s.Free(),
		"Sync": d.Stream().Sync(),
	} {
		if later != err {
			t.Errorf("%s says %v", name, later)
		}
	}
	if _, later := d.Compile(cpuProgram); later != err {
		t.Errorf("Compile says %v", later)
	}
	must(t, d.Close())
	launch(t, other, kernelOf(t, other, cpuProgram, "add"))
}

func TestCPUConcurrently(t *testing.T) {
	d := openCPU(t)
	k := kernelOf(t, d, cpuProgram, "add")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				roundTrip(t, d)
				launch(t, d, k)
			}
		})
	}
	wg.Wait()
}

// The stacks of a machine's worth of workers leave most of the mappings that Linux gives a process (65,530) to others. It runs
// in a process of its own, which is left with many threads.
func TestManyWorkersLeaveMappings(t *testing.T) {
	const env = "WARPMAP_TEST_WORKERS"
	if os.Getenv(env) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestManyWorkersLeaveMappings$")
		cmd.Env = append(os.Environ(), env+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%.2000s", err, out)
		}
		return
	}
	const workers = 600
	d := openCPU(t, device.WithWorkers(workers))
	k := kernelOf(t, d, cpuProgram, "add")
	for range 2 {
		s, err := device.From(d, make([]uint32, workers*256))
		must(t, err)
		must(t, k.Launch(nil, device.GridFor(workers*256, 256), &addParams{s.Addr(), workers * 256, 7}))
		got, err := s.Host(nil)
		must(t, err)
		if i := slices.IndexFunc(got, func(x uint32) bool { return x != 7 }); i >= 0 {
			t.Errorf("element %d is %d", i, got[i])
		}
		must(t, s.Free())
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if n := strings.Count(string(maps), "\n"); err != nil || n > 12_000 {
		t.Errorf("%d mappings, %v", n, err)
	} else {
		t.Logf("%d mappings", n)
	}
}

// Close waits for calls under way; those after it say ErrClosed.
func TestCloseBesideUse(t *testing.T) {
	for range 20 {
		d, err := device.Open("cpu")
		must(t, err)
		k := kernelOf(t, d, cpuProgram, "add")
		var wg sync.WaitGroup
		var begun sync.WaitGroup
		for range 4 {
			begun.Add(1)
			wg.Go(func() {
				for i := 0; ; i++ {
					if i == 1 {
						begun.Done()
					}
					s, err := device.Make[uint32](d, 100_000)
					if err == nil {
						err = k.Launch(nil, device.GridFor(100_000, 256), &addParams{s.Addr(), 100_000, 1})
					}
					if errors.Is(err, device.ErrClosed) && i > 0 {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		begun.Wait()
		must(t, d.Close())
		wg.Wait()
		if t.Failed() {
			return
		}
	}
}

// What Current calls may use the device, also where Close waits for it, which comes to its end then.
func TestCloseBesideCurrent(t *testing.T) {
	_, opt := fake(t)
	for _, name := range []string{"cpu", "cuda:1"} {
		d, err := device.Open(name, opt)
		must(t, err)
		closed := make(chan error, 2)
		within := errors.New("of the call")
		err = d.Current(func() error {
			s, err := device.From(d, []uint32{1})
			must(t, err)
			for range cap(closed) {
				go func() { closed <- d.Close() }()
			}
			for err == nil {
				err = s.Fill(nil, 0)
			}
			if !errors.Is(err, device.ErrClosed) {
				t.Error(err)
			}
			time.Sleep(time.Millisecond)
			if len(closed) > 0 {
				t.Errorf("%s: Close has not waited", name)
			}
			return within
		})
		if err != within {
			t.Error(err)
		}
		must(t, <-closed)
		must(t, <-closed)
		if err := d.Current(func() error { return nil }); !errors.Is(err, device.ErrClosed) {
			t.Error(err)
		}
	}
}

// No goroutine outlives a closed device.
func TestNoGoroutineLeaks(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	d, err := device.Open("cpu", device.WithWorkers(4))
	must(t, err)
	roundTrip(t, d)
	launch(t, d, kernelOf(t, d, cpuProgram, "add"))
	must(t, d.Close())
}

type inner struct {
	A uint8
	B [3]uint16
}

// layoutParams has every type a parameter may have, and holes between them.
type layoutParams struct {
	Byte  uint8
	Wide  uint64
	Count uint16
	Less  int32
	Half  float32
	Part  float64
	In    [2]inner
	Cube  [2][3]int64
	LongN uint32
	Out   uint64
}

// A parameter struct reaches the kernel as Go holds it, field by field.
func TestLayout(t *testing.T) {
	p := &device.Program{
		Name: "layout",
		Files: []device.File{{Name: "layout.cu", Text: `
#include "warpmap.cuh"
#include "layout.h"
WARPMAP_KERNEL(sum, device_test::layoutParams) {
    if (grid_thread() != 0) return;
    at<double>(p.out)[0] = p.byte + (double)p.wide + p.count + p.less + p.half + p.part + p.in[0].a + p.in[1].b[2] + (double)p.cube[1][2] + p.long_n + ANSWER;
}`}},
		Defines: []device.Define{{Name: "ANSWER", Value: 42}},
		Layouts: []any{layoutParams{}},
	}
	d := openCPU(t)
	m, err := d.Compile(p)
	must(t, err)
	k, err := device.KernelOf[layoutParams](m, "sum")
	must(t, err)
	out, err := device.Make[float64](d, 1)
	must(t, err)
	v := layoutParams{Byte: 200, Wide: 1 << 40, Count: 60000, Less: -7, Half: 0.5, Part: 0.25, LongN: 3, Out: out.Addr()}
	v.In[0].A, v.In[1].B[2], v.Cube[1][2] = 9, 11, -1<<33
	must(t, k.Launch(nil, device.Grid{Blocks: 1, Threads: 32}, &v))
	want := 200 + float64(int64(1)<<40) + 60000 - 7 + 0.5 + 0.25 + 9 + 11 - float64(int64(1)<<33) + 3 + 42
	if got, err := out.Host(nil); err != nil || got[0] != want {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

func TestLayoutRefuses(t *testing.T) {
	d := openCPU(t)
	m, err := d.Compile(cpuProgram)
	must(t, err)
	for _, c := range []struct {
		layout any
		kernel func() error
		want   string
	}{
		{struct{ A int }{}, kernelError[struct{ A int }](m), "int has no fixed width"},
		{struct{ A uint }{}, kernelError[struct{ A uint }](m), "uint has no fixed width"},
		{struct{ A bool }{}, kernelError[struct{ A bool }](m), "bool has no fixed width"},
		{struct{ A string }{}, kernelError[struct{ A string }](m), "string has no fixed width"},
		{struct{ A *uint32 }{}, kernelError[struct{ A *uint32 }](m), "no fixed width"},
		{struct{ A []uint32 }{}, kernelError[struct{ A []uint32 }](m), "no fixed width"},
		{struct{ A [2]struct{ B uintptr } }{}, kernelError[struct{ A [2]struct{ B uintptr } }](m), "no fixed width"},
		{uint64(1), kernelError[uint64](m), "not a struct"},
		{nil, kernelError[any](m), "not a struct"},
	} {
		_, err := d.Compile(&device.Program{Name: "refused", Files: cpuProgram.Files, Layouts: []any{c.layout}})
		contains(t, err, "refused", c.want)
		contains(t, c.kernel(), c.want)
	}
	contains(t, kernelError[struct{ A [513]uint64 }](m)(), "4104 bytes of parameters, more than 4096")
}

func kernelError[P any](m *device.Module) func() error {
	return func() error { _, err := device.KernelOf[P](m, "add"); return err }
}

// A program for blocks that no GPU has is refused on every device.
func TestProgramThreads(t *testing.T) {
	d, err := device.Open("cpu")
	must(t, err)
	defer d.Close()
	for _, threads := range []int{-32, 33, 1056} {
		p := *cpuProgram
		p.Threads = threads
		if _, err := d.Compile(&p); err == nil {
			t.Errorf("%d threads: no error", threads)
		}
	}
	p := *cpuProgram
	p.Threads = 1024 // here blocks have 256 all the same
	m, err := d.Compile(&p)
	must(t, err)
	k, err := device.KernelOf[addParams](m, "add")
	must(t, err)
	if err := k.Launch(nil, device.Grid{Blocks: 1, Threads: 512}, &addParams{}); err == nil {
		t.Error("a block of 512 lanes runs on the CPU")
	}
}

// Large fills are cut into pieces for several threads: every byte gets the value, and none beside.
func TestFillLarge(t *testing.T) {
	d, err := device.Open("cpu", device.WithWorkers(3))
	must(t, err)
	defer d.Close()
	const n = 64<<20 + 12345
	s, err := device.Make[byte](d, n)
	must(t, err)
	defer s.Free()
	for _, v := range []byte{0xff, 0, 7} {
		must(t, s.Fill(nil, v^0x55))
		must(t, s.Slice(1, n-1).Fill(nil, v))
		got, err := s.Host(nil)
		must(t, err)
		if got[0] != v^0x55 || got[n-1] != v^0x55 {
			t.Errorf("a fill with %#x wrote beside its slice", v)
		}
		if count := bytes.Count(got[1:n-1], []byte{v}); count != n-2 {
			t.Errorf("%d of %d bytes are %#x", count, n-2, v)
		}
	}
}

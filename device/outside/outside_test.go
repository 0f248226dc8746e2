package outside_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/dl"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// onAll runs a test on the CPU device, on one that is a fake GPU, and on a GPU where there is one.
func onAll(t *testing.T, test func(t *testing.T, d *device.Device)) {
	t.Run("cpu", func(t *testing.T) { test(t, openCPU(t)) })
	t.Run("fake", func(t *testing.T) {
		f, d := openFake(t)
		f.Set("memory", 8<<20)
		test(t, d)
	})
	t.Run("cuda", func(t *testing.T) { test(t, openGPU(t)) })
}

func TestWrap(t *testing.T) {
	onAll(t, func(t *testing.T, d *device.Device) {
		owner, err := device.From(d, []uint32{1, 2, 3, 4, 5})
		must(t, err)
		w, err := device.Wrap[uint32](d, owner.Addr()+4, 3)
		must(t, err)
		if n := len(d.Live()); n != 1 {
			t.Errorf("%d allocations, of which 1 was made", n)
		}
		must(t, w.Write(nil, []uint32{20}))
		must(t, w.Slice(1, 2).Fill(nil, 1))
		if got, err := owner.Host(nil); err != nil || !slices.Equal(got, []uint32{1, 20, 0x01010101, 4, 5}) {
			t.Errorf("%v, %v", got, err)
		}
		must(t, w.FreeAfter(nil))
		for what, err := range map[string]error{"Free": w.Free(), "Read": w.Read(nil, make([]uint32, 1)), "On": w.On(d)} {
			if !errors.Is(err, device.ErrFreed) {
				t.Errorf("%s of what is freed: %v", what, err)
			}
		}
		w, err = device.Wrap[uint32](d, owner.Addr(), 5)
		must(t, err)
		must(t, w.Free())
		if got, err := owner.Host(nil); err != nil || got[4] != 5 {
			t.Errorf("the owner's memory went with it: %v, %v", got, err)
		}
		if none, err := device.Wrap[uint32](d, 0, 0); err != nil || none.Len() != 0 {
			t.Errorf("no memory: %d elements, %v", none.Len(), err)
		}

		_, err = device.Wrap[uint64](d, owner.Addr()+4, 1)
		contains(t, err, "device.Wrap: ", "at multiples of 8 only")
		_, err = device.Wrap[uint32](d, owner.Addr(), -1)
		contains(t, err, "-1 elements of 4 bytes")
		must(t, d.Close())
		if _, err := device.Wrap[uint32](d, owner.Addr(), 1); !errors.Is(err, device.ErrClosed) {
			t.Errorf("on a closed device: %v", err)
		}
	})
}

// Memory of a Go program is memory of the CPU device.
func TestWrapGoMemory(t *testing.T) {
	d := openCPU(t)
	mine := []uint64{1, 2, 3}
	w, err := device.Wrap[uint64](d, uint64(uintptr(unsafe.Pointer(&mine[0]))), 3)
	must(t, err)
	must(t, w.Write(nil, []uint64{7}))
	if mine[0] != 7 {
		t.Errorf("%v", mine)
	}
	_, err = device.Wrap[uint64](d, 4096, 3)
	contains(t, err, "no memory of this process")
	_, err = device.Wrap[uint64](d, uint64(uintptr(unsafe.Pointer(&mine[0]))), 1<<44)
	contains(t, err, "no memory of this process")
}

func TestWrapWantsTheDevicesMemory(t *testing.T) {
	f, d := openFake(t)
	other, err := device.Open("cuda:0", device.WithCache(""))
	must(t, err)
	defer other.Close()
	theirs, err := device.Make[uint32](other, 4)
	must(t, err)
	host, err := device.MakeMapped[uint32](d, 4)
	must(t, err)
	own, err := device.Make[uint32](d, 4)
	must(t, err)
	f.Set("strict", 1)
	for want, wrap := range map[string]struct {
		addr uint64
		n    int
	}{
		"memory of cuda:0, not of cuda:1": {theirs.Addr(), 4},
		"is not a GPU's memory":           {host.Mapped().Addr(), 4},
		"no memory that CUDA knows":       {4096, 4},
		"is no memory that CUDA knows":    {own.Addr(), 5}, // the last byte is not
	} {
		_, err := device.Wrap[uint32](d, wrap.addr, wrap.n)
		contains(t, err, want)
	}
}

func TestStreamOf(t *testing.T) {
	onAll(t, func(t *testing.T, d *device.Device) {
		owner, err := d.NewStream()
		must(t, err)
		st, err := device.StreamOf(d, owner.Handle())
		must(t, err)
		s, err := device.From(d, []uint32{1, 2})
		must(t, err)
		must(t, s.Fill(st, 0))
		if got, err := s.Host(st); err != nil || got[1] != 0 {
			t.Errorf("%v, %v", got, err)
		}
		if captured, err := st.Capturing(); captured || err != nil {
			t.Errorf("captured: %t, %v", captured, err)
		}
		must(t, st.Close())
		must(t, s.Fill(owner, 1)) // it is still there
		if err := s.Fill(st, 1); !errors.Is(err, device.ErrClosed) {
			t.Errorf("a closed stream: %v", err)
		}
		left, err := device.StreamOf(d, owner.Handle())
		must(t, err)
		must(t, owner.Close())
		if d.Info().Name == "cpu" {
			if err := s.Fill(left, 1); !errors.Is(err, device.ErrClosed) {
				t.Errorf("a stream whose owner has closed it: %v", err)
			}
			_, err = device.StreamOf(d, 1<<40)
			contains(t, err, "no Handle of an open stream")
		}
		must(t, d.Close()) // and is not destroyed again
	})
}

func TestStreamOfWantsTheContextsStream(t *testing.T) {
	_, d := openFake(t)
	other, err := device.Open("cuda:0", device.WithCache(""))
	must(t, err)
	defer other.Close()
	theirs, err := other.NewStream()
	must(t, err)
	_, err = device.StreamOf(d, theirs.Handle())
	contains(t, err, "of another GPU or context, not of the primary one of cuda:1")
	_, err = device.StreamOf(d, 2)
	contains(t, err, "goroutines change threads")
	st, err := device.StreamOf(d, 0)
	must(t, err)
	must(t, st.Sync())
}

// driver calls the driver that device.Open has opened, in the device's context.
type driver struct {
	t   *testing.T
	d   *device.Device
	lib uintptr
}

func driverOf(t *testing.T, d *device.Device) *driver {
	t.Helper()
	path := os.Getenv("WARPMAP_LIBCUDA")
	if path == "" {
		path = "libcuda.so.1"
	}
	lib, err := dl.OpenLocal(path)
	must(t, err)
	return &driver{t, d, lib}
}

//go:uintptrescapes
func (x *driver) call(name string, args ...uintptr) int32 {
	x.t.Helper()
	f, err := dl.Sym(x.lib, name)
	must(x.t, err)
	var result uintptr
	must(x.t, x.d.Current(func() error { result = dl.Call(f, args...); return nil }))
	return int32(result)
}

// ok is call that must succeed.
//
//go:uintptrescapes
func (x *driver) ok(name string, args ...uintptr) {
	x.t.Helper()
	if r := x.call(name, args...); r != 0 {
		x.t.Fatalf("%s: CUresult %d", name, r)
	}
}

// capture gives the graph, ready to launch, of what a function puts on a stream, or the driver's result.
func (x *driver) capture(st *device.Stream, queue func()) (graph uintptr, result int32) {
	x.t.Helper()
	const global = 0
	runtime.LockOSThread() // a capture of this mode is ended by the thread that began it
	defer runtime.UnlockOSThread()
	x.ok("cuStreamBeginCapture_v2", st.Handle(), global)
	queue()
	var g uintptr
	if r := x.call("cuStreamEndCapture", st.Handle(), uintptr(unsafe.Pointer(&g))); r != 0 {
		return 0, r
	}
	x.ok("cuGraphInstantiateWithFlags", uintptr(unsafe.Pointer(&graph)), g, 0)
	x.ok("cuGraphDestroy", g)
	x.t.Cleanup(func() { x.call("cuGraphExecDestroy", graph) })
	return graph, 0
}

// onGPUs is onAll for what the CPU has not.
func onGPUs(t *testing.T, test func(t *testing.T, d *device.Device)) {
	t.Run("fake", func(t *testing.T) { _, d := openFake(t); test(t, d) })
	t.Run("cuda", func(t *testing.T) { test(t, openGPU(t)) })
}

// A launch goes into the graph. What would have to wait is refused before the driver hears of it, and other streams' work goes on meanwhile:
// neither ends the capture.
func TestCapture(t *testing.T) {
	onGPUs(t, func(t *testing.T, d *device.Device) {
		x := driverOf(t, d)
		m, err := d.Compile(addProgram)
		must(t, err)
		add, err := device.KernelOf[addParams](m, "add")
		must(t, err)
		st, err := d.NewStream()
		must(t, err)
		s, err := device.From(d, []uint32{1, 2, 3})
		must(t, err)
		later, err := device.MakePooled[byte](d, 100)
		must(t, err)
		graph, result := x.capture(st, func() {
			if captured, err := st.Capturing(); !captured || err != nil {
				t.Errorf("captured: %t, %v", captured, err)
			}
			must(t, add.Launch(st, device.GridFor(3, 32), &addParams{s.Addr(), 3, 10}))
			for what, err := range map[string]error{
				"Sync": st.Sync(), "Read": s.Read(st, make([]uint32, 3)), "Write": s.Write(st, []uint32{1}), "FreeAfter": later.FreeAfter(st),
			} {
				if !errors.Is(err, device.ErrCapturing) {
					t.Errorf("%s on a stream that is captured: %v", what, err)
				}
			}
			beside, err := device.MakePooled[uint32](d, 3) // in mode global, the driver forbids this to threads that have not asked
			must(t, err)
			must(t, beside.Write(nil, []uint32{4, 5, 6}))
			must(t, beside.FreeAfter(nil))
		})
		if result != 0 {
			t.Fatalf("the capture ended with CUresult %d", result)
		}
		if captured, err := st.Capturing(); captured || err != nil {
			t.Errorf("still captured: %t, %v", captured, err)
		}
		if got, err := s.Host(nil); err != nil || got[0] != 1 {
			t.Errorf("the kernel ran while it was captured: %v, %v", got, err)
		}
		for range 2 {
			x.ok("cuGraphLaunch", graph, st.Handle())
		}
		if got, err := s.Host(st); err != nil || !slices.Equal(got, []uint32{21, 22, 23}) {
			t.Errorf("%v, %v", got, err)
		}
		must(t, later.FreeAfter(st))
	})
}

// Each family's look-up on a stream of others, of memory of others, goes into a graph, which finds what came after it was made.
func TestCaptureOfFind(t *testing.T) {
	d := openGPU(t)
	x := driverOf(t, d)
	const n = 100_000
	keys, values, want := make([]uint32, n), make([]uint32, n), make([]uint32, n)
	for i := range keys {
		keys[i], values[i], want[i] = uint32(i)*2654435761, uint32(i), uint32(i)+5
	}
	for _, family := range warpmap.Families(table.KindMap) {
		t.Run(string(family), func(t *testing.T) {
			m, err := warpmap.New[uint32, uint32](d, family, table.Options{Capacity: 2 * n})
			must(t, err)
			defer m.Close()
			owner, err := d.NewStream()
			must(t, err)
			defer owner.Close()
			st, err := device.StreamOf(d, owner.Handle())
			must(t, err)
			defer st.Close()
			dk, err := device.From(d, keys)
			must(t, err)
			dv, err := device.Make[uint32](d, n)
			must(t, err)
			df, err := device.Make[bool](d, n)
			must(t, err)
			must(t, m.Insert(keys, values)) // on other streams
			graph, result := x.capture(st, func() {
				must(t, m.FindOn(st, dk, dv, df))
				if err := m.InsertOn(st, dk, dv); !errors.Is(err, device.ErrCapturing) {
					t.Errorf("an insert into a graph: %v", err)
				}
			})
			if result != 0 {
				t.Fatalf("the capture ended with CUresult %d", result)
			}
			must(t, m.Insert(keys, want)) // the same keys: the table stays where it is
			must(t, d.Stream().Sync())
			x.ok("cuGraphLaunch", graph, st.Handle())
			got, err := dv.Host(st)
			must(t, err)
			found, err := df.Host(st)
			must(t, err)
			if !slices.Equal(got, want) || slices.Contains(found, false) {
				t.Errorf("%d of %d found", frame.Count(found), n)
			}
			for _, s := range []interface{ Free() error }{dk, dv, df} {
				must(t, s.Free())
			}
		})
	}
}

// A cache's look-up is captured where it is right in each run of the graph, and refused where it has a time in it.
func TestCaptureOfCache(t *testing.T) {
	d := openGPU(t)
	x := driverOf(t, d)
	dk, err := device.From(d, []uint32{1, 2, 3})
	must(t, err)
	dv, err := device.Make[uint32](d, 3)
	must(t, err)
	defer func() { must(t, errors.Join(dk.Free(), dv.Free())) }()
	for _, c := range []struct {
		o                 warpmap.CacheOptions
		touching, quietly bool // are captured
	}{
		{warpmap.CacheOptions{}, false, true},
		{warpmap.CacheOptions{Policy: cache.LFU}, true, true},
		{warpmap.CacheOptions{TimeToLive: time.Hour}, false, false},
		{warpmap.CacheOptions{Policy: cache.Scored, Score: "time"}, false, true},
	} {
		c.o.Capacity = 1000
		m, err := warpmap.NewCache[uint32, uint32](d, c.o)
		must(t, err)
		owner, err := d.NewStream()
		must(t, err)
		st, err := device.StreamOf(d, owner.Handle())
		must(t, err)
		must(t, m.Insert([]uint32{1, 2, 3}, []uint32{10, 20, 30}))
		must(t, m.FindOn(st, dk, dv, device.Slice[bool]{})) // has all that it needs compiled
		must(t, st.Sync())
		graph, result := x.capture(st, func() {
			for i, err := range []error{m.FindOn(st, dk, dv, device.Slice[bool]{}),
				m.FindQuietOn(st, dk, dv, device.Slice[bool]{})} {
				want := []bool{c.touching, c.quietly}[i]
				if want != (err == nil) || !want && !errors.Is(err, device.ErrCapturing) {
					t.Errorf("%+v: look-up %d is captured: %t: %v", c.o, i, want, err)
				}
			}
		})
		if result != 0 {
			t.Fatalf("the capture ended with CUresult %d", result)
		}
		must(t, m.Insert([]uint32{1, 2, 3}, []uint32{11, 21, 31}))
		must(t, d.Stream().Sync())
		x.ok("cuGraphLaunch", graph, st.Handle())
		if got, err := dv.Host(st); err != nil || c.quietly && !slices.Equal(got, []uint32{11, 21, 31}) {
			t.Errorf("%+v: %v, %v", c.o, got, err)
		}
		must(t, errors.Join(st.Close(), owner.Close(), m.Close()))
	}
}

func TestExportRefuses(t *testing.T) {
	onAll(t, func(t *testing.T, d *device.Device) {
		private, err := device.MakePooled[uint32](d, 4)
		must(t, err)
		_, err = device.Export(private)
		contains(t, err, "device.Export: ", "MakeShared")
		_, err = device.Export(device.Slice[uint32]{})
		contains(t, err, "an empty slice")
		s, err := device.MakeShared[uint32](d, 100)
		must(t, err)
		text, err := device.Export(s.Slice(10, 20))
		must(t, err)
		for want, x := range map[string]string{
			"not what Export gives":        "hello",
			"of device elsewhere given to": strings.Replace(string(text), `"device":"`, `"device":"elsewhere","x":"`, 1),
			"not a size":                   strings.Replace(string(text), `"bytes":40`, `"bytes":41`, 1),
			"device.Import: ":              strings.Replace(string(text), `"memory":"`, `"memory":"AAAA`, 1),
		} {
			_, err := device.Import[uint32](d, []byte(x))
			contains(t, err, want)
		}
		must(t, s.Free())
		if _, err := device.Export(s); !errors.Is(err, device.ErrFreed) {
			t.Errorf("freed memory: %v", err)
		}
		if n := len(d.Live()); n != 1 {
			t.Errorf("%v", d.Live())
		}
	})
}

// The fake has one process. What is passed to the driver is what its other calls gave.
func TestImportOfFake(t *testing.T) {
	f, d := openFake(t)
	s, err := device.MakeShared[uint32](d, 100)
	if !device.IsOutOfMemory(err) { // a piece is more than it has
		t.Fatal(err)
	}
	if s, err = device.Make[uint32](d, 100); err != nil {
		t.Fatal(err)
	}
	text, err := device.Export(s.Slice(10, 20))
	must(t, err)
	in, err := device.Import[uint16](d, text)
	must(t, err)
	if in.Addr() != s.Addr()+40 || in.Len() != 20 || f.Get("ipc") != 2 {
		t.Errorf("%d elements at %#x of %#x; %d open", in.Len(), in.Addr(), s.Addr(), f.Get("ipc")-1)
	}
	must(t, in.Free())
	if f.Get("ipc") != 1 {
		t.Errorf("%d open", f.Get("ipc")-1)
	}
	_, err = device.Import[uint16](d, text)
	must(t, err) // which Close gives back
	must(t, d.Close())
	if f.Get("ipc") != 1 {
		t.Errorf("%d open", f.Get("ipc")-1)
	}
	f.NoLeaks()
	d, err = device.Open("cuda:1", device.WithCache(""))
	must(t, err)
	defer d.Close()
	f.Set("ipc", 0)
	_, err = device.Import[uint16](d, text)
	contains(t, err, "a process cannot import its own memory")
}

// importer is set in a process that TestProcessesShareMemory has started: the device, and what to import.
const importer = "WARPMAP_TEST_IMPORT"

// Another process finds the keys of this one in its own table, and writes what it found into this one's memory.
func TestProcessesShareMemory(t *testing.T) {
	if name, text, ok := strings.Cut(os.Getenv(importer), " "); ok {
		answer(t, name, []byte(text))
		return
	}
	for _, name := range []string{"cpu", "cuda"} {
		t.Run(name, func(t *testing.T) {
			open := func() *device.Device { return openCPU(t) }
			if name == "cuda" {
				open = func() *device.Device { return openGPU(t) }
			}
			d := open()
			const n = 1000
			rows, err := device.MakeShared[uint32](d, 2*n)
			must(t, err)
			keys, out := rows.Slice(0, n), rows.Slice(n, 2*n)
			all := make([]uint32, n)
			for i := range all {
				all[i] = uint32(i)
			}
			must(t, keys.Write(nil, all))
			must(t, out.Fill(nil, 0))
			must(t, d.Stream().Sync())
			text, err := device.Export(rows)
			must(t, err)
			cmd := exec.Command(os.Args[0], "-test.run=^TestProcessesShareMemory$", "-test.v")
			cmd.Env = append(os.Environ(), importer+"="+name+" "+string(text))
			if said, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(said, []byte("--- PASS")) {
				t.Fatalf("%v\n%s", err, said)
			}
			got, err := out.Host(nil)
			must(t, err)
			for i, v := range got {
				if v != uint32(i)*3 {
					t.Fatalf("the other process wrote %d for key %d", v, i)
				}
			}
			must(t, rows.Free())
			if name == "cpu" {
				_, err = device.Import[uint32](d, text)
				contains(t, err, "device.Import: shared memory of process")
			}
		})
	}
}

// answer is the other process's part: 3 times each key.
func answer(t *testing.T, name string, text []byte) {
	d, err := device.Open(name)
	must(t, err)
	defer d.Close()
	rows, err := device.Import[uint32](d, text)
	must(t, err)
	n := rows.Len() / 2
	keys, out := rows.Slice(0, n), rows.Slice(n, 2*n)
	m, err := warpmap.New[uint32, uint32](d, "warpcore", table.Options{})
	must(t, err)
	defer m.Close()
	have, err := keys.Host(nil)
	must(t, err)
	values := make([]uint32, n)
	for i, k := range have {
		values[i] = 3 * k
	}
	must(t, m.Insert(have, values))
	must(t, m.FindOn(nil, keys, out, device.Slice[bool]{}))
	must(t, d.Stream().Sync())
	must(t, rows.Free())
}

// On the CPU device a process can import its own memory, which lasts as long as any mapping of it.
func TestImportOnCPU(t *testing.T) {
	d := openCPU(t, device.WithMemory(1<<20))
	s, err := device.MakeShared[uint32](d, 1000)
	must(t, err)
	free, _, err := d.Memory()
	must(t, err)
	text, err := device.Export(s.Slice(100, 300))
	must(t, err)
	in, err := device.Import[uint64](d, text)
	must(t, err)
	if in.Len() != 100 || in.Addr() == s.Addr()+400 {
		t.Errorf("%d elements at %#x of %#x", in.Len(), in.Addr(), s.Addr())
	}
	must(t, s.Slice(102, 104).Write(nil, []uint32{7, 1}))
	if got, err := in.Slice(1, 2).Host(nil); err != nil || got[0] != 1<<32+7 {
		t.Errorf("%v, %v", got, err)
	}
	if now, _, err := d.Memory(); err != nil || now != free {
		t.Errorf("%d bytes free, and with an import %d, %v", free, now, err)
	}
	if n := len(d.Live()); n != 2 {
		t.Errorf("%v", d.Live())
	}
	must(t, s.Free())
	if got, err := in.Slice(1, 2).Host(nil); err != nil || got[0] != 1<<32+7 {
		t.Errorf("after the other is freed: %v, %v", got, err)
	}
	if now, _, err := d.Memory(); err != nil || now != free+4000 {
		t.Errorf("%d bytes free, and then %d, %v", free, now, err)
	}
	must(t, in.FreeAfter(nil))
	_, err = device.MakeShared[uint32](d, 1<<20)
	if !device.IsOutOfMemory(err) {
		t.Errorf("more than WithMemory allows: %v", err)
	}
}

package device_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
)

// onEach runs a test on the CPU device and on one that is a fake GPU.
func onEach(t *testing.T, test func(t *testing.T, d *device.Device)) {
	t.Run("cpu", func(t *testing.T) { test(t, openCPU(t)) })
	t.Run("cuda", func(t *testing.T) { _, d := openFake(t); test(t, d) })
}

// streamUses is every use of memory with a stream.
func streamUses(t *testing.T, d *device.Device) map[string]func(st *device.Stream) error {
	t.Helper()
	s, err := device.From(d, []uint32{1, 2, 3})
	must(t, err)
	other, err := device.From(d, []uint32{1, 2, 3})
	must(t, err)
	pinned, err := device.MakeHost[uint32](d, 3)
	must(t, err)
	return map[string]func(st *device.Stream) error{
		"Write":      func(st *device.Stream) error { return s.Write(st, []uint32{1}) },
		"Read":       func(st *device.Stream) error { return s.Read(st, make([]uint32, 1)) },
		"Host":       func(st *device.Stream) error { _, err := s.Host(st); return err },
		"WriteAsync": func(st *device.Stream) error { return s.WriteAsync(st, pinned, 1) },
		"ReadAsync":  func(st *device.Stream) error { return s.ReadAsync(st, pinned, 1) },
		"CopyFrom":   func(st *device.Stream) error { return s.CopyFrom(st, other) },
		"Fill":       func(st *device.Stream) error { return s.Fill(st, 0) },
		"FreeAfter":  func(st *device.Stream) error { return s.FreeAfter(d.Stream(), st) },
	}
}

func TestMemoryWantsADevice(t *testing.T) {
	_, made := device.Make[uint64](nil, 1)
	_, host := device.MakeHost[uint64](nil, 1)
	for _, err := range []error{made, host} {
		if err == nil || !strings.Contains(err.Error(), "no device") {
			t.Error(err)
		}
	}
}

func TestMemoryRefusesAClosedStream(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		st, err := d.NewStream()
		must(t, err)
		must(t, st.Close())
		for name, use := range streamUses(t, d) {
			if err := use(st); !errors.Is(err, device.ErrClosed) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s on a closed stream: %v", name, err)
			}
		}
	})
}

func TestMemoryRefusesAnothersStream(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		for _, other := range []func() *device.Device{
			func() *device.Device { return openCPU(t) },
			func() *device.Device { _, e := openFake(t); return e },
		} {
			e := other()
			if e.Info().Name == d.Info().Name {
				continue
			}
			st, err := e.NewStream()
			must(t, err)
			for name, use := range streamUses(t, d) {
				contains(t, use(st), "stream of device "+e.Info().Name+" given to device "+d.Info().Name)
				if t.Failed() {
					t.Fatal(name)
				}
			}
		}
	})
}

func TestMemoryRefusesFreedHostMemory(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		s, err := device.From(d, []uint32{1, 2, 3})
		must(t, err)
		pinned, err := device.MakeMapped[uint32](d, 3)
		must(t, err)
		part := pinned.Sub(1)
		must(t, pinned.Free())
		for name, err := range map[string]error{
			"WriteAsync":      s.WriteAsync(nil, pinned, 3),
			"ReadAsync":       s.ReadAsync(nil, pinned, 3),
			"WriteAsync(Sub)": s.WriteAsync(nil, part, 2),
			"CopyFrom mapped": s.CopyFrom(nil, pinned.Mapped()),
		} {
			if !errors.Is(err, device.ErrFreed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, err := range map[string]error{"WriteAsync": s.WriteAsync(nil, pinned, -1), "ReadAsync": s.ReadAsync(nil, pinned, -1)} {
			if err == nil {
				t.Errorf("%s of -1 elements: no error", name)
			}
		}
	})
}

func TestMappedPartHasItsOwnAddress(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		m, err := device.MakeMapped[uint32](d, 10)
		must(t, err)
		for i := range m.Slice() {
			m.Slice()[i] = uint32(i)
		}
		part := m.Sub(3).Sub(1).Mapped()
		if part.Addr() != m.Mapped().Addr()+16 || part.Len() != 6 {
			t.Errorf("element 4 of %#x is at %#x, %d elements", m.Mapped().Addr(), part.Addr(), part.Len())
		}
		if got, err := part.Host(nil); err != nil || !slices.Equal(got, []uint32{4, 5, 6, 7, 8, 9}) {
			t.Errorf("%v, %v", got, err)
		}
		if empty := m.Sub(10).Mapped(); empty.Len() != 0 {
			t.Errorf("%d elements behind the end", empty.Len())
		}
	})
}

// A table must not be given a slice whose elements a GPU cannot read.
func TestUnalignedSlicesAreRefused(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		raw, err := device.Make[byte](d, 256)
		must(t, err)
		type triple [3]uint64
		type wide struct{ a, b uint64 } // aligned to 8 in Go, read by loads of 16
		for at := range 33 {
			for name, c := range map[string]struct {
				err   error
				align int
			}{
				"byte":   {device.View[byte](raw, at, 3).On(d), 1},
				"uint16": {device.View[uint16](raw, at, 3).On(d), 2},
				"uint32": {device.View[uint32](raw, at, 3).Slice(1, 2).On(d), 4},
				"uint64": {device.View[uint64](raw, at, 3).On(d), 8},
				"wide":   {device.View[wide](raw, at, 3).On(d), 16},
				"triple": {device.View[triple](raw, at, 3).On(d), 8},
				"tenths": {device.View[[10]byte](raw, at, 3).On(d), 2},
			} {
				if want := at%c.align != 0; want != (c.err != nil) {
					t.Errorf("%s at byte %d: %v", name, at, c.err)
				} else if want {
					contains(t, c.err, "kernels read elements of", "at multiples of")
				}
			}
		}
	})
}

func TestViewsEndWhereTheMemoryEnds(t *testing.T) {
	d := openCPU(t)
	raw, err := device.Make[byte](d, 64)
	must(t, err)
	for _, c := range [][2]int{{0, 9}, {8, 8}, {65, 0}, {-8, 1}, {0, -1}, {0, 1 << 61}, {64, 1 << 60}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d elements from byte %d do not panic", c[1], c[0])
				}
			}()
			device.View[uint64](raw, c[0], c[1])
		}()
	}
	if v := device.View[uint64](raw, 8, 7); v.Len() != 7 || v.Addr() != raw.Addr()+8 {
		t.Errorf("%d elements at %#x", v.Len(), v.Addr())
	}
}

// Libraries that open the same device each can work on one another's memory, on one another's streams.
func TestDevicesOfOneNameWorkTogether(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (a, b *device.Device, p *device.Program){
		"cpu": func(t *testing.T) (a, b *device.Device, p *device.Program) {
			return openCPU(t), openCPU(t, device.WithStress(3), device.WithMemory(1<<20)), cpuProgram
		},
		"cuda": func(t *testing.T) (a, b *device.Device, p *device.Program) {
			_, a = openFake(t)
			b, err := device.Open("cuda:1", device.WithCache(""), device.WithMemory(1<<19))
			must(t, err)
			t.Cleanup(func() { b.Close() })
			return a, b, fakeProgram
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, p := open(t)
			s, err := device.From(a, []uint32{1, 2, 3})
			must(t, err)
			own, err := device.From(b, []uint32{0, 0, 0})
			must(t, err)
			st, err := a.NewStream()
			must(t, err)
			e, err := a.NewEvent()
			must(t, err)
			f, err := b.NewEvent()
			must(t, err)
			must(t, s.On(b))
			must(t, st.On(b))
			must(t, e.Record(st))
			must(t, b.Stream().Wait(e))
			must(t, kernelOf(t, b, p, "add").Launch(st, device.GridFor(3, 32), &addParams{s.Addr(), 3, 10}))
			must(t, own.CopyFrom(st, s))
			must(t, f.Record(st))
			must(t, st.Wait(f))
			if got, err := own.Host(st); err != nil || !slices.Equal(got, []uint32{11, 12, 13}) {
				t.Errorf("%v, %v", got, err)
			}
			if took, err := f.Since(e); err != nil || took < 0 {
				t.Errorf("took %v, %v", took, err)
			}
			must(t, a.Close()) // what was made through it is gone; the other works on
			for what, err := range map[string]error{"slice": s.On(b), "stream": st.On(b), "record": f.Record(st), "read": own.Read(st, make([]uint32, 1)), "wait": b.Stream().Wait(e)} {
				if !errors.Is(err, device.ErrFreed) && !errors.Is(err, device.ErrClosed) {
					t.Errorf("%s of a closed device: %v", what, err)
				}
			}
			roundTrip(t, b)
		})
	}
}

// A short P would let the driver read behind it.
func TestKernelOfComparesSizes(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		p := cpuProgram
		if d.Info().CUDA() {
			p = fakeProgram
		}
		sizes(t, d, p)
	})
}

// sizes wants "add" with its own parameter, and with no other.
func sizes(t *testing.T, d *device.Device, p *device.Program) {
	t.Helper()
	m, err := d.Compile(p)
	must(t, err)
	_, err = device.KernelOf[addParams](m, "add")
	must(t, err)
	_, err = device.KernelOf[shortParams](m, "add")
	contains(t, err, "add takes 24 bytes of parameters, not the 16 of device_test.shortParams")
	k, err := device.KernelOf[wideParams](m, "add")
	contains(t, err, "add takes 24 bytes of parameters, not the 4096 of device_test.wideParams")
	grid := device.Grid{Blocks: 1, Threads: 32}
	contains(t, k.Launch(nil, grid, &wideParams{}), "not compiled")
	// Of a kernel without a type, launches compare the type.
	add, err := m.Kernel("add", reflect.TypeFor[addParams]())
	must(t, err)
	contains(t, add.Launch(nil, grid, &shortParams{}), "parameters of type *device_test.shortParams (want *device_test.addParams)")
	contains(t, add.Launch(nil, grid, addParams{}), "parameters of type device_test.addParams (want *device_test.addParams)")
	contains(t, device.AnyKernel{}.Launch(nil, grid, &addParams{}), "not compiled")
}

type shortParams struct{ Addr, N uint64 }

// Kernels of several goroutines on one stream run one after the other: each doubles what it has read a while ago.
func TestAStreamIsInOrder(t *testing.T) {
	p := &device.Program{
		Name: "in order",
		Files: []device.File{{Name: "order.cu", Text: `
#include "warpmap.cuh"
#include "layout.h"
WARPMAP_KERNEL(slowly, device_test::addParams) { // no atomic: alone on its stream it needs none
    volatile u32* at_ = (u32*)p.addr;
    u32 was = *at_;
    for (volatile u64 i = 0; i < p.n; i = i + 1) {}
    *at_ = was + p.value;
}`}},
		Layouts: []any{addParams{}},
	}
	const goroutines, each = 4, 25
	d := openCPU(t, device.WithWorkers(1))
	k := kernelOf(t, d, p, "slowly")
	st, err := d.NewStream()
	must(t, err)
	for _, on := range []*device.Stream{nil, st} {
		s, err := device.From(d, []uint32{0})
		must(t, err)
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range each {
					if err := k.Launch(on, device.Grid{Blocks: 1, Threads: 32}, &addParams{s.Addr(), 2000, 1}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if got, err := s.Host(on); err != nil || got[0] != goroutines*each*32 {
			t.Errorf("%d additions of %d are left, %v", got[0], goroutines*each*32, err)
		}
	}
}

// Streams run beside each other: a kernel waits for what another stream's kernel writes.
func TestStreamsRunBesideEachOther(t *testing.T) {
	p := &device.Program{
		Name: "beside",
		Files: []device.File{{Name: "beside.cu", Text: `
#include "warpmap.cuh"
#include "layout.h"
WARPMAP_KERNEL(await, device_test::addParams) { while (load_acquire(at<u32>(p.addr)) != p.value) pause(); }
WARPMAP_KERNEL(tell, device_test::addParams) { store_release(at<u32>(p.addr), p.value); }`}},
		Layouts: []any{addParams{}},
	}
	d := openCPU(t)
	await, tell := kernelOf(t, d, p, "await"), kernelOf(t, d, p, "tell")
	s, err := device.From(d, []uint32{0})
	must(t, err)
	st, err := d.NewStream()
	must(t, err)
	one, done := device.Grid{Blocks: 1, Threads: 32}, make(chan error)
	go func() { done <- await.Launch(st, one, &addParams{Addr: s.Addr(), Value: 5}) }()
	must(t, tell.Launch(nil, one, &addParams{Addr: s.Addr(), Value: 5}))
	must(t, <-done)
}

// Closing a stream waits for the calls that use it; those after it are refused.
func TestCloseOfAStreamBesideUse(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		for range 30 {
			st, err := d.NewStream()
			must(t, err)
			e, err := d.NewEvent()
			must(t, err)
			s, err := device.Make[uint32](d, 1000)
			must(t, err)
			var wg, begun sync.WaitGroup
			for range 3 {
				begun.Add(1)
				wg.Go(func() {
					for i := 0; ; i++ {
						if i == 1 {
							begun.Done()
						}
						err := s.Fill(st, 1)
						if err == nil {
							err = e.Record(st)
						}
						if errors.Is(err, device.ErrClosed) {
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
			must(t, e.Close())
			must(t, st.Close())
			wg.Wait()
			must(t, s.Free())
		}
	})
}

func TestFreeAfterWaitsForNothingElse(t *testing.T) {
	f, d := openFake(t)
	a, err := d.NewStream()
	must(t, err)
	b, err := d.NewStream()
	must(t, err)
	make1 := func() device.Slice[byte] {
		s, err := device.MakePooled[byte](d, 1000)
		must(t, err)
		return s
	}
	one, two, none, plain := make1(), make1(), make1(), make1()
	f.Set("waits", 0)
	f.Set("hold", 1)
	must(t, one.FreeAfter(a))
	must(t, two.FreeAfter(a, b, a, nil))
	must(t, none.FreeAfter())
	if f.Get("waits") != 0 || f.Get("hold") != 1 || f.Get("allocs") != 4 {
		t.Errorf("%d waits; %d allocations left of 4 whose streams stand still", f.Get("waits"), f.Get("allocs"))
	}
	for what, err := range map[string]error{"FreeAfter": one.FreeAfter(a), "Free": two.Free(), "use": none.Fill(nil, 0)} {
		if !errors.Is(err, device.ErrFreed) {
			t.Errorf("%s of what is freed: %v", what, err)
		}
	}
	must(t, plain.Free()) // waits for all
	if f.Get("waits") != 1 || f.Get("allocs") != 0 {
		t.Errorf("%d waits, %d allocations left", f.Get("waits"), f.Get("allocs"))
	}
	must(t, d.Close())
	f.NoLeaks()
}

// Where the driver has no event for memory that leaves, whoever gives it back waits: it does not stay on the books.
func TestFreeAfterWithoutAnEvent(t *testing.T) {
	f, opt := fake(t)
	d, err := device.Open("cuda:0", opt, device.WithMemory(1000))
	must(t, err)
	s, err := device.MakePooled[byte](d, 1000)
	must(t, err)
	faults.Set(d, (&faults.Counter{Site: faults.Event, N: 1, Outcome: faults.Fails}).Order)
	defer faults.Set(d, nil)
	if err := s.FreeAfter(nil); err != nil || len(d.Live()) > 0 {
		t.Errorf("%v; %v stays behind", err, d.Live())
	}
	s, err = device.MakePooled[byte](d, 1000)
	must(t, err)
	must(t, s.Free())
	must(t, d.Close())
	f.NoLeaks()
}

// A pool keeps of a GPU's memory what WithKept says, or a share.
func TestKept(t *testing.T) {
	f, opt := fake(t)
	f.Set("memory", 3200)
	for _, c := range []struct {
		opts []device.Option
		want int64
	}{{nil, 100}, {[]device.Option{device.WithKept(0)}, 0}, {[]device.Option{device.WithKept(500)}, 500}} {
		d, err := device.Open("cuda:0", append(c.opts, opt)...)
		must(t, err)
		s, err := device.MakePooled[byte](d, 10)
		must(t, err)
		if got := f.Get("kept"); got != c.want {
			t.Errorf("%d bytes are kept (want %d)", got, c.want)
		}
		must(t, s.Free())
		must(t, d.Close())
	}
	f.NoLeaks()
}

// What a pool keeps counts as free, and stays where it is when somebody only asks: else the next allocation would map
// it anew. It goes back to the GPU when another allocation needs it, and, where the driver cannot tell how much it is,
// when somebody asks.
func TestKeptMemoryIsFreeAndStays(t *testing.T) {
	f, opt := fake(t)
	d, err := device.Open("cuda:0", opt, device.WithKept(300_000))
	must(t, err)
	free := func(want int64) {
		t.Helper()
		if got, _, err := d.Memory(); err != nil || got != want {
			t.Errorf("%d bytes free, want %d, %v", got, want, err)
		}
	}
	const all = 1 << 20
	for range 3 { // as batches come and go
		s, err := device.MakePooled[byte](d, 200_000)
		must(t, err)
		free(all - 200_000)
		must(t, s.FreeAfter(nil))
		free(all)
	}
	if trims, idle := f.Get("trims"), f.Get("idle"); trims != 0 || idle != 200_000 {
		t.Errorf("the pool was emptied %d times, and keeps %d bytes: want 200,000", trims, idle)
	}
	f.Set("untold", 1)
	free(all)
	if trims, idle := f.Get("trims"), f.Get("idle"); trims != 1 || idle != 0 {
		t.Errorf("the pool was emptied %d times, and keeps %d bytes, though nobody can tell how many", trims, idle)
	}
	f.Set("untold", 0)
	s, err := device.MakePooled[byte](d, 200_000)
	must(t, err)
	must(t, s.FreeAfter(nil))
	whole, err := device.Make[byte](d, all) // as much as is free
	must(t, err)
	free(0)
	must(t, whole.Free())
	must(t, d.Close())
	f.NoLeaks()
}

// Where there are no pools, and for memory of Make and mapped memory, FreeAfter waits for its streams.
func TestFreeAfterWithoutPools(t *testing.T) {
	f, d := openFake(t)
	f.Set("has pools", 0)
	for name, alloc := range map[string]func() (device.Slice[byte], error){
		"Make":       func() (device.Slice[byte], error) { return device.Make[byte](d, 100) },
		"MakePooled": func() (device.Slice[byte], error) { return device.MakePooled[byte](d, 100) },
		"MakeMapped": func() (device.Slice[byte], error) { h, err := device.MakeMapped[byte](d, 100); return h.Mapped(), err },
	} {
		s, err := alloc()
		must(t, err)
		must(t, s.FreeAfter(nil))
		if n := f.Get("allocs") + f.Get("host") + f.Get("pools"); n != 0 {
			t.Errorf("%s: %d allocations left", name, n)
		}
	}
	must(t, device.Slice[byte]{}.FreeAfter(nil))
	onEach(t, func(t *testing.T, d *device.Device) {
		s, err := device.MakePooled[uint32](d, 100)
		must(t, err)
		must(t, s.FreeAfter(nil, d.Stream()))
		if err := s.FreeAfter(nil); !errors.Is(err, device.ErrFreed) {
			t.Errorf("freed twice: %v", err)
		}
	})
}

// A driver that says it has pools, and makes none, gives memory all the same. It is asked again if it was short of memory.
func TestPoolThatIsRefused(t *testing.T) {
	for code, again := range map[int64]int64{801: 0, 1: 0, 2: 1} { // not supported; invalid value; out of memory
		f, d := openFake(t)
		streams := f.Get("streams")
		f.Set("pool error", code)
		for _, pools := range []int64{0, again} {
			s, err := device.MakePooled[byte](d, 100)
			if err != nil {
				t.Fatalf("error %d: %v", code, err)
			}
			if n := f.Get("pools"); n != pools || f.Get("allocs") != 1 || f.Get("streams") != streams+2*pools {
				t.Errorf("error %d: %d pools, want %d; %d allocations, %d streams", code, n, pools, f.Get("allocs"), f.Get("streams")-streams)
			}
			must(t, s.FreeAfter(nil))
			f.Set("pool error", 0)
		}
		must(t, d.Close())
		f.NoLeaks()
	}
}

// What a pool keeps goes back to the GPU if the driver lacks memory for a module, a kernel or a launch.
func TestDriverGetsWhatThePoolKeeps(t *testing.T) {
	f, opt := fake(t)
	d, err := device.Open("cuda:0", opt, device.WithKept(1000))
	must(t, err)
	kept := func() { // puts something into the pool
		s, err := device.MakePooled[byte](d, 1000)
		must(t, err)
		must(t, s.FreeAfter(nil))
		if f.Get("idle") == 0 {
			t.Fatal("the pool keeps nothing")
		}
	}
	f.Set("tight", 1)
	kept()
	m, err := d.Compile(fakeProgram)
	if err != nil {
		t.Fatal(err)
	}
	kept()
	k, err := device.KernelOf[addParams](m, "add")
	if err != nil {
		t.Fatal(err)
	}
	kept()
	launch(t, d, k)
	must(t, d.Close())
	f.NoLeaks()
}

// What a stream has yet to give back counts as used: the device never holds more than WithMemory says, and an allocation that fits once
// the stream has passed waits for it.
func TestMemoryBoundHoldsForQueuedFrees(t *testing.T) {
	f, opt := fake(t)
	d, err := device.Open("cuda:0", opt, device.WithMemory(1000))
	must(t, err)
	free := func(want int64) {
		t.Helper()
		if got, _, err := d.Memory(); err != nil || got != want {
			t.Errorf("%d bytes free, want %d, %v", got, want, err)
		}
	}
	first, err := device.MakePooled[byte](d, 600)
	must(t, err)
	must(t, first.FreeAfter(nil)) // passes at once
	free(1000)

	first, err = device.MakePooled[byte](d, 600)
	must(t, err)
	small, err := device.MakePooled[byte](d, 104)
	must(t, err)
	f.Set("peak", 0)
	f.Set("hold", 1)
	must(t, first.FreeAfter(nil))
	free(296)
	var oom *device.OutOfMemoryError
	if _, err := device.Make[byte](d, 897); !errors.As(err, &oom) || oom.Free != 296 || f.Get("hold") != 1 {
		t.Errorf("897 bytes, which no wait makes room for: %v", err)
	}
	fits, err := device.MakePooled[byte](d, 296)
	must(t, err)
	if f.Get("hold") != 1 {
		t.Error("an allocation that fits has waited")
	}
	must(t, fits.FreeAfter())
	second, err := device.Make[byte](d, 896)
	must(t, err)
	free(0)
	if peak := f.Get("peak"); peak > 1000 {
		t.Errorf("%d bytes were in use at a time", peak)
	}
	must(t, second.Free())
	must(t, small.Free())
	free(1000)
	must(t, d.Close())
	f.NoLeaks()
}

// Memory that waits in the pool is waited for before an allocation is refused.
func TestQueuedFreesBeforeOutOfMemory(t *testing.T) {
	f, d := openFake(t)
	for _, alloc := range []func(*device.Device, int) (device.Slice[byte], error){device.Make[byte], device.MakePooled[byte]} {
		s, err := device.MakePooled[byte](d, 1<<20)
		must(t, err)
		f.Set("hold", 1)
		must(t, s.FreeAfter(nil))
		if s, err = alloc(d, 1<<19); err != nil {
			t.Fatal(err)
		}
		must(t, s.Free())
	}
	must(t, d.Close())
	f.NoLeaks()
}

func TestLiveNamesWhoAllocated(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		if n := d.Live(); len(n) != 0 {
			t.Errorf("a device begins with %v", n)
		}
		s, err := device.MakePooled[uint64](d, 100)
		must(t, err)
		h, err := device.MakeHost[byte](d, 900)
		must(t, err)
		live := d.Live()
		if len(live) != 2 || live[0].Bytes != 900 || !live[0].Host || live[1].Bytes != 800 || live[1].Host {
			t.Fatalf("%v", live)
		}
		for _, a := range live {
			if !strings.HasPrefix(a.By, "device_test.TestLiveNamesWhoAllocated.") || !strings.Contains(a.String(), a.By) {
				t.Errorf("%v", a)
			}
		}
		must(t, s.FreeAfter(nil))
		must(t, h.Free())
		if live := d.Live(); len(live) != 0 {
			t.Errorf("%v", live)
		}
	})
}

// Huge pages are told of where they are given to who asks for them; large memory and that of a Range ask.
func TestHugePages(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "sys/kernel/mm/transparent_hugepage")
	must(t, os.MkdirAll(dir, 0o755))
	for mode, want := range map[string]bool{"[always] madvise never": true, "always [madvise] never": true, "always madvise [never]": false} {
		must(t, os.WriteFile(filepath.Join(dir, "enabled"), []byte(mode+"\n"), 0o644))
		if device.HugePagesOf(root) != want {
			t.Errorf("%s: %t", mode, !want)
		}
	}
	d := openCPU(t)
	if device.HugePagesOf(t.TempDir()) || !d.Info().HugePages {
		t.Skip("this system has none")
	}
	large, err := device.Make[byte](d, 8<<20)
	must(t, err)
	defer func() { must(t, large.Free()) }()
	r, err := device.Reserve(d, 64<<20)
	must(t, err)
	defer func() { must(t, r.Free()) }()
	must(t, r.Resize(4<<20))
	must(t, r.Resize(8<<20))
	maps, err := os.ReadFile("/proc/self/smaps")
	must(t, err)
	for what, at := range map[string]uint64{"a Slice": large.Addr(), "a Range": r.Slice().Addr(), "what a Range grew by": r.Slice().Addr() + 6<<20} {
		if asked, ok := asksForHugePages(string(maps), at); !ok || !asked || at%(2<<20) != 0 {
			t.Errorf("%s at %#x: mapped %t, asks for huge pages %t", what, at, ok, asked)
		}
	}
}

// asksForHugePages looks up an address in what Linux tells of a process's mappings.
func asksForHugePages(smaps string, at uint64) (asked, ok bool) {
	for line := range strings.Lines(smaps) {
		var from, to uint64
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			ok = from <= at && at < to
		} else if flags, is := strings.CutPrefix(line, "VmFlags:"); is && ok {
			return slices.Contains(strings.Fields(flags), "hg"), true
		}
	}
	return false, false
}

// A container's bound is the device's.
func TestHostMemoryOfControlGroups(t *testing.T) {
	const gib, unlimited = 1 << 30, "9223372036854771712\n"
	for _, c := range []struct {
		name        string
		files       map[string]string
		free, total int64
	}{
		{"no groups", nil, 48 * gib, 64 * gib},
		{"version 2", map[string]string{
			"proc/self/cgroup":                    "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max":        "8589934592\n",
			"sys/fs/cgroup/a/b/memory.current":    "3221225472\n",
			"sys/fs/cgroup/a/b/memory.stat":       "anon 2147483648\ninactive_file 1073741824\nactive_file 0\n",
			"sys/fs/cgroup/a/memory.max":          "max\n",
			"sys/fs/cgroup/a/memory.current":      "3221225472\n",
			"sys/fs/cgroup/cgroup.controllers":    "memory\n",
			"sys/fs/cgroup/memory/memory.max":     "1\n", // another group's
			"sys/fs/cgroup/other/memory.max":      "1\n",
			"sys/fs/cgroup/other/memory.current":  "1\n",
			"sys/fs/cgroup/memory/memory.current": "1\n",
		}, 6 * gib, 8 * gib},
		{"a group above bounds it", map[string]string{
			"proc/self/cgroup":                 "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max":     "8589934592\n",
			"sys/fs/cgroup/a/b/memory.current": "0\n",
			"sys/fs/cgroup/a/memory.max":       "4294967296\n",
			"sys/fs/cgroup/a/memory.current":   "4294967296\n",
		}, 0, 4 * gib},
		{"a container's root", map[string]string{
			"proc/self/cgroup":             "0::/\n",
			"sys/fs/cgroup/memory.max":     "2147483648\n",
			"sys/fs/cgroup/memory.current": "1073741824\n",
		}, gib, 2 * gib},
		{"more than the machine has", map[string]string{
			"proc/self/cgroup":             "0::/\n",
			"sys/fs/cgroup/memory.max":     "1099511627776\n",
			"sys/fs/cgroup/memory.current": "1073741824\n",
		}, 48 * gib, 64 * gib},
		{"version 1", map[string]string{
			"proc/self/cgroup": "9:name=systemd:/x\n4:cpu,memory:/docker/0123\n1:cpuset:/\n0::/x\n",
			"sys/fs/cgroup/memory/docker/0123/memory.limit_in_bytes": "4294967296\n",
			"sys/fs/cgroup/memory/docker/0123/memory.usage_in_bytes": "2147483648\n",
			"sys/fs/cgroup/memory/docker/0123/memory.stat":           "inactive_file 5\ntotal_inactive_file 1073741824\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":             unlimited,
		}, 3 * gib, 4 * gib},
		{"version 1 in a container, which sees its group as the root", map[string]string{
			"proc/self/cgroup":                           "4:memory:/docker/0123\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes": "0\n",
		}, gib, gib},
		{"version 1 without a bound", map[string]string{
			"proc/self/cgroup":                           "4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": unlimited,
			"sys/fs/cgroup/memory/memory.usage_in_bytes": "0\n",
		}, 48 * gib, 64 * gib},
		{"damaged", map[string]string{
			"proc/self/cgroup":                 "\n4:memory\n0::a/../..\n",
			"sys/fs/cgroup/memory.max":         "much\n",
			"sys/fs/cgroup/a/b/memory.current": "0\n",
		}, 48 * gib, 64 * gib},
	} {
		root := t.TempDir()
		write := func(name, text string) {
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
			must(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
		}
		write("proc/meminfo", "MemTotal:       67108864 kB\nMemFree:        1 kB\nMemAvailable:   50331648 kB\n")
		for name, text := range c.files {
			write(name, text)
		}
		if free, total := device.HostMemoryOf(root); free != c.free || total != c.total {
			t.Errorf("%s: %d of %d bytes free, want %d of %d", c.name, free, total, c.free, c.total)
		}
	}
	if free, total := device.HostMemoryOf(t.TempDir()); free != 0 || total != 0 {
		t.Errorf("%d of %d bytes free where no file says so", free, total)
	}
}

// What is allocated and not yet touched counts.
func TestCPUMemoryIsBoundedInAll(t *testing.T) {
	d := openCPU(t)
	free, total, err := d.Memory()
	must(t, err)
	var oom *device.OutOfMemoryError
	for i := 0; int64(i) <= total/(free/2+1); i++ {
		if _, err := device.Make[byte](d, int(free/2)); errors.As(err, &oom) {
			return
		}
	}
	t.Errorf("%v has given more than its %d bytes", d, total)
}

func BenchmarkCalls(b *testing.B) {
	d, err := device.Open("cpu")
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	s, err := device.Make[uint32](d, 16)
	if err != nil {
		b.Fatal(err)
	}
	st, err := d.NewStream()
	if err != nil {
		b.Fatal(err)
	}
	e, err := d.NewEvent()
	if err != nil {
		b.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"Fill":   func() error { return s.Fill(st, 0) },
		"Record": func() error { return e.Record(st) },
		"Wait":   func() error { return st.Wait(e) },
		"On":     func() error { return s.On(d) },
		"Make":   func() error { t, _ := device.Make[uint64](d, 1024); return t.Free() },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

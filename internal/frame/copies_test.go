package frame_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
)

func onBoth(t *testing.T, do func(t *testing.T, d *device.Device)) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name[:len("cpu")+len(name)/6], func(t *testing.T) {
			d, err := device.Open(name)
			testenv.Require(t, "cuda", err)
			t.Cleanup(func() { d.Close() })
			do(t, d)
		})
	}
}

// copied brings n elements there and back, in slots or by what Upload and Download choose, to the middle of memory whose rest stays as it is.
func copied[T comparable](t *testing.T, d *device.Device, n int, slots bool, at func(i int) T) {
	t.Helper()
	src, back := make([]T, n), make([]T, n+1)
	for i := range src {
		src[i] = at(i)
	}
	all, err := device.Make[T](d, n+2)
	must(t, err)
	defer all.Free()
	must(t, all.Fill(nil, 0xee))
	mem := all.Slice(1, n+1)
	if slots {
		for _, c := range []frame.Column{frame.In(src), frame.Out(back[:n])} {
			if done, err := frame.CopyStaged(nil, mem.Raw(), c); err != nil || !done {
				t.Fatalf("%d elements of %T: done: %t, %v", n, src, done, err)
			}
		}
	} else {
		must(t, frame.Upload(nil, mem, src))
		must(t, frame.Download(nil, back[:n], mem))
	}
	if !slices.Equal(src, back[:n]) || back[n] != *new(T) {
		t.Errorf("%d elements of %T are not what was copied", n, src)
	}
	whole, err := all.Host(nil)
	must(t, err)
	untouched, err := device.Make[T](d, 1)
	must(t, err)
	defer untouched.Free()
	must(t, untouched.Fill(nil, 0xee))
	want, err := untouched.Host(nil)
	must(t, err)
	if whole[0] != want[0] || whole[n+1] != want[0] || !slices.Equal(whole[1:n+1], src) {
		t.Errorf("%d elements of %T: the device has others", n, src)
	}
}

func TestCopies(t *testing.T) {
	onBoth(t, func(t *testing.T, d *device.Device) {
		for _, slot := range []int{4 << 10, 64 << 10, 0} {
			frame.TuneStaging(d, slot, 3, 1000, 3)
			for _, n := range []int{1, 31, 5000, 100_000} {
				copied(t, d, n, true, func(i int) uint32 { return uint32(i) * 0x9e3779b9 })
				copied(t, d, n, true, func(i int) [3]byte { return [3]byte{byte(i), byte(i >> 8), byte(i >> 16)} })
				copied(t, d, n, true, func(i int) [2]uint64 { return [2]uint64{uint64(i), ^uint64(i)} })
			}
		}
		frame.TuneStaging(d, 0, 0, 0, 0)
		for _, n := range []int{0, 1, 1<<20 - 1, 1 << 20, 3<<20 + 7} {
			copied(t, d, n, false, func(i int) uint32 { return uint32(i) * 0x9e3779b9 })
		}
		host, err := device.MakeHost[uint64](d, 1<<20)
		must(t, err)
		defer host.Free()
		for i := range host.Slice() {
			host.Slice()[i] = uint64(i)
		}
		mem, err := frame.From(d, host.Slice())
		must(t, err)
		defer mem.Free()
		clear(host.Slice())
		must(t, frame.Download(nil, host.Slice(), mem))
		all, err := frame.Host(nil, mem)
		must(t, err)
		for i, x := range all {
			if x != uint64(i) || host.Slice()[i] != x {
				t.Fatalf("element %d is %d, in pinned memory %d", i, x, host.Slice()[i])
			}
		}
		nothingLeft(t, d)
	})
}

// What is queued on a stream comes before.
func TestCopiesComeBehind(t *testing.T) {
	onBoth(t, func(t *testing.T, d *device.Device) {
		st, err := d.NewStream()
		must(t, err)
		mem, err := device.Make[uint64](d, 4<<20)
		must(t, err)
		defer mem.Free()
		src, back := make([]uint64, mem.Len()/2), make([]uint64, mem.Len())
		for round := range 4 {
			must(t, mem.Fill(st, byte(round)))
			must(t, frame.Upload(st, mem, src))
			must(t, frame.Download(st, back, mem))
			want := uint64(round) * 0x0101010101010101
			if i := slices.IndexFunc(back[:len(src)], func(x uint64) bool { return x != 0 }); i >= 0 {
				t.Fatalf("element %d of those that were copied is %#x", i, back[i])
			}
			if i := slices.IndexFunc(back[len(src):], func(x uint64) bool { return x != want }); i >= 0 {
				t.Fatalf("element %d of the others is %#x", i, back[len(src)+i])
			}
		}
	})
}

func TestCopiesThatCannotBe(t *testing.T) {
	onBoth(t, func(t *testing.T, d *device.Device) {
		const n = 2 << 20
		mem, err := device.Make[uint32](d, n)
		must(t, err)
		if frame.Upload(nil, mem, make([]uint32, n+1)) == nil || frame.Download(nil, make([]uint32, n+1), mem) == nil {
			t.Error("more than there is room for: no error")
		}
		other, err := device.Open("cpu:1")
		must(t, err)
		defer other.Close()
		for _, err := range []error{frame.Upload(other.Stream(), mem, make([]uint32, n)), frame.Download(other.Stream(), make([]uint32, n), mem)} {
			if err == nil {
				t.Error("the stream of another device: no error")
			}
		}
		must(t, mem.Free())
		for _, err := range []error{frame.Upload(nil, mem, make([]uint32, n)), frame.Download(nil, make([]uint32, n), mem)} {
			if !errors.Is(err, device.ErrFreed) {
				t.Errorf("memory that is freed: %v", err)
			}
		}
		if frame.Upload(nil, device.Slice[uint32]{}, make([]uint32, n)) == nil {
			t.Error("no memory: no error")
		}
		nothingLeft(t, d)
		must(t, d.Close())
		if _, err := frame.From(d, make([]uint32, n)); !errors.Is(err, device.ErrClosed) {
			t.Errorf("a device that is closed: %v", err)
		}
	})
}

// A copy waits for no batch that has the slots: that may wait for a lock of who copies.
func TestCopiesWaitForNobody(t *testing.T) {
	d := openCPU(t)
	frame.TuneStaging(d, 4<<10, 1, 0, 0)
	mem, err := device.Make[uint32](d, 5000)
	must(t, err)
	in := oddNumbers(5000)
	var batch func(left int)
	batch = func(left int) {
		if left == 0 {
			made, idle := frame.StagingSlots(d)
			if done, err := frame.CopyStaged(nil, mem.Raw(), frame.In(make([]uint32, 5000))); made != 2 || idle != 0 || done || err != nil {
				t.Errorf("%d slots, %d idle: done: %t, %v", made, idle, done, err)
			}
			return
		}
		must(t, newStage(t, d).Run(len(in), []frame.Column{frame.In(in)}, func(_ *device.Stream, first, _ int, _ []uint64) error {
			if first == 0 {
				batch(left - 1)
			}
			return nil
		}))
	}
	batch(2)
}

// Where memory is short, a copy takes no small slot, and memory for what is copied comes from what staging keeps.
func TestCopiesWithLittleMemory(t *testing.T) {
	const memory = 8 << 20
	d := openCPU(t, device.WithMemory(memory))
	var f frame.Frame
	must(t, f.Open("test", d, func() error { return nil }, func() error { return nil }))
	defer f.Close()
	small := oddNumbers(100_000)
	must(t, f.Stage.Run(len(small), []frame.Column{frame.In(small)}, func(*device.Stream, int, int, []uint64) error { return nil }))
	if on, _ := frame.StagingBytes(d); on == 0 {
		t.Fatal("staging keeps nothing")
	}
	free, _, err := d.Memory()
	must(t, err)
	mem, err := frame.From(d, make([]byte, free+1))
	must(t, err)
	if on, _ := frame.StagingBytes(d); on != 0 {
		t.Errorf("staging keeps %d bytes", on)
	}
	if free, _, err = d.Memory(); err != nil || free < 16<<10 {
		t.Fatalf("%d bytes free: %v", free, err)
	}
	if done, err := frame.CopyStaged(nil, mem.Raw(), frame.In(make([]byte, mem.Len()))); done || err != nil {
		t.Errorf("with %d bytes: done: %t, %v", free, done, err)
	}
	must(t, mem.Free())
}

// Slots are kept while the device has a table, be it one without batches of Go slices.
func TestCopiesKeepSlots(t *testing.T) {
	d := openCPU(t)
	mem, err := device.Make[uint32](d, 5000)
	must(t, err)
	for _, open := range []bool{false, true, false} {
		var f frame.Frame
		if open {
			must(t, f.Open("test", d, func() error { return nil }, func() error { return nil }))
		}
		if done, err := frame.CopyStaged(nil, mem.Raw(), frame.In(make([]uint32, 5000))); !done || err != nil {
			t.Fatalf("done: %t, %v", done, err)
		}
		if made, _ := frame.StagingSlots(d); made > 0 != open {
			t.Errorf("a table: %t: %d slots", open, made)
		}
		if open {
			must(t, f.Close())
		}
		if made, _ := frame.StagingSlots(d); made > 0 {
			t.Errorf("without a table, %d slots", made)
		}
	}
}

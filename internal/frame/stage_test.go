package frame_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bulk"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

func openCPU(t testing.TB, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open("cpu", opts...)
	if errors.Is(err, device.ErrNoCompiler) {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

// odd is a slice that is aligned to nothing: the CPU device does not take a batch with one as it is, but stages all of it.
func odd[T any](n int) []T {
	var zero T
	raw := make([]byte, n*int(unsafe.Sizeof(zero))+2)
	return unsafe.Slice((*T)(unsafe.Pointer(&raw[1-uintptr(unsafe.Pointer(&raw[0]))&1])), n)
}

func oddNumbers(n int) []uint32 {
	s := odd[uint32](n)
	for i := range s {
		s[i] = uint32(i)
	}
	return s
}

// at is the CPU device's memory at an address.
func at[T any](addr uint64, n int) []T { return unsafe.Slice(*(**T)(unsafe.Pointer(&addr)), n) }

// double is a ChunkOp: of columns In, Out, it writes twice the number.
func double(_ *device.Stream, _, n int, addr []uint64) error {
	in, out := at[uint32](addr[0], n), at[uint32](addr[1], n)
	for i, x := range in {
		out[i] = 2 * x
	}
	return nil
}

func isDouble(t *testing.T, in, out []uint32) {
	t.Helper()
	for i, x := range in {
		if out[i] != 2*x {
			t.Fatalf("item %d of %d: %d becomes %d", i, len(in), x, out[i])
		}
	}
}

func newStage(t testing.TB, d *device.Device) *frame.Stage {
	s := new(frame.Stage)
	s.Init(d)
	t.Cleanup(s.Close)
	return s
}

// nothingLeft checks that all slots are given back, and can be freed.
func nothingLeft(t *testing.T, d *device.Device) {
	t.Helper()
	if made, idle := frame.StagingSlots(d); made != idle {
		t.Errorf("of %d slots, %d are given back", made, idle)
	}
	on, pinned := frame.StagingBytes(d)
	if freed := frame.ReleaseStaging(d); freed != on || on != pinned {
		t.Errorf("%d and %d bytes are staging's, %d come free", on, pinned, freed)
	}
	if on, pinned := frame.StagingBytes(d); on != 0 || pinned != 0 {
		t.Errorf("%d and %d bytes are left", on, pinned)
	}
}

// Batches of many lengths, in chunks of many, with columns of all kinds, each item once and in order.
func TestStage(t *testing.T) {
	d := openCPU(t)
	const most = 100_000
	host, err := device.MakeHost[uint64](d, most)
	must(t, err)
	for i := range host.Slice() {
		host.Slice()[i] = uint64(i) << 7
	}
	small := oddNumbers(most)
	large := odd[[2]uint64](most)
	for _, cut := range []struct{ slot, slots, piece, chunk int }{
		{chunk: 0}, {chunk: 1000}, {slot: 64 << 10, piece: 4096}, {slot: 64 << 10, slots: 1}, {slot: 4096, slots: 2, piece: 1000},
	} {
		frame.TuneStaging(d, cut.slot, cut.slots, cut.piece, 3)
		s := newStage(t, d)
		s.Chunk = cut.chunk
		for _, n := range []int{1, 31, 999, 1000, 1001, 20_000, most} {
			if cut.slot == 4096 && n > 20_000 {
				continue
			}
			outHost, err := device.MakeHost[uint32](d, n)
			must(t, err)
			sums, flags := odd[[2]uint64](n), odd[bool](n)
			clear(sums)
			next := 0
			err = s.Run(n, []frame.Column{
				frame.In(small[:n]), frame.In(host.Slice()[:n]), frame.Out[uint64](nil), frame.In(make([]struct{}, n)), frame.In[uint32](nil),
				frame.Out(sums), frame.Out(flags), frame.Out(outHost.Slice()), frame.In(large[:n]),
			}, func(st *device.Stream, first, m int, addr []uint64) error {
				if first != next || cut.chunk > 0 && m > cut.chunk || m < 1 {
					t.Errorf("a chunk of %d items from %d on, want from %d on", m, first, next)
				}
				next = first + m
				for i, a := range addr {
					if left := i >= 2 && i <= 4; left != (a == 0) || a%256 != 0 {
						t.Errorf("column %d is at %#x", i, a)
					}
				}
				a, b := at[uint32](addr[0], m), at[uint64](addr[1], m)
				sums, flags, third := at[[2]uint64](addr[5], m), at[bool](addr[6], m), at[uint32](addr[7], m)
				for i := range m {
					sums[i] = [2]uint64{uint64(a[i]), b[i]}
					flags[i] = a[i]%3 == 0
					third[i] = a[i] + 1
				}
				return nil
			})
			must(t, err)
			if next != n {
				t.Errorf("%d items of %d", next, n)
			}
			for i, x := range sums {
				if x != ([2]uint64{uint64(i), uint64(i) << 7}) || flags[i] != (i%3 == 0) || outHost.Slice()[i] != uint32(i)+1 {
					t.Fatalf("%+v: item %d of %d: %v, %t, %d", cut, i, n, x, flags[i], outHost.Slice()[i])
				}
			}
			must(t, outHost.Free())
		}
		s.Close()
	}
	nothingLeft(t, d)
}

// Batches so large that they are copied past the caches, to huge pages: the first chunk and the last are small, and each item
// comes once.
func TestStageLarge(t *testing.T) {
	d := openCPU(t)
	const n, slot, small = 5<<20 + 7, 8 << 20, 2 << 20
	frame.TuneStaging(d, slot, 0, 100_000, 3)
	s := newStage(t, d)
	in, out, flags := oddNumbers(n), odd[uint64](n), odd[bool](n)
	clear(flags)
	var chunks []int
	must(t, s.Run(n, []frame.Column{frame.In(in), frame.Out(out), frame.Out(flags)}, func(_ *device.Stream, _, n int, addr []uint64) error {
		chunks = append(chunks, n)
		in, out, flags := at[uint32](addr[0], n), at[uint64](addr[1], n), at[bool](addr[2], n)
		for i, x := range in {
			out[i], flags[i] = uint64(x)<<20, x%3 == 0
		}
		return nil
	}))
	for i, x := range out {
		if x != uint64(i)<<20 || flags[i] != (i%3 == 0) {
			t.Fatalf("item %d: %#x, %t", i, x, flags[i])
		}
	}
	const width = 4 + 8 + 1
	if most := slices.Max(chunks); chunks[0]*width > small || chunks[len(chunks)-1]*width > small || most*width < slot*3/4 {
		t.Errorf("chunks of %d items", chunks)
	}
	nothingLeft(t, d)
}

// Where memory is short, batches go in smaller chunks, down to one of 4 KiB; below that, it is said before anything is done.
func TestStageShortOfMemory(t *testing.T) {
	const n = 300_000
	in, out := oddNumbers(n), odd[uint32](n)
	for _, memory := range []int64{4 << 10, 5 << 10, 70 << 10, 1 << 20, 33 << 20} {
		d := openCPU(t, device.WithMemory(memory))
		s := newStage(t, d)
		m := int(min(n, memory*4))
		clear(out)
		must(t, s.Run(m, []frame.Column{frame.In(in), frame.Out(out)}, func(st *device.Stream, first, n int, addr []uint64) error {
			if on, _ := frame.StagingBytes(d); on > max(4<<10, memory/8) {
				t.Errorf("staging takes %d of %d bytes", on, memory)
			}
			return double(st, first, n, addr)
		}))
		isDouble(t, in[:m], out)
		s.Close()
		nothingLeft(t, d)
	}
	d := openCPU(t, device.WithMemory(4<<10-1))
	err := newStage(t, d).Run(n, []frame.Column{frame.In(in)}, func(*device.Stream, int, int, []uint64) error {
		t.Error("op is called")
		return nil
	})
	if !errors.As(err, new(*device.OutOfMemoryError)) {
		t.Errorf("%v, want out of memory", err)
	}
	nothingLeft(t, d)
}

// A table that takes all memory in the middle of a batch, its own staging's too, does not fail the batch.
func TestStageWhileTheTableGrows(t *testing.T) {
	d := openCPU(t, device.WithMemory(1<<30))
	frame.TuneStaging(d, 64<<10, 4, 0, 0)
	s := newStage(t, d)
	const n = 200_000
	in, out := oddNumbers(n), odd[uint32](n)
	calls := 0
	var taken []device.Slice[byte]
	must(t, s.Run(n, []frame.Column{frame.In(in), frame.Out(out)}, func(st *device.Stream, first, n int, addr []uint64) error {
		if calls++; calls >= 3 {
			frame.ReleaseStaging(d)
			for free, _, err := d.Memory(); free > 0; free, _, err = d.Memory() {
				must(t, err)
				all, err := device.Make[byte](d, int(free))
				must(t, err)
				taken = append(taken, all)
			}
		}
		// What the batch had ahead comes free as it comes to it, but for one slot.
		if on, _ := frame.StagingBytes(d); calls > 10 && on != 64<<10 {
			t.Errorf("chunk %d: staging holds %d bytes", calls, on)
		}
		return double(st, first, n, addr)
	}))
	isDouble(t, in, out)
	if calls < 20 {
		t.Errorf("%d chunks", calls)
	}
	for _, x := range taken {
		must(t, x.Free())
	}
	nothingLeft(t, d)
}

// Slots that were made while memory was short make room for larger ones.
func TestStageGrowsAgain(t *testing.T) {
	d := openCPU(t, device.WithMemory(1<<20))
	frame.TuneStaging(d, 16<<10, 0, 0, 0)
	s := newStage(t, d)
	const n = 20_000
	in, out := oddNumbers(n), odd[uint32](n)
	largest := func() (most int) {
		must(t, s.Run(n, []frame.Column{frame.In(in), frame.Out(out)}, func(st *device.Stream, first, n int, addr []uint64) error {
			most = max(most, n)
			return double(st, first, n, addr)
		}))
		isDouble(t, in, out)
		return most
	}
	hog, err := device.Make[byte](d, 1<<20-8<<10)
	must(t, err)
	short := largest()
	must(t, hog.Free())
	if long := largest(); long <= 2*short {
		t.Errorf("chunks of %d items with memory, %d without", long, short)
	}
}

// A batch that finds no memory waits for a slot of another, and gets it before that one has two again.
func TestStageWaitsForMemory(t *testing.T) {
	d := openCPU(t, device.WithMemory(1<<30))
	frame.TuneStaging(d, 16<<10, 3, 4096, 2)
	first, second := newStage(t, d), newStage(t, d)
	const n = 50_000
	in, out, out2 := oddNumbers(n), odd[uint32](n), odd[uint32](n)
	there, ended := make(chan struct{}), make(chan error, 1)
	var others device.Slice[byte]
	calls := 0
	must(t, first.Run(n, []frame.Column{frame.In(in), frame.Out(out)}, func(st *device.Stream, at, n int, addr []uint64) error {
		switch calls++; calls {
		case 1:
			free, _, err := d.Memory()
			must(t, err)
			others, err = device.Make[byte](d, int(free))
			must(t, err)
			go func() {
				ended <- second.Run(len(in), []frame.Column{frame.In(in), frame.Out(out2)}, func(st *device.Stream, first, n int, addr []uint64) error {
					if first == 0 {
						close(there)
					}
					return double(st, first, n, addr)
				})
			}()
			for frame.StagingHungry(d) == 0 && len(ended) == 0 {
				runtime.Gosched()
			}
		case 7:
			select {
			case <-there:
			case err := <-ended:
				ended <- err
			case <-time.After(20 * time.Second):
				t.Error("the other batch starves")
			}
		}
		return double(st, at, n, addr)
	}))
	must(t, <-ended)
	isDouble(t, in, out)
	isDouble(t, in, out2)
	must(t, others.Free())
	nothingLeft(t, d)
}

// All tables of a device share its slots: their number is bounded, and batches whose ops wait do not keep others from a slot each.
// The last table frees them.
func TestStageIsShared(t *testing.T) {
	d := openCPU(t)
	const slot, slots, batches, n = 16 << 10, 3, 40, 20_000
	frame.TuneStaging(d, slot, slots, 4096, 2)
	var tables [4]*frame.Stage
	for i := range tables {
		tables[i] = newStage(t, d)
	}
	in := oddNumbers(n)
	var wg sync.WaitGroup
	run := func(i int, pause func()) {
		defer wg.Done()
		out := odd[uint32](n)
		if err := tables[i%len(tables)].Run(n, []frame.Column{frame.In(in), frame.Out(out)}, func(st *device.Stream, first, n int, addr []uint64) error {
			if on, _ := frame.StagingBytes(d); on > 2*slots*slot {
				return fmt.Errorf("staging takes %d bytes", on)
			}
			if first == 0 {
				pause()
			}
			return double(st, first, n, addr)
		}); err != nil {
			t.Error(err)
		}
		for i, x := range in {
			if out[i] != 2*x {
				t.Errorf("item %d becomes %d", i, out[i])
				break
			}
		}
	}
	// The first of these takes as many slots as it can; then one after the other comes to its op, and stays there.
	goOn := make(chan struct{})
	for i := 0; i <= slots && !t.Failed(); i++ {
		there := make(chan struct{})
		wg.Add(1)
		go run(i, func() {
			close(there)
			<-goOn
		})
		select {
		case <-there:
		case <-time.After(20 * time.Second):
			t.Errorf("batch %d waits for a slot", i)
		}
	}
	close(goOn)
	for i := range batches {
		wg.Add(1)
		go run(i, runtime.Gosched)
	}
	wg.Wait()
	if on, pinned := frame.StagingBytes(d); on == 0 || pinned == 0 {
		t.Error("no buffers are kept for the next batch")
	}
	for _, s := range tables {
		if on, _ := frame.StagingBytes(d); on == 0 {
			t.Error("freed before the last table is closed")
		}
		s.Close()
		s.Close()
	}
	if on, pinned := frame.StagingBytes(d); on != 0 || pinned != 0 {
		t.Errorf("%d and %d bytes are left", on, pinned)
	}
}

// An op that fails or breaks off leaves nothing behind, whichever chunk it is at.
func TestStageOpFails(t *testing.T) {
	d := openCPU(t)
	frame.TuneStaging(d, 16<<10, 4, 4096, 2)
	const n = 20_000
	in := oddNumbers(n)
	failed := errors.New("failed")
	for name, fail := range map[string]func() error{
		"error": func() error { return failed },
		"panic": func() error { panic(failed) },
		"exit":  func() error { runtime.Goexit(); return nil },
	} {
		for _, at := range []int{1, 2, 7} {
			s := newStage(t, d)
			out := odd[uint32](n)
			clear(out)
			calls, done := 0, 0
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				defer func() {
					if x := recover(); name == "panic" && x != failed {
						t.Errorf("recovered %v", x)
					}
				}()
				err := s.Run(n, []frame.Column{frame.In(in), frame.Out(out)}, func(st *device.Stream, first, n int, addr []uint64) error {
					if calls++; calls == at {
						return fail()
					}
					done = first + n
					return double(st, first, n, addr)
				})
				if name != "error" || err != failed {
					t.Errorf("%s: Run returns %v", name, err)
				}
			}()
			<-ended
			if calls != at {
				t.Errorf("%s: %d calls, want %d", name, calls, at)
			}
			isDouble(t, in[:done], out) // what was done is there
			if made, idle := frame.StagingSlots(d); made != idle {
				t.Errorf("%s at %d: of %d slots, %d are given back", name, at, made, idle)
			}
			must(t, s.Run(n, []frame.Column{frame.In(in), frame.Out(out)}, double))
			isDouble(t, in, out)
			s.Close() // would wait for ever for a batch that still holds it
		}
	}
	nothingLeft(t, d)
}

// What is closed is said to be closed, bad columns and batches of nothing come to no op.
func TestStageRefuses(t *testing.T) {
	d := openCPU(t)
	s := newStage(t, d)
	never := func(*device.Stream, int, int, []uint64) error {
		t.Error("op is called")
		return nil
	}
	in, even := oddNumbers(10), make([]uint32, 10)
	must(t, s.Run(0, []frame.Column{frame.In(in[:0]), frame.Out[uint32](nil)}, never))
	must(t, s.Run(0, nil, never))
	for _, c := range []frame.Column{frame.In(in), frame.In(even), frame.Out(in), frame.Out(even[:0])} {
		if err := s.Run(11, []frame.Column{frame.Out(odd[uint32](11)), c}, never); err == nil {
			t.Errorf("a batch of more items than a column has")
		}
	}
	calls := 0
	for _, cols := range [][]frame.Column{nil, {frame.In(make([]struct{}, 10)), frame.Out[uint32](nil)}} {
		must(t, s.Run(10, cols, func(_ *device.Stream, first, n int, addr []uint64) error {
			calls++
			if first != 0 || n != 10 || slices.Max(append(addr, 0)) != 0 {
				t.Errorf("%d items from %d on at %x", n, first, addr)
			}
			return nil
		}))
	}
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
	must(t, s.Run(10, []frame.Column{frame.In(in), frame.Out(even)}, double))
	other := newStage(t, d)
	other.Close()
	for n := range 2 {
		if err := other.Run(n, []frame.Column{frame.In(in), frame.Out(even)}, never); !errors.Is(err, table.ErrClosed) {
			t.Errorf("%d items to a closed table: %v", n, err)
		}
	}
	must(t, d.Close())
	if err := s.Run(10, []frame.Column{frame.In(in), frame.Out(even)}, never); !errors.Is(err, device.ErrClosed) {
		t.Errorf("a closed device: %v", err)
	}
	s.Close()
	if err := newStage(t, d).Run(10, []frame.Column{frame.In(in)}, never); !errors.Is(err, device.ErrClosed) {
		t.Errorf("a closed device: %v", err)
	}
}

// The device's Close ends a batch at its next chunk: whoever copies still has the memory to copy to.
func TestStageDeviceCloses(t *testing.T) {
	d := openCPU(t)
	frame.TuneStaging(d, 16<<10, 2, 4096, 2)
	s := newStage(t, d)
	const n = 200_000
	in, out := oddNumbers(n), odd[uint32](n)
	closed := make(chan error)
	calls := 0
	err := s.Run(n, []frame.Column{frame.In(in), frame.Out(out)}, func(st *device.Stream, first, n int, addr []uint64) error {
		if calls++; calls == 3 {
			go func() { closed <- d.Close() }()
		}
		for calls == 3 && !frame.StagingClosed(d) {
			runtime.Gosched()
		}
		return double(st, first, n, addr)
	})
	if !errors.Is(err, device.ErrClosed) || calls > 5 {
		t.Errorf("%d chunks, %v", calls, err)
	}
	must(t, <-closed)
	if on, _ := frame.StagingBytes(d); on != 0 {
		t.Errorf("%d bytes are left", on)
	}
}

// Close waits for the batch under way.
func TestStageCloseWaits(t *testing.T) {
	d := openCPU(t)
	s := newStage(t, d)
	in, out := oddNumbers(1000), odd[uint32](1000)
	closed := make(chan struct{})
	must(t, s.Run(1000, []frame.Column{frame.In(in), frame.Out(out)}, func(st *device.Stream, first, n int, addr []uint64) error {
		go func() {
			s.Close()
			close(closed)
		}()
		for !s.Waiting() {
			select {
			case <-closed:
				t.Error("closed under a batch")
				return nil
			default:
				runtime.Gosched()
			}
		}
		return double(st, first, n, addr)
	}))
	<-closed
	isDouble(t, in, out)
}

func bytesOf(s []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 4*len(s))
}

// BenchmarkStage measures, in GB/s, what staging carries to and from Go slices beside plain copies of pinned memory: with an op
// that does nothing. "memory" is what some threads copy between Go's memory and a ring of pinned pieces, without the bus.
// -benchtime 1x will do: each figure is the best of four. WARPMAP_STAGE="slot,slots,piece,copiers" (bytes, number, bytes, number;
// 0 for the default) measures one setting instead of a few.
func BenchmarkStage(b *testing.B) {
	d, err := device.Open("auto")
	must(b, err)
	defer d.Close()
	n := 100 << 20 // items of 4 bytes
	if !d.Info().CUDA() {
		n = 16 << 20
	}
	settings := [][4]int{
		{}, {4 << 20, 16}, {8 << 20, 8}, {8 << 20, 12}, {16 << 20, 5}, {16 << 20, 10}, {32 << 20, 4}, {32 << 20, 5}, {32 << 20, 6}, {32 << 20, 8},
		{64 << 20, 5}, {0, 0, 64 << 10}, {0, 0, 128 << 10}, {0, 0, 512 << 10}, {0, 0, 1 << 20},
		{0, 0, 0, 8}, {0, 0, 0, 10}, {0, 0, 0, 12}, {0, 0, 0, 13}, {0, 0, 0, 15}, {0, 0, 0, 16},
	}
	if env := os.Getenv("WARPMAP_STAGE"); env != "" {
		var x [4]int
		if _, err := fmt.Sscanf(env, "%d,%d,%d,%d", &x[0], &x[1], &x[2], &x[3]); err != nil {
			b.Fatalf("WARPMAP_STAGE=%q: %v", env, err)
		}
		settings = [][4]int{x}
	}
	pinnedA, err := device.MakeHost[uint32](d, n)
	must(b, err)
	defer pinnedA.Free()
	pinnedB, err := device.MakeHost[uint32](d, n)
	must(b, err)
	defer pinnedB.Free()
	clear(pinnedA.Slice())
	clear(pinnedB.Slice())
	fresh := odd[uint32]
	if d.Info().CUDA() {
		fresh = func(n int) []uint32 { return make([]uint32, n) } // as a table's user has them
	}
	plainA, plainB := fresh(n), fresh(n)
	clear(plainA)
	clear(plainB)
	b.Run("plain", func(b *testing.B) { benchmarkPlain(b, d, pinnedA, pinnedB) })
	b.Run("memory", func(b *testing.B) { benchmarkMemory(b, bytesOf(plainA), bytesOf(pinnedB.Slice())) })
	nothing := func(*device.Stream, int, int, []uint64) error { return nil }
	carry := func(b *testing.B, bytes int, cols ...frame.Column) {
		s := newStage(b, d)
		defer s.Close()
		bestOf(b, bytes, func() error { return s.Run(n, cols, nothing) })
	}
	var kept [][]uint32 // so that no new slice is made of the memory of another, which the process has already
	for _, huge := range []int{math.MaxInt, 1} {
		b.Run(fmt.Sprintf("to-new-slices/huge=%t", huge == 1), func(b *testing.B) {
			frame.TuneStaging(d, 0, 0, 0, 0)
			frame.TuneHuge(d, huge)
			s := newStage(b, d)
			defer s.Close()
			bestOf(b, 4*n, func() error {
				out := fresh(n)
				kept = append(kept, out)
				return s.Run(n, []frame.Column{frame.In(plainA), frame.Out(out)}, nothing)
			})
		})
	}
	for _, x := range settings {
		frame.TuneStaging(d, x[0], x[1], x[2], x[3])
		b.Run(fmt.Sprintf("slot=%dK,slots=%d,piece=%dK,copiers=%d", x[0]>>10, x[1], x[2]>>10, x[3]), func(b *testing.B) {
			for past := range 4 {
				if past != 3 && x != settings[0] && x[0] == 0 {
					continue // how they are copied matters by the memory that slots take
				}
				frame.TunePast(d, past&1 > 0, past&2 > 0)
				name := []string{"by-the-caches", "past-them-in", "past-them-out", "past-them"}[past]
				b.Run(name+"/in-in", func(b *testing.B) { carry(b, 8*n, frame.In(plainA), frame.In(plainB)) })
				b.Run(name+"/in-out", func(b *testing.B) { carry(b, 4*n, frame.In(plainA), frame.Out(plainB)) })
				b.Run(name+"/out-out", func(b *testing.B) { carry(b, 8*n, frame.Out(plainA), frame.Out(plainB)) })
			}
			b.Run("pinned/in-in", func(b *testing.B) { carry(b, 8*n, frame.In(pinnedA.Slice()), frame.In(pinnedB.Slice())) })
			b.Run("pinned/in-out", func(b *testing.B) { carry(b, 4*n, frame.In(pinnedA.Slice()), frame.Out(pinnedB.Slice())) })
		})
	}
}

// bestOf reports the shortest of a few runs that carry so many bytes in the direction that has more.
func bestOf(b *testing.B, bytes int, f func() error) {
	var least time.Duration
	for range b.N {
		for range 4 {
			start := time.Now()
			must(b, f())
			if t := time.Since(start); least == 0 || t < least {
				least = t
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(bytes)/float64(least.Nanoseconds()), "GB/s")
}

func benchmarkPlain(b *testing.B, d *device.Device, from, to device.Host[uint32]) {
	n := from.Len()
	var mem [2]device.Slice[uint32]
	var st [2]*device.Stream
	for i := range mem {
		var err error
		mem[i], err = device.Make[uint32](d, n)
		must(b, err)
		defer mem[i].Free()
		st[i], err = d.NewStream()
		must(b, err)
		defer st[i].Close()
	}
	in := func() error { return mem[0].WriteAsync(st[0], from, n) }
	out := func() error { return mem[1].ReadAsync(st[1], to, n) }
	for name, queue := range map[string]func() error{"in": in, "out": out, "both": func() error { return errors.Join(in(), out()) }} {
		b.Run(name, func(b *testing.B) {
			bestOf(b, 4*n, func() error { return errors.Join(queue(), st[0].Sync(), st[1].Sync()) })
		})
	}
}

// benchmarkMemory is of copies in, from Go's memory to a ring, and of copies out.
func benchmarkMemory(b *testing.B, plain, pinned []byte) {
	const piece = 256 << 10
	for _, threads := range []int{1, 2, 4, 8, 12, 14, 16} {
		for _, size := range []int{8 << 20, 32 << 20, 192 << 20} {
			ring := pinned[:min(size, len(pinned))&^(piece-1)]
			for _, way := range []struct {
				name string
				f    func(plain, ring []byte)
			}{
				{"in/by-the-caches", func(plain, ring []byte) { copy(ring, plain) }},
				{"in/past-them", func(plain, ring []byte) { bulk.Copy(ring, plain) }},
				{"out/by-the-caches", func(plain, ring []byte) { copy(plain, ring) }},
				{"out/past-them", func(plain, ring []byte) { bulk.Copy(plain, ring) }},
			} {
				b.Run(fmt.Sprintf("threads=%d,ring=%dM/%s", threads, size>>20, way.name), func(b *testing.B) {
					bestOf(b, len(plain), func() error {
						var wg sync.WaitGroup
						var next atomic.Int64
						for range threads {
							wg.Go(func() {
								for from := int(next.Add(piece)) - piece; from < len(plain); from = int(next.Add(piece)) - piece {
									way.f(plain[from:min(from+piece, len(plain))], ring[from%len(ring):][:piece])
								}
							})
						}
						wg.Wait()
						return nil
					})
				})
			}
		}
	}
}

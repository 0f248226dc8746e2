package warpcore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openCPU(t testing.TB, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open("cpu", opts...)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

// variant is one set of compiled kernels.
type variant struct {
	keyBytes, valueBytes int
	layout               Layout
	window               int
	insert, find         int // groups
}

func (v variant) String() string {
	return fmt.Sprintf("%d+%d %v window %d groups %d,%d", v.keyBytes, v.valueBytes, v.layout, v.window, v.insert, v.find)
}

func (v variant) options(o table.Options) Options {
	return Options{Options: o, Layout: v.layout, Window: v.window, InsertGroup: v.insert, FindGroup: v.find}
}

// variants meet every window with every group, every layout with every group, every layout with every window, and both
// with every width, in few compilations; in short runs they have each of these once. Inserting and looking up are by groups of
// different sizes, so each table is written by one and read by another.
func variants() (out []variant) {
	widths := [][2]int{{4, 4}, {8, 16}, {4, 8}, {8, 4}, {4, 16}, {8, 8}}
	for i, window := range []int{1, 2, 4, 8, 16, 32} {
		for j := range 3 {
			if j > 0 && !testenv.Long() {
				break
			}
			groups := [][2]int{{1, 32}, {16, 2}, {4, 8}}[(i/2+j)%3]
			v := variant{layout: []Layout{Packed, AoS, SoA}[(i+j)%3], window: window, insert: groups[i%2], find: groups[1-i%2]}
			w := widths[(i+2*j)%6]
			v.keyBytes, v.valueBytes = w[0], w[1]
			if v.layout == Packed {
				v.valueBytes = min(v.valueBytes, 8)
			}
			out = append(out, v)
		}
	}
	if !testenv.Long() {
		return out[1:4] // one of each layout
	}
	return out
}

// byWidth calls the function that fits the widths: Go has no other way to choose type arguments at run time.
func byWidth(v variant, f44, f48, f416, f84, f88, f816 func()) {
	map[[2]int]func(){{4, 4}: f44, {4, 8}: f48, {4, 16}: f416, {8, 4}: f84, {8, 8}: f88, {8, 16}: f816}[[2]int{v.keyBytes, v.valueBytes}]()
}

func TestVariants(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		for _, v := range variants() {
			t.Run(name+"/"+v.String(), func(t *testing.T) {
				testenv.Turn(t)
				t.Parallel()
				d, err := device.Open(name)
				if name == "cpu" {
					must(t, err)
				}
				testenv.Require(t, "cuda", err)
				t.Cleanup(func() { must(t, d.Close()) })
				if v.layout == Packed && v.keyBytes+v.valueBytes > 8 && !d.Info().CAS128 {
					t.Skip("no 128-bit compare-and-swap")
				}
				byWidth(v, func() { both[uint32, uint32](t, d, v) }, func() { both[uint32, uint64](t, d, v) },
					func() { both[uint32, [2]uint64](t, d, v) }, func() { both[uint64, uint32](t, d, v) },
					func() { both[uint64, uint64](t, d, v) }, func() { both[uint64, [2]uint64](t, d, v) })
			})
		}
	}
}

// both tests a Map and a MultiMap of a variant: they share their kernels' compilation.
func both[K, V any](t *testing.T, d *device.Device, v variant) {
	newMap := func(d *device.Device, o table.Options) (table.Map[K, V], error) { return New[K, V](d, v.options(o)) }
	steps := testenv.SeedsOf(60, 8)
	for i, o := range []table.Options{{}, {Capacity: 200, LoadFactor: 1}, {MaxBytes: 16 << 10, LoadFactor: 1}} {
		tabletest.Map(newMap).Churn(t, d, o, uint64(i), steps, 1500)
		multiChurn[K, V](t, d, v.options(o), uint64(i), steps)
	}
}

// A window that one lane reads in several parts is filled in all of them.
func TestPartsOfAWindow(t *testing.T) {
	testenv.ByTurns(t)
	for _, v := range testenv.Some([]variant{{4, 4, Packed, 32, 1, 1}, {8, 8, SoA, 16, 1, 1}, {4, 4, SoA, 32, 1, 1}}, 2) {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			run := func() { both[uint32, uint32](t, openCPU(t), v) }
			byWidth(v, run, run, run, run, func() { both[uint64, uint64](t, openCPU(t), v) }, run)
		})
	}
}

// A key beyond the reach of an insert into a full table is not put in a second time.
func TestLongChains(t *testing.T) {
	d := openCPU(t)
	const n = 700 // several times tightProbes, and just less than a prime
	o := Options{Options: table.Options{Hash: kernel.HashConstant, LoadFactor: 1, Capacity: n, MaxBytes: 6700}, Window: 1}
	m, err := New[uint32, uint32](d, o)
	must(t, err)
	keys, values := make([]uint32, n), make([]uint32, n)
	for i := range keys {
		keys[i] = uint32(i)
	}
	for i := range keys { // in the order of the chain
		must(t, m.Insert(keys[i:i+1], values[:1]))
	}
	must(t, m.Check())
	_, err = m.Delete(keys[:10], nil)
	must(t, err)
	last := keys[n-5:]
	for i := range last {
		values[i] = 7
	}
	more := append(append([]uint32{}, last...), make([]uint32, 60)...)
	for i := range 60 { // more than fits, so that the table has to refuse
		more[len(last)+i] = uint32(n + i)
	}
	err = m.Insert(more, append(append([]uint32{}, values[:5]...), make([]uint32, 60)...))
	var full *table.FullError
	if !errors.As(err, &full) || full.Positions[0] < 5 {
		t.Fatalf("%v", err)
	}
	must(t, m.Check())
	got, found := make([]uint32, 5), make([]bool, 5)
	must(t, m.Find(last, got, found))
	for i := range got {
		if !found[i] || got[i] != 7 {
			t.Errorf("key %d: %t, value %d", last[i], found[i], got[i])
		}
	}
}

// At MaxBytes, where every window is in reach, every slot is filled.
func TestFullToTheLastSlot(t *testing.T) {
	d := openCPU(t)
	m, err := New[uint32, uint32](d, Options{Options: table.Options{MaxBytes: 4 << 10}})
	must(t, err)
	keys := make([]uint32, 1000)
	for i := range keys {
		keys[i] = uint32(i)
	}
	var full *table.FullError
	if err := m.Insert(keys, keys); !errors.As(err, &full) {
		t.Fatal(err)
	}
	if full.Len != full.Capacity || full.Len+len(full.Positions) != len(keys) {
		t.Errorf("%+v", full)
	}
}

// A batch on the caller's stack is whole though the stack moves while the call runs.
func TestArgumentsOnTheStack(t *testing.T) {
	d := openCPU(t)
	m, err := New[uint32, uint32](d, Options{})
	must(t, err)
	for range 20 {
		done := make(chan string)
		go func() { // a new stack, which is small
			keys, want := [4]uint32{1, 2, 3, 4}, [4]uint32{5, 6, 7, 8}
			var values [4]uint32
			var found [4]bool
			err := errors.Join(m.Insert(keys[:], want[:]), m.Find(keys[:], values[:], found[:]))
			if err != nil || values != want || found != [4]bool{true, true, true, true} {
				done <- fmt.Sprint(values, found, err)
			}
			close(done)
		}()
		if s := <-done; s != "" {
			t.Fatal(s)
		}
	}
}

func TestRefusedTypes(t *testing.T) {
	t.Parallel()
	d := openCPU(t)
	for _, c := range []struct {
		make func() error
		want string
	}{
		{try[string, uint32](d), "pointer"},
		{try[uint32, *int](d), "pointer"},
		{try[uint32, []byte](d), "pointer"},
		{try[uint32, struct{ P *int }](d), "field P"},
		{try[uintptr, uint32](d), "pointer"},
		{try[any, uint32](d), "pointer"},
		{try[uint16, uint32](d), "2 bytes"},
		{try[[2]uint64, uint32](d), "16 bytes"},
		{try[uint32, uint8](d), "1 bytes"},
		{try[uint32, [3]uint32](d), "12 bytes"},
		{try[uint32, [4]uint64](d), "32 bytes"},
		{try[uint32, struct{}](d), "0 bytes"},
		{try[struct {
			A uint32
			B uint8
		}, uint32](d), "3 bytes of padding"},
		{try[uint32, struct {
			A uint64
			B uint32
		}](d), "4 bytes of padding"},
		{try[[4]bool, uint32](d), "bool"},
	} {
		if err := c.make(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	_, ofMap := New[uint32, uint8](d, Options{})
	_, ofMultiMap := NewMultiMap[uint32, uint8](d, Options{})
	for _, err := range []error{ofMap, ofMultiMap} {
		if err == nil || !strings.Contains(err.Error(), "1 bytes") {
			t.Errorf("%v, want \"1 bytes\"", err)
		}
	}
	for _, err := range []error{
		tryWith[struct{ A, B int16 }, complex128](d, Options{Layout: AoS, Window: 16, InsertGroup: 4, FindGroup: 8})(), // as TestVariants has them
		try[float64, struct{ A, B, C, D uint8 }](d)(),
		tryWith[complex64, [16]uint8](d, Options{Layout: AoS, Window: 2, InsertGroup: 32, FindGroup: 1})(),
	} {
		must(t, err)
	}
}

// try makes a map and a multimap by the widths of types, as New and NewMultiMap do: these themselves would have all methods compiled for each pair.
func try[K, V any](d *device.Device) func() error { return tryWith[K, V](d, Options{}) }

func tryWith[K, V any](d *device.Device, o Options) func() error {
	return func() (err error) {
		for _, kind := range []table.Kind{table.KindMap, table.KindMultiMap} {
			c, wrong := newCore(d, frame.WidthsOf[K, V](), o, kind)
			if wrong == nil {
				wrong = (&handle{core: c}).Close()
			}
			err = errors.Join(err, wrong)
		}
		return err
	}
}

func TestRefusedOptions(t *testing.T) {
	d := openCPU(t)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Layout: -1}, "layout"},
		{Options{Layout: 4}, "layout"},
		{Options{Layout: Packed}, "more than 16 bytes"},
		{Options{Window: 3}, "window of 3"},
		{Options{Window: 64}, "window of 64"},
		{Options{Window: -1}, "window of -1"},
		{Options{InsertGroup: 3}, "group of 3"},
		{Options{FindGroup: 64}, "group of 64"},
		{Options{FindGroup: -2}, "group of -2"},
		{Options{Options: table.Options{MaxBytes: 100}}, "MaxBytes"},
	} {
		if _, err := New[uint64, [2]uint64](d, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
	wide := config{keyBytes: 8, valueBytes: 8, layout: Packed, window: 4}
	if err := wide.check(false); err == nil || !strings.Contains(err.Error(), "128-bit compare-and-swap") {
		t.Errorf("packed pairs of 16 bytes where no device swaps them: %v", err)
	}
	must(t, wide.check(true))
}

// A table whose device is gone says so, and closes.
func TestDeviceClosed(t *testing.T) {
	d, err := device.Open("cpu")
	must(t, err)
	m, err := New[uint32, uint32](d, Options{})
	must(t, err)
	must(t, m.Insert([]uint32{1}, []uint32{2}))
	must(t, d.Close())
	if err := m.Insert([]uint32{1}, []uint32{2}); !errors.Is(err, device.ErrClosed) {
		t.Error(err)
	}
	must(t, m.Close())
	if err := m.Insert([]uint32{1}, []uint32{2}); !errors.Is(err, table.ErrClosed) {
		t.Error(err)
	}
	if _, err := New[uint32, uint32](d, Options{}); !errors.Is(err, device.ErrClosed) {
		t.Error(err)
	}
}

// A table that runs out of memory in the middle of a batch of several chunks names what it did not come to, though another
// chunk or an earlier batch may have put in an equal key.
func TestShortOfMemory(t *testing.T) {
	for _, more := range []int64{1 << 10, 20 << 10} {
		t.Run(fmt.Sprint(more), func(t *testing.T) {
			open := func(bytes int64) *device.Device { return openCPU(t, device.WithMemory(bytes)) }
			tabletest.ShortOfMemory(t, open, func(d *device.Device, o table.Options) (table.Map[uint32, [2]uint64], error) {
				m, err := New[uint32, [2]uint64](d, Options{Options: o})
				if err == nil {
					m.core.frame.Stage.Chunk = 55_000
				}
				return m, err
			}, more)
		})
	}
}

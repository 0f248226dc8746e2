package frame_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// toy is a table of numbers on the CPU device, whose "kernels" run on the host: what an Inserter, and what calls it, do with a
// family.
type toy struct {
	frame    frame.Frame
	in       map[uint32]uint32
	capacity int64
	most     int64 // that the table may grow to
	refused  int64
	kernels  int // launched
	parts    []frame.Part
	freed    int
}

// column is a device column of the CPU device.
func column[T any](addr uint64, n int64) []T {
	if addr == 0 {
		return nil
	}
	return unsafe.Slice(*(**T)(unsafe.Pointer(&addr)), n)
}

func newToy(t *testing.T, capacity, most int64, opts ...device.Option) *toy {
	d, err := device.Open("cpu", opts...)
	must(t, err)
	x := &toy{in: map[uint32]uint32{}, capacity: capacity, most: most}
	nothing := func() error { return nil }
	must(t, x.frame.Open("toy", d, nothing, func() error { x.freed++; return nil }))
	t.Cleanup(func() {
		must(t, x.frame.Close())
		must(t, x.frame.Close())
		if x.freed != 1 {
			t.Errorf("freed %d times", x.freed)
		}
		must(t, d.Close())
	})
	return x
}

func (x *toy) insertion() frame.Insertion {
	return frame.Insertion{
		Put: x.put,
		Find: func(_ *device.Stream, b frame.Rows) error {
			keys, found := column[uint32](b.Keys, b.N), column[bool](b.Flags, b.N)
			for i, k := range keys {
				_, found[i] = x.in[k]
			}
			return nil
		},
		Size: func() (int64, int64) { return x.capacity, int64(len(x.in)) },
	}
}

var errTooLarge = errors.New("too large")

func (x *toy) put(st *device.Stream, b frame.Rows) (refused []int, why, err error) {
	return frame.Inserter{
		Try: 16,
		Launch: func(p frame.Part) error {
			x.kernels++
			if x.refused = 0; p.Attempt == 0 {
				x.parts = append(x.parts, p)
			}
			rows := b.Part(p, 4, 4)
			keys, values, added, bits := column[uint32](rows.Keys, rows.N), column[uint32](rows.Values, rows.N), column[bool](rows.Flags, rows.N), column[uint32](p.Refused, (rows.N+31)/32)
			for j := range keys { // from behind, so that what is refused is not the end of the batch
				i := len(keys) - 1 - j
				if p.Attempt > 0 && bits[i/32]>>(i%32)&1 == 0 {
					continue
				}
				_, there := x.in[keys[i]]
				full := !there && int64(len(x.in)) == x.capacity
				if added != nil {
					added[i] = !there && !full
				}
				if full {
					bits[i/32] |= 1 << (i % 32)
					x.refused++
					continue
				}
				bits[i/32] &^= 1 << (i % 32)
				x.in[keys[i]] = values[i]
			}
			return nil
		},
		Look: func() (int64, int64, error) { return x.refused, int64(len(x.in)), nil },
		Room: func(int64, bool) (int64, error) { return x.capacity - int64(len(x.in)), nil },
		Grow: func(refused, need, pairs int64) (why, err error) {
			if need != int64(len(x.in))+refused || pairs <= int64(len(x.in)) {
				return nil, fmt.Errorf("%d pairs, %d refused: asked for %d, %d", len(x.in), refused, need, pairs)
			}
			if x.capacity >= x.most {
				return errTooLarge, nil
			}
			x.capacity = min(x.most, max(pairs, 2*x.capacity))
			return nil, nil
		},
	}.Run(&x.frame, st, b.N, int64(len(x.in)))
}

func sequenceOf(n int, distinct uint32) (keys, values []uint32) {
	keys, values = make([]uint32, n), make([]uint32, n)
	for i := range keys {
		keys[i] = uint32(i) * 2654435761 % distinct
		values[i] = uint32(i)
	}
	return keys, values
}

// A position is named exactly if its key is not in the table in the end; and all is clean for the next batch.
func TestInserterNamesWhatIsNotIn(t *testing.T) {
	for _, distinct := range []uint32{300, 70_000, 1 << 31} {
		for _, on := range []bool{false, true} {
			x := newToy(t, 10, 40_000)
			keys, values := sequenceOf(150_000, distinct)
			d := x.frame.Device
			k, err := device.From(d, keys)
			must(t, err)
			v, err := device.From(d, values)
			must(t, err)
			for range 2 {
				if on {
					err = frame.InsertOn(&x.frame, nil, k, v, device.Slice[bool]{}, x.insertion())
				} else {
					err = frame.Insert(&x.frame, keys, values, x.insertion())
				}
				var full *table.FullError
				if !errors.As(err, &full) {
					must(t, err)
					full = &table.FullError{}
				} else if full.Capacity != 40_000 || full.Len != 40_000 || !errors.Is(err, errTooLarge) {
					t.Errorf("%v", err)
				}
				var want []int
				for i, k := range keys {
					if _, in := x.in[k]; !in {
						want = append(want, i)
					}
				}
				if !slices.Equal(full.Positions, want) {
					t.Fatalf("%d keys, on %t: %d positions are named, %d are not in", distinct, on, len(full.Positions), len(want))
				}
				if len(x.in) != min(int(distinct), 40_000) {
					t.Fatalf("%d pairs are in, of %d keys", len(x.in), distinct)
				}
			}
		}
	}
}

// A batch of many positions and few keys does not make a large table, and goes in by few kernels; one of new keys grows by few steps.
func TestInserterGrows(t *testing.T) {
	x := newToy(t, 10, 1<<40)
	keys, values := sequenceOf(1_000_000, 50)
	must(t, frame.Insert(&x.frame, keys, values, x.insertion()))
	if x.capacity > 1000 || x.kernels > 30 {
		t.Errorf("a table for %d pairs, by %d kernels", x.capacity, x.kernels)
	}
	x = newToy(t, 10, 1<<40)
	keys, values = sequenceOf(1_000_000, 1<<31)
	must(t, frame.Insert(&x.frame, keys, values, x.insertion()))
	if x.kernels > 60 || x.capacity > 4_000_000 {
		t.Errorf("a table for %d pairs, by %d kernels", x.capacity, x.kernels)
	}
	for i, k := range keys {
		if x.in[k] != values[i] {
			t.Fatalf("key %d has %d, want %d", k, x.in[k], values[i])
		}
	}
}

// With no memory for a large bitmap, each position of a batch is tried all the same.
func TestInserterWithoutMemory(t *testing.T) {
	x := newToy(t, 1<<40, 1<<40, device.WithMemory(6<<10))
	keys, values := sequenceOf(300_000, 1<<31)
	must(t, frame.Insert(&x.frame, keys, values, x.insertion()))
	if len(x.in) != len(keys) || len(x.parts) < 2 {
		t.Errorf("%d pairs are in, by %d parts", len(x.in), len(x.parts))
	}
}

// Where no memory brings a batch to the device, all positions are named that nothing was done for: of an insert that
// replaces, all; of one that leaves alone what is in, those whose keys are not in. Outputs are clear.
func TestInserterWithoutStaging(t *testing.T) {
	x := newToy(t, 1<<40, 1<<40)
	keys := oddNumbers(3000)
	before := map[uint32]uint32{}
	for _, k := range keys {
		if k%3 == 0 {
			x.in[k], before[k] = k+1, k+1
		}
	}
	faults.Set(x.frame.Device, faults.OfMemory(func(int64) bool { return true }))
	defer faults.Set(x.frame.Device, nil)
	absent := func(when func(i int) bool) (list []int) {
		for i, k := range keys {
			if _, in := before[k]; !in && when(i) {
				list = append(list, i)
			}
		}
		return list
	}
	all, when := make([]int, len(keys)), make([]bool, len(keys))
	for i := range all {
		all[i], when[i] = i, i%2 == 0
	}
	told := func() []bool { return slices.Repeat([]bool{true}, len(keys)) }
	named := func(what string, n int, added []bool, err error, want []int) {
		t.Helper()
		full := (*table.FullError)(nil)
		if !errors.As(err, &full) || !device.IsOutOfMemory(err) || !slices.Equal(full.Positions, want) {
			t.Errorf("%s: %.100v, want %d positions", what, err, len(want))
		}
		if n != 0 || frame.Count(added) != 0 {
			t.Errorf("%s: %d are added, %d told", what, n, frame.Count(added))
		}
	}
	every, chosen := func(int) bool { return true }, func(i int) bool { return when[i] }
	added := told()
	n, err := frame.InsertNew(&x.frame, keys, keys, added, x.insertion())
	named("InsertNew", n, added, err, absent(every))
	added = told()
	n, err = frame.InsertKeys(&x.frame, keys, added, x.insertion())
	named("InsertKeys", n, added, err, absent(every))
	added = told()
	n, err = frame.InsertKeysIf(&x.frame, keys, when, added, x.insertion())
	named("InsertKeysIf", n, added, err, absent(chosen))
	for i, k := range keys[:4] {
		x.in[k], before[k] = uint32(i), uint32(i)
	}
	if n, err = frame.InsertNew(&x.frame, keys[:4], keys[:4], added[:4], x.insertion()); n != 0 || err != nil {
		t.Errorf("InsertNew of keys that are all in: %d, %v", n, err)
	}
	named("Insert", 0, nil, frame.Insert(&x.frame, keys, keys, x.insertion()), all)
	even := slices.DeleteFunc(slices.Clone(all), func(i int) bool { return !when[i] })
	named("InsertIf", 0, nil, frame.InsertIf(&x.frame, keys, keys, when, x.insertion()), even)
	if !maps.Equal(x.in, before) {
		t.Errorf("%d pairs are in, want %d", len(x.in), len(before))
	}

	// Where the table cannot be asked, all are named.
	y := x.insertion()
	y.Find = func(*device.Stream, frame.Rows) error { return &device.OutOfMemoryError{Device: "toy", Asked: 1} }
	added = told()
	n, err = frame.InsertNew(&x.frame, keys, keys, added, y)
	named("InsertNew without a Find", n, added, err, all)

	// The keys were asked for in the bitmap's memory, which is clear again.
	y.Put = func(st *device.Stream, b frame.Rows) ([]int, error, error) {
		return frame.Inserter{
			Try: 1000,
			Launch: func(p frame.Part) error {
				if bits := column[byte](p.Refused, 4096); slices.Max(bits) != 0 {
					t.Error("bits are set")
				}
				return nil
			},
			Look: func() (int64, int64, error) { return 0, 0, nil },
			Room: func(int64, bool) (int64, error) { return 1000, nil },
		}.Run(&x.frame, st, b.N, 0)
	}
	faults.Set(x.frame.Device, nil)
	must(t, frame.Insert(&x.frame, keys, keys, y))
}

// So of a mixed batch: the outcome of all is NoRoom, and no result is what the slice held before.
func TestMixWithoutStaging(t *testing.T) {
	x := newToy(t, 10, 10)
	keys := oddNumbers(100)
	faults.Set(x.frame.Device, faults.OfMemory(func(int64) bool { return true }))
	defer faults.Set(x.frame.Device, nil)
	mix := func(*device.Stream, frame.MixedRows) ([]int, error, error) {
		t.Error("a kernel is launched")
		return nil, nil, nil
	}
	size := x.insertion().Size
	ops := make([]table.Op, len(keys))
	for what, do := range map[string]func(results []uint32, status []table.Status) error{
		"Mix": func(results []uint32, status []table.Status) error {
			return frame.Mix(&x.frame, ops, keys, keys, results, status, mix, size)
		},
		"MixKeys": func(results []uint32, status []table.Status) error {
			clear(results)
			return frame.MixKeys(&x.frame, ops, keys, status, mix, size)
		},
	} {
		results, status := slices.Clone(keys), make([]table.Status, len(keys))
		for _, err := range []error{do(results, status), do(nil, nil)} {
			full := (*table.FullError)(nil)
			if !errors.As(err, &full) || len(full.Positions) != len(keys) || !device.IsOutOfMemory(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for i := range status {
			if status[i] != table.NoRoom || results[i] != 0 {
				t.Fatalf("%s: position %d: %v, %d", what, i, status[i], results[i])
			}
		}
	}
}

// Exactly one of equal new keys is told to be added, and none of those that are not in.
func TestInserterTellsWhatWasAdded(t *testing.T) {
	x := newToy(t, 10, 400)
	keys, values := sequenceOf(5000, 1000)
	added := make([]bool, len(keys))
	n, err := frame.InsertNew(&x.frame, keys, values, added, x.insertion())
	if full := (*table.FullError)(nil); !errors.As(err, &full) || n != 400 || frame.Count(added) != 400 {
		t.Fatalf("%d are added, %d told, %v", n, frame.Count(added), err)
	}
	seen := map[uint32]bool{}
	for i, k := range keys {
		if _, in := x.in[k]; added[i] && (!in || seen[k]) {
			t.Fatalf("position %d was added, and its key is in %t, told before %t", i, in, seen[k])
		}
		seen[k] = seen[k] || added[i]
	}
}

// After an error in the middle of a part, the next batch finds no bit set.
func TestInserterAfterAnError(t *testing.T) {
	x := newToy(t, 10, 10)
	keys, values := sequenceOf(100, 1<<31)
	y, failing := x.insertion(), errors.New("no kernel")
	y.Put = func(st *device.Stream, b frame.Rows) ([]int, error, error) {
		return frame.Inserter{
			Try: 1000,
			Launch: func(p frame.Part) error {
				for i := range column[uint32](p.Refused, 3) {
					column[uint32](p.Refused, 3)[i] = ^uint32(0)
				}
				return failing
			},
			Room: func(int64, bool) (int64, error) { return 1000, nil },
		}.Run(&x.frame, st, b.N, 0)
	}
	if err := frame.Insert(&x.frame, keys, values, y); !errors.Is(err, failing) {
		t.Fatal(err)
	}
	y.Put = func(st *device.Stream, b frame.Rows) ([]int, error, error) {
		return frame.Inserter{
			Try: 1000,
			Launch: func(p frame.Part) error {
				if bits := column[uint32](p.Refused, 3); bits[0]|bits[1]|bits[2] != 0 {
					t.Errorf("bits are set: %x", bits)
				}
				return nil
			},
			Look: func() (int64, int64, error) { return 0, 0, nil },
			Room: func(int64, bool) (int64, error) { return 1000, nil },
		}.Run(&x.frame, st, b.N, 0)
	}
	must(t, frame.Insert(&x.frame, keys, values, y))
}

// A table that was forgotten is told by where it was made, until it is closed.
func TestOpenTables(t *testing.T) {
	d, err := device.Open("cpu")
	must(t, err)
	defer d.Close()
	var f frame.Frame
	nothing := func() error { return nil }
	must(t, f.Open("toy", d, nothing, nothing))
	if open := frame.OpenTables(d); len(open) != 1 {
		t.Errorf("open: %v", open)
	}
	must(t, f.Close())
	if open := frame.OpenTables(d); len(open) != 0 {
		t.Errorf("open: %v", open)
	}
	if err := f.Locked(func() error { return nil }); !errors.Is(err, table.ErrClosed) {
		t.Error(err)
	}
}

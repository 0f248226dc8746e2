package warpcore

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/planted"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// sortedRows are the rows of a batch of Go slices as code that splits rows among tables leaves them: in chunks of
// regions, each of which has two runs in the order of regions and a few rows in any order.
type sortedRows struct {
	order  *frame.Sorted
	places []int // of each row, in the batch
}

func sortRows[K any](keys []K, seed uint64, regions, chunks int) (s sortedRows) {
	regionOf := make([]int, len(keys))
	rows := make([]int, regions)
	for i, k := range keys {
		pattern := uint64(0)
		copy((*[8]byte)(unsafe.Pointer(&pattern))[:], unsafe.Slice((*byte)(unsafe.Pointer(&k)), unsafe.Sizeof(k)))
		regionOf[i] = int(kernel.Hash64(kernel.HashMurmur, pattern, seed) >> 32 * uint64(regions) >> 32)
		rows[regionOf[i]]++
		s.places = append(s.places, i)
	}
	chunkOf := func(region int) int { return region * chunks / regions }
	rng := rand.New(rand.NewPCG(seed, uint64(len(keys))))
	run := make([]int, len(keys))
	for i := range run {
		run[i] = rng.IntN(2)
	}
	slices.SortFunc(s.places, func(a, b int) int {
		return cmp.Or(cmp.Compare(chunkOf(regionOf[a]), chunkOf(regionOf[b])), cmp.Compare(run[a], run[b]),
			cmp.Compare(regionOf[a], regionOf[b]))
	})
	for range len(keys) / 50 {
		i, j := rng.IntN(len(keys)), rng.IntN(len(keys))
		if chunkOf(regionOf[s.places[i]]) == chunkOf(regionOf[s.places[j]]) {
			s.places[i], s.places[j] = s.places[j], s.places[i]
		}
	}
	s.order = &frame.Sorted{Regions: int64(regions), Chunks: make([]frame.SortedChunk, chunks), Largest: int64(slices.Max(rows))}
	for region, n := range rows {
		s.order.Chunks[chunkOf(region)].Rows += int64(n)
		s.order.Chunks[chunkOf(region)].Regions++
	}
	return s
}

// sorted returns rows of a column in order, on the device, or the zero Slice for nil.
func sortedColumn[T any](d *device.Device, s sortedRows, column []T) (device.Slice[T], error) {
	if column == nil {
		return device.Slice[T]{}, nil
	}
	in := make([]T, len(column))
	for i, p := range s.places {
		in[i] = column[p]
	}
	return device.From(d, in)
}

// back writes a sorted column to where its rows came from.
func back[T any](s sortedRows, to []T, column device.Slice[T]) error {
	if to == nil {
		return nil
	}
	in, err := column.Host(nil)
	for i, x := range in {
		to[s.places[i]] = x
	}
	return err
}

// sortedMap is a map whose batches come sorted by regions.
type sortedMap[K, V any] struct {
	*Map[K, V]
	regions, chunks int
	paired          bool
}

func (m sortedMap[K, V]) do(keys []K, values []V, flags []bool, call func(x table.Map[K, V], k device.Slice[K], v device.Slice[V],
	f device.Slice[bool]) error) error {
	if len(keys) == 0 || m.core == nil {
		return call(m.Map, device.Slice[K]{}, device.Slice[V]{}, device.Slice[bool]{})
	}
	d := m.core.frame.Device
	s := sortRows(keys, m.core.t.Seed, m.regions, m.chunks)
	k, err := sortedColumn(d, s, keys)
	v, err2 := sortedColumn(d, s, values)
	f, err3 := sortedColumn(d, s, flags)
	defer func() { k.Free(); v.Free(); f.Free() }()
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	err = call(m.Map.Sorted(s.order), k, v, f)
	if full := (*table.FullError)(nil); errors.As(err, &full) {
		for i, p := range full.Positions {
			full.Positions[i] = s.places[p]
		}
		slices.Sort(full.Positions)
	} else if err != nil {
		return err
	}
	return errors.Join(err, back(s, values, v), back(s, flags, f))
}

func (m sortedMap[K, V]) Insert(keys []K, values []V) error {
	if len(values) != len(keys) {
		return m.Map.Insert(keys, values)
	}
	if m.paired && m.core != nil && len(keys) > 0 && m.core.filled+int64(len(keys)) <= m.core.limit() {
		if err := m.insertPairs(keys, values); !errors.Is(err, frame.ErrPairs) {
			return err
		}
	}
	return m.do(keys, slices.Clone(values), nil, func(x table.Map[K, V], k device.Slice[K], v device.Slice[V], _ device.Slice[bool]) error {
		return x.InsertOn(nil, k, v)
	})
}

// insertPairs inserts rows as pairs.
func (m sortedMap[K, V]) insertPairs(keys []K, values []V) error {
	s := sortRows(keys, m.core.t.Seed, m.regions, m.chunks)
	s.order.Paired = true
	var pairs []K
	for _, p := range s.places {
		pairs = append(pairs, keys[p], any(values).([]K)[p])
	}
	mem, err := device.From(m.core.frame.Device, pairs)
	if err != nil {
		return err
	}
	err = m.Map.Sorted(s.order).InsertOn(nil, mem.Slice(0, len(keys)), device.View[V](mem.Raw(), 0, len(keys)))
	return errors.Join(err, m.core.frame.Device.Stream().Sync(), mem.Free())
}

func (m sortedMap[K, V]) Find(keys []K, values []V, found []bool) error {
	if values != nil && len(values) != len(keys) || found != nil && len(found) != len(keys) {
		return m.Map.Find(keys, values, found)
	}
	return m.do(keys, values, found, func(x table.Map[K, V], k device.Slice[K], v device.Slice[V], f device.Slice[bool]) error {
		return x.FindOn(nil, k, v, f)
	})
}

func (m sortedMap[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	if deleted != nil && len(deleted) != len(keys) {
		return m.Map.Delete(keys, deleted)
	}
	if deleted == nil {
		deleted = make([]bool, len(keys))
	}
	err := m.do(keys, nil, deleted, func(x table.Map[K, V], k device.Slice[K], _ device.Slice[V], f device.Slice[bool]) error {
		return x.DeleteOn(nil, k, f)
	})
	return frame.Count(deleted), err
}

// Batches that come sorted leave what others leave, whether they go in stretch by stretch or not.
func TestSortedBatches(t *testing.T) {
	t.Parallel()
	onDevices(t, func(t *testing.T, d *device.Device) {
		for i, o := range []table.Options{{}, {Capacity: 3000}, {Capacity: 3000, LoadFactor: 1, Seed: 3}, {MaxBytes: 64 << 10, LoadFactor: 1}} {
			steps := 30
			if !testenv.Long() {
				steps = 12
			}
			made := 0
			tabletest.Map(func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
				m, err := New[uint32, uint32](d, Options{Options: o})
				if err != nil {
					return nil, err
				}
				if made++; made%4 != 0 {
					inStretches(m.core, 13<<10)
				}
				return sortedMap[uint32, uint32]{m, []int{7, 64, 300}[made%3], []int{1, 3, 7}[i%3], made%2 == 0}, nil
			}).Churn(t, d, o, uint64(i), steps, 2500)
		}
	})
}

// Rows that come in chunks are sorted by more parts than a block has counters for, and defects of the kernels are
// found.
func TestChunkDefects(t *testing.T) {
	const window = "u32 PARTITION_WINDOW = WARPMAP_MAX_PARTS;"
	defects := []struct {
		name, old, now string
		sound          bool
	}{
		{"few counters", window, "u32 PARTITION_WINDOW = 2;", true},
		{"the parts after the first window are left out", "begun = base + parts;", "begun = last + 1;", false},
		{"a part that two chunks have begins with the later one", "if (i != chunk.first || !begun) starts[i] = start;",
			"starts[i] = start;", false},
		{"the rows of other chunks are not counted", "u64 start = r.first + before", "u64 start = before", false},
		{"the last part ends too early", "starts[j] = r.first + r.n;", "starts[j] = r.first;", false},
		{"a window that moves forgets its counts", "if (count[i]) add(at<u64>(r.counts) + base + i, (u64)count[i]);",
			"if (count[i] && !base) add(at<u64>(r.counts) + base + i, (u64)count[i]);", false},
		{"rows outside of the window are not counted", "else add(at<u64>(r.counts) + part, (u64)1);", "", false},
	}
	text := ""
	for _, f := range kernel.Files() {
		if f.Name == "partition.cuh" {
			text = f.Text
		}
	}
	for i, c := range defects {
		if n := strings.Count(text, c.old); n != 1 {
			t.Fatalf("%s: the kernels have %d times\n%s", c.name, n, c.old)
		}
		if i > 1 && !testenv.Long() {
			continue // a compilation for each
		}
		t.Run(c.name, func(t *testing.T) {
			planted.Text = func(_, file, text string) string {
				if file == "partition.cuh" {
					text = strings.Replace(text, c.old, c.now, 1)
					text = strings.Replace(text, window, defects[0].now, 1)
				}
				return text
			}
			defer func() { planted.Text = nil }()
			cache := device.WithCache(t.TempDir())
			for seed := range uint64(20) {
				d, err := device.Open("cpu", cache)
				if err != nil {
					t.Fatal(err)
				}
				err = sortedOnce(d, seed)
				d.Close()
				if compile := (*device.CompileError)(nil); errors.As(err, &compile) || c.sound && err != nil {
					t.Fatal(err)
				}
				if err != nil {
					t.Logf("seed %d: %.200v", seed, err)
					return
				}
				if c.sound && seed == 2 {
					return
				}
			}
			t.Fatal("no seed finds the defect")
		})
	}
}

// sortedOnce inserts a sorted batch into a map that takes it stretch by stretch, and looks all keys up.
func sortedOnce(d *device.Device, seed uint64) error {
	const n = 12_000
	m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: n, Seed: seed + 1}})
	if err != nil {
		return err
	}
	defer m.Close()
	inStretches(m.core, 13<<10)
	x := sortedMap[uint32, uint32]{Map: m, regions: []int{7, 64, 300}[seed/3%3], chunks: []int{1, 3, 7}[seed%3]}
	keys, values := make([]uint32, n), make([]uint32, n)
	for i := range keys {
		keys[i], values[i] = uint32(seed)<<20+uint32(i)*7919, uint32(i)
	}
	if err := x.Insert(keys, values); err != nil {
		return err
	}
	got, found := make([]uint32, n), make([]bool, n)
	if err := m.Find(keys, got, found); err != nil {
		return err
	}
	if frame.Count(found) != n || !slices.Equal(got, values) {
		return fmt.Errorf("%d of %d keys are found", frame.Count(found), n)
	}
	return m.Check()
}

package shard_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/quick"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// sumsMade counts the batches of which sumsOnHost returned sums, and addsOfRows the calls by which summing counters got
// keys without counts.
var sumsMade, addsOfRows atomic.Int64

// leastSummed is the number of rows from which summing tables combine rows.
const leastSummed = 3

// summing is a map that combines the rows of small batches, too, on the host.
type summing struct{ table.Updater[uint32, uint32] }

func (s summing) Sums(st *device.Stream, keys, values device.Slice[byte], with table.Combine) (frame.Sums, error) {
	return sumsOnHost(st, keys, values, with)
}

// summingCounter is a counter that combines the rows of small batches, too.
type summingCounter struct{ table.Counter[uint32, uint32] }

func (s summingCounter) Sums(st *device.Stream, keys, values device.Slice[byte], _ table.Combine) (frame.Sums, error) {
	return sumsOnHost(st, keys, values, table.Add)
}

func (s summingCounter) AddOn(st *device.Stream, keys device.Slice[uint32]) error {
	addsOfRows.Add(1)
	return s.Counter.AddOn(st, keys)
}

// summed makes a maker of summing maps.
func summed(newMap func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error)) func(d *device.Device,
	o table.Options) (table.Map[uint32, uint32], error) {
	return func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
		m, err := newMap(d, o)
		if err != nil {
			return nil, err
		}
		return summing{m.(table.Updater[uint32, uint32])}, nil
	}
}

// summedCounting makes a maker of summing counters.
func summedCounting(saturate bool) func(d *device.Device, o table.Options) (table.Counter[uint32, uint32], error) {
	return func(d *device.Device, o table.Options) (table.Counter[uint32, uint32], error) {
		c, err := counting(saturate)(d, o)
		if err != nil {
			return nil, err
		}
		return summingCounter{c}, nil
	}
}

// sumsOnHost combines rows by an operation on unsigned numbers. Some keys get two sums. A sum that is too large for its
// type stays two rows, as warpcore leaves it. There are none if the rows are few, or if memory for them is short.
func sumsOnHost(st *device.Stream, keys, values device.Slice[byte], with table.Combine) (sums frame.Sums, err error) {
	n := keys.Len() / 4
	fold, ok := map[table.Combine]func(a, b uint32) uint32{
		table.Add: func(a, b uint32) uint32 { return a + b },
		table.Min: func(a, b uint32) uint32 { return min(a, b) },
		table.Max: func(a, b uint32) uint32 { return max(a, b) },
		table.And: func(a, b uint32) uint32 { return a & b },
		table.Or:  func(a, b uint32) uint32 { return a | b },
	}[with]
	if n < leastSummed || !ok {
		return sums, nil
	}
	if st == nil {
		st = keys.Device().Stream()
	}
	k, err := device.View[uint32](keys, 0, n).Host(st)
	if err != nil {
		return sums, err
	}
	v := make([]uint32, n)
	for i := range v {
		v[i] = 1
	}
	if values.Len() > 0 {
		if v, err = device.View[uint32](values, 0, n).Host(st); err != nil {
			return sums, err
		}
	}
	var outKeys, outValues []uint32
	at := map[[2]uint32]int{}
	for i, key := range k {
		group := [2]uint32{key, uint32(i) & 1 & key}
		to, there := at[group]
		if !there || with == table.Add && outValues[to]+v[i] < v[i] {
			at[group] = len(outKeys)
			outKeys, outValues = append(outKeys, key), append(outValues, v[i])
			continue
		}
		outValues[to] = fold(outValues[to], v[i])
	}
	sums, err = frame.MakeSums(keys.Device(), len(outKeys)+5, 4, 4)
	if device.IsOutOfMemory(err) {
		return frame.Sums{}, nil
	}
	if err != nil {
		return sums, err
	}
	sums.N = len(outKeys)
	sumsMade.Add(1)
	return sums, errors.Join(device.View[uint32](sums.Keys, 0, sums.N).Write(st, outKeys),
		device.View[uint32](sums.Values, 0, sums.N).Write(st, outValues))
}

// Sums of rows do what the rows do.
func TestSums(t *testing.T) {
	for name, o := range map[string]shard.Options{"remote": {}, "copies": {Copies: true, Piece: 1}} {
		t.Run(name+" maps", func(t *testing.T) {
			all := several(t, "cpu", 3)
			tabletest.UpdatesOf(func(d *device.Device, each table.Options) (table.Map[uint32, uint32], error) {
				m, err := shard.NewMap(withOthers(d, all), with(o, each), summed(families[uint32, uint32]()["warpcore"]))
				return made[table.Map[uint32, uint32]](m, err)
			}).Run(t, tabletest.Whole, open(t, all[0].Info().Name))
		})
		onDevices(t, "cpu", name+" counters", 2, tabletest.Whole, func(all []*device.Device) *tabletest.Suite {
			return tabletest.Counter(func(d *device.Device, each table.CounterOptions) (table.Counter[uint32, uint32], error) {
				c, err := shard.NewCounter(withOthers(d, all), with(o, each.Options), summedCounting(each.Saturate))
				return made[table.Counter[uint32, uint32]](c, err)
			})
		})
	}
	if sumsMade.Load() == 0 {
		t.Error("no batch became sums")
	}
}

// AddEach ignores the values of its parts, with sums, too.
func TestSumsIgnoreValues(t *testing.T) {
	devices := several(t, "cpu", 2)
	c, err := shard.NewCounter(devices, shard.Options{}, summedCounting(false))
	must(t, err)
	var parts []shard.Part[uint32, uint32]
	for _, d := range devices {
		keys := on(t, d, []uint32{1, 2, 1, 3, 1})
		parts = append(parts, shard.Part[uint32, uint32]{Keys: keys, Values: on(t, d, []uint32{9, 9, 9, 9, 9})})
	}
	must(t, c.AddEach(parts))
	counts := make([]uint32, 3)
	must(t, c.Find([]uint32{1, 2, 3}, counts, nil))
	if !slices.Equal(counts, []uint32{6, 2, 2}) {
		t.Errorf("counts %d, want 6, 2 and 2", counts)
	}
	must(t, c.Close())
}

// Tables on these CPU devices take few rows as tables on a GPU take many.
const bulkCPU = "cpu:7"

func init() { quick.Bulk = func(name string) bool { return strings.HasPrefix(name, bulkCPU) } }

// bulky opens n devices whose tables combine the rows of small batches.
func bulky(t *testing.T, n int) (devices []*device.Device) {
	for i := range n {
		devices = append(devices, open(t, fmt.Sprint(bulkCPU, i), device.WithWorkers(1)))
	}
	return devices
}

// tally counts the batches of a map that became sums.
type tally struct {
	table.Updater[uint64, uint32]
	n *atomic.Int64
}

func (x tally) Sums(st *device.Stream, keys, values device.Slice[byte], with table.Combine) (frame.Sums, error) {
	sums, err := x.Updater.(*warpcore.Map[uint64, uint32]).Sums(st, keys, values, with)
	if sums.N > 0 {
		x.n.Add(1)
	}
	return sums, err
}

// summedBatch returns up to 6000 rows: keys that repeat, and reserved ones.
func summedBatch(rng *rand.Rand, round int) (keys []uint64, values []uint32) {
	distinct := []int{300, 2000, 40}[rng.IntN(3)]
	for range []int{1, 0, 300, 4000, 6000}[rng.IntN(5)] {
		k := uint64(rng.IntN(distinct)+round*700) * 0x9e3779b97f4a7c15
		if x := rng.IntN(30); x < 3 {
			k = uint64(0) - uint64(x)
		}
		keys, values = append(keys, k), append(values, rng.Uint32())
	}
	return keys, values
}

// Sums of warpcore leave what rows leave, and a FullError names exactly the rows that are not combined.
func TestSumsOfWarpcore(t *testing.T) {
	operations := map[table.Combine]func(a, b uint32) uint32{
		table.Add: func(a, b uint32) uint32 { return a + b },
		table.Min: func(a, b uint32) uint32 { return min(a, b) },
		table.Or:  func(a, b uint32) uint32 { return a | b },
	}
	for name, o := range map[string]shard.Options{"quick": {}, "counted": {Piece: 3000}, "regions": {Piece: 3000, Regions: 3}} {
		for with, fold := range operations {
			t.Run(fmt.Sprintf("%s %s", name, with), func(t *testing.T) {
				var made atomic.Int64
				refused := 0
				for seed := range uint64(4) {
					devices := bulky(t, 3)
					o := o
					o.MaxBytes = []int64{0, 60 << 10}[seed%2]
					m, err := shard.NewMap(devices, o, func(d *device.Device, o table.Options) (table.Map[uint64, uint32], error) {
						m, err := warpcore.New[uint64, uint32](d, warpcore.Options{Options: o})
						return tally{m, &made}, err
					})
					must(t, err)
					rng, model := rand.New(rand.NewPCG(seed, 9)), map[uint64]uint32{}
					for round := range 8 {
						refused += updateBySums(t, m, devices, rng, round, with, fold, model)
					}
					must(t, errors.Join(m.Check(), m.Close()))
				}
				if made.Load() < 10 || refused < 10 {
					t.Errorf("%d batches became sums, and %d rows were refused: the test tests nothing", made.Load(), refused)
				}
			})
		}
	}
}

// updateBySums updates a map and a model by a batch on some devices, and compares them. It returns the number of rows
// that were refused.
func updateBySums(t *testing.T, m *shard.Map[uint64, uint32], devices []*device.Device, rng *rand.Rand, round int,
	with table.Combine, fold func(a, b uint32) uint32, model map[uint64]uint32) int {
	t.Helper()
	var parts []shard.Part[uint64, uint32]
	var keys []uint64
	var values []uint32
	for _, d := range devices {
		k, v := summedBatch(rng, round)
		keys, values = append(keys, k...), append(values, v...)
		parts = append(parts, shard.Part[uint64, uint32]{Keys: on(t, d, k), Values: on(t, d, v)})
	}
	err := m.UpdateEach(parts, with)
	named, full := make([]bool, len(keys)), (*table.FullError)(nil)
	if errors.As(err, &full) {
		for _, p := range full.Positions {
			named[p] = true
		}
	} else {
		must(t, err)
	}
	for i, k := range keys {
		if old, in := model[k]; named[i] {
			continue
		} else if model[k] = values[i]; in {
			model[k] = fold(old, values[i])
		}
	}
	got, found := make([]uint32, len(keys)), make([]bool, len(keys))
	must(t, m.Find(keys, got, found))
	refused := 0
	for i, k := range keys {
		if v, in := model[k]; found[i] != in || in == named[i] || got[i] != v {
			t.Fatalf("round %d: row %d has %d, %t, named: %t, want %d, %t", round, i, got[i], found[i], named[i], v, in)
		}
		if named[i] {
			refused++
		}
	}
	for _, p := range parts {
		must(t, errors.Join(p.Keys.Free(), p.Values.Free()))
	}
	return refused
}

// weighted is a counter of a user's own, in which each key counts twice.
type weighted struct {
	*warpcore.Counter[uint32, uint32]
}

func (w weighted) AddOn(st *device.Stream, keys device.Slice[uint32]) error {
	return errors.Join(w.Counter.AddOn(st, keys), w.Counter.AddOn(st, keys))
}

// A type that embeds a table gets the rows of large batches by its own methods.
func TestSumsOfEmbeddedTables(t *testing.T) {
	const n = 4000
	devices := bulky(t, 2)
	c, err := shard.NewCounter(devices, shard.Options{}, func(d *device.Device, o table.Options) (table.Counter[uint32, uint32], error) {
		c, err := warpcore.NewCounter[uint32, uint32](d, warpcore.CounterOptions{Options: warpcore.Options{Options: o}})
		return weighted{c}, err
	})
	must(t, err)
	must(t, c.AddOn(nil, on(t, devices[0], make([]uint32, n))))
	counts := make([]uint32, 1)
	must(t, c.Find([]uint32{0}, counts, nil))
	if counts[0] != 2*n {
		t.Errorf("counted %d, want %d", counts[0], 2*n)
	}
	must(t, c.Close())
}

// panicky is a map whose Sums panics on one of the devices.
type panicky struct {
	table.Updater[uint32, uint32]
	panics bool
}

func (p panicky) Sums(st *device.Stream, keys, values device.Slice[byte], with table.Combine) (frame.Sums, error) {
	if p.panics {
		panic("no sums")
	}
	return sumsOnHost(st, keys, values, with)
}

// If the table of one device panics, the sums of others are freed.
func TestPanicOfSums(t *testing.T) {
	devices := several(t, "cpu", 2)
	m, err := shard.NewMap(devices, shard.Options{}, func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
		m, err := warpcore.New[uint32, uint32](d, warpcore.Options{Options: o})
		return panicky{m, d == devices[1]}, err
	})
	must(t, err)
	var parts []shard.Part[uint32, uint32]
	for _, d := range devices {
		keys := on(t, d, []uint32{1, 1, 1, 1, 2})
		parts = append(parts, shard.Part[uint32, uint32]{Keys: keys, Values: keys})
	}
	before := len(devices[0].Live())
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		must(t, m.UpdateEach(parts, table.Add))
	}()
	if after := len(devices[0].Live()); after != before {
		t.Errorf("%d allocations, want %d", after, before)
	}
	must(t, m.Close())
}

// After a counter's rows were combined in vain, those of the next batches are not combined.
func TestSumsInVain(t *testing.T) {
	devices := several(t, "cpu", 2)
	c, err := shard.NewCounter(devices, shard.Options{}, summedCounting(false))
	must(t, err)
	made := sumsMade.Load()
	for range 4 {
		must(t, c.AddEach([]shard.Part[uint32, uint32]{{Keys: on(t, devices[0], make([]uint32, 100))},
			{Keys: on(t, devices[1], make([]uint32, leastSummed-1))}}))
	}
	if n := sumsMade.Load() - made; n != 1 {
		t.Errorf("%d batches became sums, want the first", n)
	}
	counts := make([]uint32, 1)
	must(t, c.Find([]uint32{0}, counts, nil))
	if want := uint32(4 * (100 + leastSummed - 1)); counts[0] != want {
		t.Errorf("counted %d, want %d", counts[0], want)
	}
	must(t, c.Close())
}

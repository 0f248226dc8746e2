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
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// orderly is a map that checks that each of its chunks and steps has the rows of its regions, and counts the rows that
// it gets sorted: those that it inserts, and those that it looks up or deletes.
type orderly[K uint32 | uint64, V any] struct {
	*warpcore.Map[K, V]
	order       *frame.Sorted
	rows, asked *atomic.Int64
	pairs       func() error // why it does not take pairs this time; nil: it does not ask for any
	runs        int          // the most sorted runs that rows without chunks come in; 0: one
}

func (o orderly[K, V]) Itself() any { return o }

func (o orderly[K, V]) Ordering(n int, insert bool) frame.Ordering {
	order := o.Map.Ordering(n, insert)
	order.Paired = insert && o.pairs != nil
	return order
}

func (o orderly[K, V]) Sorted(order *frame.Sorted) table.Map[K, V] {
	o.order = order
	return o
}

func (o orderly[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	if o.order.IsPaired() {
		return o.insertPairs(st, keys)
	}
	if err := o.see(st, keys, o.rows); err != nil || o.order == nil {
		return errors.Join(err, o.Map.InsertOn(st, keys, values))
	}
	return o.Map.Sorted(o.order).InsertOn(st, keys, values)
}

func (o orderly[K, V]) InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], added device.Slice[bool]) error {
	if err := o.see(st, keys, o.rows); err != nil || o.order == nil {
		return errors.Join(err, o.Map.InsertNewOn(st, keys, values, added))
	}
	return o.Map.Sorted(o.order).InsertNewOn(st, keys, values, added)
}

func (o orderly[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error {
	if err := o.see(st, keys, o.asked); err != nil || o.order == nil {
		return errors.Join(err, o.Map.FindOn(st, keys, values, found))
	}
	return o.Map.Sorted(o.order).FindOn(st, keys, values, found)
}

func (o orderly[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	if err := o.see(st, keys, o.asked); err != nil || o.order == nil {
		return errors.Join(err, o.Map.DeleteOn(st, keys, deleted))
	}
	return o.Map.Sorted(o.order).DeleteOn(st, keys, deleted)
}

// insertPairs inserts pairs as columns, or returns the error of pairs.
func (o orderly[K, V]) insertPairs(st *device.Stream, pairs device.Slice[K]) error {
	if err := errors.Join(o.pairs(), o.order.Wait(st)); err != nil {
		return err
	}
	d := st.Device()
	mem, err := device.Wrap[K](d, pairs.Addr(), 2*pairs.Len())
	if err != nil {
		return err
	}
	words, err := mem.Host(st)
	if err != nil {
		return err
	}
	keys, values := make([]K, pairs.Len()), make([]V, pairs.Len())
	for i := range keys {
		keys[i] = words[2*i]
		any(values).([]K)[i] = words[2*i+1]
	}
	k, err := device.From(d, keys)
	if err != nil {
		return err
	}
	v, err := device.From(d, values)
	if err != nil {
		return err
	}
	o.order = &frame.Sorted{Regions: o.order.Regions, Largest: o.order.Largest, Chunks: o.order.Chunks}
	return errors.Join(o.InsertOn(st, k, v), st.Sync(), k.Free(), v.Free())
}

// see checks that the rows of each chunk are of its regions; without chunks, that they are sorted by regions.
func (o orderly[K, V]) see(st *device.Stream, keys device.Slice[K], rows *atomic.Int64) error {
	if o.order == nil {
		return nil
	}
	if err := o.order.Wait(st); err != nil {
		return err
	}
	k, err := keys.Host(st)
	if err != nil {
		return err
	}
	seed := o.Ordering(0, false).Seed
	region := func(key K) int {
		return int(kernel.Hash64(kernel.HashMurmur, uint64(key), seed) >> 32 * uint64(o.order.Regions) >> 32)
	}
	runs := 1
	for i := range k[min(1, len(k)):] {
		if region(k[i]) > region(k[i+1]) {
			runs++
		}
	}
	if len(o.order.Chunks) == 0 && runs > max(1, o.runs) {
		return fmt.Errorf("%d rows come in %d runs of %d regions", len(k), runs, o.order.Regions)
	}
	from, at := int64(0), 0
	for _, c := range o.order.Chunks {
		for _, key := range k[at : at+int(c.Rows)] {
			if r := int64(region(key)); r < from || r >= from+c.Regions {
				return fmt.Errorf("a key of region %d in a chunk of %d from %d on", r, c.Regions, from)
			}
		}
		from, at = from+c.Regions, at+int(c.Rows)
	}
	if len(o.order.Chunks) > 0 && (from != o.order.Regions || at != len(k)) {
		return fmt.Errorf("chunks of %d rows of %d, and %d regions of %d", at, len(k), from, o.order.Regions)
	}
	rows.Add(int64(len(k)))
	return nil
}

// inRegions inserts batches by way of regions, in which each key comes with a value of its own, and looks all up.
func inRegions[K uint32 | uint64, V comparable](t *testing.T, devices []*device.Device, o shard.Options, sizes []int, keyOf func(i int) K, valueOf func(k K) V) {
	t.Helper()
	var rows, asked, turns atomic.Int64
	var pairs func() error
	if _, equal := any(*new(V)).(K); equal && o.Regions%2 == 1 { // as they are, and as columns
		pairs = func() error {
			return []error{nil, frame.ErrPairs, nil, &device.OutOfMemoryError{}}[turns.Add(1)%4]
		}
	}
	m, err := shard.NewMap(devices, o, func(d *device.Device, each table.Options) (table.Map[K, V], error) {
		inner, err := warpcore.New[K, V](d, warpcore.Options{Options: each})
		return orderly[K, V]{inner, nil, &rows, &asked, pairs, 0}, err
	})
	must(t, err)
	defer func() { must(t, m.Close()) }()
	model := map[K]V{}
	var parts []shard.Part[K, V]
	total, next := 0, 0
	for i, n := range sizes {
		keys, values := make([]K, n), make([]V, n)
		for j := range keys {
			keys[j] = keyOf(next)
			values[j] = valueOf(keys[j])
			model[keys[j]] = values[j]
			next++
		}
		total += n
		parts = append(parts, shard.Part[K, V]{Keys: on(t, devices[i], keys), Values: on(t, devices[i], values)})
	}
	must(t, m.InsertEach(parts))
	if pairs == nil && rows.Load() != int64(total) {
		t.Errorf("%d rows of %d came in order", rows.Load(), total)
	}
	var keys []K
	for k := range model {
		keys = append(keys, k)
	}
	values, found := make([]V, len(keys)), make([]bool, len(keys))
	must(t, m.Find(keys, values, found))
	for i, k := range keys {
		if !found[i] || values[i] != model[k] {
			t.Fatalf("key %#x: found %t with %v, want %v", k, found[i], values[i], model[k])
		}
	}
	absent := make([]K, 0, len(keys)) // and all that are there, behind
	for len(absent) < 9001 {
		if k := keyOf(next); !has(model, k) {
			absent = append(absent, k)
		}
		if next++; next > 2*total+20_000 { // its keys are all there
			break
		}
	}
	misses := len(absent)
	absent = append(absent, keys...)
	in := make([]bool, len(absent))
	must(t, m.Contains(absent, in))
	if slices.Contains(in[:misses], true) || slices.Contains(in[misses:], false) {
		t.Errorf("of %d absent keys and %d others, %d were found", misses, len(keys), frame.Count(in))
	}
	gone := absent[:misses+len(keys)/2]
	deleted := make([]bool, len(gone))
	if n, err := m.Delete(gone, deleted); err != nil || n != len(keys)/2 || slices.Contains(deleted[:misses], true) || slices.Contains(deleted[misses:], false) {
		t.Errorf("%d of %d keys were deleted, %v", n, len(keys)/2, err)
	}
	if want := int64(len(keys) + len(absent) + len(gone)); asked.Load() != want {
		t.Errorf("%d rows of %d were looked up or deleted in order", asked.Load(), want)
	}
	if n, err := m.Len(); n != len(model)-len(keys)/2 || err != nil {
		t.Errorf("%d pairs of %d, %v", n, len(model), err)
	}
	must(t, m.Insert(keys, values)) // as Go slices
	if n, err := m.Len(); n != len(model) || err != nil || pairs == nil && rows.Load() != int64(total+len(keys)) {
		t.Errorf("%d pairs of %d, %v", n, len(model), err)
	}
	must(t, m.Check())
}

func has[K comparable, V any](m map[K]V, k K) bool {
	_, ok := m[k]
	return ok
}

// Rows that are split by owner and region at once come to the tables in order, none is lost, and none twice.
func TestRegions(t *testing.T) {
	for n := 2; n <= 4; n++ {
		for _, regions := range []int{2, 37, frame.MaxParts / n} {
			for _, piece := range []int{0, 9000} {
				onEach(t, n, func(t *testing.T, devices []*device.Device) {
					if regions != 37 && (n != 3 || piece == 0) && !devices[0].Info().CUDA() && !testenv.Long() {
						t.Skip("with 37 regions, and with all of three devices in pieces, in short runs")
					}
					o := shard.Options{Options: table.Options{Seed: uint64(regions)}, Regions: regions, Piece: piece, AskAll: -1}
					rng := rand.New(rand.NewPCG(1, uint64(n)))
					inRegions(t, devices, o, []int{20_011, 0, 9000, 4096}[:n], func(i int) uint32 { return uint32(i) * 0x9e3779b1 }, func(k uint32) uint32 { return k ^ 77 })
					if regions == 37 {
						inRegions(t, devices, o, []int{3000, 10_000, 1, 0}[:n], func(int) uint32 { return ^uint32(0) - uint32(rng.IntN(3)) }, func(k uint32) uint32 { return k })
						inRegions(t, devices, o, []int{7000, 1, 5000, 0}[:n], func(i int) uint64 { return kernel.Fmix64(uint64(i)) }, func(k uint64) [2]uint64 { return [2]uint64{k, k + 1} })
					}
				})
			}
		}
	}
}

// Tables that may not grow name what is not in, whatever way rows came; and where rows cannot come in order, they come
// without.
func TestRegionsRefused(t *testing.T) {
	devices := several(t, "cpu", 3)
	o := shard.Options{Options: table.Options{MaxBytes: 48 << 10}, Regions: 20}
	m := pairs(t, devices, o)
	keys, values := batches([]int{9000, 9000, 100}, 4)
	err := m.InsertEach(parts(t, devices, keys, values))
	full, ok := err.(*table.FullError)
	if !ok {
		t.Fatal(err)
	}
	all := slices.Concat(keys...)
	found := make([]bool, len(all))
	must(t, m.Contains(all, found))
	if len(full.Positions) != len(all)-frame.Count(found) {
		t.Errorf("%d positions are named, %d keys are not in", len(full.Positions), len(all)-frame.Count(found))
	}
	for _, p := range full.Positions {
		if found[p] {
			t.Fatalf("position %d is named, and its key is in", p)
		}
	}
	o = shard.Options{Regions: 20, Copies: true}
	copied := pairs(t, devices, o)
	must(t, copied.InsertEach(parts(t, devices, keys, values)))
	if n, err := copied.Len(); n != len(all) || err != nil {
		t.Errorf("%d pairs, %v", n, err)
	}
	if _, err := shard.NewMap(devices, shard.Options{Regions: 400}, families[uint32, uint32]()["warpcore"]); err == nil || !strings.Contains(err.Error(), "400 regions on each of 3 devices") {
		t.Error(err)
	}
}

package warpcore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// inListStretches makes a bucket list take every batch stretch by stretch, in pieces.
func inListStretches(l *lists, bytes int) {
	inStretches(&l.keys, bytes)
	l.kernel.stretch.wanted = 1
}

// listStory is a bucket list beside a Go map. number is what a value holds, and value makes one that does.
type listStory[K uint32 | uint64, V any] struct {
	d      *device.Device
	m      *BucketList[K, V]
	model  map[K][]uint32
	value  func(uint32) V
	number func(V) uint32
}

func word(n uint32) uint32         { return n }
func pair(n uint32) [2]uint64      { return [2]uint64{uint64(n), ^uint64(n)} }
func ofPair(v [2]uint64) uint32    { return uint32(v[0] & -(v[0] + v[1] + 2)) } // ones if it is whole
func long(n uint32) uint64         { return uint64(n)<<32 | uint64(^n) }
func ofLong(v uint64) (n uint32)   { return uint32(v>>32) | ^(uint32(v>>32) ^ uint32(v)) }
func dealt(rng *rand.Rand) float64 { return []float64{1, 1.5, 2, 4}[rng.IntN(4)] }

// insert inserts a batch, whose values are numbers from `first` on, and notes what is in.
func (x *listStory[K, V]) insert(first uint32, keys []K, build bool) (refused int, err error) {
	values := make([]V, len(keys))
	for i := range values {
		values[i] = x.value(first + uint32(i))
	}
	k, e1 := device.From(x.d, keys)
	v, e2 := device.From(x.d, values)
	if err := errors.Join(e1, e2); err != nil {
		return 0, err
	}
	defer k.Free()
	defer v.Free()
	insert := x.m.InsertOn
	if build {
		insert = x.m.BuildOn
	}
	lost := map[int]bool{}
	if err := insert(nil, k, v); err != nil {
		full := (*table.FullError)(nil)
		if !errors.As(err, &full) {
			return 0, err
		}
		for _, i := range full.Positions {
			lost[i] = true
		}
		if len(lost) != len(full.Positions) || len(lost) == 0 {
			return 0, fmt.Errorf("%d positions are refused, %d of them once", len(full.Positions), len(lost))
		}
	}
	for i, k := range keys {
		if !lost[i] {
			x.model[k] = append(x.model[k], first+uint32(i))
		}
	}
	return len(lost), nil
}

// verify compares the table with the model. Values are numbers that grow from batch to batch by 1<<20: each key has those of earlier batches first.
func (x *listStory[K, V]) verify() error {
	if err := x.m.Check(); err != nil {
		return err
	}
	var keys []K
	pairs := 0
	for k, its := range x.model {
		keys = append(keys, k)
		pairs += len(its)
	}
	offsets, values, err := x.m.FindAll(keys)
	if err != nil {
		return err
	}
	for i, k := range keys {
		var got, batches []uint32
		for _, v := range values[offsets[i]:offsets[i+1]] {
			got, batches = append(got, x.number(v)), append(batches, x.number(v)>>20)
		}
		if !slices.IsSorted(batches) {
			return fmt.Errorf("key %#x has values of batches %v, in this order", k, batches)
		}
		if !slices.Equal(sorted(got), sorted(x.model[k])) {
			return fmt.Errorf("key %#x has %d values, %x, and should have %d, %x", k, len(got), sorted(got), len(x.model[k]), sorted(x.model[k]))
		}
	}
	only, err := x.m.Keys()
	if err != nil {
		return err
	}
	n, err := x.m.Len()
	if err != nil || n != pairs || len(only) != len(keys) {
		return fmt.Errorf("%d pairs of %d keys (want %d of %d), %v", n, len(only), pairs, len(keys), err)
	}
	return nil
}

// hostile is a batch with keys that come often, beside one another and apart, reserved ones, and one in many rows.
func hostile[K uint32 | uint64](rng *rand.Rand, n, spread int, hot bool) []K {
	keys := make([]K, n)
	for i := range keys {
		keys[i] = K(rng.Uint64N(uint64(spread)))
		switch {
		case i%400 < 2:
			keys[i] = ^K(0) - K(i%5)
		case hot && i%8 == 5:
			keys[i] = 77
		case i%200 < 80 && i%20 > 0:
			keys[i] = keys[i-1]
		}
	}
	return keys
}

// run inserts batches and deletes keys. How many rows were refused is for tables with a bound.
func (x *listStory[K, V]) run(rng *rand.Rand, rows, rounds int) (refused int, err error) {
	hot := rng.IntN(2) == 0
	for round := range rounds {
		spread := []int{8 * rows, rows / 2, rows / 20}[rng.IntN(3)]
		lost, err := x.insert(uint32(round)<<20, hostile[K](rng, rows+rng.IntN(100), spread, hot), round == 0 && rng.IntN(2) == 0)
		if err == nil {
			err = x.verify()
		}
		if err != nil {
			return 0, fmt.Errorf("round %d: %w", round, err)
		}
		refused += lost
		var gone []K
		want := 0
		for k := range x.model {
			if rng.IntN(3) == 0 {
				gone = append(gone, k)
				want += len(x.model[k])
				delete(x.model, k)
			}
		}
		slices.Sort(gone) // a seed makes one story
		if n, err := x.m.Delete(gone, nil); err != nil || n != want {
			return 0, fmt.Errorf("round %d: %d of %d deleted, %v", round, n, want, err)
		}
	}
	if !x.m.lists.kernel.stretch.late.Loaded() {
		return 0, fmt.Errorf("nothing went in stretch by stretch: %d windows", x.m.lists.keys.t.Main.Windows)
	}
	return refused, nil
}

// listHistory makes a bucket list that takes batches stretch by stretch, and runs a story.
func listHistory[K uint32 | uint64, V any](d *device.Device, o ListOptions, bytes int, rng *rand.Rand, rows, rounds int, value func(uint32) V, number func(V) uint32) (refused int, err error) {
	m, err := NewBucketList[K, V](d, o)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	inListStretches(m.lists, bytes)
	m.lists.keys.regions.PieceRows = int64(max(500, rows/3))
	return (&listStory[K, V]{d, m, map[K][]uint32{}, value, number}).run(rng, rows, rounds)
}

// Batches that go into a bucket list stretch by stretch leave what others leave.
func TestListStretches(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		for i, o := range []ListOptions{{}, {Options: table.Options{Capacity: 9000}}, {Options: table.Options{Capacity: 9000, LoadFactor: 1, Seed: 3}, Growth: 1},
			{Options: table.Options{Capacity: 9000}, Keys: 500, InitialBucket: 3, Growth: 1.5}, {Options: table.Options{Hash: kernel.HashIdentity}}} {
			if o.Hash != 0 && !testenv.Long() {
				continue // another compilation
			}
			for seed := range uint64(testenv.Seeds(3)) {
				_, err := listHistory[uint32](d, o, 20<<10, rand.New(rand.NewPCG(seed, uint64(i))), 3000, 5, word, word)
				must(t, err)
			}
		}
		_, err := listHistory[uint64](d, ListOptions{Options: table.Options{Capacity: 20000, LoadFactor: 0.95}}, 20<<10, rand.New(rand.NewPCG(1, 2)), 8000, 5, pair, ofPair)
		must(t, err)
		if testenv.Long() {
			_, err := listHistory[uint64](d, ListOptions{Growth: 1}, 36<<10, rand.New(rand.NewPCG(1, 2)), 8000, 5, long, ofLong)
			must(t, err)
			_, err = listHistory[uint32](d, ListOptions{}, listStretchBytes, rand.New(rand.NewPCG(1, 3)), 60000, 4, long, ofLong)
			must(t, err)
		}
		if d.Info().CUDA() { // stretches as large as elsewhere
			for seed := range uint64(testenv.Seeds(3)) {
				_, err := listHistory[uint32](d, ListOptions{}, listStretchBytes, rand.New(rand.NewPCG(seed, 4)), 100_000, 4, word, word)
				must(t, err)
				_, err = listHistory[uint64](d, ListOptions{}, listStretchBytes, rand.New(rand.NewPCG(seed, 5)), 100_000, 4, long, ofLong)
				must(t, err)
			}
		}
	})
}

// At its bound, a bucket list names the positions that are not in, whichever way they went.
func TestListStretchesAtMaxBytes(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		refused := 0
		for i, bytes := range []int64{40 << 10, 64 << 10, 100 << 10} {
			for seed := range uint64(testenv.Seeds(4)) {
				o := ListOptions{Options: table.Options{Capacity: 3000, MaxBytes: bytes, LoadFactor: 0.9, Seed: seed}, Keys: []int{0, 300}[seed%2]}
				n, err := listHistory[uint32](d, o, 7<<10, rand.New(rand.NewPCG(seed, uint64(i))), 2500, 5, word, word)
				must(t, err)
				refused += n
			}
		}
		if refused == 0 {
			t.Error("all positions found room")
		}
	})
}

// A pool that is too small makes blocks leave all their rows over.
func TestListStretchesWithoutPool(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device.Device) {
		m, err := NewBucketList[uint32, uint32](d, ListOptions{Options: table.Options{Capacity: 2000}})
		must(t, err)
		defer m.Close()
		inListStretches(m.lists, 7<<10)
		x := &listStory[uint32, uint32]{d, m, map[uint32][]uint32{}, word, word}
		rng := rand.New(rand.NewPCG(1, 6))
		for round := range uint32(12) { // many keys that have a value more each time want more than the host foresees
			_, err := x.insert(round<<20, hostile[uint32](rng, 1500, 1800, false), false)
			must(t, err)
			must(t, x.verify())
		}
	})
}

// Six blocks are on a multiprocessor of an H200, and the slots of a stretch can be noted.
func TestListStretchesFitShared(t *testing.T) {
	for _, keyBytes := range []int{4, 8} {
		c := keyConfig(keyBytes, 0)
		windows := c.listStretchWindows(listStretchBytes)
		if shared := c.listStretchShared(windows) + listBeside + 1<<10; shared*listResident > 228<<10 {
			t.Errorf("keys of %d bytes: %d bytes of a block", keyBytes, shared)
		}
		if slots := windows * int64(c.window); slots > 1<<listSlotBits || windows < 4*neighbourhood {
			t.Errorf("keys of %d bytes: a stretch of %d windows, with %d slots", keyBytes, windows, slots)
		}
	}
}

// stressedLists is a story by seeds, of tables with room, those that grow, and those with a bound.
func stressedLists(t *testing.T) func(seed uint64) error {
	return func(seed uint64) error {
		d := openBy(t)(device.WithStress(seed))
		defer d.Close()
		rng := rand.New(rand.NewPCG(seed, 7))
		o := ListOptions{Options: table.Options{Capacity: 2000, LoadFactor: 0.95, Seed: seed + 1}, Growth: dealt(rng)}
		switch seed % 4 {
		case 1:
			o.Capacity, o.InitialBucket = 0, 3
		case 2:
			o.MaxBytes = 60 << 10
		}
		_, err := listHistory[uint32](d, o, 7<<10, rng, 1200, 4, word, word)
		return err
	}
}

func TestListStretchesUnderStress(t *testing.T) {
	testenv.ByTurns(t)
	stress := stressedLists(t)
	for seed := range uint64(testenv.Seeds(40)) {
		if err := stress(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func TestListStretchesFindDefects(t *testing.T) {
	testenv.ByTurns(t)
	stress := stressedLists(t)
	findDefects(t, 100, []defect{
		{"two keys take one slot", false, &stretchListCU, "key was = cas(keys + slot, C::EMPTY, k);", "key was = load_relaxed(keys + slot); if (was == C::EMPTY) store_relaxed(keys + slot, k);", stress},
		{"two rows have one number", false, &stretchListCU, "note |= add(counts + note, 1u) << SLOT_BITS;", "{ u32 slot = note, number = load_relaxed(counts + slot); store_relaxed(counts + slot, number + 1); note |= number << SLOT_BITS; }", stress},
		{"a key that is there is not looked for", false, &stretchListCU, "if (match) return window * C::WINDOW + (u32)lowest_bit(match);", "", stress},
		{"tombstones are taken in full windows", true, &stretchListCU, "if (!empty && k[j] == C::TOMBSTONE)", "if (false)", stress},
		{"tombstones are not counted", true, &stretchListCU, "reused += reuses;", "", stress},
		{"full windows are not marked", true, &stretchListCU, "            pass_by(window, hash);\n", "", stress},
		{"marks do not come to memory", true, &stretchListCU, "if (overflow[i] != ~0u) and_of_memory", "if (false) and_of_memory", stress},
		{"long chains are not told", true, &stretchListCU, "if (stage.longest) max_of_memory", "if (false) max_of_memory", stress},
		{"rows that are left over are forgotten", true, &stretchListCU, "leave(leaves, first + row);", "leave(false, first + row);", stress},
		{"of a block that finds no room they are, too", true, &stretchListCU, "if (!fits) return job.template leave_all<true>(rows);", "if (!fits) return;", stress},
		{"rows are left over twice", true, &stretchListCU, "leave(row < rows && !(NOTED && *noted((u32)row) == LEFT), first + row);", "leave(row < rows, first + row);", stress},
		{"places that nobody got are not told", true, &stretchListCU, "if (!stage.fits && stage.base < t.room) max_of_memory", "if (false) max_of_memory", stress},
		{"values go over those before", true, &stretchListCU, "if (!EMPTY) counts[slot] = old.tail.room - old.count;", "counts[slot] = 0;", stress},
		{"a header tells of fewer values before", true, &stretchListCU, "store_memory(h + 2, old.tail.room);", "store_memory(h + 2, old.count);", stress},
		{"values go over a header", true, &stretchListCU, "to[slot] = place + header;", "to[slot] = place;", stress},
		{"a bucket's header is not among its places", true, &stretchListCU, "return list::place_of(b) + (list::more(b) ? C::HEADER : 0) +", "return list::place_of(b) +", stress},
		{"slots are gone through before all rows came", true, &stretchListCU, "    job.count();\n    block_sync();\n", "    job.count();\n", stress},
		{"values are written before all slots are", true, &stretchListCU, "    block_sync();\n    job.write_values();", "    job.write_values();", stress},
		{"values are written out before all are there", true, &stretchListCU, "        if (!together) return;\n        block_sync();\n", "        if (!together) return;\n", stress},
		{"lists of rows that are left over are not blocked", true, &bucketlistCU, "list::with_state(load_relaxed(list::last_at<C>(slot)), LIST_BLOCKED));\n    });", "load_relaxed(list::last_at<C>(slot)));\n    });", stress},
		{"a value is dealt to the list before its own", true, &warpcoreCUH, "if (warp.shuffle(before, whose + d) <= number) whose += d;", "if (warp.shuffle(before, whose + d) < number) whose += d;", stress},
		{"behind a long list all is dealt out", true, &warpcoreCUH, "while (next >= its && owner < 31) {", "if (next >= its && owner < 31) {", stress},
		{"rows that are left over want what they like", true, &bucketlistCU, "if (p.most && size > rows * p.most)", "if (false)", stress},
	})
}

// Rows that are left over go in by positions in pieces, each of which begins with a word of the bitmap of positions, however many are left over.
func TestPiecesAreWholeWords(t *testing.T) {
	m, err := NewBucketList[uint32, uint32](openFor(t, "cpu"), ListOptions{})
	must(t, err)
	defer m.Close()
	must(t, m.lists.frame().Writing(nil, func(*device.Stream) error {
		for _, n := range []int64{1, leastRows - 1, leastRows + 1, 51199, listRows + 3} {
			piece, _, lease, err := m.lists.scratchFor(n)
			must(t, err)
			lease.Done()
			if piece%32 != 0 {
				t.Errorf("a piece of %d rows, of %d, is not whole words", piece, n)
			}
		}
		return nil
	}))
}

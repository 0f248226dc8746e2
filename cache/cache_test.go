package cache

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
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

// open gives a device, and skips the test where there is none of that name.
func open(t testing.TB, name string, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open(name, opts...)
	if name == "cpu" {
		must(t, err)
	}
	testenv.Require(t, "cuda", err)
	t.Cleanup(func() {
		tabletest.NoneForgotten(t, d)
		must(t, d.Close())
	})
	return d
}

// rig is a cache beside its model.
type rig[K any, V comparable] struct {
	m     *Cache[K, V]
	model *model
	rng   *rand.Rand
	mask  uint64       // of a key's bits
	next  uint32       // number
	known map[V]uint32 // the numbers of values so far
	// exact: lanes come in order, as one does on the CPU device. Else the model is brought up to date with what came
	// out.
	exact bool
	at    time.Duration // since the cache was made
}

func newRig[K any, V comparable](d *device.Device, o Options, seed uint64) (*rig[K, V], error) {
	o.Seed = seed + 1
	m, err := New[K, V](d, o)
	if err != nil {
		return nil, err
	}
	info := d.Info()
	r := &rig[K, V]{m: m, model: newModel(m.core), rng: rand.New(rand.NewPCG(seed, 3)),
		mask:  1<<(8*m.core.cfg.keyBytes-1)<<1 - 1,
		known: map[V]uint32{}, exact: !info.CUDA() && !info.Stress && !m.core.opts.early}
	m.core.since = func() time.Duration { return r.at }
	r.model.life = uint64(ticksOf(o.TimeToLive))
	return r, nil
}

// keys are n of so many, among them 0 and ^0, some of them more than once.
func (r *rig[K, V]) keys(n, universe int) (keys []uint64) {
	for range n {
		keys = append(keys, (uint64(r.rng.IntN(universe))-1)*0x9e3779b97f4a7c15&r.mask)
	}
	if n > 1 {
		keys[r.rng.IntN(n)] = r.mask
	}
	return keys
}

func (r *rig[K, V]) numbers(n int) (numbers []uint32) {
	for range n {
		r.next++
		numbers = append(numbers, r.next)
		if r.m.core.cfg.valueBytes > 0 {
			r.known[tabletest.ValuesOf[V](numbers[len(numbers)-1:])[0]] = r.next
		}
	}
	return numbers
}

func (r *rig[K, V]) values(numbers []uint32) []V {
	if r.m.core.cfg.valueBytes == 0 {
		return make([]V, len(numbers))
	}
	return tabletest.ValuesOf[V](numbers)
}

// rows are what is in, or went out, by key; values that are torn, or never were put, are errors.
func (r *rig[K, V]) rows(keys []K, values []V, scores []uint32) (all []row, err error) {
	for i, key := range tabletest.BitsOf(keys) {
		x := row{key: key, score: scores[i]}
		if r.m.core.cfg.valueBytes > 0 {
			n, ok := r.known[values[i]]
			if !ok {
				return nil, fmt.Errorf("key %#x has a value that nobody put: %v", key, values[i])
			}
			x.number = n
		}
		all = append(all, x)
	}
	return sorted(all), nil
}

// in are all pairs, as Export gives them.
func (r *rig[K, V]) in(least uint32) ([]row, error) {
	k, v, s, err := r.m.Export(least)
	r.model.sweep()
	if err != nil {
		return nil, err
	}
	return r.rows(k, v, s)
}

func (r *rig[K, V]) want(numbers []uint32) []uint32 {
	if r.m.core.cfg.valueBytes == 0 {
		return make([]uint32, len(numbers))
	}
	return numbers
}

// insert puts keys, with what goes out where asked.
func (r *rig[K, V]) insert(keys []uint64, ask bool) error {
	numbers := r.want(r.numbers(len(keys)))
	var scores []uint32
	if r.m.core.cfg.policy == Scored && r.rng.IntN(4) > 0 {
		for range keys {
			scores = append(scores, uint32(r.rng.IntN(30)))
		}
	}
	k, v := tabletest.KeysOf[K](keys), r.values(numbers)
	var out []row
	var lives []uint32
	if r.m.core.opts.Lives && !ask && r.exact && scores == nil {
		given := make([]time.Duration, len(keys))
		for i := range given {
			given[i] = time.Duration(r.rng.IntN(30)) * 100 * time.Millisecond
		}
		if err := r.m.InsertFor(k, v, given); err != nil {
			return err
		}
		for _, x := range given {
			lives = append(lives, uint32((x+62499*time.Microsecond)/(62500*time.Microsecond)))
			if x > 0 {
				lives[len(lives)-1]++
			}
		}
	} else if ask || !r.exact {
		ok, ov, os, err := r.m.InsertOut(k, v, scores)
		if err != nil {
			return err
		}
		if out, err = r.rows(ok, ov, os); err != nil {
			return err
		}
	} else if err := r.m.InsertScored(k, v, scores); err != nil {
		return err
	}
	if !r.exact {
		r.model.tick(len(keys))
		before := r.model.rows(0)
		after, err := r.in(0)
		if err != nil {
			return err
		}
		if r.m.core.cfg.valueBytes > 0 {
			if err := r.model.judge(before, after, keys, numbers, out); err != nil {
				return err
			}
		}
		ends := r.model.expiries(nil)
		for _, key := range keys {
			ends[key] = r.model.time + r.model.life
		}
		r.model.set(after, ends)
		return nil
	}
	want := sorted(r.model.put(keys, numbers, scores, lives))
	if ask && !slices.Equal(out, want) {
		return fmt.Errorf("%+v went out, want %+v", out, want)
	}
	return nil
}

// find looks keys up.
func (r *rig[K, V]) find(keys []uint64, quiet bool) error {
	k, v, found := tabletest.KeysOf[K](keys), r.values(make([]uint32, len(keys))), make([]bool, len(keys))
	find := r.m.Find
	if quiet {
		find = r.m.FindQuiet
	}
	if err := find(k, v, found); err != nil {
		return err
	}
	numbers, want := r.model.look(keys, quiet)
	for i := range keys {
		var none V
		if found[i] != want[i] || found[i] && v[i] != r.values(numbers[i : i+1])[0] || !found[i] && v[i] != none {
			return fmt.Errorf("key %#x: found %t, value %v; want %t, %d", keys[i], found[i], v[i], want[i], numbers[i])
		}
	}
	return nil
}

// mixed runs operations of all kinds; or finds keys or inserts them, which is given as insert-new alone. Under stress,
// of a key that comes more than once nothing is known but what the histories of TestHistories tell.
func (r *rig[K, V]) mixed(keys []uint64, give bool) error {
	if !r.exact { // each key once, and one of a bucket, so that there is one order
		var some []uint64
		buckets := map[uint64]bool{}
		for _, key := range keys {
			if b, _ := r.model.cfg.where(key, &r.model.t); !buckets[b] {
				buckets[b], some = true, append(some, key)
			}
		}
		keys = some
	}
	ops, numbers := make([]table.Op, len(keys)), r.want(r.numbers(len(keys)))
	for i := range ops {
		if ops[i] = table.OpInsertNew; !give {
			ops[i] = table.Op(r.rng.IntN(4))
		}
	}
	k, v, results := tabletest.KeysOf[K](keys), r.values(numbers), make([]V, len(keys))
	status, added := make([]table.Status, len(keys)), make([]bool, len(keys))
	var err error
	if give {
		_, err = r.m.FindOrInsert(k, v, results, added)
	} else {
		err = r.m.Mixed(ops, k, v, results, status)
	}
	if err != nil {
		return err
	}
	ends := r.model.expiries(nil)
	want, told := r.model.mixed(ops, keys, numbers, give)
	for i := range keys {
		var x V
		if want[i] != 0 {
			x = r.values(want[i : i+1])[0]
		}
		if results[i] != x || !give && status[i] != told[i] || give && added[i] != (told[i] == table.Added) {
			return fmt.Errorf("%v of key %#x: %v, %v, %t; want %v, %v", ops[i], keys[i], results[i], status[i],
				added[i], x, told[i])
		}
	}
	if r.exact {
		return nil
	}
	now, err := r.in(0) // which of the pairs with the least score of a bucket has gone is not known
	if err != nil {
		return err
	}
	if got, want := scores(now), scores(r.model.rows(0)); !slices.Equal(got, want) {
		return fmt.Errorf("scores are %d, want %d", got, want)
	}
	r.model.set(now, r.model.expiries(ends))
	return nil
}

func scores(rows []row) (all []uint32) {
	for _, x := range rows {
		all = append(all, x.score)
	}
	slices.Sort(all)
	return all
}

func (r *rig[K, V]) erase(keys []uint64) error {
	deleted := make([]bool, len(keys))
	n, err := r.m.Delete(tabletest.KeysOf[K](keys), deleted)
	if err != nil {
		return err
	}
	want := r.model.erase(keys)
	first, last := map[uint64]bool{}, map[uint64]bool{}
	count := 0
	for i, key := range keys { // of equal keys any may be the one
		if want[i] {
			first[key] = true
		}
		if deleted[i] {
			if last[key] {
				return fmt.Errorf("key %#x was deleted twice", key)
			}
			last[key] = true
			count++
		}
	}
	for _, key := range keys {
		if first[key] != last[key] {
			return fmt.Errorf("key %#x: deleted %t, want %t", key, last[key], first[key])
		}
	}
	if n != count {
		return fmt.Errorf("%d deleted, and %d are told", n, count)
	}
	return nil
}

func (r *rig[K, V]) verify() error {
	if err := r.m.Check(); err != nil {
		return err
	}
	least := uint32(r.rng.IntN(4))
	got, err := r.in(least)
	if err != nil {
		return err
	}
	if want := r.model.rows(least); !slices.Equal(got, want) {
		return fmt.Errorf("scores of %d and more: %d pairs\n%+v\nwant %d\n%+v", least, len(got), got, len(want), want)
	}
	s, err := r.m.Stats()
	if err != nil {
		return err
	}
	want, leastScore := r.model.rows(0), uint32(0)
	if len(want) > 0 {
		leastScore = slices.MinFunc(want, func(a, b row) int { return int(a.score) - int(b.score) }).score
	}
	n := r.model.n
	told := [...]uint64{s.Hits, s.Misses, s.Added - s.Updated, s.Evictions, s.Refused, uint64(s.LeastScore),
		uint64(s.Clock), uint64(s.Len)}
	expected := [...]uint64{n.Hits, n.Misses, n.Added - n.Updated, n.Evicted, n.Refused, uint64(leastScore),
		uint64(r.model.clock), uint64(len(want))}
	if !r.exact {
		told[2], told[3], told[4], expected[2], expected[3], expected[4] = 0, 0, 0, 0, 0, 0
	}
	if told != expected {
		return fmt.Errorf("stats are %d, want %d", told, expected)
	}
	return nil
}

// churn does so many random things to a cache.
func churn[K any, V comparable](d *device.Device, o Options, seed uint64, steps, batch, universe int) (err error) {
	r, err := newRig[K, V](d, o, seed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.m.Close()) }()
	for step := range steps {
		n := 1 + r.rng.IntN(batch)
		r.at += time.Duration(r.rng.IntN(1000)) * time.Millisecond
		r.model.time = uint64(r.at / (time.Second / ticksPerSecond))
		switch x := r.rng.IntN(20); {
		case x < 8:
			err = r.insert(r.keys(n, universe), x < 4)
		case x < 14:
			err = r.find(r.keys(n, universe), x < 10)
		case x < 17:
			err = r.erase(r.keys(n/4+1, universe))
		case x < 19:
			err = r.mixed(r.keys(n, universe), x == 17)
		case step > steps/2:
			r.model.clear()
			err = r.m.Clear()
		}
		if err == nil {
			err = r.verify()
		}
		if err != nil {
			return fmt.Errorf("seed %d, %v, step %d: %w", seed, r.m, step, err)
		}
	}
	return nil
}

// expiries are when pairs end, by their keys; those of before are of pairs that are not in now.
func (m *model) expiries(before map[uint64]uint64) map[uint64]uint64 {
	ends := map[uint64]uint64{}
	maps.Copy(ends, before)
	for i := range m.buckets {
		for _, s := range m.buckets[i].slots {
			if s.in {
				ends[s.key] = s.expiry
			}
		}
	}
	return ends
}

// set makes the model what a cache has become.
func (m *model) set(rows []row, expiries map[uint64]uint64) {
	for i := range m.buckets {
		m.buckets[i].slots = [ways]modelSlot{}
	}
	for _, x := range rows {
		b := m.bucket(x.key)
		*b.empty() = modelSlot{x, true, expiries[x.key]}
	}
}

func (b *modelBucket) empty() *modelSlot {
	return &b.slots[slices.IndexFunc(b.slots[:], func(s modelSlot) bool { return !s.in })]
}

var policies = []Policy{LRU, LFU, Aged, Scored}

// every is a churn for each layout of a bucket, with the policies in turn.
func every(t *testing.T, run func(t *testing.T, i int, name string, churn func(d *device.Device, o Options,
	seed uint64, steps, batch, universe int) error)) {
	for i, c := range []struct {
		name  string
		churn func(d *device.Device, o Options, seed uint64, steps, batch, universe int) error
	}{
		{"8+8", churn[uint64, uint64]},
		{"4+4", churn[uint32, uint32]},
		{"8+64", churn[uint64, [16]uint32]},
		{"4+12", churn[uint32, [3]uint32]},
		{"4", churn[uint32, struct{}]},
		{"4+8", churn[uint32, uint64]},
		{"8+4", churn[uint64, float32]},
		{"8", churn[uint64, struct{}]},
		{"8+16", churn[uint64, [2]uint64]},
		{"8+24", churn[uint64, [3]uint64]},
		{"4+4096", churn[uint32, [1024]uint32]},
	} {
		if i > 3 && !testenv.Long() {
			break
		}
		t.Run(c.name, func(t *testing.T) { run(t, i, c.name, c.churn) })
	}
}

// A cache holds what a model of it holds, pair by pair and score by score.
func TestCacheIsItsModel(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			every(t, func(t *testing.T, i int, _ string, churn func(*device.Device, Options, uint64, int, int,
				int) error) {
				testenv.Turn(t) // each layout and policy is compiled for itself
				for j, p := range policies {
					if j != i%4 && !(testenv.Long() && j == (i+1)%4) {
						continue
					}
					for seed := range uint64(testenv.Seeds(16)) {
						must(t, churn(d, Options{Capacity: 40, Policy: p}, seed, 60, 200, 120))
						must(t, churn(d, Options{Capacity: 40, Policy: p, TimeToLive: 1500 * time.Millisecond,
							Lives: seed%2 == 0}, seed, 60, 100, 120))
						must(t, churn(d, Options{Bytes: 100_000, Policy: p, Hash: int(seed) % 4}, seed, 20, 500, 1000))
					}
				}
			})
		})
	}
}

// Inserts of many lanes in few buckets, which change places at random, leave what some order of them leaves.
func TestStress(t *testing.T) {
	every(t, func(t *testing.T, i int, _ string, churn func(*device.Device, Options, uint64, int, int, int) error) {
		seeds := testenv.SeedsOf(64, 4)
		testenv.Tried(t, seeds, "histories")
		for seed := range uint64(seeds) {
			seed += testenv.FirstSeed()
			must(t, underStress(churn, policies[seed%4], 1+3*int(seed/4%2), seed))
		}
	})
}

func underStress(churn func(*device.Device, Options, uint64, int, int, int) error, p Policy, group int,
	seed uint64) error {
	d, err := device.Open("cpu", device.WithStress(seed))
	if err != nil {
		return err
	}
	o := Options{Capacity: 24, Policy: p, group: group}
	if seed%2 == 1 {
		o.Capacity, o.tile = 36, 4
	}
	if seed%3 == 2 {
		o.TimeToLive = 1500 * time.Millisecond
	}
	return errors.Join(churn(d, o, seed, 12, 160, 60), d.Close())
}

// Keys that all have one tag, and one bucket, are told apart by their bits.
func TestDegenerateHash(t *testing.T) {
	d := open(t, "cpu")
	for _, hash := range []int{kernel.HashConstant, kernel.HashIdentity} {
		must(t, churn[uint64, uint64](d, Options{Capacity: 36, Hash: hash}, 5, 30, 60, 40))
	}
}

// A cache takes no more than Options.Bytes, also where values lie apart.
func TestBytesAreNotExceeded(t *testing.T) {
	d := open(t, "cpu")
	for _, most := range []int64{400, 735, 736, 1000, 5000} { // a bucket takes 192 bytes, and 144 apart, behind a multiple of 256
		m, err := New[uint64, [3]uint32](d, Options{Bytes: most})
		must(t, err)
		s, err := m.Stats()
		must(t, err)
		if s.Bytes > most || s.Capacity == 0 {
			t.Errorf("%d bytes are allowed, and %d pairs take %d", most, s.Capacity, s.Bytes)
		}
		must(t, errors.Join(m.Check(), m.Close()))
	}
	if m, err := New[uint64, [3]uint32](d, Options{Bytes: 399}); err == nil {
		t.Error("a bucket of 400 bytes is in 399")
		m.Close()
	}
}

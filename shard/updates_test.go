package shard_test

import (
	"errors"
	"fmt"
	gomaps "maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// routes are the ways of rows in the suites of operations: by remote writes and by copies, in one piece and in many.
var routes = []struct {
	n int
	o shard.Options
}{{1, shard.Options{}}, {2, shard.Options{Copies: true, Piece: 1}}, {3, shard.Options{}}, {4, shard.Options{Piece: 1}}}

// suited runs do with makers of maps of the families that have an operation. In short runs on the CPU each family takes
// one route: rows go to the owners by way of kernels that know no family.
func suited[K, V any](t *testing.T, do func(t *testing.T, d *device.Device, newMap tabletest.Maker[K, V])) {
	for _, kind := range []string{"cpu", "cuda"} {
		for i, family := range []string{"stadium", "warpcore", "slab", "dycuckoo"} {
			for way, r := range routes {
				if kind == "cuda" && r.n == 1 || kind == "cpu" && !testenv.Long() && way != i {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", kind, family, r.n), func(t *testing.T) {
					t.Parallel()
					devices := several(t, kind, r.n)
					do(t, open(t, devices[0].Info().Name), func(d *device.Device, each table.Options) (table.Map[K, V], error) {
						if family == "dycuckoo" {
							each.MaxBytes *= int64(r.n) // it takes some KiB at least
						}
						m, err := shard.NewMap(withOthers(d, devices), with(r.o, each), families[K, V]()[family])
						return made[table.Map[K, V]](m, err)
					})
				})
			}
		}
	}
}

func TestUpdates(t *testing.T) {
	testenv.ByTurns(t)
	suited(t, func(t *testing.T, d *device.Device, newMap tabletest.Maker[uint32, uint32]) {
		tabletest.UpdatesOf(newMap).Run(t, tabletest.Whole, d)
	})
}

func TestChoices(t *testing.T) {
	suited(t, func(t *testing.T, d *device.Device, newMap tabletest.Maker[uint32, uint32]) {
		tabletest.ChoicesOf(newMap).Run(t, tabletest.Whole, d)
	})
	sets := map[string]func(d *device.Device, o table.Options) (table.Set[uint32], error){"warpcore": warpcoreSet, "slab": slabSet}
	for family, newSet := range sets {
		for _, kind := range []string{"cpu", "cuda"} {
			t.Run(fmt.Sprintf("%s/%s/sets", kind, family), func(t *testing.T) {
				devices := several(t, kind, 3)
				tabletest.KeyChoicesOf(func(d *device.Device, each table.Options) (table.Set[uint32], error) {
					return made[table.Set[uint32]](shard.NewSet(withOthers(d, devices), with(shard.Options{}, each), newSet))
				}).Run(t, tabletest.Whole, open(t, devices[0].Info().Name))
			})
		}
	}
}

// hostile makes a batch of keys below 3000: some at random, all of one device, or one key again and again.
func hostile(rng *rand.Rand, m *shard.Map[uint32, uint32], n, devices int) (keys []uint32) {
	owner, kind := rng.IntN(devices), rng.IntN(4)
	for len(keys) < n {
		k := uint32(rng.IntN(3000)) * 0x9e3779b1
		switch {
		case kind == 0 && m.OwnerOf(uint64(k)) != owner:
			continue
		case kind == 1:
			k = 7
		case kind == 2 && len(keys)%2 == 0:
			k = ^uint32(0)
		}
		keys = append(keys, k)
	}
	return keys
}

// beside is a map beside a Go map.
type beside struct {
	testing.TB
	m       *shard.Map[uint32, uint32]
	devices []*device.Device
	rng     *rand.Rand
	model   map[uint32]uint32
	host    bool // batches come as Go slices alone
}

// column is a Go slice where a batch is: on the device, or in place.
func column[T any](s *beside, d *device.Device, x []T) device.Slice[T] { return on(s, d, x) }

func (s *beside) where() (d *device.Device, on bool) {
	return s.devices[s.rng.IntN(len(s.devices))], !s.host && s.rng.IntN(2) == 0
}

func (s *beside) values(n int) (out []uint32) {
	for range n {
		out = append(out, s.rng.Uint32())
	}
	return out
}

func (s *beside) coins(n int) (out []bool) {
	for range n {
		out = append(out, s.rng.IntN(2) == 0)
	}
	return out
}

func hostOf[T any](t testing.TB, x device.Slice[T]) []T {
	t.Helper()
	out, err := x.Host(nil)
	must(t, err)
	must(t, x.Free())
	return out
}

// adopt takes over which of several values a key got.
func (s *beside) adopt(came map[uint32][]uint32) {
	s.Helper()
	keys := slices.Collect(gomaps.Keys(came))
	values, found := make([]uint32, len(keys)), make([]bool, len(keys))
	must(s, s.m.Find(keys, values, found))
	for i, k := range keys {
		if !found[i] || !slices.Contains(came[k], values[i]) {
			s.Fatalf("key %#x: found %t with %#x: want one of %#x", k, found[i], values[i], came[k][:min(5, len(came[k]))])
		}
		s.model[k] = values[i]
	}
}

func (s *beside) insert(keys []uint32, when []bool) {
	s.Helper()
	values, came := s.values(len(keys)), map[uint32][]uint32{}
	for i, k := range keys {
		if when == nil || when[i] {
			came[k] = append(came[k], values[i])
		}
	}
	switch d, there := s.where(); {
	case there && when != nil:
		k, v, w := column(s, d, keys), column(s, d, values), column(s, d, when)
		must(s, s.m.InsertIfOn(nil, k, v, w))
		must(s, errors.Join(k.Free(), v.Free(), w.Free()))
	case there:
		k, v := column(s, d, keys), column(s, d, values)
		must(s, s.m.InsertOn(nil, k, v))
		must(s, errors.Join(k.Free(), v.Free()))
	case when != nil:
		must(s, s.m.InsertIf(keys, values, when))
	default:
		must(s, s.m.Insert(keys, values))
	}
	s.adopt(came)
}

func (s *beside) update(keys []uint32) {
	s.Helper()
	values := s.values(len(keys))
	for i, k := range keys {
		s.model[k] += values[i]
	}
	if d, there := s.where(); there {
		k, v := column(s, d, keys), column(s, d, values)
		must(s, s.m.UpdateOn(nil, k, v, table.Add))
		must(s, errors.Join(k.Free(), v.Free()))
		return
	}
	must(s, s.m.Update(keys, values, table.Add))
}

func (s *beside) findOrInsert(keys []uint32) {
	s.Helper()
	values, came := s.values(len(keys)), map[uint32][]uint32{}
	news := 0
	for i, k := range keys {
		if _, in := s.model[k]; !in {
			if came[k] == nil {
				news++
			}
			came[k] = append(came[k], values[i])
		}
	}
	out, added := make([]uint32, len(keys)), make([]bool, len(keys))
	if d, there := s.where(); there {
		k, v, f := column(s, d, keys), column(s, d, values), column(s, d, added)
		must(s, s.m.FindOrInsertOn(nil, k, v, v, f)) // in the values' place
		out, added = hostOf(s, v), hostOf(s, f)
		must(s, k.Free())
	} else if _, err := s.m.FindOrInsert(keys, values, out, added); err != nil {
		s.Fatal(err)
	}
	s.adopt(came)
	if frame.Count(added) != news {
		s.Fatalf("%d added of %d new keys", frame.Count(added), news)
	}
	for i, k := range keys {
		if out[i] != s.model[k] {
			s.Fatalf("key %#x: found or inserted %#x, want %#x", k, out[i], s.model[k])
		}
	}
}

// mixed runs operations on keys that differ, so that all outcomes are known.
func (s *beside) mixed(keys []uint32) {
	s.Helper()
	slices.Sort(keys)
	keys = slices.Compact(keys)
	s.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	ops, values := make([]table.Op, len(keys)), s.values(len(keys))
	wantResults, want := make([]uint32, len(keys)), make([]table.Status, len(keys))
	for i, k := range keys {
		ops[i] = table.Op(s.rng.IntN(4))
		old, in := s.model[k]
		want[i] = table.Absent
		if in {
			want[i] = table.Present
		}
		switch ops[i] {
		case table.OpFind:
			wantResults[i] = old
		case table.OpDelete:
			delete(s.model, k)
		default:
			if !in {
				want[i] = table.Added
			}
			if !in || ops[i] == table.OpInsert {
				s.model[k] = values[i]
			}
		}
	}
	results, status := s.values(len(keys)), make([]table.Status, len(keys))
	if d, there := s.where(); there {
		o, k, v, r, st := column(s, d, ops), column(s, d, keys), column(s, d, values), column(s, d, results), column(s, d, status)
		must(s, s.m.MixedOn(nil, o, k, v, r, st))
		results, status = hostOf(s, r), hostOf(s, st)
		must(s, errors.Join(o.Free(), k.Free(), v.Free()))
	} else {
		must(s, s.m.Mixed(ops, keys, values, results, status))
	}
	if !slices.Equal(results, wantResults) || !slices.Equal(status, want) {
		s.Fatalf("mixed: %v and %v, want %v and %v", results, status, wantResults, want)
	}
}

func (s *beside) look(keys []uint32, when []bool) {
	s.Helper()
	values, found := s.values(len(keys)), s.coins(len(keys))
	switch d, there := s.where(); {
	case there && when != nil:
		k, w, v := column(s, d, keys), column(s, d, when), column(s, d, values)
		must(s, s.m.FindIfOn(nil, k, w, v, w)) // the flags in the condition's place
		values, found = hostOf(s, v), hostOf(s, w)
		must(s, k.Free())
	case there:
		k, v, f := column(s, d, keys), column(s, d, values), column(s, d, found)
		must(s, s.m.FindOn(nil, k, v, f))
		values, found = hostOf(s, v), hostOf(s, f)
		must(s, k.Free())
	case when != nil:
		must(s, s.m.FindIf(keys, when, values, found))
	default:
		must(s, s.m.Find(keys, values, found))
	}
	for i, k := range keys {
		v, in := s.model[k]
		if when != nil && !when[i] {
			v, in = 0, false
		}
		if found[i] != in || values[i] != v {
			s.Fatalf("key %#x: found %t with %#x, want %t with %#x", k, found[i], values[i], in, v)
		}
	}
}

func (s *beside) drop(keys []uint32) {
	s.Helper()
	want := 0
	for _, k := range keys {
		if _, in := s.model[k]; in {
			want++
			delete(s.model, k)
		}
	}
	if n, err := s.m.Delete(keys, nil); n != want || err != nil {
		s.Fatalf("%d deleted of %d, %v", n, want, err)
	}
}

// The operations of the families, over 1 to 4 devices in both modes, give what a Go map gives, whatever keys come. In the independent mode batches are
// Go slices, which go to the owners of their keys.
func TestBesideGoMap(t *testing.T) {
	for _, kind := range []string{"cpu", "cuda"} {
		for family := range families[uint32, uint32]() {
			for n := 1; n <= 4; n++ {
				for _, mode := range []shard.Mode{shard.Distributed, shard.Independent} {
					if kind == "cuda" && n == 1 {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/%d/%v", kind, family, n, mode), func(t *testing.T) {
						t.Parallel()
						devices := several(t, kind, n)
						o := shard.Options{Options: table.Options{Seed: uint64(n)}, Mode: mode, Piece: 1, Copies: n == 3}
						if n == 4 {
							o.AskAll = 200
						}
						m, err := shard.NewMap(devices, o, families[uint32, uint32]()[family])
						must(t, err)
						defer func() { must(t, m.Close()) }()
						s := &beside{t, m, devices, rand.New(rand.NewPCG(uint64(n), uint64(mode))), map[uint32]uint32{}, mode == shard.Independent}
						for range 16 {
							s.step(family)
							if n, err := m.Len(); n != len(s.model) || err != nil {
								t.Fatalf("%d pairs of %d, %v", n, len(s.model), err)
							}
						}
						must(t, m.Check())
					})
				}
			}
		}
	}
}

func (s *beside) step(family string) {
	s.Helper()
	keys := hostile(s.rng, s.m, []int{0, 1, 37, 1500, 5000}[s.rng.IntN(5)], len(s.devices))
	updates := family != "gph"
	switch s.rng.IntN(8) {
	case 0:
		s.insert(keys, nil)
	case 1:
		s.insert(keys, s.coins(len(keys)))
	case 2:
		s.drop(keys[:len(keys)/2])
	case 3, 4:
		if updates {
			s.update(keys)
		}
	case 5:
		if updates {
			s.findOrInsert(keys)
		}
	case 6:
		if updates && family != "warpcore" {
			s.mixed(slices.Clone(keys))
		}
	}
	s.look(keys, nil)
	s.look(keys, s.coins(len(keys)))
}

// A family that lacks an operation says so, and nothing changes.
func TestLackingOperations(t *testing.T) {
	devices := several(t, "cpu", 2)
	m, err := shard.NewMap(devices, shard.Options{}, families[uint32, uint32]()["gph"])
	must(t, err)
	defer func() { must(t, m.Close()) }()
	one := []uint32{1}
	for want, call := range map[string]func() error{
		"gph have no Update":        func() error { return m.Update(one, one, table.Add) },
		"gph have no mixed batches": func() error { return m.Mixed([]table.Op{table.OpInsert}, one, one, nil, nil) },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := m.FindOrInsert(one, one, one, nil); err == nil {
		t.Error("gph has a FindOrInsert")
	}
	w := pairs(t, devices, shard.Options{})
	for want, call := range map[string]func() error{
		"combined by no operation": func() error { return w.Update(nil, nil, "") },
		"2 elements":               func() error { return w.Update(one, []uint32{1, 2}, table.Add) },
		"is Op(9)":                 func() error { return m.Mixed([]table.Op{9}, one, one, nil, nil) },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), want) && want != "is Op(9)" {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if n, err := m.Len(); n != 0 || err != nil {
		t.Errorf("%d pairs, %v", n, err)
	}
}

// In the independent mode keys that device slices brought may be anywhere: what sends rows to the owners of keys is refused then, until the table is cleared.
func TestScatteredKeys(t *testing.T) {
	devices := several(t, "cpu", 3)
	m, err := shard.NewMap(devices, shard.Options{Mode: shard.Independent}, families[uint32, uint32]()["slab"])
	must(t, err)
	defer func() { must(t, m.Close()) }()
	one := []uint32{11}
	calls := []func() error{
		func() error { return m.Update(one, one, table.Add) },
		func() error { _, err := m.FindOrInsert(one, one, make([]uint32, 1), nil); return err },
		func() error { return m.Mixed([]table.Op{table.OpFind}, one, one, nil, nil) },
	}
	for _, call := range calls {
		must(t, call())
	}
	k := on(t, devices[1], []uint32{11, 12, 13, 14})
	w := on(t, devices[1], []bool{false, true, true, false})
	must(t, m.InsertIfOn(nil, k, k, w))
	for i, call := range calls {
		if err := call(); err == nil || !strings.Contains(err.Error(), "bring Go slices alone") {
			t.Errorf("call %d: %v", i, err)
		}
	}
	found := make([]bool, 4)
	must(t, m.ContainsIf([]uint32{11, 12, 13, 14}, []bool{true, true, false, true}, found))
	if !slices.Equal(found, []bool{true, true, false, false}) {
		t.Errorf("found %v", found)
	}
	must(t, m.Clear())
	for _, call := range calls {
		must(t, call())
	}
}

// Where tables may not grow, what is named is what was not combined, in all rounds: each key has the sum of its rows that are not named, and none of those
// that are.
func TestUpdateFull(t *testing.T) {
	for _, family := range []string{"warpcore", "slab", "dycuckoo", "stadium"} {
		onEach(t, 3, func(t *testing.T, devices []*device.Device) {
			if (family == "slab" || family == "stadium") && !devices[0].Info().CUDA() && !testenv.Long() {
				t.Skip("short runs have a family that probes and one that evicts")
			}
			m, err := shard.NewMap(devices, shard.Options{Options: table.Options{MaxBytes: 48 << 10, Seed: 3}, Piece: 4096}, families[uint32, uint32]()[family])
			must(t, err)
			defer func() { must(t, m.Close()) }()
			rng := rand.New(rand.NewPCG(1, 2))
			var keys, values []uint32
			for range 20_000 {
				keys, values = append(keys, uint32(rng.IntN(12_000))), append(values, uint32(rng.IntN(100)))
			}
			for round := range 2 {
				want := map[uint32]uint32{}
				if round == 1 {
					k, v, err := m.All()
					must(t, err)
					for i := range k {
						want[k[i]] = v[i]
					}
				}
				var full *table.FullError
				out := make([]uint32, len(keys))
				if round == 0 {
					err = m.Update(keys, values, table.Add)
				} else {
					err = m.UpdateOn(nil, on(t, devices[1], keys), on(t, devices[1], values), table.Add)
				}
				if !errors.As(err, &full) {
					t.Fatal(err)
				}
				next := 0
				for i, k := range keys {
					if next < len(full.Positions) && full.Positions[next] == i {
						next++
						continue
					}
					want[k] += values[i]
				}
				got, sums, err := m.All()
				must(t, err)
				if len(got) != len(want) {
					t.Errorf("%s, round %d: %d keys, want %d", family, round, len(got), len(want))
				}
				for i, k := range got {
					if want[k] != sums[i] {
						t.Fatalf("%s, round %d: key %d has %d, want %d", family, round, k, sums[i], want[k])
					}
				}
				var positions []int
				if _, err = m.FindOrInsert(keys, values, out, nil); errors.As(err, &full) {
					positions = full.Positions
				} else if err != nil {
					t.Fatal(err)
				}
				found := make([]bool, len(keys))
				there := make([]uint32, len(keys))
				must(t, m.Find(keys, there, found))
				if !slices.Equal(out, there) || len(positions) != len(keys)-frame.Count(found) {
					t.Errorf("%s, round %d: %d positions are named, of %d keys that are not in", family, round, len(positions), len(keys)-frame.Count(found))
				}
			}
		})
	}
}

// Goroutines combine values side by side: nothing is lost.
func TestUpdateBeside(t *testing.T) {
	for _, mode := range []shard.Mode{shard.Distributed, shard.Independent} {
		onEach(t, 3, func(t *testing.T, devices []*device.Device) {
			m := pairs(t, devices, shard.Options{Mode: mode, Piece: 1})
			var wg sync.WaitGroup
			for g := range 4 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					keys, ones := make([]uint32, 5000), slices.Repeat([]uint32{1}, 5000)
					for i := range keys {
						keys[i] = uint32(i % 50)
					}
					for range 3 {
						if g%2 == 0 {
							if err := m.Update(keys, ones, table.Add); err != nil {
								t.Error(err)
							}
						} else if err := m.UpdateOn(nil, on(t, devices[g%3], keys), on(t, devices[g%3], ones), table.Add); err != nil {
							t.Error(err)
						}
					}
				}()
			}
			wg.Wait()
			keys, sums, err := m.All()
			must(t, err)
			for i, k := range keys {
				if sums[i] != 4*3*100 {
					t.Errorf("key %d has %d", k, sums[i])
				}
			}
			if len(keys) != 50 {
				t.Errorf("%d keys", len(keys))
			}
		})
	}
}

package warpcore

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// manyOf is a batch in which keys come again and again, some much more often than others; reserved ones among them, one row in so many.
func manyOf(rng *rand.Rand, n, keys, reserved int) (k, v []uint32) {
	k, v = make([]uint32, n), make([]uint32, n)
	for i := range k {
		x := uint32(rng.IntN(keys))
		if rng.IntN(3) == 0 {
			x %= 7
		}
		k[i], v[i] = kernel.Fmix32(x+9), uint32(i)
		if reserved > 0 && rng.IntN(reserved) == 0 {
			k[i] = ^uint32(rng.IntN(3))
		}
	}
	return k, v
}

func pairsOf(k, v []uint32) []uint64 {
	p := make([]uint64, len(k))
	for i := range k {
		p[i] = uint64(k[i])<<32 | uint64(v[i])
	}
	slices.Sort(p)
	return p
}

// grouping is a table that rows with equal keys beside one another go into.
type grouping interface {
	Insert(keys, values []uint32) error
	All() (keys, values []uint32, err error)
	Stats() (table.Stats, error)
	Check() error
	Close() error
}

// adding is a map that adds.
type adding struct{ *Map[uint32, uint32] }

func (m adding) Insert(keys, values []uint32) error { return m.Update(keys, values, table.Add) }

// Rows whose equal keys were brought together go in as others do, none lost, none twice, and the table is sound.
func TestGroupedInserts(t *testing.T) {
	rule := tinyRegions
	rule.PieceRows = 507
	makers := map[string]func(d *device.Device, o table.Options) (grouping, error){
		"packed": func(d *device.Device, o table.Options) (grouping, error) {
			m, err := NewMultiMap[uint32, uint32](d, Options{Options: o, Layout: Packed})
			must(t, err)
			m.core.regions = rule
			return m, err
		},
		"aos": func(d *device.Device, o table.Options) (grouping, error) {
			o.LoadFactor = 1
			m, err := NewMultiMap[uint32, uint32](d, Options{Options: o, Layout: AoS})
			must(t, err)
			m.core.regions = rule
			return m, err
		},
		"bucketlist": func(d *device.Device, o table.Options) (grouping, error) {
			m, err := NewBucketList[uint32, uint32](d, ListOptions{Options: o})
			must(t, err)
			m.lists.keys.regions = rule
			return m, err
		},
		"update": func(d *device.Device, o table.Options) (grouping, error) {
			m, err := New[uint32, uint32](d, Options{Options: o})
			must(t, err)
			m.core.regions = rule
			m.core.repeated, m.core.trusted = true, 1<<40
			return adding{m}, err
		},
		"update in order": func(d *device.Device, o table.Options) (grouping, error) {
			m, err := New[uint32, uint32](d, Options{Options: o})
			must(t, err)
			m.core.regions = rule
			m.core.repeated, m.core.trusted = false, 1<<40
			return adding{m}, err
		},
	}
	if !testenv.Long() { // the lists' keys are brought together as the map's, and the order of rows has tests of its own
		delete(makers, "aos")
		delete(makers, "bucketlist")
		delete(makers, "update in order")
	}
	for name, maker := range makers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for stress := range uint64(testenv.SeedsOf(12, 2)) {
				var with []device.Option
				n := 1500
				if stress > 0 {
					with = append(with, device.WithStress(stress))
				}
				d, err := device.Open("cpu", with...)
				must(t, err)
				rng := rand.New(rand.NewPCG(stress, 1))
				m, err := maker(d, table.Options{Capacity: 3 * n, Seed: stress})
				must(t, err)
				var k, v []uint32
				for i := range 3 {
					a, b := manyOf(rng, n, []int{n, n / 8, 5}[i], []int{0, 0, 200}[i])
					must(t, m.Insert(a, b))
					if s, err := m.Stats(); err != nil || i < 2 && s.ScratchBytes < 500*16 {
						t.Errorf("batch %d was not brought together: %+v, %v", i, s, err)
					}
					k, v = append(k, a...), append(v, b...)
					must(t, m.Check())
				}
				if strings.HasPrefix(name, "update") {
					sums := map[uint32]uint32{}
					for i := range k {
						sums[k[i]] += v[i]
					}
					k, v = k[:0], v[:0]
					for key, sum := range sums {
						k, v = append(k, key), append(v, sum)
					}
				}
				a, b, err := m.All()
				must(t, err)
				if !slices.Equal(pairsOf(a, b), pairsOf(k, v)) {
					t.Errorf("%d pairs are in of %d, or others", len(a), len(k))
				}
				must(t, errors.Join(m.Close(), d.Close()))
			}
		})
	}
}

// Where there is no room for all, the positions that are told are exactly those that are not in.
func TestGroupedInsertsWithoutRoom(t *testing.T) {
	testenv.ByTurns(t)
	for seed := range uint64(4) {
		d := openCPU(t, device.WithStress(seed))
		rng := rand.New(rand.NewPCG(seed, 2))
		keys, values := manyOf(rng, 1500, 900, 200)
		combined := seed%4 != 3
		rule := tinyRegions
		rule.PieceRows, rule.RegionBytes = 507, 512
		o := table.Options{Capacity: 400, MaxBytes: 3 << 10, Seed: seed}
		m, err := New[uint32, uint32](d, Options{Options: o})
		must(t, err)
		m.core.regions = rule
		m.core.repeated, m.core.trusted = combined, 1<<40
		l, err := NewBucketList[uint32, uint32](d, ListOptions{Options: o, Keys: 200})
		must(t, err)
		l.lists.keys.regions = rule
		lost := func(err error) map[int]bool {
			full := (*table.FullError)(nil)
			if !errors.As(err, &full) || len(full.Positions) == len(keys) {
				t.Fatalf("want some of the rows refused, not %v", err)
			}
			at := map[int]bool{}
			for _, i := range full.Positions {
				at[i] = true
			}
			return at
		}
		refused := lost(m.Update(keys, values, table.Add))
		if s, err := m.Stats(); err != nil || combined && s.ScratchBytes < 500*8*2 {
			t.Errorf("update, seed %d: no rows were combined: %+v, %v", seed, s, err)
		}
		sums := map[uint32]uint32{}
		for i, k := range keys {
			if !refused[i] {
				sums[k] += values[i]
			}
		}
		for i, k := range keys {
			if _, in := sums[k]; in && refused[i] {
				t.Fatalf("row %d of key %#x is refused, and others are not", i, k)
			}
		}
		var k, v []uint32
		for key, sum := range sums {
			k, v = append(k, key), append(v, sum)
		}
		a, b, err := m.All()
		if must(t, err); !slices.Equal(pairsOf(a, b), pairsOf(k, v)) {
			t.Errorf("update, seed %d: %d keys are in, want %d, or other sums", seed, len(a), len(k))
		}
		refused = lost(l.Insert(keys, values))
		k, v = nil, nil
		for i := range keys {
			if !refused[i] {
				k, v = append(k, keys[i]), append(v, values[i])
			}
		}
		a, b, err = l.All()
		if must(t, err); !slices.Equal(pairsOf(a, b), pairsOf(k, v)) {
			t.Errorf("bucket list, seed %d: %d pairs are in, want %d, or others", seed, len(a), len(k))
		}
		must(t, errors.Join(m.Check(), l.Check(), m.Close(), l.Close()))
	}
}

// Where keys have several values on average, FindAll puts so many aside while it counts; some keys have more, and others none.
func TestFindAllPutsValuesAside(t *testing.T) {
	t.Parallel()
	d := openCPU(t)
	for name, o := range map[string]Options{"packed": {}, "packed by 4 lanes": {FindGroup: 4}, "packed by 2 lanes": {FindGroup: 2}, "soa by 8 lanes": {Layout: SoA, InsertGroup: 4, FindGroup: 8}} {
		if o.FindGroup != 0 && !testenv.Long() {
			continue // seconds of lanes that wait for one another
		}
		t.Run(name, func(t *testing.T) {
			m, err := NewMultiMap[uint32, uint32](d, o)
			must(t, err)
			defer m.Close()
			rng := rand.New(rand.NewPCG(1, 1))
			k, v := manyOf(rng, 60_000, 12_000, 3000)
			must(t, m.Insert(k, v))
			want := map[uint32][]uint32{}
			for i := range k {
				want[k[i]] = append(want[k[i]], v[i])
			}
			asked := make([]uint32, 20_000)
			for i := range asked {
				asked[i] = kernel.Fmix32(uint32(rng.IntN(16_000)) + 9)
			}
			asked[7], asked[19_999] = ^uint32(0), ^uint32(1)
			offsets, values, err := m.FindAll(asked)
			must(t, err)
			most := 0
			for i, key := range asked {
				got := slices.Sorted(slices.Values(values[offsets[i]:offsets[i+1]]))
				if !slices.Equal(got, want[key]) {
					t.Fatalf("key %#x: %d values %v, want %d %v", key, len(got), got[:min(9, len(got))], len(want[key]), want[key][:min(9, len(want[key]))])
				}
				most = max(most, len(got))
			}
			if s, err := m.Stats(); err != nil || most < 1000 || s.ScratchBytes < int64(len(asked)*4*(1+5)) {
				t.Errorf("nothing was put aside: %+v, %v; at most %d values", s, err, most)
			}
		})
	}
}

// Rows are combined first where keys come again and again; what was seen of a batch holds for the next ones, for some time.
func TestRepeatsAreAsked(t *testing.T) {
	d := openCPU(t)
	const n = 1 << 15
	m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 16 * n}})
	must(t, err)
	defer m.Close()
	m.core.regions = tinyRegions
	m.core.regions.RegionBytes, m.core.regions.PieceRows = 1<<16, n
	rng, sums := rand.New(rand.NewPCG(1, 5)), map[uint32]uint32{}
	for _, x := range []struct {
		keys int
		want bool
	}{{1 << 40, false}, {n, false}, {n / 2, false}, {n / 5, true}, {n / 100, true}, {1, true}} {
		keys, values := make([]uint32, n), make([]uint32, n)
		for i := range keys {
			keys[i], values[i] = kernel.Fmix32(uint32(rng.IntN(x.keys))), rng.Uint32()
			sums[keys[i]] += 2 * values[i]
		}
		m.core.trusted = 0
		must(t, m.Update(keys, values, table.Add))
		if m.core.repeated != x.want || m.core.trusted != (repeatsTrusted-1)*n {
			t.Errorf("%d rows of %d keys: repeated: %t, trusted for %d rows", n, x.keys, m.core.repeated, m.core.trusted)
		}
		m.core.repeated = !x.want
		must(t, m.Update(keys, values, table.Add))
		if m.core.repeated == x.want || m.core.trusted != (repeatsTrusted-2)*n {
			t.Errorf("asked again at once: trusted for %d rows", m.core.trusted)
		}
	}
	keys, values, err := m.All()
	must(t, errors.Join(err, m.Check()))
	for i, k := range keys {
		if sum, in := sums[k]; !in || sum != values[i] {
			t.Fatalf("key %#x has %d, want %d", k, values[i], sum)
		}
	}
	if len(keys) != len(sums) {
		t.Errorf("%d keys of %d", len(keys), len(sums))
	}
}

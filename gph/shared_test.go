package gph

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// tinyShared has parts of a few cells, a block for a few rows, and batches of several pieces.
var tinyShared = sharedRule{cellBytes: 64, pieceRows: 700, blockRows: 40}

// sharedMaker makes maps that look up as the rule says.
func sharedMaker[K, V any](rule sharedRule, more Options) tabletest.Maker[K, V] {
	return func(d *device.Device, o table.Options) (table.Map[K, V], error) {
		more.Options, more.Index = o, Shared
		m, err := New[K, V](d, more)
		if err == nil {
			m.core.shared.rule = rule
		}
		return m, err
	}
}

// sharedFinds compares every look-up with the same one on the same table by Index Global.
func sharedFinds[K, V comparable](t *testing.T, d *device.Device, rule sharedRule, o Options) {
	t.Run(fmt.Sprintf("%T,%T,%d", *new(K), *new(V), o.CellBytes), func(t *testing.T) {
		const n = 12_000
		o.Capacity, o.KeysPerCell = n, 2
		mp, err := sharedMaker[K, V](rule, o)(d, o.Options)
		must(t, err)
		m := mp.(*Map[K, V])
		rng := rand.New(rand.NewPCG(7, uint64(o.CellBytes)))
		bits, numbers := []uint64{0, 1, ^uint64(0), ^uint64(1), ^uint64(2), ^uint64(3), ^uint64(4)}, []uint32{}
		for len(bits) < n {
			bits = append(bits, rng.Uint64())
		}
		for range bits {
			numbers = append(numbers, rng.Uint32())
		}
		must(t, m.Insert(tabletest.KeysOf[K](bits), tabletest.ValuesOf[V](numbers)))
		must(t, m.Check())

		zipf := rand.NewZipf(rng, 1.3, 1, n-1)
		for _, size := range []int{1, 31, 33, 500, 3_000} {
			asked := map[string][]uint64{}
			for range size {
				asked["hits"] = append(asked["hits"], bits[rng.IntN(n)])
				asked["misses"] = append(asked["misses"], rng.Uint64())
				asked["skewed"] = append(asked["skewed"], bits[zipf.Uint64()])
				asked["same"] = append(asked["same"], bits[n/2])
				asked["first"] = append(asked["first"], bits[rng.IntN(8)])
			}
			for kind, bits := range asked {
				keys := tabletest.KeysOf[K](bits)
				compare := func(values []V, found []bool) {
					t.Helper()
					wantValues, wantFound := slices.Clone(values), slices.Clone(found)
					m.core.opts.Index = Global
					must(t, m.Find(keys, wantValues, wantFound))
					m.core.opts.Index = Shared
					must(t, m.Find(keys, values, found))
					if !slices.Equal(values, wantValues) || !slices.Equal(found, wantFound) {
						t.Errorf("%d %s: values %v, found %v", size, kind, slices.Equal(values, wantValues), slices.Equal(found, wantFound))
					}
					if kind == "hits" && slices.Contains(found, false) {
						t.Errorf("%d %s: some are not found", size, kind)
					}
				}
				compare(make([]V, size), make([]bool, size))
				compare(nil, make([]bool, size))
				compare(make([]V, size), nil)
				compare(nil, nil)
			}
		}
		if m.core.shared.scratch.Len() == 0 {
			t.Error("nothing went through shared memory")
		}
		must(t, m.Close())
		if m.core.shared.scratch.Len() != 0 {
			t.Error("scratch memory is kept")
		}
	})
}

func TestSharedFinds(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			one, two, group := Options{CellBytes: 1}, Options{CellBytes: 2}, Options{FindGroup: 4}
			sharedFinds[uint16, uint16](t, d, tinyShared, group)
			sharedFinds[uint32, uint32](t, d, tinyShared, one)
			sharedFinds[uint64, [2]uint64](t, d, tinyShared, two)
			if testenv.Long() {
				sharedFinds[uint16, uint16](t, d, tinyShared, two)
				sharedFinds[uint32, uint64](t, d, tinyShared, two)
				sharedFinds[uint32, [2]uint64](t, d, tinyShared, one)
				sharedFinds[uint64, uint32](t, d, tinyShared, two)
				sharedFinds[uint64, uint64](t, d, tinyShared, one)
			}
			// As much shared memory as there is.
			t.Run("large", func(t *testing.T) {
				sharedFinds[uint64, uint64](t, d, sharedRules, Options{})
			})
		})
	}
}

// What changes a table, and look-ups on several streams, go by the same rules as with Global.
func TestSharedConforms(t *testing.T) {
	testenv.ByTurns(t)
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			tiny := sharedRule{cellBytes: 16, pieceRows: 700, blockRows: 40}
			for seed, o := range []table.Options{{}, {Capacity: 2000, LoadFactor: 1}, {MaxBytes: 64 << 10}} {
				tabletest.Map(sharedMaker[uint32, uint64](tiny, Options{KeysPerCell: 1})).Churn(t, d, o, uint64(seed), 15, 1500)
			}
			few := tabletest.Map(sharedMaker[uint64, uint32](tiny, Options{KeysPerCell: 1, VirtualBuckets: 8}))
			few.Churn(t, d, table.Options{Hash: kernel.HashIdentity}, 3, 15, 600)
			if testenv.Long() {
				few.Degenerate(t, d)
			}
		})
	}
}

func TestSharedUnderStress(t *testing.T) {
	testenv.ByTurns(t)
	device := func(seed uint64) *device.Device {
		d, err := device.Open("cpu", device.WithStress(seed))
		must(t, err)
		return d
	}
	rule := sharedRule{cellBytes: 16, pieceRows: 200, blockRows: 16}
	tabletest.Map(sharedMaker[uint32, uint32](rule, Options{KeysPerCell: 1})).Stress(t, device, table.Options{Capacity: 300}, testenv.Seeds(12))
	tabletest.Map(sharedMaker[uint64, [2]uint64](rule, Options{KeysPerCell: 1, FindGroup: 4})).Stress(t, device, table.Options{Capacity: 300}, testenv.Seeds(12))
}

// Batches on several streams share the scratch memory one after the other, while others make it grow.
func TestSharedOnStreams(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			const n = 60_000
			m, err := New[uint64, uint32](d, Options{Options: table.Options{Capacity: n}, Index: Shared})
			must(t, err)
			keys, values := make([]uint64, n), make([]uint32, n)
			for i := range keys {
				keys[i], values[i] = uint64(i)*0x9e3779b97f4a7c15, uint32(i)
			}
			must(t, m.Insert(keys, values))
			all, err := device.From(d, keys)
			must(t, err)
			defer all.Free()
			var streams []*device.Stream
			for range 4 {
				st, err := d.NewStream()
				must(t, err)
				defer st.Close()
				streams = append(streams, st)
			}
			type batch struct {
				st     *device.Stream
				first  int
				values device.Slice[uint32]
			}
			var batches []batch
			for i := range 24 {
				size := 1 + i*n/25
				out, err := device.Make[uint32](d, size)
				must(t, err)
				defer out.Free()
				b := batch{streams[i%4], (i * 7919) % (n - size), out}
				must(t, m.FindOn(b.st, all.Slice(b.first, b.first+size), out, device.Slice[bool]{}))
				batches = append(batches, b)
			}
			for i, b := range batches {
				got, err := b.values.Host(b.st)
				must(t, err)
				if !slices.Equal(got, values[b.first:b.first+len(got)]) {
					t.Errorf("batch %d of %d keys: wrong", i, len(got))
				}
			}
			must(t, m.Close())
		})
	}
}

// Where the cells or the scratch memory are too large, look-ups are as with Global.
func TestSharedFallsBack(t *testing.T) {
	d := open(t, "cpu")
	const n = 40_000
	mp, err := sharedMaker[uint32, uint32](sharedRule{cellBytes: 16, pieceRows: 1 << 45, blockRows: 1 << 8}, Options{KeysPerCell: 1})(d, table.Options{Capacity: n})
	must(t, err)
	m := mp.(*Map[uint32, uint32])
	keys, found := make([]uint32, n), make([]bool, n)
	for i := range keys {
		keys[i] = uint32(i) * 0x9e3779b1
	}
	must(t, m.Insert(keys, keys))
	must(t, m.Contains(keys, found))
	if parts, _, _ := m.core.sharedParts(); parts != 0 || m.core.shared.scratch.Len() != 0 || slices.Contains(found, false) {
		t.Errorf("%d parts, %d bytes of scratch memory", parts, m.core.shared.scratch.Len())
	}
	// Less memory makes smaller pieces, or none.
	if piece, err := m.core.reserveShared(1<<45, 8); err != nil || piece < 1<<8 || piece >= 1<<45 {
		t.Errorf("pieces of %d rows, %v", piece, err)
	}
	must(t, m.core.shared.free())
	m.core.shared.rule.blockRows = 1 << 45
	if piece, err := m.core.reserveShared(1<<45, 8); err != nil || piece != 0 {
		t.Errorf("pieces of %d rows, %v", piece, err)
	}
	must(t, m.Close())
	for _, index := range []Index{-1, 2} {
		if _, err := New[uint32, uint32](d, Options{Index: index}); err == nil {
			t.Errorf("index %d is taken", index)
		}
	}
}

// The parts cover the cells, fit the shared memory of so many blocks, and begin at a whole 16 bytes.
func TestSharedParts(t *testing.T) {
	d := open(t, "cpu")
	limit := d.Info().Shared
	for _, cell := range []int64{1, 2} {
		for _, cells := range []int64{1, 15, 16, 17, 1000, limit, 10*limit + 1, 400 * limit, 1000 * limit, 1025 * limit, 1 << 32} {
			c := &core{cfg: config{cellBytes: int(cell)}, memory: memory{t: Table{CellCount: uint64(cells)}}}
			c.frame.Device = d
			parts, each, blocks := c.sharedParts()
			if fits := cells*cell <= frame.MaxParts*limit; parts == 0 && fits || parts > frame.MaxParts {
				t.Errorf("%d cells of %d bytes: %d parts", cells, cell, parts)
			}
			if parts == 0 {
				continue
			}
			if parts*each < cells || blocks*(each*cell+1<<10) > limit+1<<10 || each*cell%16 != 0 {
				t.Errorf("%d cells of %d bytes: %d parts of %d, %d blocks", cells, cell, parts, each, blocks)
			}
		}
	}
}

func TestSharedCompilesForGPUs(t *testing.T) {
	testenv.ByTurns(t)
	for i, arch := range []string{"sm_75", "sm_80", "sm_90", "sm_70", "sm_75", "sm_90"} {
		if i > 0 && !testenv.Long() {
			break
		}
		cfg := []config{{keyBytes: 4, valueBytes: 4}, {keyBytes: 8, valueBytes: 16}, {keyBytes: 8, valueBytes: 8}, {keyBytes: 2, valueBytes: 2},
			{keyBytes: 8, valueBytes: 4}, {keyBytes: 4, valueBytes: 16}}[i]
		o := Options{Index: Shared, CellBytes: 1 + i%2}
		must(t, o.complete(device.Info{Name: "cuda:0", Arch: arch, CAS128: arch == "sm_90"}, &cfg))
		c := &core{opts: o, cfg: cfg}
		t.Run(fmt.Sprintf("%s %d %d", arch, cfg.keyBytes, cfg.valueBytes), func(t *testing.T) {
			testenv.Turn(t)
			t.Parallel()
			_, err := device.CompileFor(arch, c.sharedProgram())
			if errors.Is(err, device.ErrNoNVRTC) {
				testenv.RequireNVRTC(t, err)
			}
			must(t, err)
		})
	}
}

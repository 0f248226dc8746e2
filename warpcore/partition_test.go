package warpcore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// tinyRegions brings every batch of a few pairs in order, by regions of a few windows, in pieces.
var tinyRegions = frame.Regions{MinBytes: 1, RegionBytes: 4 << 10, MinRows: 2, RegionRows: 1, PieceRows: 200, MemoryShare: 8, Span: frame.Threads}

// partitioned makes maps that partition as the rule says.
func partitioned[K, V any](rule frame.Regions, layout Layout) tabletest.Maker[K, V] {
	return func(d *device.Device, o table.Options) (table.Map[K, V], error) {
		m, err := New[K, V](d, Options{Options: o, Layout: layout})
		if err == nil {
			m.core.regions = rule
		}
		return m, err
	}
}

// Batches that are brought in order first leave what others leave.
func TestPartitionedInserts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			if name == "cpu" {
				must(t, err)
			}
			testenv.Require(t, "cuda", err)
			defer d.Close()
			for i, o := range []table.Options{{}, {Capacity: 3000}, {Capacity: 3000, LoadFactor: 1, Seed: 3}, {MaxBytes: 64 << 10, LoadFactor: 1}, {Capacity: 3000, Hash: kernel.HashIdentity}} {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					seed := uint64(i)
					tabletest.Map(partitioned[uint32, uint32](tinyRegions, Auto)).Churn(t, d, o, seed, 30, 2500)
					if o.Hash != 0 && !testenv.Long() {
						return // a compilation for each
					}
					tabletest.Map(partitioned[uint64, uint64](tinyRegions, SoA)).Churn(t, d, o, seed, 30, 2500)
					tabletest.Map(partitioned[uint32, [2]uint64](tinyRegions, AoS)).Churn(t, d, o, seed, 30, 2500)
				})
			}
		})
	}
}

func TestPartitionedInsertsUnderStress(t *testing.T) {
	open := func(seed uint64) *device.Device {
		d, err := device.Open("cpu", device.WithStress(seed))
		must(t, err)
		return d
	}
	rule := tinyRegions
	rule.RegionBytes = 512
	tabletest.Map(partitioned[uint32, uint32](rule, Auto)).Stress(t, open, table.Options{Capacity: 300, LoadFactor: 1}, 10)
	tabletest.Map(partitioned[uint64, uint32](rule, SoA)).Stress(t, open, table.Options{Capacity: 300, LoadFactor: 1}, 10)
}

// A large batch goes in piece by piece, and by the growing path where there is no room.
func TestPartitionedInPieces(t *testing.T) {
	d := openCPU(t)
	for _, capacity := range []int{0, 300_000} {
		m, err := New[uint32, uint64](d, Options{Options: table.Options{Capacity: capacity}})
		must(t, err)
		rule := tinyRegions
		rule.RegionBytes, rule.PieceRows = 32<<10, 30_000
		m.core.regions = rule
		rng := rand.New(rand.NewPCG(uint64(capacity), 1))
		keys, values := make([]uint32, 200_001), make([]uint64, 200_001)
		for i := range keys {
			keys[i] = rng.Uint32()
			values[i] = uint64(keys[i]) * 3
		}
		must(t, m.Insert(keys, values))
		if s, err := m.Stats(); err != nil || capacity > 0 && s.ScratchBytes < 25_000*12 {
			t.Errorf("no batch was brought in order: %+v, %v", s, err)
		}
		must(t, m.Check())
		clear(values)
		found := make([]bool, len(keys))
		must(t, m.Find(keys, values, found))
		for i, k := range keys {
			if !found[i] || values[i] != uint64(k)*3 {
				t.Fatalf("key %d: %v, %d", k, found[i], values[i])
			}
		}
		must(t, m.Close())
	}
}

// The pairs that the kernels bring in order are those of the batch, by regions that are stretches of windows; and the
// memory for a batch is kept for those that fit, replaced for a larger one, and given back.
func TestRegionsAreWindowsInARow(t *testing.T) {
	d := openCPU(t)
	m, err := New[uint64, uint32](d, Options{Options: table.Options{Capacity: 20_000, Seed: 5}, Layout: SoA})
	must(t, err)
	defer m.Close()
	c := m.core
	c.regions = tinyRegions
	c.regions.PieceRows = 1 << 20
	rng := rand.New(rand.NewPCG(1, 2))
	keys := make([]uint64, 5000)
	for i := range keys {
		keys[i] = rng.Uint64() >> rng.UintN(64)
	}
	in, err := device.From(d, keys)
	must(t, err)
	values, err := device.Make[uint32](d, len(keys))
	must(t, err)
	regions := c.regions.Count(int64(len(keys)), int64(c.mem.Len()))
	var starts, got []uint64
	must(t, c.frame.Writing(nil, func(st *device.Stream) error {
		x, rows := c.placement(false, nil), frame.Partition{}
		x.Params = func(r frame.Partition) any {
			rows = r
			return &partitionParams{Table: c.t, Rows: r}
		}
		done, err := c.kernel.partition.InOrder(&c.frame, st, x, frame.Rows{Keys: in.Addr(), Values: values.Addr(), N: int64(len(keys))}, regions, func(o frame.Ordered) error {
			must(t, st.Sync())
			words := func(addr uint64, n int64) []uint64 { // the CPU device's memory is ours
				return slices.Clone(unsafe.Slice(*(**uint64)(unsafe.Pointer(&addr)), n))
			}
			got, starts = words(o.Rows.Keys, o.Rows.N), words(rows.Starts, regions+1)
			return nil
		})
		if !done {
			t.Error("too little memory")
		}
		return err
	}))
	if regions < 10 || len(got) != len(keys) {
		t.Fatalf("%d regions, a piece of %d rows", regions, len(got))
	}
	last := uint64(0)
	for r := range regions {
		most := last
		for _, k := range got[starts[r]:starts[r+1]] {
			p := c.cfg.probe(&c.t, keyBits{lo: k})
			if p.side {
				continue
			}
			if p.window < last {
				t.Fatalf("key %d of region %d begins at window %d, one of the region before at %d", k, r, p.window, last)
			}
			most = max(most, p.window)
		}
		last = most
	}
	slices.Sort(keys)
	slices.Sort(got)
	if !slices.Equal(keys, got) {
		t.Error("the keys in order are not those of the batch")
	}

	scratch := func() int64 {
		s, err := m.Stats()
		must(t, err)
		return s.ScratchBytes
	}
	before := scratch()
	must(t, m.Insert(keys[:100], make([]uint32, 100)))
	if scratch() != before {
		t.Error("a small batch took other memory")
	}
	more := make([]uint64, 10_000)
	for i := range more {
		more[i] = rng.Uint64()
	}
	must(t, m.Insert(more, make([]uint32, len(more))))
	if now := scratch(); now < before+5000*12 || now > 4*before {
		t.Errorf("a larger batch took %d bytes in all, before it was %d: the smaller memory was not freed, or none was taken", now, before)
	}
	for windows := m.core.t.Main.Windows; m.core.t.Main.Windows == windows; { // a batch that makes it grow needs its memory again
		had := scratch()
		for i := range more {
			more[i] = rng.Uint64()
		}
		must(t, m.Insert(more, make([]uint32, len(more))))
		if now := scratch(); now < had || now > 2*had {
			t.Errorf("a batch of the same size had %d bytes for %d", now, had)
		}
	}
	must(t, m.Grow(400_000))
	if now := scratch(); now >= before {
		t.Errorf("growing left %d bytes", now)
	}
	must(t, m.Check())
}

// Without memory to bring it in order, a batch goes in as it is.
func TestPartitionWithoutMemory(t *testing.T) {
	m, err := New[uint32, uint32](openCPU(t), Options{Options: table.Options{Capacity: 5000}})
	must(t, err)
	defer m.Close()
	m.core.regions = tinyRegions
	m.core.regions.MemoryShare = 1 << 50
	keys := sequence(0, 4000)
	must(t, m.Insert(keys, keys))
	if s, err := m.Stats(); s.Len != len(keys) || err != nil || s.ScratchBytes > 1<<14 {
		t.Errorf("%+v, %v", s, err)
	}
	must(t, m.Check())
}

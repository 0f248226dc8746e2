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
	"github.com/warpmap/warpmap/table/tabletest"
)

// tinyPartitions brings every batch of a few pairs in order, by regions of a few windows, in pieces.
var tinyPartitions = partitioning{minBytes: 1, regionBytes: 4 << 10, minRows: 2, regionRows: 1, pieceRows: 200, memoryShare: 8, span: threads}

// partitioned makes maps that partition as the rule says.
func partitioned[K, V any](rule partitioning, layout Layout) tabletest.Maker[K, V] {
	return func(d *device.Device, o table.Options) (table.Map[K, V], error) {
		m, err := New[K, V](d, Options{Options: o, Layout: layout})
		if err == nil {
			m.c.partitions = rule
		}
		return m, err
	}
}

// Batches that are brought in order first leave what others leave.
func TestPartitionedInserts(t *testing.T) {
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
					tabletest.Map(partitioned[uint32, uint32](tinyPartitions, Auto)).Churn(t, d, o, seed, 30, 2500)
					tabletest.Map(partitioned[uint64, uint64](tinyPartitions, SoA)).Churn(t, d, o, seed, 30, 2500)
					tabletest.Map(partitioned[uint32, [2]uint64](tinyPartitions, AoS)).Churn(t, d, o, seed, 30, 2500)
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
	rule := tinyPartitions
	rule.regionBytes = 512
	tabletest.Map(partitioned[uint32, uint32](rule, Auto)).Stress(t, open, table.Options{Capacity: 300, LoadFactor: 1}, 10)
	tabletest.Map(partitioned[uint64, uint32](rule, SoA)).Stress(t, open, table.Options{Capacity: 300, LoadFactor: 1}, 10)
}

// A large batch goes in piece by piece, and by the growing path where there is no room.
func TestPartitionedInPieces(t *testing.T) {
	d := openCPU(t)
	for _, capacity := range []int{0, 300_000} {
		m, err := New[uint32, uint64](d, Options{Options: table.Options{Capacity: capacity}})
		must(t, err)
		rule := tinyPartitions
		rule.regionBytes, rule.pieceRows = 32<<10, 30_000
		m.c.partitions = rule
		rng := rand.New(rand.NewPCG(uint64(capacity), 1))
		keys, values := make([]uint32, 200_001), make([]uint64, 200_001)
		for i := range keys {
			keys[i] = rng.Uint32()
			values[i] = uint64(keys[i]) * 3
		}
		must(t, m.Insert(keys, values))
		if capacity > 0 && m.c.ordered.Len() == 0 {
			t.Error("no batch was brought in order")
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
	c := m.c
	c.partitions = tinyPartitions
	c.partitions.pieceRows = 1 << 20
	rng := rand.New(rand.NewPCG(1, 2))
	keys := make([]uint64, 5000)
	for i := range keys {
		keys[i] = rng.Uint64() >> rng.UintN(64)
	}
	must(t, m.Insert(keys, make([]uint32, len(keys))))
	regions := c.partitions.regions(int64(len(keys)), int64(c.mem.Len()))
	piece, counters, orderedKeys, _ := c.reserveOrdered(int64(len(keys)), regions)
	if regions < 10 || piece != int64(len(keys)) {
		t.Fatalf("%d regions, pieces of %d rows", regions, piece)
	}
	got, err := device.View[uint64](c.ordered, int(orderedKeys-c.ordered.Addr()), len(keys)).Host(nil)
	must(t, err)
	starts, err := counters.Slice(int(regions), int(2*regions+1)).Host(nil)
	must(t, err)
	last := uint64(0)
	for r := range regions {
		most := last
		for _, k := range got[starts[r]:starts[r+1]] {
			p := c.cfg.probe(&c.t, k)
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

	before := c.ordered
	must(t, m.Insert(keys[:100], make([]uint32, 100)))
	if c.ordered != before || len(c.retired) > 0 {
		t.Error("a small batch took other memory")
	}
	more := make([]uint64, 10_000)
	for i := range more {
		more[i] = rng.Uint64()
	}
	must(t, m.Insert(more, make([]uint32, len(more))))
	if c.ordered == before || !slices.Equal(c.retired, []device.Slice[byte]{before}) {
		t.Error("a larger batch took no larger memory")
	}
	_, err = m.Len()
	must(t, err)
	if len(c.retired) > 0 || !errors.Is(before.On(d), device.ErrFreed) {
		t.Error("the smaller memory was not freed")
	}
	now := c.ordered
	must(t, m.Grow(100_000))
	if c.ordered.Len() > 0 || !errors.Is(now.On(d), device.ErrFreed) {
		t.Error("growing did not free the memory")
	}
	must(t, m.Check())
}

// Without memory to bring it in order, a batch goes in as it is.
func TestPartitionWithoutMemory(t *testing.T) {
	m, err := New[uint32, uint32](openCPU(t), Options{Options: table.Options{Capacity: 5000}})
	must(t, err)
	defer m.Close()
	m.c.partitions = tinyPartitions
	m.c.partitions.memoryShare = 1 << 50
	keys := sequence(0, 4000)
	must(t, m.Insert(keys, keys))
	if n, err := m.Len(); n != len(keys) || err != nil || m.c.ordered.Len() > 0 {
		t.Errorf("%d pairs, %v, with %d bytes of memory", n, err, m.c.ordered.Len())
	}
	must(t, m.Check())
}

// Small batches, small tables and thin batches are inserted as they are.
func TestWhatIsPartitioned(t *testing.T) {
	r := partitions
	for _, c := range []struct{ n, bytes, want int64 }{
		{r.minRows, r.minBytes, 2},
		{r.minRows - 1, r.minBytes, 0},
		{r.minRows, r.minBytes - 1, 0},
		{100_000_000, 1 << 30, 32},
		{r.regionRows * 32, 1 << 30, 32},
		{r.regionRows*32 - 1, 1 << 30, 0},
		{1 << 30, r.regionBytes * table.MaxParts * 2, 0},
	} {
		if got := r.regions(c.n, c.bytes); got != c.want {
			t.Errorf("%d rows into %d bytes: %d regions, want %d", c.n, c.bytes, got, c.want)
		}
	}
}

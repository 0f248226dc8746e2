package stadium

import (
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// stagedSuite takes all first attempts through shared memory, in pieces.
func stagedSuite[K, V any](ticket int, made *[]*core) *tabletest.Suite {
	return tabletest.Map(func(d *device.Device, o table.Options) (table.Map[K, V], error) {
		m, err := New[K, V](d, Options{Options: o, Ticket: ticket})
		if err != nil {
			return nil, err
		}
		m.core.staged.rule = frame.Stretches{MinRows: 1, SlotShare: 1 << 40}
		m.core.regions = frame.Regions{MinRows: 1 << 40, PieceRows: 640, MemoryShare: 8, Span: frame.Threads}
		*made = append(*made, m.core)
		return m, nil
	})
}

func TestStagedInserts(t *testing.T) {
	suites := map[string]func(made *[]*core) *tabletest.Suite{
		"4+4,ticket=1":    func(made *[]*core) *tabletest.Suite { return stagedSuite[uint32, uint32](1, made) },
		"8+4,ticket=8":    func(made *[]*core) *tabletest.Suite { return stagedSuite[uint64, uint32](8, made) },
		"16+16,ticket=16": func(made *[]*core) *tabletest.Suite { return stagedSuite[[16]byte, [2]uint64](16, made) },
	}
	if testenv.Long() {
		suites["4+4,ticket=2"] = func(made *[]*core) *tabletest.Suite { return stagedSuite[uint32, uint32](2, made) }
		suites["8+8,ticket=4"] = func(made *[]*core) *tabletest.Suite { return stagedSuite[uint64, uint64](4, made) }
	}
	for _, name := range devices {
		for what, suite := range suites {
			if what == "8+4,ticket=8" && name == "cpu" && !testenv.Long() {
				continue // TestStagedRegionIsFull stages with tickets of 8 bits
			}
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel() // on a GPU a suite is as long as in long runs on the CPU
				var made []*core
				suite(&made).Run(t, tabletest.Widths, open(t, name), open(t, "cpu"))
				if !slices.ContainsFunc(made, func(c *core) bool { return c.staged.late != frame.Late{} }) {
					t.Error("nothing was staged: this tests nothing")
				}
			})
		}
	}
}

// A region that is full leaves pairs to others.
func TestStagedRegionIsFull(t *testing.T) {
	for _, name := range devices {
		t.Run(name, func(t *testing.T) {
			m, err := New[uint32, uint32](open(t, name), Options{Options: table.Options{Capacity: 30000, LoadFactor: 1}})
			must(t, err)
			defer m.Close()
			m.core.staged.rule = frame.Stretches{MinRows: 1, SlotShare: 1 << 40}
			keys := make([]uint32, m.core.capacity()) // as many as there are slots: some regions want more than they have
			for i := range keys {
				keys[i] = uint32(i) * 7
			}
			must(t, m.Insert(keys, keys))
			must(t, m.Check())
			if c := m.core.capacity(); c != int64(len(keys)) {
				t.Errorf("%d slots: the table has grown", c)
			}
			values, found := make([]uint32, len(keys)), make([]bool, len(keys))
			must(t, m.Find(keys, values, found))
			for i, k := range keys {
				if !found[i] || values[i] != k {
					t.Fatalf("key %d: %v %d", k, found[i], values[i])
				}
			}
			if m.core.staged.late == (frame.Late{}) {
				t.Error("nothing was staged: this tests nothing")
			}
		})
	}
}

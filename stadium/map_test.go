package stadium

import (
	"fmt"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, name string, opts ...device.Option) *device.Device {
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

var devices = []string{"cpu", "cuda:0"}

// suiteOf is the suite of Maps for a variant of this family.
func suiteOf[K, V any](o Options) *tabletest.Suite {
	return tabletest.Map(func(d *device.Device, t table.Options) (table.Map[K, V], error) {
		x := o
		x.Options = t
		return New[K, V](d, x)
	})
}

type suiteCase struct {
	name  string
	suite *tabletest.Suite
}

func caseOf[K, V any](o Options) suiteCase {
	return suiteCase{fmt.Sprintf("%T,%T,ticket=%d", *new(K), *new(V), o.Ticket), suiteOf[K, V](o)}
}

// record is a value of 100 bytes.
type record struct {
	ID    uint32
	Score float32
	Name  [92]byte
}

// cases have every size of tickets, and keys and values of many widths.
func cases() []suiteCase {
	list := []suiteCase{
		caseOf[uint32, uint32](Options{Ticket: 1}),
		caseOf[uint64, uint32](Options{Ticket: 2}),
		caseOf[[4]uint32, uint64](Options{Ticket: 16}),
		caseOf[uint32, [3]uint32](Options{Ticket: 4}),
		caseOf[[64]uint32, [2]uint64](Options{}),
		caseOf[[20]byte, record](Options{}),
	}
	if testenv.Long() {
		for _, ticket := range []int{1, 2, 4, 8, 16} {
			list = append(list, caseOf[uint64, uint64](Options{Ticket: ticket}), caseOf[[12]byte, [1024]uint32](Options{Ticket: ticket}))
		}
	}
	return list
}

func TestVariants(t *testing.T) {
	for i, c := range cases() {
		for _, name := range devices {
			if name == "cpu" && !testenv.Long() && i%2 == 1 {
				continue // their tickets and widths lie between the others'
			}
			t.Run(c.name+"/"+name, func(t *testing.T) {
				testenv.Turn(t)
				t.Parallel()
				c.suite.Run(t, tabletest.Widths, open(t, name), open(t, "cpu"))
			})
		}
	}
}

// Keys with no values, and tables of struct{}.
func TestNoValues(t *testing.T) {
	for _, name := range devices {
		t.Run(name, func(t *testing.T) {
			m, err := New[uint64, struct{}](open(t, name), Options{})
			must(t, err)
			defer m.Close()
			keys := make([]uint64, 5000)
			for i := range keys {
				keys[i] = uint64(i) * 3
			}
			must(t, m.Insert(keys, make([]struct{}, len(keys))))
			added, err := m.InsertNew([]uint64{1, 3, 4, 4}, make([]struct{}, 4), nil)
			if err != nil || added != 2 {
				t.Errorf("%d were added, %v (want 2)", added, err)
			}
			found := make([]bool, 4)
			must(t, m.Contains([]uint64{2, 3, 4, 5}, found))
			if found[0] || !found[1] || !found[2] || found[3] {
				t.Errorf("found %v", found)
			}
			must(t, m.Find([]uint64{2, 3, 4, 5}, make([]struct{}, 4), found))
			all, none, err := m.All()
			if err != nil || len(all) != 5002 || len(none) != 5002 {
				t.Errorf("%d keys, %d values, %v", len(all), len(none), err)
			}
			must(t, m.Check())
		})
	}
}

func earlyRegions(c *core) frame.Regions {
	return frame.Regions{MinBytes: 1, RegionBytes: max(1, c.bytes(c.shape)/5), MinRows: 1, RegionRows: 1, PieceRows: 700, MemoryShare: 8, Span: 2 * frame.Threads}
}

// orderedSuite brings all batches in the order of regions, in pieces.
func orderedSuite[K, V any]() *tabletest.Suite {
	return tabletest.Map(func(d *device.Device, o table.Options) (table.Map[K, V], error) {
		m, err := New[K, V](d, Options{Options: o})
		if err != nil {
			return nil, err
		}
		m.core.regions = earlyRegions(m.core)
		return m, nil
	})
}

func TestOrderedInserts(t *testing.T) {
	for _, name := range devices {
		for what, s := range map[string]*tabletest.Suite{"4+4": orderedSuite[uint32, uint32](), "8+12": orderedSuite[uint64, [3]uint32](), "16+100": orderedSuite[[16]byte, record]()} {
			if what == "8+12" && name == "cpu" && !testenv.Long() {
				continue
			}
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				s.Run(t, tabletest.Widths, open(t, name), open(t, "cpu"))
			})
		}
	}
}

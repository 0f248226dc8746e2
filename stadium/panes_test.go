package stadium

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// places are where a table's slots may lie, in panes of next to nothing.
var places = map[string]Options{
	"host":  {DeviceBytes: -1, pane: 4 << 10},
	"split": {DeviceBytes: 16 << 10, pane: 4 << 10},
}

// farSuite lists all batches that a table in panes gets, and serves panes in windows that some rows want.
func farSuite[K, V any](o Options, made *[]*core) *tabletest.Suite {
	return tabletest.Map(func(d *device.Device, t table.Options) (table.Map[K, V], error) {
		x := o
		x.Options = t
		m, err := New[K, V](d, x)
		if err != nil {
			return nil, err
		}
		m.core.far.listedFrom, m.core.far.rowBytes = 1, 100
		m.core.staged.rule = frame.Stretches{MinRows: 1, SlotShare: 1 << 40}
		*made = append(*made, m.core)
		return m, nil
	})
}

func TestPanes(t *testing.T) {
	for _, name := range devices {
		for where, o := range places {
			suites := map[string]func(o Options, made *[]*core) *tabletest.Suite{"8+8": farSuite[uint64, uint64], "20+100": farSuite[[5]uint32, [25]uint32]}
			if testenv.Long() {
				suites["4+4"] = farSuite[uint32, uint32]
			}
			for what, suite := range suites {
				if name == "cpu" && !testenv.Long() && (where == "host") != (what == "8+8") {
					continue // each place with other widths
				}
				t.Run(name+"/"+where+"/"+what, func(t *testing.T) {
					t.Parallel()
					var made []*core
					suite(o, &made).Run(t, tabletest.Widths, open(t, name), open(t, "cpu"))
					if !slices.ContainsFunc(made, func(c *core) bool { return c.far.served > 0 }) {
						t.Error("nothing was served pane by pane: this tests nothing")
					}
				})
			}
		}
	}
}

// A window that is served while the next pane is copied over it gives wrong answers; and is not. On the CPU device, where copies do not run beside
// kernels, only the asking is seen.
func TestWindows(t *testing.T) {
	for _, name := range devices {
		t.Run(name, func(t *testing.T) {
			n, times, pane := 1<<14, 2, int64(1)
			if name != "cpu" {
				n, times, pane = 1<<17, 32, 64<<10 // a kernel is to take longer than two copies
			}
			m, err := New[uint64, uint64](open(t, name), Options{Options: table.Options{Capacity: n, Seed: 5}, DeviceBytes: -1, pane: pane})
			must(t, err)
			defer func() { must(t, m.Close()) }()
			m.core.far.listedFrom, m.core.far.rowBytes = 1, 1e9
			keys := make([]uint64, n*times)
			for i := range keys {
				keys[i] = uint64(i%n) * 0x9e3779b97f4a7c15
			}
			must(t, m.Insert(keys[:n], keys[:n]))
			wrong := func() (n int) {
				values, found := make([]uint64, len(keys)), make([]bool, len(keys))
				must(t, m.Find(keys, values, found))
				for i := range keys {
					if !found[i] || values[i] != keys[i] {
						n++
					}
				}
				return n
			}
			asked, waits := 0, m.core.far.reused
			m.core.far.reused = func(in *device.Stream, free *device.Event) error {
				asked++
				return waits(in, free)
			}
			for range 3 {
				m.core.far.served, asked = 0, 0
				if n := wrong(); n > 0 {
					t.Fatalf("%d wrong answers", n)
				}
				if asked == 0 || m.core.far.served-asked > len(m.core.far.windows)*times {
					t.Fatalf("%d panes were served in windows, and %d times one was asked for again", m.core.far.served, asked)
				}
			}
			if name == "cpu" {
				return
			}
			m.core.far.reused = func(*device.Stream, *device.Event) error { return nil }
			for i := 0; wrong() == 0; i++ {
				if i == 20 {
					t.Fatal("windows that are not waited for go unseen")
				}
			}
			m.core.far.reused = waits
			must(t, m.Check()) // look-ups change nothing
		})
	}
}

// Where the table may not grow, its errors say which memory is used up, and no pair is lost.
func TestPanesAtTheirBounds(t *testing.T) {
	for _, name := range devices {
		for what, c := range map[string]struct {
			o      Options
			memory int64 // of the device
			says   string
		}{
			"HostBytes": {Options{DeviceBytes: -1, HostBytes: 200 << 10, pane: 8 << 10}, 0, "HostBytes"},
			"both":      {Options{DeviceBytes: 64 << 10, HostBytes: 64 << 10, pane: 8 << 10}, 0, "HostBytes"},
			"no host":   {Options{DeviceBytes: 64 << 10, HostBytes: -1, pane: 8 << 10}, 0, "HostBytes"},
			"board":     {Options{DeviceBytes: -1, pane: 8 << 10}, 96 << 10, "out of memory"},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				if name != "cpu" && c.memory > 0 {
					c.memory = 6 << 20 // a GPU gives memory in pages
				}
				m, err := New[uint64, uint64](open(t, name, device.WithMemory(c.memory)), c.o)
				must(t, err)
				defer func() { must(t, m.Close()) }()
				m.core.far.listedFrom = 1
				keys := make([]uint64, 4<<20)
				for i := range keys {
					keys[i] = uint64(i)
				}
				n, step := 0, 5000
				var full *table.FullError
				for ; n < len(keys); n += step {
					batch := keys[n : n+step]
					if err = m.Insert(batch, batch); errors.As(err, &full) {
						break
					}
					must(t, err)
				}
				if full == nil {
					t.Fatal("never full")
				}
				if !strings.Contains(err.Error(), c.says) {
					t.Errorf("it does not say %q: %v", c.says, err)
				}
				must(t, m.Check())
				all := keys[:n+step]
				values, found := make([]uint64, len(all)), make([]bool, len(all))
				must(t, m.Find(all, values, found))
				for _, p := range full.Positions {
					if found[n+p] {
						t.Fatalf("position %d is in, and named", p)
					}
					found[n+p], values[n+p] = true, all[n+p]
				}
				for i, k := range all {
					if !found[i] || values[i] != k {
						t.Fatalf("key %d: %v %d", k, found[i], values[i])
					}
				}
				s, wrong := m.Stats()
				must(t, wrong)
				if c.o.HostBytes > 0 && s.HostBytes > c.o.HostBytes || c.o.HostBytes < 0 && s.HostBytes > 0 {
					t.Errorf("%d bytes in host memory, of %d", s.HostBytes, c.o.HostBytes)
				}
				t.Logf("%d pairs, load factor %.3f, %s, %s of it in host memory: %.200v", s.Len, s.LoadFactor, device.Bytes(s.Bytes), device.Bytes(s.HostBytes), err)
			})
		}
	}
}

// A table of four times the device's memory is filled while it grows, asked, changed and checked.
func TestLargerThanMemory(t *testing.T) {
	memory, n, batch := int64(16<<20), 1<<18, 1<<15
	if testenv.Long() {
		memory, n, batch = 1<<30, 13<<20, 1<<20
	}
	for _, name := range devices {
		t.Run(name, func(t *testing.T) {
			type value [31]uint64
			d := open(t, name, device.WithMemory(memory))
			m, err := New[uint64, value](d, Options{})
			must(t, err)
			defer func() { must(t, m.Close()) }()
			least := memory
			peak := func() {
				free, _, err := d.Memory()
				must(t, err)
				least = min(least, free)
			}
			keys, values, found := make([]uint64, batch), make([]value, batch), make([]bool, batch)
			of := func(k, version uint64) (v value) {
				for i := range v {
					v[i] = k*31 + uint64(i) + version<<40
				}
				return v
			}
			put := func(first int, version uint64) {
				for i := range keys {
					keys[i] = uint64(first+i) * 0x9e3779b97f4a7c15
					values[i] = of(keys[i], version)
				}
				must(t, m.Insert(keys, values))
				peak()
			}
			want := func(first int, there bool, version uint64) {
				for i := range keys {
					keys[i] = uint64(first+i) * 0x9e3779b97f4a7c15
				}
				must(t, m.Find(keys, values, found))
				peak()
				for i, k := range keys {
					if found[i] != there || there && values[i] != of(k, version) {
						t.Fatalf("key %d: %v %d", first+i, found[i], values[i][0])
					}
				}
			}
			for first := 0; first < n; first += batch {
				put(first, 1)
			}
			for first := 0; first < n; first += 4 * batch { // of four batches one is deleted, one replaced
				for i := range keys {
					keys[i] = uint64(first+i) * 0x9e3779b97f4a7c15
				}
				count, err := m.Delete(keys, nil)
				must(t, err)
				if count != batch {
					t.Fatalf("%d deleted of %d", count, batch)
				}
				if first+batch < n {
					put(first+batch, 2)
				}
			}
			for i, first := 0, 0; first < n; i, first = i+1, first+batch {
				switch i % 4 {
				case 0:
					want(first, false, 0)
				case 1:
					want(first, true, 2)
				default:
					want(first, true, 1)
				}
			}
			want(2*n, false, 0)
			s, err := m.Stats()
			must(t, err)
			t.Logf("%s, %s of it in host memory, load factor %.2f; of %s device memory %s were in use at most", device.Bytes(s.Bytes), device.Bytes(s.HostBytes),
				s.LoadFactor, device.Bytes(memory), device.Bytes(memory-least))
			if s.Bytes < 4*memory || s.HostBytes < 3*memory {
				t.Errorf("%s, %s in host memory: no four times the device's", device.Bytes(s.Bytes), device.Bytes(s.HostBytes))
			}
			must(t, m.Check())
		})
	}
}

// Pairs that go on to a pane which is empty, and of whose own keys there are none, are there when it is served in a window.
func TestPairsGoOnToAnEmptyPane(t *testing.T) {
	for _, staged := range []bool{false, true} {
		t.Run(fmt.Sprintf("staged=%v", staged), func(t *testing.T) {
			m, err := New[uint64, uint64](open(t, "cpu"), Options{Options: table.Options{Capacity: 8000, LoadFactor: 1, Seed: 3}, DeviceBytes: -1, pane: 1})
			must(t, err)
			defer func() { must(t, m.Close()) }()
			m.core.far.listedFrom, m.core.far.rowBytes = 1, 1e9
			if staged {
				m.core.staged.rule = frame.Stretches{MinRows: 1, SlotShare: 1 << 40}
			}
			tab, slots := m.core.table(), m.core.cfg.slots()<<m.core.shape.shift // of a region, which is a pane
			of := func(region uint64, n int) (keys []uint64) {
				for k := uint64(0); len(keys) < n; k++ {
					if m.core.cfg.place(&tab, binary.LittleEndian.AppendUint64(nil, k)).region == region {
						keys = append(keys, k)
					}
				}
				return keys
			}
			keys := of(2, slots+20) // twenty go on to region 3
			must(t, m.Insert(keys, keys))
			more := of(3, 50)
			must(t, m.Insert(more, more))
			keys = append(keys, more...)
			values, found := make([]uint64, len(keys)), make([]bool, len(keys))
			must(t, m.Find(keys, values, found))
			for i, k := range keys {
				if !found[i] || values[i] != k {
					t.Fatalf("key %d: %v %d", k, found[i], values[i])
				}
			}
			must(t, m.Check())
		})
	}
}

// A table that nearly fills the device goes on in host memory, though it lies in one piece there.
func TestOnePieceGoesOnInHostMemory(t *testing.T) {
	for i, capacity := range []int{600_000, 700_000, 750_000, 900_000} { // of 16 MiB
		if i%3 > 0 && !testenv.Long() {
			continue
		}
		m, err := New[uint64, uint64](open(t, "cpu", device.WithMemory(16<<20)), Options{Options: table.Options{Capacity: capacity}})
		must(t, err)
		keys := make([]uint64, 1_500_000)
		for i := range keys {
			keys[i] = uint64(i)
		}
		must(t, m.Insert(keys, keys))
		s, err := m.Stats()
		must(t, err)
		if s.Len != len(keys) || s.HostBytes == 0 {
			t.Errorf("capacity %d: %d pairs, %d bytes in host memory", capacity, s.Len, s.HostBytes)
		}
		must(t, m.Close())
	}
}

// However small DeviceBytes is, there are no more panes than kernels can list.
func TestPanesAreFew(t *testing.T) {
	c := &core{cfg: config{keyBytes: 8, valueBytes: 8, ticket: 8}, room: room{window: leastPane}}
	for _, pairs := range []int64{1, 1 << 20, 1 << 30, 1 << 40} {
		s := shapeFor(pairs / 15)
		if n := panesOf(s, c.paneShiftFor(s)); n > maxPanes || n < 1 {
			t.Errorf("%d pairs: %d panes", pairs, n)
		}
	}
}

package gph

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/table"
)

// image is a table's memory, with 8 bytes a slot and a byte a cell.
type image struct {
	core *core
	mem  []byte
}

func (m *image) slots() uint64 { return (m.core.t.Cells - m.core.t.Buckets) / 8 }
func (m *image) key(slot uint64) uint32 {
	return binary.LittleEndian.Uint32(m.mem[8*slot:])
}
func (m *image) set(slot uint64, key, value uint32) {
	binary.LittleEndian.PutUint32(m.mem[8*slot:], key)
	binary.LittleEndian.PutUint32(m.mem[8*slot+4:], value)
}

// first is the first slot, of the main part or the reserve, that is empty or is not.
func (m *image) first(empty bool) uint64 {
	for i := uint64(0); ; i++ {
		if (m.key(i) == ^uint32(0)) == empty {
			return i
		}
	}
}

// Each invariant of doc.go, broken in a table's memory, is what Check reports.
func TestCheckFindsDamage(t *testing.T) {
	const empty = ^uint32(0)
	d := open(t, "cpu")
	for _, c := range []struct {
		name   string
		damage func(m *image, k *Counters)
		want   string
	}{
		{"a slot being written", func(m *image, k *Counters) { m.set(m.first(true), empty-2, 0) }, "reserved pattern"},
		{"an empty slot with a value", func(m *image, k *Counters) { m.set(m.first(true), empty, 7) }, "has a value"},
		{"a key twice", func(m *image, k *Counters) {
			for i := uint64(0); ; i++ { // beside itself
				if m.key(i) < empty-2 && i%8 < 7 && m.key(i+1) == empty {
					m.set(i+1, m.key(i), 1)
					return
				}
			}
		}, "is twice in the table"},
		{"a pair in another bucket", func(m *image, k *Counters) {
			from := m.first(false)
			for to := from + 8; ; to++ {
				if m.key(to) == empty {
					m.set(to, m.key(from), 1)
					m.set(from, empty, empty)
					return
				}
			}
		}, "look-ups read bucket"},
		{"a cell with another code", func(m *image, k *Counters) {
			cell := m.core.cfg.home(&m.core.t, uint64(m.key(m.first(false)))).cell
			m.mem[m.core.t.Cells-m.core.t.Buckets+cell] ^= 1
		}, "look-ups read bucket"},
		{"a key that no one reserves in the side bucket", func(m *image, k *Counters) {
			k.Inserted++
			m.set(m.slots()-3, 1000, 1)
		}, "is on the wrong side"},
		{"a pair too few", func(m *image, k *Counters) { m.set(m.first(false), empty, empty) }, "the counters say"},
		{"a lock that is held", func(m *image, k *Counters) { m.mem[m.core.t.Locks-m.core.t.Buckets] = 1 }, "lock 0 is held"},
		{"untold refusals", func(m *image, k *Counters) { k.Refused = 1 }, "were not told"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 400, LoadFactor: 0.8, Seed: 3}})
			must(t, err)
			defer m.Close()
			keys := make([]uint32, 390)
			for i := range keys {
				keys[i] = uint32(i) * 2654435761
			}
			keys[0] = empty
			must(t, m.Insert(keys, keys))
			if _, err := m.Delete(keys[5:9], nil); err != nil {
				t.Fatal(err)
			}
			must(t, m.Check())
			mem, err := m.core.mem.Host(nil)
			must(t, err)
			_, err = m.core.look(nil)
			must(t, err)
			c.damage(&image{m.core, mem}, &m.core.counters.Seen)
			must(t, m.core.mem.Write(nil, mem))
			must(t, m.core.counters.Set(nil))
			if err := m.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Check says %v, want %q", err, c.want)
			}
		})
	}
}

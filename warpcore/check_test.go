package warpcore

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

func tableOptions(capacity int, load float64) table.Options {
	return table.Options{Capacity: capacity, LoadFactor: load}
}

// imageOf downloads a table.
func imageOf(t testing.TB, c *core) *image {
	t.Helper()
	mem, err := c.mem.Host(nil)
	must(t, err)
	return &image{c.cfg, c.t, c.mem.Addr(), mem}
}

// each visits every pair with its key as users know it.
func (m *image) each(visit func(side bool, slot, key uint64)) {
	for _, side := range []bool{false, true} {
		for slot := range m.region(side).Windows * uint64(m.cfg.window) {
			if key := m.key(side, slot); m.cfg.mark(key) == none {
				visit(side, slot, m.cfg.real(key, side).lo)
			}
		}
	}
}

// set writes the key bits of a slot of 4-byte keys.
func (m *image) set(side bool, slot uint64, key uint32) {
	at := m.region(side).Slots - m.base + slot*uint64(m.cfg.slotBytes())
	binary.LittleEndian.PutUint32(m.mem[at:], key)
	if key >= ^uint32(0)-1 { // a free slot has no value
		binary.LittleEndian.PutUint32(m.mem[at+4:], ^uint32(0))
	}
}

// Each invariant of doc.go, broken in a table's memory, is what Check reports.
func TestCheckFindsDamage(t *testing.T) {
	const empty = ^uint32(0)
	d := openCPU(t)
	for _, c := range []struct {
		name   string
		damage func(m *image, k *Counters) bool // false where the table gives no occasion
		want   string
	}{
		{"a busy slot", func(m *image, k *Counters) bool {
			return m.first(func(slot, key uint64) bool { m.set(false, slot, empty-2); return true })
		}, "is busy"},
		{"a key twice", func(m *image, k *Counters) bool {
			k.Inserted++
			return m.first(func(slot, key uint64) bool {
				for next := slot + 1; next < (slot/8+1)*8; next++ {
					if m.key(false, next).lo == uint64(empty) {
						m.set(false, next, uint32(key))
						return true
					}
				}
				return false
			})
		}, "is twice in the table"},
		{"an empty slot before a pair", func(m *image, k *Counters) bool {
			k.Inserted--
			return m.first(func(slot, key uint64) bool { // of two pairs with one first slot, empty that which has it
				first := m.cfg.probe(&m.t, keyBits{lo: key})
				if first.window != slot/8 || first.first != slot%8 {
					return false
				}
				return m.first(func(other, key uint64) bool {
					p := m.cfg.probe(&m.t, keyBits{lo: key})
					if other == slot || other/8 != slot/8 || p.window != first.window || p.first != first.first {
						return false
					}
					m.set(false, slot, empty)
					return true
				})
			})
		}, "lies behind an empty slot of its window"},
		{"an empty slot in an earlier window", func(m *image, k *Counters) bool {
			k.Inserted--
			return m.first(func(slot, key uint64) bool {
				p := m.cfg.probe(&m.t, keyBits{lo: key})
				if p.window == slot/8 || m.key(false, p.window*8).lo >= uint64(empty-2) {
					return false
				}
				m.set(false, p.window*8, empty)
				return true
			})
		}, "cannot be found"},
		{"a window not marked", func(m *image, k *Counters) bool {
			return m.first(func(slot, key uint64) bool {
				p := m.cfg.probe(&m.t, keyBits{lo: key})
				if p.window == slot/8 {
					return false
				}
				bit := p.window*m.cfg.overflowBits() + p.overflow
				m.mem[m.t.Main.Overflow-m.base+bit/8] |= 1 << (bit % 8)
				return true
			})
		}, "not marked as overflowed"},
		{"a key that no one reserves in the side region", func(m *image, k *Counters) bool {
			k.Inserted++
			m.set(true, 0, 1000)
			return true
		}, "which is not reserved, is in the side region"},
		{"a free slot with a value", func(m *image, k *Counters) bool {
			return m.first(func(slot, key uint64) bool {
				m.set(false, slot, empty-1)
				m.mem[m.t.Main.Slots-m.base+slot*8+4] = 7
				return true
			})
		}, "has a value"},
		{"a pair too few", func(m *image, k *Counters) bool {
			return m.first(func(slot, key uint64) bool { m.set(false, slot, empty-1); return true })
		}, "the counters say"},
		{"a miscounted tombstone", func(m *image, k *Counters) bool { k.Reused--; return true }, "the counters say"},
		{"untold failures", func(m *image, k *Counters) bool { k.Failed = 1; return true }, "were not told"},
		{"a chain longer than is told", func(m *image, k *Counters) bool { k.MaxProbes = 0; return true }, "look-ups read no more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Options: tableOptions(400, 1), Window: 8}
			o.Seed = 3
			m, err := New[uint32, uint32](d, o)
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
			must(t, m.Insert(keys[5:7], keys[5:7]))
			must(t, m.Check())

			im := imageOf(t, m.core)
			_, err = m.core.look(nil)
			must(t, err)
			if !c.damage(im, &m.core.counters.Seen) {
				t.Fatal("no slot to damage")
			}
			must(t, m.core.mem.Write(nil, im.mem))
			must(t, m.core.counters.Set(nil))
			if err := m.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Check says %v, want %q", err, c.want)
			}
		})
	}
}

// A key where no probe sequence of its goes.
func TestCheckFindsStrays(t *testing.T) {
	d := openCPU(t)
	o := Options{Options: tableOptions(100, 1), Window: 8}
	o.Hash = kernel.HashConstant
	m, err := New[uint32, uint32](d, o)
	must(t, err)
	must(t, m.Insert([]uint32{1}, []uint32{1}))
	im := imageOf(t, m.core)
	im.first(func(slot, key uint64) bool {
		im.set(false, slot, ^uint32(0))
		im.set(false, slot+8, uint32(key))
		return true
	})
	must(t, m.core.mem.Write(nil, im.mem))
	if err := m.Check(); err == nil || !strings.Contains(err.Error(), "cannot be found") {
		t.Error(err)
	}
}

// first calls f for the pairs of the main region until it says true.
func (m *image) first(f func(slot, key uint64) bool) (done bool) {
	m.each(func(side bool, slot, key uint64) {
		if !side && !done {
			done = f(slot, key)
		}
	})
	return done
}

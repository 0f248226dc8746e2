package warpcore

import (
	"fmt"

	"github.com/warpmap/warpmap/kernel"
)

// count is the number of values of a MultiBucket's slot.
func (m *image) count(side bool, slot uint64) uint64 {
	at := m.region(side).Slots - m.base + slot*uint64(m.cfg.slotBytes())
	return uint64(^uint32(kernel.Pattern(m.mem[at+uint64(m.cfg.keyBytes):], 4)))
}

// checkBuckets walks what a MultiBucket's slots hold: its own invariants.
func (c *core) checkBuckets(mem []byte, k Counters) error {
	m := &image{c.cfg, c.t, c.mem.Addr(), mem}
	most := uint64(c.cfg.bucket)
	var values uint64
	room := make(map[keyBits]uint64) // by key, its slot with room
	for _, side := range []bool{false, true} {
		for slot := range m.region(side).Windows * uint64(m.cfg.window) {
			count, key := m.count(side, slot), m.key(side, slot)
			if m.cfg.mark(key) != none {
				if count != 0 {
					return fmt.Errorf("warpcore: check: free slot %d (side %t) has %d values, which a new key would get", slot, side, count)
				}
				continue
			}
			key = m.cfg.real(key, side)
			if count == 0 || count > most {
				return fmt.Errorf("warpcore: check: slot %d (side %t) of key %v has %d values (want 1 to %d)", slot, side, key, count, most)
			}
			if count < most {
				if before, ok := room[key]; ok {
					return fmt.Errorf("warpcore: check: key %v has two slots with room, %d and %d", key, before, slot)
				}
				room[key] = slot
			}
			values += count
		}
	}
	if values != k.Added-k.Removed {
		return fmt.Errorf("warpcore: check: the slots have %d values, the counters say %d", values, k.Added-k.Removed)
	}
	return m.checkHints()
}

// checkHints follows the chains of keys that have a hint: all the windows that it tells of are full, and no slot of the key there has room.
func (m *image) checkHints() error {
	for i := range m.cfg.hints(int64(m.t.Main.Windows)) {
		at := m.mem[m.t.Hints-m.base+uint64(i)*uint64(m.cfg.hintBytes()):]
		key := keyBits{lo: kernel.Pattern(at, m.cfg.keyBytes)}
		if m.cfg.mark(key) != none {
			continue
		}
		full := kernel.Pattern(at[m.cfg.keyBytes:], 4)
		side := full>>hintSideBit == 1
		p := m.cfg.probe(&m.t, m.cfg.real(key, side))
		for n := range full &^ (1 << hintSideBit) {
			for s := range uint64(m.cfg.window) {
				slot := p.window*uint64(m.cfg.window) + s
				switch its := m.key(side, slot); {
				case m.cfg.mark(its) != none:
					return fmt.Errorf("warpcore: check: key %v has a hint of full windows (side %t), of which window %d, its number %d, has a free slot",
						key, side, p.window, n)
				case its == key && m.count(side, slot) < uint64(m.cfg.bucket):
					return fmt.Errorf("warpcore: check: key %v has a hint of full windows (side %t), of which window %d, its number %d, has its slot with room",
						key, side, p.window, n)
				}
			}
			p.advance()
		}
	}
	return nil
}

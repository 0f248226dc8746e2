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
	return nil
}

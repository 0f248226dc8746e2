package warpcore

import (
	"fmt"

	"github.com/warpmap/warpmap/kernel"
)

// image is a downloaded table.
type image struct {
	cfg  config
	t    Table
	base uint64
	mem  []byte
}

func (m *image) region(side bool) *Region {
	if side {
		return &m.t.Side
	}
	return &m.t.Main
}

// key reads the key of a slot.
func (m *image) key(side bool, slot uint64) (k keyBits) {
	at := m.mem[m.region(side).Slots-m.base+slot*uint64(m.cfg.slotBytes()):]
	k.lo = kernel.Pattern(at, min(8, m.cfg.keyBytes))
	if m.cfg.keyBytes == 16 {
		k.hi = kernel.Pattern(at[8:], 8)
	}
	return k
}

// cleared tells whether the value bytes of a packed slot are all ones.
func (m *image) cleared(side bool, slot uint64) bool {
	at := m.region(side).Slots - m.base + slot*uint64(m.cfg.slotBytes())
	return kernel.Ones(m.mem[at+uint64(m.cfg.keyBytes) : at+uint64(m.cfg.slotBytes())])
}

// checkImage walks the invariants that doc.go lists.
func (c *core) checkImage(mem []byte, k Counters) error {
	m := &image{c.cfg, c.t, c.mem.Addr(), mem}
	window := uint64(c.cfg.window)
	var live, tombstones uint64
	seen := make(map[keyBits]int64)
	for _, side := range []bool{false, true} {
		slots := m.region(side).Windows * window
		for slot := range slots {
			key := m.key(side, slot)
			mark := c.cfg.mark(key)
			if (mark == empty || mark == tombstone) && c.cfg.layout == Packed && !m.cleared(side, slot) {
				return fmt.Errorf("warpcore: check: free slot %d (side %t) has a value, so no insert could take it", slot, side)
			}
			switch mark {
			case empty:
				continue
			case tombstone:
				tombstones++
				continue
			case busy:
				return fmt.Errorf("warpcore: check: slot %d (side %t) is busy, though nothing is being inserted", slot, side)
			}
			live++
			real := c.cfg.real(key, side)
			if side && c.cfg.mark(real) == none {
				return fmt.Errorf("warpcore: check: key %v, which is not reserved, is in the side region at slot %d", real, slot)
			}
			if before, ok := seen[real]; ok && !c.multi() {
				return fmt.Errorf("warpcore: check: key %v is twice in the table, at slots %d and %d", real, before, slot)
			}
			seen[real] = int64(slot)
			if err := m.reachable(real, side, slot, max(k.MaxProbes, probesUntold)); err != nil {
				return err
			}
		}
	}
	if live != k.Inserted-k.Erased || tombstones != k.Erased-k.Reused {
		return fmt.Errorf("warpcore: check: %d pairs and %d tombstones are in the slots, the counters say %d and %d",
			live, tombstones, k.Inserted-k.Erased, k.Erased-k.Reused)
	}
	if k.Failed != 0 {
		return fmt.Errorf("warpcore: check: %d failed positions were not told", k.Failed)
	}
	return nil
}

// overflowed tells whether a key has gone past a window, by the key's bit of its filter.
func (m *image) overflowed(side bool, window, bit uint64) bool {
	bit += window * overflowBits
	at := m.region(side).Overflow - m.base + bit/32*4
	return kernel.Pattern(m.mem[at:], 4)>>(bit%32)&1 == 0
}

// reachable follows the key's probe sequence to its slot: every window before it must be marked as overflowed and have
// no empty slot, nor may an empty slot in its own window come first in the key's order; and look-ups, which read told
// windows, must come to it.
func (m *image) reachable(key keyBits, side bool, slot, told uint64) error {
	p := m.cfg.probe(&m.t, key)
	if p.side != side {
		return fmt.Errorf("warpcore: check: key %v is in the wrong region (side %t)", key, side)
	}
	window := uint64(m.cfg.window)
	for probes := uint64(1); probes <= p.windows; probes++ {
		if p.window == slot/window {
			for s := range window {
				if s^p.first < slot%window^p.first && m.cfg.mark(m.key(side, p.window*window+s)) == empty {
					return fmt.Errorf("warpcore: check: key %v at slot %d lies behind an empty slot of its window", key, slot)
				}
			}
			if probes > told {
				return fmt.Errorf("warpcore: check: key %v at slot %d is in window %d of its chain, and look-ups read no more than %d", key, slot, probes, told)
			}
			return nil
		}
		for s := range window {
			if m.cfg.mark(m.key(side, p.window*window+s)) == empty {
				return fmt.Errorf("warpcore: check: key %v at slot %d cannot be found: window %d, probed before its own, has an empty slot", key, slot, p.window)
			}
		}
		if !m.overflowed(side, p.window, p.overflow) {
			return fmt.Errorf("warpcore: check: key %v at slot %d cannot be found: window %d, probed before its own, is not marked as overflowed", key, slot, p.window)
		}
		p.advance()
	}
	return fmt.Errorf("warpcore: check: key %v at slot %d is not on its own probe sequence", key, slot)
}

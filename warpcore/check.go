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

// keptFrom is from how many slots on a key's chain is kept: those of all keys may take too much memory.
const keptFrom = 64

// checkImage walks the invariants that doc.go lists.
func (c *core) checkImage(mem []byte, k Counters) error {
	m := &image{c.cfg, c.t, c.mem.Addr(), mem}
	window := uint64(c.cfg.window)
	var live, tombstones uint64
	seen, values, chains := make(map[keyBits]int64), make(map[keyBits]int), make(map[keyBits]chain)
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
			if p := m.cfg.probe(&m.t, real); p.side != side {
				return fmt.Errorf("warpcore: check: key %v is in the wrong region (side %t)", real, side)
			}
			its, ok := chains[real]
			if !ok {
				if values[real]++; values[real] < keptFrom {
					its = m.chain(real, side, slot/window)
				} else {
					its = m.chain(real, side)
					chains[real] = its
				}
			}
			if err := m.reachable(its, real, side, slot, max(k.MaxProbes, probesUntold)); err != nil {
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
	return m.checkHints()
}

// checkHints follows the chains of keys that have a hint: no window that it tells of has an empty slot, and none of the
// key's there has room, but in those that every insert reads before it asks for a hint.
func (m *image) checkHints() error {
	if m.t.Hints == 0 {
		return nil
	}
	for i := range m.t.HintMask + 1 + sideHints {
		at := m.mem[m.t.Hints-m.base+i*hintBytes:]
		key := keyBits{lo: kernel.Pattern(at, 8)}
		if key.lo == ^uint64(0) {
			continue
		}
		side := i > m.t.HintMask
		p := m.cfg.probe(&m.t, m.cfg.real(key, side))
		full := ^kernel.Pattern(at[8:], 8)
		if full > p.windows {
			return fmt.Errorf("warpcore: check: key %v has a hint of %d full windows (side %t), which are more than there are", key, full, side)
		}
		for n := range full {
			for s := range uint64(m.cfg.window) {
				slot := p.window*uint64(m.cfg.window) + s
				switch its := m.key(side, slot); {
				case m.cfg.mark(its) == empty:
					return fmt.Errorf("warpcore: check: key %v has a hint of %d full windows (side %t), of which window %d, its number %d, has an empty slot",
						key, full, side, p.window, n)
				case n >= hintAsk-1 && m.cfg.bucket > 0 && its == key && m.count(side, slot) < uint64(m.cfg.bucket):
					return fmt.Errorf("warpcore: check: key %v has a hint of %d full windows (side %t), of which window %d, its number %d, has its slot with room",
						key, full, side, p.window, n)
				}
			}
			p.advance()
		}
	}
	return nil
}

// overflowed tells whether a key has gone past a window, by the key's bit of its filter.
func (m *image) overflowed(side bool, window, bit uint64) bool {
	bit += window * m.cfg.overflowBits()
	at := m.region(side).Overflow - m.base + bit/32*4
	return kernel.Pattern(m.mem[at:], 4)>>(bit%32)&1 == 0
}

// chain is what look-ups for a key go through: its windows, as far as none before has an empty slot, or is not marked as overflowed. With `only`, no more
// than up to that window is asked for.
type chain struct {
	first  uint64            // of a window's slots, that which comes first
	number map[uint64]uint64 // of a window, the first is 1
	ends   string            // why no window comes behind
}

func (m *image) chain(key keyBits, side bool, only ...uint64) chain {
	p := m.cfg.probe(&m.t, key)
	window := uint64(m.cfg.window)
	c := chain{first: p.first, number: map[uint64]uint64{}, ends: "it has all windows"}
	for probes := uint64(1); probes <= m.cfg.longest(p.windows); probes++ {
		if _, twice := c.number[p.window]; only == nil && !twice {
			c.number[p.window] = probes
		} else if only != nil && p.window == only[0] {
			c.number[p.window] = probes
			return c
		}
		for s := range window {
			if m.cfg.mark(m.key(side, p.window*window+s)) == empty {
				c.ends = fmt.Sprintf("window %d, probed before its own, has an empty slot", p.window)
				return c
			}
		}
		if !m.overflowed(side, p.window, p.overflow) {
			c.ends = fmt.Sprintf("window %d, probed before its own, is not marked as overflowed", p.window)
			return c
		}
		p.advance()
	}
	return c
}

// reachable tells why a key is not found in a slot, if so: that must be in its chain, with no empty slot in its own window that comes first in the
// key's order; and look-ups, which read told windows, must come to it.
func (m *image) reachable(c chain, key keyBits, side bool, slot, told uint64) error {
	window := uint64(m.cfg.window)
	probes, ok := c.number[slot/window]
	if !ok {
		return fmt.Errorf("warpcore: check: key %v at slot %d cannot be found: %s", key, slot, c.ends)
	}
	if probes > told {
		return fmt.Errorf("warpcore: check: key %v at slot %d is in window %d of its chain, and look-ups read no more than %d", key, slot, probes, told)
	}
	for s := range window {
		if s^c.first < slot%window^c.first && m.cfg.mark(m.key(side, slot/window*window+s)) == empty {
			return fmt.Errorf("warpcore: check: key %v at slot %d lies behind an empty slot of its window", key, slot)
		}
	}
	return nil
}

package stadium

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/kernel"
)

// image is a downloaded table.
type image struct {
	cfg   config
	t     Table
	board []byte
	slots func(bucket uint64) []byte // of a bucket
}

// Check downloads the table and tests its invariants, which the package's comment lists. It is slow: use it in tests,
// or if you suspect a fault.
func (h *handle) Check() error {
	c := h.made()
	return c.frame.ReadingSeen(c.look, func(st *device.Stream) error {
		board, err := c.board.Host(st)
		err = errors.Join(err, c.frame.Budget(c.held()))
		var parts [][]byte
		near, wrong := c.near.Host(st)
		err = errors.Join(err, wrong)
		for i := range c.panes {
			part := c.panes[i].host.Slice()
			if !c.panes[i].inHost() {
				if part, wrong = c.panes[i].near.Host(st); wrong != nil {
					err = errors.Join(err, wrong)
				}
			}
			parts = append(parts, part)
		}
		if err != nil {
			return err
		}
		shift, bytes := uint64(c.paneShift), uint64(c.cfg.slots()*c.cfg.slotBytes())
		slots := func(bucket uint64) []byte {
			if len(parts) == 0 {
				return near[bucket*bytes:]
			}
			return parts[bucket>>shift][bucket&(1<<shift-1)*bytes:]
		}
		return (&image{c.cfg, c.table(), board, slots}).check(c.counters.Seen)
	})
}

// ticket is the ticket of a slot.
func (m *image) ticket(slot uint64) uint64 {
	slots := uint64(m.cfg.slots())
	bit := slot/slots*uint64(8*m.cfg.ticketBytes()) + slot%slots*uint64(m.cfg.ticket)
	if m.cfg.ticket == 16 {
		return kernel.Pattern(m.board[bit/8:], 2)
	}
	return uint64(m.board[bit/8]) >> (bit % 8) & (1<<m.cfg.ticket - 1)
}

// never tells whether a slot's ticket is all ones: no search goes beyond it. With one bit nobody knows.
func (m *image) never(slot uint64) bool {
	return m.cfg.ticket > 1 && m.ticket(slot) == 1<<m.cfg.ticket-1
}

func (m *image) bit(address, i uint64) bool { return m.board[address-m.t.Board+i/8]>>(i%8)&1 == 1 }

func (m *image) slot(i uint64) []byte {
	n, each := uint64(m.cfg.slotBytes()), uint64(m.cfg.slots())
	return m.slots(i / each)[i%each*n:][:n]
}

func (m *image) check(k Counters) error {
	for b := range m.t.buckets() {
		if m.bit(m.t.Access, b) {
			return fmt.Errorf("stadium: check: the access bit of bucket %d is set, though no operation is under way", b)
		}
	}
	seen, strays := make(map[string]uint64), uint64(0)
	for slot := range m.t.buckets() * uint64(m.cfg.slots()) {
		ticket := m.ticket(slot)
		if ticket&1 == 1 {
			if ticket != 1 && ticket != 1<<m.cfg.ticket-1 {
				return fmt.Errorf("stadium: check: the ticket of slot %d is available and has the info bits %#x", slot, ticket>>1)
			}
			continue
		}
		key := m.slot(slot)[:m.cfg.keyBytes]
		if before, ok := seen[string(key)]; ok {
			return fmt.Errorf("stadium: check: key %x is twice in the table, at slots %d and %d", key, before, slot)
		}
		seen[string(key)] = slot
		if slot/uint64(m.cfg.slots())>>m.t.Shift != m.cfg.place(&m.t, key).region {
			strays++
		}
		if err := m.reachable(key, slot, ticket>>1, max(k.MaxProbes, probesUntold)); err != nil {
			return err
		}
	}
	if uint64(len(seen)) != k.Pairs {
		return fmt.Errorf("stadium: check: %d tickets are taken, the counter says %d", len(seen), k.Pairs)
	}
	if strays > k.Strays {
		return fmt.Errorf("stadium: check: %d pairs are in other regions than their keys', and %d are known of", strays, k.Strays)
	}
	if k.Failed != 0 {
		return fmt.Errorf("stadium: check: %d failed positions were not told", k.Failed)
	}
	return nil
}

// reachable follows the key's buckets to its slot: those before it must send the key on, and no ticket that ends a search may come before the
// slot's.
func (m *image) reachable(key []byte, slot, info, told uint64) error {
	p, slots := m.cfg.place(&m.t, key), uint64(m.cfg.slots())
	if info != p.info {
		return fmt.Errorf("stadium: check: the ticket of slot %d has the info bits %#x, its key %x has %#x", slot, info, key, p.info)
	}
	for probes := uint64(1); probes <= m.t.buckets(); probes++ {
		b := p.bucket()
		for i := range slots {
			s := b*slots + (p.first+i)%slots
			if s == slot {
				if probes > told {
					return fmt.Errorf("stadium: check: key %x at slot %d is in bucket %d of its chain, and look-ups read no more than %d", key, slot, probes, told)
				}
				return nil
			}
			if m.never(s) {
				return fmt.Errorf("stadium: check: key %x at slot %d cannot be found: slot %d, which comes first, never was taken", key, slot, s)
			}
		}
		if m.bit(m.t.Board, (b+1)*uint64(8*m.cfg.ticketBytes())-beyondBits+p.beyond) {
			return fmt.Errorf("stadium: check: key %x at slot %d cannot be found: bucket %d does not send it on", key, slot, b)
		}
		p.advance()
	}
	return fmt.Errorf("stadium: check: key %x at slot %d is in none of its buckets", key, slot)
}

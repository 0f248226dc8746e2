package dycuckoo

import (
	"bytes"
	"fmt"
	"math/bits"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/kernel"
)

// Check downloads the table and tests its invariants. It is slow: use it in tests, or if you suspect a fault.
func (h *handle) Check() error {
	c := h.made()
	return c.frame.ReadingSeen(c.look, func(st *device.Stream) error {
		if err := c.frame.Budget(c.held()); err != nil {
			return err
		}
		k := image{cfg: c.cfg, t: c.table(), seen: map[string]int{}}
		for i := range c.d() {
			buckets, err := c.subs[i].slots(c.cfg.bucketBytes).Host(st)
			if err != nil {
				return err
			}
			filter, err := c.subs[i].filter().Host(st)
			if err != nil {
				return err
			}
			k.subs, k.filters = append(k.subs, buckets), append(k.filters, filter)
		}
		var err error
		if k.side, err = c.side.Host(st); err != nil {
			return err
		}
		locks, err := c.locks.Host(st)
		if err != nil {
			return err
		}
		for i, l := range locks {
			if l != 0 {
				return fmt.Errorf("dycuckoo: check: lock %d is held, though nothing is being inserted", i)
			}
		}
		for i := range c.d() {
			if n, want := c.subs[i].Buckets, c.step.buckets(c.d(), i); n != uint64(want) || bits.OnesCount64(n) != 1 {
				return fmt.Errorf("dycuckoo: check: subtable %d has %d buckets (want %d)", i, n, want)
			}
		}
		return k.check(c.counters.Seen)
	})
}

// image is a downloaded table.
type image struct {
	cfg           config
	t             Table
	subs, filters [][]byte
	side          []byte
	seen          map[string]int // where each key is
}

// bucket is a bucket's memory.
func (m *image) bucket(sub int, number uint64) []byte {
	n := uint64(m.cfg.bucketBytes)
	return m.subs[sub][number*n : (number+1)*n]
}

// key is the key of a slot, if it is taken.
func (m *image) key(bucket []byte, slot int) (key []byte, taken bool) {
	if !m.cfg.packed() {
		key = bucket[(slot+1)*m.cfg.keyBytes:][:m.cfg.keyBytes]
		return key, kernel.Pattern(bucket, 4)>>slot&1 == 1
	}
	pair := bucket[slot*m.cfg.slotBytes():][:m.cfg.slotBytes()]
	return pair[:m.cfg.keyBytes], !kernel.MarksOf(m.cfg.keyBytes).Has(kernel.Pattern(pair, m.cfg.keyBytes))
}

// check walks the invariants that doc.go lists.
func (m *image) check(k Counters) error {
	var pairs [maxSubtables]uint64
	for sub := range m.subs {
		t := m.t.Sub[sub]
		for b := range t.Buckets {
			bucket := m.bucket(sub, b)
			if !m.cfg.packed() && kernel.Pattern(bucket, 4)>>m.cfg.slots() != 0 {
				return fmt.Errorf("dycuckoo: check: bucket %d of subtable %d has bits of slots that do not exist", b, sub)
			}
			for s := range m.cfg.slots() {
				key, taken := m.key(bucket, s)
				if !taken {
					if pair := bucket[s*m.cfg.slotBytes():][:m.cfg.slotBytes()]; m.cfg.packed() && !free(pair) {
						return fmt.Errorf("dycuckoo: check: free slot %d of bucket %d of subtable %d has a value, so no insert could take it", s, b, sub)
					}
					continue
				}
				pairs[sub]++
				if err := m.checkPair(key, sub, b); err != nil {
					return err
				}
			}
		}
	}
	if m.cfg.packed() {
		marks := kernel.MarksOf(m.cfg.keyBytes)
		for i := range kernel.Reserved * m.cfg.slots() {
			key, taken := m.key(m.side, i)
			if !taken {
				continue
			}
			pairs[0]++
			if real := marks.Real(kernel.Pattern(key, m.cfg.keyBytes), true); marks.Empty-real != uint64(i/m.cfg.slots()) || m.seen[string(key)+"side"] > 0 {
				return fmt.Errorf("dycuckoo: check: reserved key %#x is at slot %d of the side, or twice", real, i)
			}
			m.seen[string(key)+"side"]++
		}
	}
	for i := range pairs {
		if pairs[i] != k.Pairs[i] {
			return fmt.Errorf("dycuckoo: check: %d pairs are in subtable %d, the counters say %d", pairs[i], i, k.Pairs[i])
		}
	}
	if k.Failed != 0 || k.Left != 0 {
		return fmt.Errorf("dycuckoo: check: %d failed positions and %d residuals were not told", k.Failed, k.Left)
	}
	return nil
}

func (m *image) checkPair(key []byte, sub int, bucket uint64) error {
	h := m.cfg.home(&m.t, key)
	if m.seen[string(key)] > 0 {
		return fmt.Errorf("dycuckoo: check: key %x is twice in the table", key)
	}
	m.seen[string(key)]++
	if h.side || !bytes.Equal(h.stored, key) {
		return fmt.Errorf("dycuckoo: check: reserved key %x is in subtable %d", key, sub)
	}
	if sub != h.home && sub != h.other || h.bucket(sub, m.t.Sub[sub].Buckets) != bucket {
		return fmt.Errorf("dycuckoo: check: key %x, which belongs to subtables %d and %d, is in bucket %d of subtable %d", key, h.home, h.other, bucket, sub)
	}
	if sub == h.other {
		t := m.t.Sub[h.home]
		bit := h.bucket(h.home, t.Buckets)*filterBits + uint64(h.filterBit)
		if m.cfg.packed() && m.cfg.balance == HomeFirst {
			at := m.bucket(h.home, h.bucket(h.home, t.Buckets))
			for s := range m.cfg.slots() {
				if kernel.Ones(at[s*m.cfg.slotBytes():][:m.cfg.slotBytes()]) {
					return fmt.Errorf("dycuckoo: check: key %x cannot be found: it is away from its home, which has a slot that never was taken", key)
				}
			}
		}
		if m.filters[h.home][bit/8]>>(bit%8)&1 == 0 {
			return fmt.Errorf("dycuckoo: check: key %x cannot be found: it is away from its home, whose filter does not say so", key)
		}
	}
	return nil
}

// free tells whether a packed pair is a free slot: all ones, but for the lowest bit of one that was taken before.
func free(pair []byte) bool { return pair[0]|1 == 0xff && kernel.Ones(pair[1:]) }

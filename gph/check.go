package gph

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/kernel"
)

// Check downloads the table and tests its invariants, which the package's comment lists. It is slow: use it in tests,
// or if you suspect a fault.
func (h *handle) Check() error {
	c := h.made()
	return c.frame.Inspect(c.look, func() device.Slice[byte] { return c.mem }, func(mem []byte) error {
		return errors.Join(c.frame.Budget(int64(len(mem))), c.checkImage(mem))
	})
}

func (c *core) checkImage(mem []byte) error {
	t, cfg := &c.t, c.cfg
	base := c.mem.Addr()
	slot := func(i uint64) []byte { return mem[t.Buckets-base+i*uint64(cfg.slotBytes()):][:cfg.slotBytes()] }
	code := func(cell uint64) uint32 {
		return uint32(kernel.Pattern(mem[t.Cells-base+cell*uint64(cfg.cellBytes):], cfg.cellBytes))
	}
	marks := kernel.MarksOf(cfg.keyBytes)
	side := t.Main + t.Reserve
	seen := map[uint64]uint64{}
	for i := range (side + 1) * uint64(cfg.bucket) {
		bucket := i / uint64(cfg.bucket)
		s := slot(i)
		key := kernel.Pattern(s, cfg.keyBytes)
		if key == marks.Empty {
			for _, b := range s {
				if cfg.packed && b != 0xff {
					return fmt.Errorf("gph: check: the empty slot %d has a value, so no insert could take it", i)
				}
			}
			continue
		}
		if marks.Has(key) {
			return fmt.Errorf("gph: check: slot %d holds the reserved pattern %#x, though nothing is being inserted", i, key)
		}
		key = marks.Real(key, bucket == side)
		h := cfg.home(t, key)
		if h.side != (bucket == side) {
			return fmt.Errorf("gph: check: key %#x at slot %d is on the wrong side (side bucket: %t)", key, i, bucket == side)
		}
		if want := cfg.bucketOf(t, h, code(h.cell)); want != bucket {
			return fmt.Errorf("gph: check: key %#x is in bucket %d, and look-ups read bucket %d: its cell %d has code %d", key, bucket, want, h.cell, code(h.cell))
		}
		if before, ok := seen[key]; ok {
			return fmt.Errorf("gph: check: key %#x is twice in the table, at slots %d and %d", key, before, i)
		}
		seen[key] = i
	}
	if int64(len(seen)) != c.live() {
		return fmt.Errorf("gph: check: %d pairs are in the slots, the counters say %d", len(seen), c.live())
	}
	for i := range uint64(t.LockMask) + 1 {
		if kernel.Pattern(mem[t.Locks-base+4*i:], 4) != 0 {
			return fmt.Errorf("gph: check: lock %d is held, though nothing is being inserted", i)
		}
	}
	if n := c.counters.Seen.Refused; n != 0 {
		return fmt.Errorf("gph: check: %d refused pairs were not told", n)
	}
	return nil
}

package slab

import (
	"encoding/binary"
	"fmt"

	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
)

// image is a downloaded table.
type image struct {
	cfg  config
	t    Table
	base []byte
	pool *frame.SlabsImage
}

// key reads the key bits of a slot.
func (m *image) key(slab []byte, slot int) uint64 {
	return kernel.Pattern(slab[slot*m.cfg.wordBytes():], m.cfg.keyBytes)
}

// whole tells whether a free slot has all bits set but the key's lowest, so that a compare-and-swap can take it.
func (m *image) whole(slab []byte, slot int) bool {
	if !m.cfg.packed || m.cfg.valueBytes == 0 {
		return true
	}
	at := slot * m.cfg.wordBytes()
	return kernel.Ones(slab[at+m.cfg.keyBytes : at+m.cfg.wordBytes()])
}

func (m *image) link(slab []byte) uint32 {
	return binary.LittleEndian.Uint32(slab[m.cfg.linkOffset():])
}

// clear tells whether a slab is as an allocation must find it.
func (m *image) clear(slab []byte) bool {
	empty := kernel.MarksOf(m.cfg.keyBytes).Empty
	for slot := range m.cfg.slots() {
		if m.key(slab, slot) != empty || !m.whole(slab, slot) {
			return false
		}
	}
	return m.link(slab) == frame.NoSlab
}

// check walks the invariants that doc.go lists.
func (m *image) check(k Counters) error {
	marks := kernel.MarksOf(m.cfg.keyBytes)
	var live, tombstones int64
	used := map[uint32]bool{}
	seen := map[uint64]bool{}
	for bucket := range m.t.Buckets + 1 {
		slab := m.base[bucket*slabBytes : (bucket+1)*slabBytes]
		ended := false
		for {
			for slot := range m.cfg.slots() {
				key := m.key(slab, slot)
				if key >= marks.Tombstone && !m.whole(slab, slot) {
					return fmt.Errorf("slab: check: a free slot of bucket %d has a value, so no insert could take it", bucket)
				}
				switch {
				case key == marks.Empty:
					ended = true
					continue
				case ended:
					return fmt.Errorf("slab: check: key %#x of bucket %d stands behind an empty slot", key, bucket)
				case key == marks.Tombstone:
					tombstones++
					continue
				case key == marks.Busy:
					return fmt.Errorf("slab: check: a slot of bucket %d is busy, though nothing is being inserted", bucket)
				}
				live++
				side := bucket == m.t.Buckets
				real := marks.Real(key, side)
				if side && !marks.Has(real) {
					return fmt.Errorf("slab: check: key %#x, which is not reserved, is in the bucket of those that are", real)
				}
				if home, _ := m.cfg.home(&m.t, real); home != bucket {
					return fmt.Errorf("slab: check: key %#x of bucket %d is in bucket %d", real, home, bucket)
				}
				if seen[real] && !m.cfg.multi {
					return fmt.Errorf("slab: check: key %#x is twice in bucket %d", real, bucket)
				}
				seen[real] = true
			}
			name := m.link(slab)
			if name == frame.NoSlab {
				break
			}
			if ended {
				return fmt.Errorf("slab: check: bucket %d goes on behind an empty slot", bucket)
			}
			if used[name] {
				return fmt.Errorf("slab: check: slab %#x is linked twice", name)
			}
			used[name] = true
			var ok bool
			if slab, ok = m.pool.Slab(name); !ok {
				return fmt.Errorf("slab: check: bucket %d goes on at slab %#x, and there is none of that name", bucket, name)
			}
		}
	}
	if live != k.live() || tombstones != k.tombstones() || int64(len(used)) != k.slabs() {
		return fmt.Errorf("slab: check: there are %d pairs, %d tombstones and %d linked slabs, the counters say %d, %d and %d",
			live, tombstones, len(used), k.live(), k.tombstones(), k.slabs())
	}
	if k.Failed != 0 {
		return fmt.Errorf("slab: check: %d failed positions were not told", k.Failed)
	}
	if err := m.pool.Check(used, m.clear); err != nil {
		return fmt.Errorf("slab: check: %w", err)
	}
	return nil
}

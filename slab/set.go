package slab

import (
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Set is the slab hash of keys alone (paper, §IV-B): a slab holds 31 keys of 4 bytes, or 15 of 8. All methods take
// whole batches and are safe for use by several goroutines.
//
// It implements table.Set, whose comments are the contract of the methods.
type Set[K any] struct{ c *core }

var _ table.Set[uint32] = (*Set[uint32])(nil)

// NewSet makes an empty set on the device; see New.
func NewSet[K any](d *device.Device, o Options) (*Set[K], error) {
	kb, err := table.KeyBytes[K]()
	if err != nil {
		return nil, err
	}
	c, err := newCore(d, kb, 0, o, false)
	if err != nil {
		return nil, err
	}
	return &Set[K]{c}, nil
}

// Insert puts the keys that are absent. added[i] tells whether position i went in (of equal new keys in one batch, exactly one
// does); added may be nil. The count is theirs. *table.FullError as in table.Map.
func (s *Set[K]) Insert(keys []K, added []bool) (int, error) {
	if err := family.CheckLens(len(keys), table.OptionalLen(added)); err != nil {
		return 0, err
	}
	if added == nil {
		added = make([]bool, len(keys))
	}
	err := insertBatch(s.c, s.c.kernel.insertNew, keys, []table.Column{table.In(keys), table.Out[byte](nil), table.Out(added)}, s.Contains)
	return table.CountAdded(added, err), err
}

// InsertOn is Insert on the device. It waits for the stream, to know that every key found its slab.
func (s *Set[K]) InsertOn(st *device.Stream, keys device.Slice[K], added device.Slice[bool]) error {
	if err := family.CheckOn(s.c.d, st, keys, table.Optional(added)); err != nil {
		return err
	}
	return s.c.insertOn(st, s.c.kernel.insertNew, keys.Addr(), 0, added.Addr(), keys.Len())
}

// Contains tells which keys are in.
func (s *Set[K]) Contains(keys []K, found []bool) error {
	if err := family.CheckLens(len(keys), table.OptionalLen(found)); err != nil {
		return err
	}
	return lookUp[K, byte](s.c, keys, nil, found)
}

// ContainsOn is Contains on the device.
func (s *Set[K]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	if err := family.CheckOn(s.c.d, st, keys, table.Optional(found)); err != nil {
		return err
	}
	return s.c.findOn(st, s.c.kernel.find, keys.Addr(), 0, found.Addr(), keys.Len())
}

// Delete removes keys: see table.Map.
func (s *Set[K]) Delete(keys []K, deleted []bool) (int, error) {
	return remove(s.c, s.c.kernel.erase, keys, deleted)
}

// DeleteOn is Delete on the device.
func (s *Set[K]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	if err := family.CheckOn(s.c.d, st, keys, table.Optional(deleted)); err != nil {
		return err
	}
	return s.c.findOn(st, s.c.kernel.erase, keys.Addr(), 0, deleted.Addr(), keys.Len())
}

// Mixed runs operations of all kinds side by side in one kernel: see table.Mixed. An insert is an insert-new. status may be
// nil.
func (s *Set[K]) Mixed(ops []table.Op, keys []K, status []table.Status) error {
	if err := errors.Join(family.CheckLens(len(keys), len(ops), table.OptionalLen(status)), table.CheckOps(ops)); err != nil {
		return err
	}
	return s.c.mixedBatch(len(keys), []table.Column{table.In(ops), table.In(keys), table.Out[byte](nil), table.Out[byte](nil), table.Out(status)})
}

// MixedOn is Mixed on the device. It waits for the stream.
func (s *Set[K]) MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K], status device.Slice[table.Status]) error {
	if err := family.CheckOn(s.c.d, st, keys, ops, table.Optional(status)); err != nil {
		return err
	}
	return s.c.mixedOn(st, ops.Addr(), keys.Addr(), 0, 0, status.Addr(), keys.Len())
}

// Len counts the keys.
func (s *Set[K]) Len() (int, error) { return s.c.length() }

// Clear removes all keys and keeps the capacity. It queues and returns.
func (s *Set[K]) Clear() error { return s.c.clear() }

// All exports every key, in no order.
func (s *Set[K]) All() ([]K, error) {
	keys, _, err := all[K, byte](s.c)
	return keys, err
}

// Stats measures the table. Cost: a walk through all chains.
func (s *Set[K]) Stats() (table.Stats, error) {
	stats, err := s.c.stats()
	return stats.Stats, err
}

// SlabStats are Stats, with what is particular to this family.
func (s *Set[K]) SlabStats() (Stats, error) { return s.c.stats() }

// Check downloads the table and walks its invariants. Slow.
func (s *Set[K]) Check() error { return s.c.check() }

// Flush compacts every bucket's slabs; see Map.Flush.
func (s *Set[K]) Flush() error { return s.c.flushAll() }

// Grow makes room for at least n keys in all, and rids the table of tombstones; see Map.Grow.
func (s *Set[K]) Grow(n int) error { return s.c.growTo(n) }

// Close frees the table's memory; idempotent.
func (s *Set[K]) Close() error { return s.c.close() }

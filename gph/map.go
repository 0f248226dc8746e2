package gph

import (
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Map is GPH's perfect hash table (paper, §4): each key has one value, and every look-up, hit or miss, reads one byte of the
// index and one bucket. K and V are of 2 bytes both, or K has 4 or 8 and V 4, 8 or 16. It implements table.Map, whose
// comments are the contract of the methods; all are safe for use by several goroutines.
type Map[K, V any] struct{ c *core }

var _ table.Map[uint32, uint32] = (*Map[uint32, uint32])(nil)

// New makes an empty map on the device. Its memory is buckets of Bucket slots, and the cells; Stats tells.
//
// Errors: K or V of another width or with pointers or padding; options out of range; *device.OutOfMemoryError; what
// device.Compile returns. Cost: compiling the kernels once on a machine, about a second; then the memory's filling.
func New[K, V any](d *device.Device, o Options) (*Map[K, V], error) {
	kb, vb, err := widths[K, V]()
	if err != nil {
		return nil, err
	}
	c, err := newCore(d, kb, vb, o)
	if err != nil {
		return nil, err
	}
	return &Map[K, V]{c}, nil
}

// widths allows pairs of 2 bytes each beside those that every table has.
func widths[K, V any]() (key, value int, err error) {
	if k, e := table.WidthOf[K]("key", 2); e == nil {
		v, err := table.WidthOf[V]("value beside keys of 2 bytes", 2)
		return k, v, err
	}
	if key, err = table.KeyBytes[K](); err != nil {
		return 0, 0, err
	}
	value, err = table.ValueBytes[V]()
	return key, value, err
}

const family table.Family = "gph"

// batch carries Go slices to op.
func (c *core) batch(n int, cols []table.Column, op table.ChunkOp) error {
	if err := c.locked(func() error { return nil }); err != nil {
		return err
	}
	return c.stage.Run(n, cols, op)
}

// insertBatch is an insert of Go slices with the given kernels.
func insertBatch[K any](c *core, k *insertKernels, keys []K, cols []table.Column, contains func([]K, []bool) error) error {
	var m table.Missing
	err := c.batch(len(keys), cols, func(st *device.Stream, first, n int, addr []uint64) error {
		return c.locked(func() error {
			failed, untried, why, err := c.insert(st, k, addr[0], addr[1], addr[2], int64(n))
			m.Add(first, n, failed, untried, why)
			return err
		})
	})
	if err == nil {
		err = table.StrikeOff(&m, keys, contains)
	}
	if err != nil || m.None() {
		return err
	}
	return c.locked(func() error { return c.full(m.Positions(), m.Why) })
}

func (c *core) full(failed []int, why error) error {
	return table.Full(failed, int(c.slots()), int(c.live), why)
}

func (c *core) insertOn(st *device.Stream, k *insertKernels, keys, values uint64, added device.Slice[bool], n int) error {
	return c.locked(func() error {
		failed, untried, why, err := c.insert(st, k, keys, values, added.Addr(), int64(n))
		if err != nil {
			return err
		}
		if added.Addr() != 0 && untried < n { // no kernel wrote these
			if err := added.Slice(untried, n).Fill(st, 0); err != nil {
				return err
			}
		}
		for i := untried; i < n; i++ {
			failed = append(failed, i)
		}
		return c.full(failed, why)
	})
}

func (c *core) findOn(st *device.Stream, keys, values, found uint64, n int) error {
	return c.locked(func() error {
		if c.opts.Index == Shared {
			return c.findShared(st, keys, values, found, int64(n))
		}
		return c.order.Read(st, func() error { return c.find(st, c.kernel.find, keys, values, found, int64(n)) })
	})
}

func (c *core) eraseOn(st *device.Stream, keys, deleted uint64, n int) error {
	return c.locked(func() error {
		return c.order.Write(st, func() error { return c.find(st, c.kernel.erase, keys, 0, deleted, int64(n)) })
	})
}

// Insert puts or replaces: see table.Map. Cost of a pair: one cell and one bucket read, one sector written; if its bucket is
// full, a move of its cell's pairs (paper, §6).
func (m *Map[K, V]) Insert(keys []K, values []V) error {
	if err := family.CheckLens(len(keys), len(values)); err != nil {
		return err
	}
	return insertBatch(m.c, &m.c.kernel.replace, keys, []table.Column{table.In(keys), table.In(values), table.Out[bool](nil)}, m.Contains)
}

// InsertOn is Insert on the device: see table.Map. It waits for the stream: only the end of a batch tells whether each
// pair found its place.
func (m *Map[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	if err := family.CheckOn(m.c.d, st, keys, values); err != nil {
		return err
	}
	return m.c.insertOn(st, &m.c.kernel.replace, keys.Addr(), values.Addr(), device.Slice[bool]{}, keys.Len())
}

// Build puts the pairs of a known set into an empty map. It is several times faster than Insert, reaches higher load
// factors, and makes the index as small as the set allows, which makes look-ups faster; inserts that come later find
// places less easily. Of equal keys, one value stays. The map grows to hold as many keys as there are pairs, equal ones or
// not; FullError as in Insert. Cost: four passes over the pairs and 2.5 times their memory in passing.
func (m *Map[K, V]) Build(keys []K, values []V) error {
	if err := family.CheckLens(len(keys), len(values)); err != nil {
		return err
	}
	k, err := device.From(m.c.d, keys)
	if err != nil {
		return err
	}
	defer k.Free()
	v, err := device.From(m.c.d, values)
	if err != nil {
		return err
	}
	defer v.Free()
	return m.BuildOn(nil, k, v)
}

// BuildOn is Build on the device. It waits for the stream.
func (m *Map[K, V]) BuildOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	if err := family.CheckOn(m.c.d, st, keys, values); err != nil {
		return err
	}
	return m.c.locked(func() error { return m.c.buildOn(st, pairs{keys.Addr(), values.Addr(), int64(keys.Len())}) })
}

// InsertNew puts the pairs whose keys are absent: see table.Map.
func (m *Map[K, V]) InsertNew(keys []K, values []V, added []bool) (int, error) {
	if err := family.CheckLens(len(keys), len(values), table.OptionalLen(added)); err != nil {
		return 0, err
	}
	if added == nil {
		added = make([]bool, len(keys))
	}
	err := insertBatch(m.c, &m.c.kernel.fresh, keys, []table.Column{table.In(keys), table.In(values), table.Out(added)}, m.Contains)
	return table.CountAdded(added, err), err
}

// InsertNewOn is InsertNew on the device: see table.Map. It waits for the stream, as InsertOn does.
func (m *Map[K, V]) InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], added device.Slice[bool]) error {
	if err := family.CheckOn(m.c.d, st, keys, values, table.Optional(added)); err != nil {
		return err
	}
	return m.c.insertOn(st, &m.c.kernel.fresh, keys.Addr(), values.Addr(), added, keys.Len())
}

// Find looks keys up: see table.Map. Cost of a key, hit or miss: one cell, one bucket (paper, §5).
func (m *Map[K, V]) Find(keys []K, values []V, found []bool) error {
	if err := family.CheckLens(len(keys), table.OptionalLen(values), table.OptionalLen(found)); err != nil {
		return err
	}
	return m.c.batch(len(keys), []table.Column{table.In(keys), table.Out(values), table.Out(found)},
		func(st *device.Stream, _, n int, addr []uint64) error {
			return m.c.findOn(st, addr[0], addr[1], addr[2], n)
		})
}

// FindOn is Find on the device: see table.Map.
func (m *Map[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error {
	if err := family.CheckOn(m.c.d, st, keys, table.Optional(values), table.Optional(found)); err != nil {
		return err
	}
	return m.c.findOn(st, keys.Addr(), values.Addr(), found.Addr(), keys.Len())
}

// Contains is Find without values: see table.Map.
func (m *Map[K, V]) Contains(keys []K, found []bool) error { return m.Find(keys, nil, found) }

// ContainsOn is Contains on the device: see table.Map.
func (m *Map[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return m.FindOn(st, keys, device.Slice[V]{}, found)
}

// Delete removes keys: see table.Map. Their slots are empty at once.
func (m *Map[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	if err := family.CheckLens(len(keys), table.OptionalLen(deleted)); err != nil {
		return 0, err
	}
	if deleted == nil {
		deleted = make([]bool, len(keys))
	}
	err := m.c.batch(len(keys), []table.Column{table.In(keys), table.Out(deleted)},
		func(st *device.Stream, _, n int, addr []uint64) error {
			return m.c.eraseOn(st, addr[0], addr[1], n)
		})
	return table.Count(deleted), err
}

// DeleteOn is Delete on the device: see table.Map.
func (m *Map[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	if err := family.CheckOn(m.c.d, st, keys, table.Optional(deleted)); err != nil {
		return err
	}
	return m.c.eraseOn(st, keys.Addr(), deleted.Addr(), keys.Len())
}

// Len counts the pairs.
func (m *Map[K, V]) Len() (int, error) { return m.c.length() }

// Clear removes all pairs and keeps the capacity. It queues and returns.
func (m *Map[K, V]) Clear() error { return m.c.clear() }

// All exports every pair, in no order.
func (m *Map[K, V]) All() (keys []K, values []V, err error) {
	c := m.c
	err = c.locked(func() error {
		st := c.d.Stream()
		return c.order.Write(st, func() (err error) { // it counts in the table's counters
			if err := c.look(st); err != nil {
				return err
			}
			keys, values, err = table.Download[K, V](c.d, st, int(c.live), false, func(k, v uint64) error { return c.export(st, c, k, v) })
			return err
		})
	})
	return keys, values, err
}

// Stats measures the table.
func (m *Map[K, V]) Stats() (table.Stats, error) {
	s, err := m.c.stats()
	return s.Stats, err
}

// IndexStats are Stats, with what is particular to this family.
func (m *Map[K, V]) IndexStats() (Stats, error) { return m.c.stats() }

// Check downloads the table and walks its invariants: for tests and for the suspicious. Slow.
func (m *Map[K, V]) Check() error { return m.c.check() }

// Grow makes room for at least n pairs in all. Needs memory for the old table and the new at once. Errors:
// table.ErrMaxBytes; *device.OutOfMemoryError; the table is then unchanged.
func (m *Map[K, V]) Grow(n int) error { return m.c.growTo(n) }

// Close frees the table's memory; idempotent.
func (m *Map[K, V]) Close() error { return m.c.close() }

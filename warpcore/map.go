package warpcore

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Map is WarpCore's SingleValueHashTable (paper, §IV-B): each key has one value. K has 4 or 8 bytes, V 4, 8 or 16.
// It implements table.Map, whose comments are the contract of the methods; all are safe for use by several goroutines.
type Map[K, V any] struct{ c *core }

var _ table.Map[uint32, uint32] = (*Map[uint32, uint32])(nil)

// New makes an empty map on the device. Its memory is windows × Window slots, windows the next prime; Stats tells.
//
// Errors: K or V of another width or with pointers or padding; options out of range; *device.OutOfMemoryError; what
// device.Compile returns. Cost: compiling the kernels once on a machine, about a second; then the memory's filling.
func New[K, V any](d *device.Device, o Options) (*Map[K, V], error) {
	c, err := newTyped[K, V](d, o, false)
	if err != nil {
		return nil, err
	}
	return &Map[K, V]{c}, nil
}

func newTyped[K, V any](d *device.Device, o Options, multi bool) (*core, error) {
	kb, err := table.KeyBytes[K]()
	if err != nil {
		return nil, err
	}
	vb, err := table.ValueBytes[V]()
	if err != nil {
		return nil, err
	}
	return newCore(d, kb, vb, o, multi)
}

const family table.Family = "warpcore"

// batch carries Go slices to op.
func (c *core) batch(n int, cols []table.Column, op table.ChunkOp) error {
	if err := c.locked(func() error { return nil }); err != nil {
		return err
	}
	return c.stage.Run(n, cols, op)
}

// insertBatch is an insert of Go slices with the given kernel. contains looks keys up, where equal keys are one pair.
func insertBatch[K any](c *core, k device.Kernel[InsertParams], keys []K, cols []table.Column, contains func([]K, []bool) error) error {
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
	return table.Full(failed, int(c.capacity()), int(c.live), why)
}

func (c *core) insertOn(st *device.Stream, k device.Kernel[InsertParams], keys, values uint64, added device.Slice[bool], n int) error {
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

func (c *core) findOn(st *device.Stream, k device.Kernel[FindParams], keys, values, found uint64, n int) error {
	return c.locked(func() error {
		queue := func() error { return c.find(st, k, keys, values, found, int64(n)) }
		if k == c.kernel.find {
			return c.order.Read(st, queue)
		}
		return c.order.Write(st, queue)
	})
}

// Insert puts or replaces: see table.Map. Cost of a pair: one window read and one 32-byte sector written at low load.
func (m *Map[K, V]) Insert(keys []K, values []V) error {
	if err := family.CheckLens(len(keys), len(values)); err != nil {
		return err
	}
	return insertBatch(m.c, m.c.kernel.insert, keys, []table.Column{table.In(keys), table.In(values), table.Out[bool](nil)}, m.Contains)
}

// InsertOn is Insert on the device: see table.Map.
func (m *Map[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	if err := family.CheckOn(m.c.d, st, keys, values); err != nil {
		return err
	}
	return m.c.insertOn(st, m.c.kernel.insert, keys.Addr(), values.Addr(), device.Slice[bool]{}, keys.Len())
}

// InsertNew puts the pairs whose keys are absent: see table.Map.
func (m *Map[K, V]) InsertNew(keys []K, values []V, added []bool) (int, error) {
	if err := family.CheckLens(len(keys), len(values), table.OptionalLen(added)); err != nil {
		return 0, err
	}
	if added == nil {
		added = make([]bool, len(keys))
	}
	err := insertBatch(m.c, m.c.kernel.insertNew, keys, []table.Column{table.In(keys), table.In(values), table.Out(added)}, m.Contains)
	return table.CountAdded(added, err), err
}

// InsertNewOn is InsertNew on the device: see table.Map.
func (m *Map[K, V]) InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], added device.Slice[bool]) error {
	if err := family.CheckOn(m.c.d, st, keys, values, table.Optional(added)); err != nil {
		return err
	}
	return m.c.insertOn(st, m.c.kernel.insertNew, keys.Addr(), values.Addr(), added, keys.Len())
}

// Find looks keys up: see table.Map. Cost of a key: one window read at low load, 1.3 on average at 0.9 with half hits.
func (m *Map[K, V]) Find(keys []K, values []V, found []bool) error {
	if err := family.CheckLens(len(keys), table.OptionalLen(values), table.OptionalLen(found)); err != nil {
		return err
	}
	return m.c.batch(len(keys), []table.Column{table.In(keys), table.Out(values), table.Out(found)},
		func(st *device.Stream, _, n int, addr []uint64) error {
			return m.c.findOn(st, m.c.kernel.find, addr[0], addr[1], addr[2], n)
		})
}

// FindOn is Find on the device: see table.Map.
func (m *Map[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error {
	if err := family.CheckOn(m.c.d, st, keys, table.Optional(values), table.Optional(found)); err != nil {
		return err
	}
	return m.c.findOn(st, m.c.kernel.find, keys.Addr(), values.Addr(), found.Addr(), keys.Len())
}

// Contains is Find without values: see table.Map.
func (m *Map[K, V]) Contains(keys []K, found []bool) error { return m.Find(keys, nil, found) }

// ContainsOn is Contains on the device: see table.Map.
func (m *Map[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return m.FindOn(st, keys, device.Slice[V]{}, found)
}

// Delete removes keys: see table.Map. Their slots become tombstones, which later inserts use again.
func (m *Map[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	if err := family.CheckLens(len(keys), table.OptionalLen(deleted)); err != nil {
		return 0, err
	}
	if deleted == nil {
		deleted = make([]bool, len(keys))
	}
	err := m.c.batch(len(keys), []table.Column{table.In(keys), table.Out(deleted)},
		func(st *device.Stream, _, n int, addr []uint64) error {
			return m.c.findOn(st, m.c.kernel.erase, addr[0], 0, addr[1], n)
		})
	return table.Count(deleted), err
}

// DeleteOn is Delete on the device: see table.Map.
func (m *Map[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	if err := family.CheckOn(m.c.d, st, keys, table.Optional(deleted)); err != nil {
		return err
	}
	return m.c.findOn(st, m.c.kernel.erase, keys.Addr(), 0, deleted.Addr(), keys.Len())
}

// Len counts the pairs.
func (m *Map[K, V]) Len() (int, error) { return m.c.length() }

// Clear removes all pairs and keeps the capacity. It queues and returns.
func (m *Map[K, V]) Clear() error { return m.c.clear() }

// All exports every pair, in no order.
func (m *Map[K, V]) All() ([]K, []V, error) { return all[K, V](m.c) }

func all[K, V any](c *core) (keys []K, values []V, err error) {
	err = c.locked(func() error {
		st := c.d.Stream()
		return c.order.Write(st, func() (err error) { // it counts in the table's counters
			if _, err := c.look(st); err != nil {
				return err
			}
			keys, values, err = table.Download[K, V](c.d, st, int(c.live), false, func(k, v uint64) error {
				n, err := c.exporting(st, c.kernel.export, SlotsParams{Keys: k, Values: v, Limit: uint64(c.live)})
				if err == nil && n != c.live {
					err = fmt.Errorf("warpcore: %d pairs exported of %d: this is a defect of warpmap", n, c.live)
				}
				return err
			})
			return err
		})
	})
	return keys, values, err
}

// Stats measures the table. Cost: a walk from every pair's first window to its slot.
func (m *Map[K, V]) Stats() (table.Stats, error) { return m.c.stats() }

// Check downloads the table and walks its invariants: for tests and for the suspicious. Slow.
func (m *Map[K, V]) Check() error { return m.c.check() }

// Grow makes room for at least n pairs in all, and rids the table of tombstones. Needs memory for the old table and
// the new at once. Errors: table.ErrMaxBytes; *device.OutOfMemoryError; the table is then unchanged.
func (m *Map[K, V]) Grow(n int) error { return m.c.growTo(n) }

// Close frees the table's memory; idempotent.
func (m *Map[K, V]) Close() error { return m.c.close() }

package slab

import (
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Map is the slab hash of pairs with unique keys (paper, §III-C): each bucket is a list of slabs. K has 4 or 8 bytes, V 4, 8
// or 16. It implements table.Map and table.Mixed, whose comments are the contract of the methods; all are safe for use by
// several goroutines.
type Map[K, V any] struct{ c *core }

var (
	_ table.Map[uint32, uint32]   = (*Map[uint32, uint32])(nil)
	_ table.Mixed[uint32, uint32] = (*Map[uint32, uint32])(nil)
)

// New makes an empty map on the device. Its memory is a slab of 128 bytes for each bucket and a pool of further slabs; Stats
// tells.
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

const family table.Family = "slab"

// batch carries Go slices to op.
func (c *core) batch(n int, cols []table.Column, op table.ChunkOp) error {
	if err := c.locked(func() error { return nil }); err != nil {
		return err
	}
	return c.stage.Run(n, cols, op)
}

// insert inserts n pairs at device addresses, growing as it must. The positions that do not fit come back with the reason.
// The caller holds the lock.
func (c *core) insert(st *device.Stream, k device.Kernel[InsertParams], keys, values, added uint64, n int64) (failed []int, why, err error) {
	if n == 0 {
		return nil, nil, nil
	}
	err = c.order.Write(st, func() (err error) {
		failed, why, err = c.settle(st, n, 1, func(first, n, number, refused uint64) error {
			p := InsertParams{Table: c.table(), Keys: keys + first*uint64(c.cfg.keyBytes), Values: values + first*uint64(c.cfg.valueBytes),
				Refused: refused, N: n, Attempt: number}
			if added != 0 {
				p.Added = added + first
			}
			return c.launchInsert(st, k, p)
		})
		return err
	})
	return failed, why, err
}

// insertBatch is an insert of Go slices with the given kernel. contains looks keys up, where equal keys are one pair.
func insertBatch[K any](c *core, k device.Kernel[InsertParams], keys []K, cols []table.Column, contains func([]K, []bool) error) error {
	var m table.Missing
	err := c.batch(len(keys), cols, func(st *device.Stream, first, n int, addr []uint64) error {
		return c.locked(func() error {
			failed, why, err := c.insert(st, k, addr[0], addr[1], addr[2], int64(n))
			m.Add(first, n, failed, n, why)
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
	return table.Full(failed, int(c.capacity()), int(c.k.live()), why)
}

func (c *core) insertOn(st *device.Stream, k device.Kernel[InsertParams], keys, values, added uint64, n int) error {
	return c.locked(func() error {
		failed, why, err := c.insert(st, k, keys, values, added, int64(n))
		if err != nil {
			return err
		}
		return c.full(failed, why)
	})
}

// findOn queues a look-up, or with another kernel than find a change.
func (c *core) findOn(st *device.Stream, k device.Kernel[FindParams], keys, values, found uint64, n int) error {
	return c.locked(func() error {
		queue := func() error {
			for first := 0; first < n; first += largestBatch {
				m := min(n-first, largestBatch)
				p := FindParams{Table: c.table(), Keys: keys + uint64(first*c.cfg.keyBytes), N: uint64(m)}
				if values != 0 {
					p.Values = values + uint64(first*c.cfg.valueBytes)
				}
				if found != 0 {
					p.Found = found + uint64(first)
				}
				if err := k.Launch(st, c.grid(int64(m), findBlocks), &p); err != nil {
					return err
				}
			}
			return nil
		}
		if k == c.kernel.find {
			return c.order.Read(st, queue)
		}
		return c.order.Write(st, queue)
	})
}

func lookUp[K, V any](c *core, keys []K, values []V, found []bool) error {
	return c.batch(len(keys), []table.Column{table.In(keys), table.Out(values), table.Out(found)},
		func(st *device.Stream, _, n int, addr []uint64) error {
			return c.findOn(st, c.kernel.find, addr[0], addr[1], addr[2], n)
		})
}

// remove deletes keys of Go slices, with erase, or another kernel like it.
func remove[K any](c *core, k device.Kernel[FindParams], keys []K, deleted []bool) (int, error) {
	if err := family.CheckLens(len(keys), table.OptionalLen(deleted)); err != nil {
		return 0, err
	}
	if deleted == nil {
		deleted = make([]bool, len(keys))
	}
	err := c.batch(len(keys), []table.Column{table.In(keys), table.Out(deleted)},
		func(st *device.Stream, _, n int, addr []uint64) error {
			return c.findOn(st, k, addr[0], 0, addr[1], n)
		})
	return table.Count(deleted), err
}

// Insert puts or replaces (the paper's REPLACE): see table.Map. Cost of a pair: one slab read and one sector written, while
// chains are short.
func (m *Map[K, V]) Insert(keys []K, values []V) error {
	if err := family.CheckLens(len(keys), len(values)); err != nil {
		return err
	}
	return insertBatch(m.c, m.c.kernel.insert, keys, []table.Column{table.In(keys), table.In(values), table.Out[bool](nil)}, m.Contains)
}

// InsertOn is Insert on the device: see table.Map. It waits for the stream: only the end of a batch tells whether each pair
// found its slab.
func (m *Map[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	if err := family.CheckOn(m.c.d, st, keys, values); err != nil {
		return err
	}
	return m.c.insertOn(st, m.c.kernel.insert, keys.Addr(), values.Addr(), 0, keys.Len())
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

// InsertNewOn is InsertNew on the device: see table.Map. It waits for the stream, as InsertOn does.
func (m *Map[K, V]) InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], added device.Slice[bool]) error {
	if err := family.CheckOn(m.c.d, st, keys, values, table.Optional(added)); err != nil {
		return err
	}
	return m.c.insertOn(st, m.c.kernel.insertNew, keys.Addr(), values.Addr(), added.Addr(), keys.Len())
}

// Find looks keys up (the paper's SEARCH): see table.Map. Cost of a key: one slab read while chains are short.
func (m *Map[K, V]) Find(keys []K, values []V, found []bool) error {
	if err := family.CheckLens(len(keys), table.OptionalLen(values), table.OptionalLen(found)); err != nil {
		return err
	}
	return lookUp(m.c, keys, values, found)
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

// Delete removes keys (the paper's DELETE, and DELETEALL too, for a key is there once): see table.Map. Their slots become tombstones, which Insert and InsertNew use again, and Flush clears.
func (m *Map[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	return remove(m.c, m.c.kernel.erase, keys, deleted)
}

// DeleteOn is Delete on the device: see table.Map.
func (m *Map[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	if err := family.CheckOn(m.c.d, st, keys, table.Optional(deleted)); err != nil {
		return err
	}
	return m.c.findOn(st, m.c.kernel.erase, keys.Addr(), 0, deleted.Addr(), keys.Len())
}

// mixed runs a mixed batch at device addresses; results and status may be 0. The caller holds the lock.
func (c *core) mixed(st *device.Stream, ops, keys, values, results, status uint64, n int64) (failed []int, why, err error) {
	if n == 0 {
		return nil, nil, nil
	}
	err = c.order.Write(st, func() (err error) {
		failed, why, err = c.settle(st, n, mixedInserts, func(first, n, number, refused uint64) error {
			kb, vb := uint64(c.cfg.keyBytes), uint64(c.cfg.valueBytes)
			p := MixedParams{Table: c.table(), Ops: ops + first, Keys: keys + first*kb, Values: values + first*vb, Refused: refused, N: n, Attempt: number}
			if results != 0 {
				p.Results = results + first*vb
			}
			if status != 0 {
				p.Status = status + first
			}
			err := c.kernel.mixed.Launch(st, c.grid(int64(n), mixedBlocks), &p)
			if number == 0 && !c.opts.NoPolicy { // without the host in between; see follow
				err = errors.Join(err, c.queueFlush(st, flushShare))
			}
			return err
		})
		return err
	})
	return failed, why, err
}

// mixedInserts: of a mixed batch, one operation in so many is expected to add a pair. Where more do, the table grows in
// the middle of the batch.
const mixedInserts = 4

// Mixed runs operations of all kinds side by side in one kernel: see table.Mixed. Cost: as Insert and Find; one sector
// written for each insert and delete.
func (m *Map[K, V]) Mixed(ops []table.Op, keys []K, values, results []V, status []table.Status) error {
	if err := errors.Join(family.CheckLens(len(keys), len(ops), len(values), table.OptionalLen(results), table.OptionalLen(status)), table.CheckOps(ops)); err != nil {
		return err
	}
	return m.c.mixedBatch(len(keys), []table.Column{table.In(ops), table.In(keys), table.In(values), table.Out(results), table.Out(status)})
}

func (c *core) mixedBatch(n int, cols []table.Column) error {
	var m table.Missing
	err := c.batch(n, cols, func(st *device.Stream, first, n int, addr []uint64) error {
		return c.locked(func() error {
			failed, why, err := c.mixed(st, addr[0], addr[1], addr[2], addr[3], addr[4], int64(n))
			m.Add(first, n, failed, n, why)
			return err
		})
	})
	if err != nil || m.None() {
		return err
	}
	return c.locked(func() error { return c.full(m.Positions(), m.Why) })
}

func (c *core) mixedOn(st *device.Stream, ops, keys, values, results, status uint64, n int) error {
	return c.locked(func() error {
		failed, why, err := c.mixed(st, ops, keys, values, results, status, int64(n))
		if err != nil {
			return err
		}
		return c.full(failed, why)
	})
}

// MixedOn is Mixed on the device. It waits for the stream. An operation that is none of table.Op does nothing.
func (m *Map[K, V]) MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K], values, results device.Slice[V], status device.Slice[table.Status]) error {
	if err := family.CheckOn(m.c.d, st, keys, ops, values, table.Optional(results), table.Optional(status)); err != nil {
		return err
	}
	return m.c.mixedOn(st, ops.Addr(), keys.Addr(), values.Addr(), results.Addr(), status.Addr(), keys.Len())
}

// Len counts the pairs.
func (m *Map[K, V]) Len() (int, error) { return m.c.length() }

// Clear removes all pairs and keeps the capacity. It queues and returns.
func (m *Map[K, V]) Clear() error { return m.c.clear() }

// All exports every pair, in no order.
func (m *Map[K, V]) All() ([]K, []V, error) { return all[K, V](m.c) }

func all[K, V any](c *core) (keys []K, values []V, err error) {
	err = c.writing(c.d.Stream(), func(st *device.Stream) (err error) { // it counts in the table's counters
		if err := c.look(st); err != nil {
			return err
		}
		keys, values, err = table.Download[K, V](c.d, st, int(c.k.live()), c.cfg.valueBytes == 0, func(k, v uint64) error { return c.export(st, k, v) })
		return err
	})
	return keys, values, err
}

// Stats measures the table. Cost: a walk through all chains.
func (m *Map[K, V]) Stats() (table.Stats, error) {
	s, err := m.c.stats()
	return s.Stats, err
}

// SlabStats are Stats, with what is particular to this family: memory utilization and slabs a bucket (paper, §III-C).
func (m *Map[K, V]) SlabStats() (Stats, error) { return m.c.stats() }

// Check downloads the table and walks its invariants: for tests and for the suspicious. Slow.
func (m *Map[K, V]) Check() error { return m.c.check() }

// Flush compacts every bucket's slabs into as few as hold its pairs, and gives the others back (paper, §IV-C4). Cost: all
// slabs are read, those with deleted pairs are written. It waits.
func (m *Map[K, V]) Flush() error { return m.c.flushAll() }

func (c *core) flushAll() error { return c.writing(c.d.Stream(), c.flush) }

// Grow makes room for at least n pairs in all, and rids the table of tombstones. More buckets need memory for the old table
// and the new at once. Errors: table.ErrMaxBytes; *device.OutOfMemoryError; the table is then unchanged.
func (m *Map[K, V]) Grow(n int) error { return m.c.growTo(n) }

// Close frees the table's memory; idempotent.
func (m *Map[K, V]) Close() error { return m.c.close() }

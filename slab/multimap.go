package slab

import (
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// MultiMap is the slab hash whose keys may have any number of values (paper, §III-B). The pairs of a key keep the order in
// which batches brought them, the least recent first; those of one batch are in no order. All methods take whole
// batches and are safe for use by several goroutines.
//
// The pairs of one key are in one bucket, so a key with v values costs v/M slabs to go through, M being 15 for pairs of 4+4
// bytes, and inserting them costs the square of that: for keys with thousands of values it is the wrong table.
//
// It implements table.MultiMap; that FindAll keeps an order, Find and DeleteOldest are its own.
type MultiMap[K, V any] struct{ c *core }

var _ table.MultiMap[uint32, uint32] = (*MultiMap[uint32, uint32])(nil)

// NewMultiMap makes an empty multimap on the device; see New.
func NewMultiMap[K, V any](d *device.Device, o Options) (*MultiMap[K, V], error) {
	c, err := newTyped[K, V](d, o, true)
	if err != nil {
		return nil, err
	}
	return &MultiMap[K, V]{c}, nil
}

// Insert adds n pairs, equal ones too (the paper's INSERT). The table grows as it must; where it may not, *table.FullError
// names exactly the positions that are not in.
func (m *MultiMap[K, V]) Insert(keys []K, values []V) error {
	if err := family.CheckLens(len(keys), len(values)); err != nil {
		return err
	}
	return insertBatch(m.c, m.c.kernel.insert, keys, []table.Column{table.In(keys), table.In(values), table.Out[bool](nil)}, nil)
}

// InsertOn is Insert on the device. It waits for the stream, to know that every pair found its slab.
func (m *MultiMap[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	if err := family.CheckOn(m.c.d, st, keys, values); err != nil {
		return err
	}
	return m.c.insertOn(st, m.c.kernel.insert, keys.Addr(), values.Addr(), 0, keys.Len())
}

// Find gives the least recent value of each key (SEARCH), or the zero value, and whether there is one; values or found may
// be nil.
func (m *MultiMap[K, V]) Find(keys []K, values []V, found []bool) error {
	if err := family.CheckLens(len(keys), table.OptionalLen(values), table.OptionalLen(found)); err != nil {
		return err
	}
	return lookUp(m.c, keys, values, found)
}

// FindOn is Find on the device.
func (m *MultiMap[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error {
	if err := family.CheckOn(m.c.d, st, keys, table.Optional(values), table.Optional(found)); err != nil {
		return err
	}
	return m.c.findOn(st, m.c.kernel.find, keys.Addr(), values.Addr(), found.Addr(), keys.Len())
}

// Contains tells of each key whether it has a value.
func (m *MultiMap[K, V]) Contains(keys []K, found []bool) error { return m.Find(keys, nil, found) }

// ContainsOn is Contains on the device.
func (m *MultiMap[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return m.FindOn(st, keys, device.Slice[V]{}, found)
}

// Count writes how many values each key has.
func (m *MultiMap[K, V]) Count(keys []K, counts []uint32) error {
	if err := family.CheckLens(len(keys), len(counts)); err != nil {
		return err
	}
	return m.c.batch(len(keys), []table.Column{table.In(keys), table.Out(counts)},
		func(st *device.Stream, _, n int, addr []uint64) error { return m.c.countOn(st, addr[0], addr[1], n) })
}

// CountOn is Count on the device.
func (m *MultiMap[K, V]) CountOn(st *device.Stream, keys device.Slice[K], counts device.Slice[uint32]) error {
	if err := family.CheckOn(m.c.d, st, keys, counts); err != nil {
		return err
	}
	return m.c.countOn(st, keys.Addr(), counts.Addr(), keys.Len())
}

func (c *core) countOn(st *device.Stream, keys, counts uint64, n int) error {
	return c.locked(func() error {
		return c.order.Read(st, func() error {
			if n == 0 {
				return nil
			}
			p := FindAllParams{Table: c.table(), Keys: keys, Counts: counts, N: uint64(n)}
			return c.kernel.all.count.Launch(st, c.grid(int64(n), findBlocks), &p)
		})
	})
}

// FindAll gives all values of each key (SEARCHALL): those of keys[i] are values[offsets[i]:offsets[i+1]], the least recent
// first.
func (m *MultiMap[K, V]) FindAll(keys []K) (offsets []uint64, values []V, err error) {
	in, err := device.From(m.c.d, keys)
	if err != nil {
		return nil, nil, err
	}
	defer in.Free()
	o, v, err := m.FindAllOn(nil, in)
	if err != nil {
		return nil, nil, err
	}
	defer o.Free()
	defer v.Free()
	if offsets, err = o.Host(nil); err != nil {
		return nil, nil, err
	}
	values, err = v.Host(nil)
	return offsets, values, err
}

// FindAllOn is FindAll on the device, in slices of its own making, which the caller frees. It waits for the stream. Cost: two
// passes over the keys' chains.
func (m *MultiMap[K, V]) FindAllOn(st *device.Stream, keys device.Slice[K]) (offsets device.Slice[uint64], values device.Slice[V], err error) {
	c, n := m.c, keys.Len()
	if err := family.CheckOn(c.d, st, keys); err != nil {
		return offsets, values, err
	}
	if offsets, err = device.Make[uint64](c.d, n+1); err != nil {
		return offsets, values, err
	}
	err = c.writing(st, func(st *device.Stream) (err error) { // it uses the table's scratch memory
		values, err = findAll[V](c, st, keys.Addr(), offsets, n)
		return err
	})
	if err != nil {
		offsets.Free()
		if values.Addr() != 0 {
			values.Free()
		}
		return device.Slice[uint64]{}, device.Slice[V]{}, err
	}
	return offsets, values, nil
}

func findAll[V any](c *core, st *device.Stream, keys uint64, offsets device.Slice[uint64], n int) (values device.Slice[V], err error) {
	// Each warp takes a chunk of keys, of a size that still leaves every warp of a large GPU a few.
	chunk := min(max(n/(1<<15)&^31, 128), 2048)
	chunks := (n + chunk - 1) / chunk
	counts := align(4 * int64(n))
	base, err := c.reserve(counts + 8*int64(chunks) + 256)
	if err != nil {
		return values, err
	}
	p := FindAllParams{Table: c.table(), Keys: keys, Counts: base, Totals: base + uint64(counts), Offsets: offsets.Addr(),
		N: uint64(n), Chunk: uint64(chunk), Chunks: uint64(chunks)}
	k := &c.kernel.all
	items, warps := c.grid(int64(n), findBlocks), c.grid(32*int64(chunks), findBlocks)
	if n > 0 {
		if err := errors.Join(k.count.Launch(st, items, &p), k.sum.Launch(st, warps, &p)); err != nil {
			return values, err
		}
	}
	if err := k.scan.Launch(st, device.Grid{Blocks: 1, Threads: threads}, &p); err != nil {
		return values, err
	}
	var total [1]uint64
	if err := offsets.Slice(n, n+1).Read(st, total[:]); err != nil {
		return values, err
	}
	if values, err = device.Make[V](c.d, int(total[0])); err != nil || n == 0 {
		return values, err
	}
	p.Values = values.Addr()
	return values, errors.Join(k.offsets.Launch(st, warps, &p), k.fill.Launch(st, items, &p), st.SyncOf(c.d))
}

// DeleteOldest removes the least recent pair of each key (DELETE): a key that is twice in the batch loses two. deleted[i]
// tells whether position i removed one; it may be nil. The count is theirs.
func (m *MultiMap[K, V]) DeleteOldest(keys []K, deleted []bool) (int, error) {
	return remove(m.c, m.c.kernel.erase, keys, deleted)
}

// DeleteOldestOn is DeleteOldest on the device.
func (m *MultiMap[K, V]) DeleteOldestOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	if err := family.CheckOn(m.c.d, st, keys, table.Optional(deleted)); err != nil {
		return err
	}
	return m.c.findOn(st, m.c.kernel.erase, keys.Addr(), 0, deleted.Addr(), keys.Len())
}

// Delete removes all pairs of each key (DELETEALL). deleted[i] tells whether position i removed any; it may be nil. The count
// is of pairs.
func (m *MultiMap[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	if err := family.CheckLens(len(keys), table.OptionalLen(deleted)); err != nil {
		return 0, err
	}
	c, n := m.c, 0
	err := c.batch(len(keys), []table.Column{table.In(keys), table.Out(deleted)},
		func(st *device.Stream, _, items int, addr []uint64) error {
			return c.writing(st, func(st *device.Stream) error {
				if err := c.look(st); err != nil {
					return err
				}
				before := c.k.Erased
				p := FindParams{Table: c.table(), Keys: addr[0], Found: addr[1], N: uint64(items)}
				if err := errors.Join(c.kernel.eraseAll.Launch(st, c.grid(int64(items), findBlocks), &p), c.look(st)); err != nil {
					return err
				}
				n += int(c.k.Erased - before)
				return nil
			})
		})
	return n, err
}

// DeleteOn is Delete on the device, without the count.
func (m *MultiMap[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	if err := family.CheckOn(m.c.d, st, keys, table.Optional(deleted)); err != nil {
		return err
	}
	return m.c.findOn(st, m.c.kernel.eraseAll, keys.Addr(), 0, deleted.Addr(), keys.Len())
}

// Len counts the pairs.
func (m *MultiMap[K, V]) Len() (int, error) { return m.c.length() }

// Clear removes all pairs and keeps the capacity. It queues and returns.
func (m *MultiMap[K, V]) Clear() error { return m.c.clear() }

// All exports every pair, in no order.
func (m *MultiMap[K, V]) All() ([]K, []V, error) { return all[K, V](m.c) }

// Stats measures the table. Cost: a walk through all chains.
func (m *MultiMap[K, V]) Stats() (table.Stats, error) {
	s, err := m.c.stats()
	return s.Stats, err
}

// SlabStats are Stats, with what is particular to this family.
func (m *MultiMap[K, V]) SlabStats() (Stats, error) { return m.c.stats() }

// Check downloads the table and walks its invariants. Slow.
func (m *MultiMap[K, V]) Check() error { return m.c.check() }

// Flush compacts every bucket's slabs; see Map.Flush. The pairs of a key keep their order.
func (m *MultiMap[K, V]) Flush() error { return m.c.flushAll() }

// Grow makes room for at least n pairs in all, and rids the table of tombstones; see Map.Grow.
func (m *MultiMap[K, V]) Grow(n int) error { return m.c.growTo(n) }

// Close frees the table's memory; idempotent.
func (m *MultiMap[K, V]) Close() error { return m.c.close() }

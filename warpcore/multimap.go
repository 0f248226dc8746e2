package warpcore

import (
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// MultiMap is WarpCore's MultiValueHashTable (paper, §IV-B): a key may have any number of values, each in a slot of its
// own. All methods take whole batches and are safe for use by several goroutines.
//
// The pairs of one key stand on one probe sequence, so a key with v values costs v/Window windows to look up, and
// inserting them costs the square of that: for keys with thousands of values it is the wrong table.
//
// It implements table.MultiMap; FindAllInto and Keys are its own.
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

// Insert adds n pairs, equal ones too. The table grows as it must; where it may not, *table.FullError names exactly
// the positions that are not in.
func (m *MultiMap[K, V]) Insert(keys []K, values []V) error {
	if err := family.CheckLens(len(keys), len(values)); err != nil {
		return err
	}
	return insertBatch(m.c, m.c.kernel.insertMulti, keys, []table.Column{table.In(keys), table.In(values), table.Out[bool](nil)}, nil)
}

// InsertOn is Insert on the device. It waits for the stream, to know that every pair found its slot.
func (m *MultiMap[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	if err := family.CheckOn(m.c.d, st, keys, values); err != nil {
		return err
	}
	return m.c.insertOn(st, m.c.kernel.insertMulti, keys.Addr(), values.Addr(), device.Slice[bool]{}, keys.Len())
}

// Contains tells of each key whether it has a value.
func (m *MultiMap[K, V]) Contains(keys []K, found []bool) error {
	if err := family.CheckLens(len(keys), table.OptionalLen(found)); err != nil {
		return err
	}
	return m.c.batch(len(keys), []table.Column{table.In(keys), table.Out(found)},
		func(st *device.Stream, _, n int, addr []uint64) error {
			return m.c.findOn(st, m.c.kernel.find, addr[0], 0, addr[1], n)
		})
}

// ContainsOn is Contains on the device.
func (m *MultiMap[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	if err := family.CheckOn(m.c.d, st, keys, table.Optional(found)); err != nil {
		return err
	}
	return m.c.findOn(st, m.c.kernel.find, keys.Addr(), 0, found.Addr(), keys.Len())
}

// Count writes how many values each key has.
func (m *MultiMap[K, V]) Count(keys []K, counts []uint32) error {
	if err := family.CheckLens(len(keys), len(counts)); err != nil {
		return err
	}
	return m.c.batch(len(keys), []table.Column{table.In(keys), table.Out(counts)},
		func(st *device.Stream, _, n int, addr []uint64) error {
			return m.c.countOn(st, addr[0], addr[1], n)
		})
}

// CountOn is Count on the device.
func (m *MultiMap[K, V]) CountOn(st *device.Stream, keys device.Slice[K], counts device.Slice[uint32]) error {
	if err := family.CheckOn(m.c.d, st, keys, counts); err != nil {
		return err
	}
	return m.c.countOn(st, keys.Addr(), counts.Addr(), keys.Len())
}

func (c *core) countOn(st *device.Stream, keys, counts uint64, n int) error {
	if n == 0 {
		return c.locked(func() error { return nil })
	}
	return c.locked(func() error {
		return c.order.Read(st, func() error {
			p := FindAllParams{Table: c.t, Keys: keys, Counts: counts, N: uint64(n)}
			return c.kernel.countAll.Launch(st, c.grid(int64(n)), &p)
		})
	})
}

// chunks divides n keys among warps: each takes as many as still leaves every warp of a large GPU a few chunks.
func (c *core) chunks(n int) FindAllParams {
	chunk := min(max(n/(1<<15)&^127, 128), 2048)
	return FindAllParams{N: uint64(n), Chunk: uint64(chunk), Chunks: uint64((n + chunk - 1) / chunk)}
}

// FindAll gives all values of each key: those of keys[i] are values[offsets[i]:offsets[i+1]], in no order.
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

// FindAllOn is FindAll on the device, in slices of its own making, which the caller frees. It waits for the stream.
func (m *MultiMap[K, V]) FindAllOn(st *device.Stream, keys device.Slice[K]) (offsets device.Slice[uint64], values device.Slice[V], err error) {
	offsets, err = device.Make[uint64](m.c.d, keys.Len()+1)
	if err != nil {
		return offsets, values, err
	}
	_, err = m.FindAllInto(st, keys, offsets, func(n int) (device.Slice[V], error) {
		values, err = device.Make[V](m.c.d, n)
		return values, err
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

// FindAllInto is FindAllOn into memory of the caller's: offsets has one element more than keys, and values is asked for
// the memory once the number of values is known (paper, §IV-B4: a counting pass, a prefix sum, a filling pass; the
// filling pass reads the table again only for keys with several values). It returns that number, and waits for the stream.
// values must not use the table.
func (m *MultiMap[K, V]) FindAllInto(st *device.Stream, keys device.Slice[K], offsets device.Slice[uint64], values func(n int) (device.Slice[V], error)) (int, error) {
	c := m.c
	if err := errors.Join(family.CheckLens(keys.Len()+1, offsets.Len()), family.CheckOn(c.d, st, keys), family.CheckOn(c.d, st, offsets)); err != nil {
		return 0, err
	}
	n := keys.Len()
	total := 0
	err := c.locked(func() error {
		return c.order.Write(st, func() error { // it uses the table's scratch memory
			p := c.chunks(n)
			counts, totals := align(4*int64(n)), align(8*int64(p.Chunks))
			base, err := c.reserve(counts + totals + int64(c.cfg.valueBytes)*int64(n) + 256)
			if err != nil {
				return err
			}
			p.Table, p.Keys, p.Offsets = c.t, keys.Addr(), offsets.Addr()
			p.Counts, p.Totals, p.Stash = base, base+uint64(counts), base+uint64(counts+totals)
			if n > 0 {
				if err := c.kernel.countAll.Launch(st, c.grid(int64(n)), &p); err != nil {
					return err
				}
				if err := c.kernel.sumChunks.Launch(st, c.grid(32*int64(p.Chunks)), &p); err != nil {
					return err
				}
			}
			if err := c.kernel.scanTotals.Launch(st, device.Grid{Blocks: 1, Threads: threads}, &p); err != nil {
				return err
			}
			var last [1]uint64
			if err := offsets.Slice(n, n+1).Read(st, last[:]); err != nil {
				return err
			}
			total = int(last[0])
			out, err := values(total)
			if err != nil {
				return err
			}
			if err := errors.Join(family.CheckLens(total, out.Len()), out.On(c.d)); err != nil {
				return err
			}
			if n == 0 {
				return nil
			}
			p.Values = out.Addr()
			if err := c.kernel.fillAll.Launch(st, c.grid(32*int64(p.Chunks)), &p); err != nil {
				return err
			}
			return st.SyncOf(c.d)
		})
	})
	return total, err
}

// Delete removes all values of each key. deleted[i] tells whether position i removed any; it may be nil. The count is
// of pairs.
func (m *MultiMap[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	if err := family.CheckLens(len(keys), table.OptionalLen(deleted)); err != nil {
		return 0, err
	}
	c, n := m.c, 0
	err := c.batch(len(keys), []table.Column{table.In(keys), table.Out(deleted)},
		func(st *device.Stream, _, items int, addr []uint64) error {
			return c.locked(func() error {
				return c.order.Write(st, func() error {
					before, err := c.look(st)
					if err != nil {
						return err
					}
					if err := c.find(st, c.kernel.eraseMulti, addr[0], 0, addr[1], int64(items)); err != nil {
						return err
					}
					after, err := c.look(st)
					n += int(after.Erased - before.Erased)
					return err
				})
			})
		})
	return n, err
}

// DeleteOn is Delete on the device.
func (m *MultiMap[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	if err := family.CheckOn(m.c.d, st, keys, table.Optional(deleted)); err != nil {
		return err
	}
	return m.c.findOn(st, m.c.kernel.eraseMulti, keys.Addr(), 0, deleted.Addr(), keys.Len())
}

// Keys exports each key once, in no order.
func (m *MultiMap[K, V]) Keys() (keys []K, err error) {
	c := m.c
	err = c.locked(func() error {
		st := c.d.Stream()
		return c.order.Write(st, func() error {
			if _, err := c.look(st); err != nil {
				return err
			}
			k, err := device.Make[K](c.d, int(c.live))
			if err != nil {
				return err
			}
			defer k.Free()
			n, err := c.exporting(st, c.kernel.distinct, SlotsParams{Keys: k.Addr(), Limit: uint64(c.live)})
			if err != nil {
				return err
			}
			keys, err = k.Slice(0, int(n)).Host(st)
			return err
		})
	})
	return keys, err
}

// Len counts the pairs.
func (m *MultiMap[K, V]) Len() (int, error) { return m.c.length() }

// Clear removes all pairs and keeps the capacity. It queues and returns.
func (m *MultiMap[K, V]) Clear() error { return m.c.clear() }

// All exports every pair, in no order.
func (m *MultiMap[K, V]) All() ([]K, []V, error) { return all[K, V](m.c) }

// Stats measures the table. Cost: a walk from every pair's first window to its slot.
func (m *MultiMap[K, V]) Stats() (table.Stats, error) { return m.c.stats() }

// Check downloads the table and walks its invariants. Slow.
func (m *MultiMap[K, V]) Check() error { return m.c.check() }

// Grow makes room for at least n pairs in all, and rids the table of tombstones; see Map.Grow.
func (m *MultiMap[K, V]) Grow(n int) error { return m.c.growTo(n) }

// Close frees the table's memory; idempotent.
func (m *MultiMap[K, V]) Close() error { return m.c.close() }

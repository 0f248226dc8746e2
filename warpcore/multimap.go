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
type MultiMap[K, V any] struct{ *core }

var _ table.MultiMap[uint32, uint32] = (*MultiMap[uint32, uint32])(nil)

// NewMultiMap makes an empty multimap on the device; see New.
func NewMultiMap[K, V any](d *device.Device, o Options) (*MultiMap[K, V], error) {
	kb, vb, err := table.Widths[K, V]()
	if err != nil {
		return nil, err
	}
	c, err := newCore(d, kb, vb, o, true)
	if err != nil {
		return nil, err
	}
	return &MultiMap[K, V]{c}, nil
}

// Insert adds n pairs, equal ones too. The table grows as it must; where it may not, *table.FullError names exactly
// the positions that are not in.
func (m *MultiMap[K, V]) Insert(keys []K, values []V) error {
	return table.Insert(&m.frame, keys, values, m.insertion(m.kernel.insertMulti))
}

// InsertOn is Insert on the device. It waits for the stream, to know that every pair found its slot.
func (m *MultiMap[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return table.InsertOn(&m.frame, st, keys, values, device.Slice[bool]{}, m.insertion(m.kernel.insertMulti))
}

// Contains tells of each key whether it has a value.
func (m *MultiMap[K, V]) Contains(keys []K, found []bool) error {
	return table.Find[K, V](&m.frame, keys, nil, found, m.find)
}

// ContainsOn is Contains on the device.
func (m *MultiMap[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return table.FindOn(&m.frame, st, keys, device.Slice[V]{}, found, m.find)
}

// Count writes how many values each key has.
func (m *MultiMap[K, V]) Count(keys []K, counts []uint32) error {
	return table.CountValues(&m.frame, keys, counts, m.count)
}

// CountOn is Count on the device.
func (m *MultiMap[K, V]) CountOn(st *device.Stream, keys device.Slice[K], counts device.Slice[uint32]) error {
	return table.CountValuesOn(&m.frame, st, keys, counts, m.count)
}

func (c *core) count(st *device.Stream, b table.Rows) error {
	if b.N == 0 {
		return nil
	}
	p := FindAllParams{Table: c.t, Keys: b.Keys, Counts: b.Flags, N: uint64(b.N)}
	return c.kernel.countAll.Launch(st, c.grid(b.N), &p)
}

func (c *core) lookErased(st *device.Stream) (uint64, error) {
	_, err := c.look(st)
	return c.counters.Seen.Erased, err
}

// chunks divides n keys among warps: each takes as many as still leaves every warp of a large GPU a few chunks.
func (c *core) chunks(n int) FindAllParams {
	chunk := min(max(n/(1<<15)&^127, 128), 2048)
	return FindAllParams{N: uint64(n), Chunk: uint64(chunk), Chunks: uint64((n + chunk - 1) / chunk)}
}

// FindAll gives all values of each key: those of keys[i] are values[offsets[i]:offsets[i+1]], in no order.
func (m *MultiMap[K, V]) FindAll(keys []K) (offsets []uint64, values []V, err error) {
	in, err := device.From(m.core.frame.Device, keys)
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
	offsets, err = device.Make[uint64](m.core.frame.Device, keys.Len()+1)
	if err != nil {
		return offsets, values, err
	}
	_, err = m.FindAllInto(st, keys, offsets, func(n int) (device.Slice[V], error) {
		values, err = device.Make[V](m.core.frame.Device, n)
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
	c := m.core
	if err := errors.Join(family.CheckLens(keys.Len()+1, offsets.Len()), family.CheckOn(c.frame.Device, st, keys), family.CheckOn(c.frame.Device, st, offsets)); err != nil {
		return 0, err
	}
	n := keys.Len()
	total := 0
	err := c.frame.Writing(st, func(st *device.Stream) error { // it uses the table's scratch memory
		p := c.chunks(n)
		counts, totals := table.Align(4*int64(n)), table.Align(8*int64(p.Chunks))
		mem, err := c.frame.Scratch(counts + totals + int64(c.cfg.valueBytes)*int64(n) + 256)
		if err != nil {
			return err
		}
		base := mem.Addr()
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
		if err := c.kernel.scanTotals.Launch(st, device.Grid{Blocks: 1, Threads: table.Threads}, &p); err != nil {
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
		if err := errors.Join(family.CheckLens(total, out.Len()), out.On(c.frame.Device)); err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		p.Values = out.Addr()
		if err := c.kernel.fillAll.Launch(st, c.grid(32*int64(p.Chunks)), &p); err != nil {
			return err
		}
		return st.SyncOf(c.frame.Device)
	})
	return total, err
}

// Delete removes all values of each key. deleted[i] tells whether position i removed any; it may be nil. The count is
// of pairs.
func (m *MultiMap[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	return table.DeletePairs(&m.frame, keys, deleted, m.erase, m.lookErased)
}

// DeleteOn is Delete on the device.
func (m *MultiMap[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return table.DeleteOn(&m.frame, st, keys, deleted, m.erase)
}

// Keys exports each key once, in no order.
func (m *MultiMap[K, V]) Keys() (keys []K, err error) {
	c := m.core
	err = c.frame.Writing(nil, func(st *device.Stream) error {
		live, err := c.look(st)
		if err != nil {
			return err
		}
		k, err := table.Make[K](&c.frame, live)
		if err != nil {
			return err
		}
		defer k.Free()
		n, err := c.exporting(st, c.kernel.distinct, SlotsParams{Keys: k.Addr(), Limit: uint64(live)})
		if err != nil {
			return err
		}
		keys, err = k.Slice(0, int(n)).Host(st)
		return err
	})
	return keys, err
}

// All exports every pair, in no order.
func (m *MultiMap[K, V]) All() ([]K, []V, error) {
	return table.All[K, V](&m.frame, false, m.look, m.export)
}

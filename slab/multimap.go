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

// Insert adds n pairs, equal ones too (the paper's INSERT). The table grows as it must; where it may not, *table.FullError
// names exactly the positions that are not in.
func (m *MultiMap[K, V]) Insert(keys []K, values []V) error {
	return table.Insert(&m.frame, keys, values, m.insertion(m.kernel.insert))
}

// InsertOn is Insert on the device. It waits for the stream, to know that every pair found its slab.
func (m *MultiMap[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return table.InsertOn(&m.frame, st, keys, values, device.Slice[bool]{}, m.insertion(m.kernel.insert))
}

// Find gives the least recent value of each key (SEARCH), or the zero value, and whether there is one; values or found may
// be nil.
func (m *MultiMap[K, V]) Find(keys []K, values []V, found []bool) error {
	return table.Find(&m.frame, keys, values, found, m.find)
}

// FindOn is Find on the device.
func (m *MultiMap[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error {
	return table.FindOn(&m.frame, st, keys, values, found, m.find)
}

// Contains tells of each key whether it has a value.
func (m *MultiMap[K, V]) Contains(keys []K, found []bool) error { return m.Find(keys, nil, found) }

// ContainsOn is Contains on the device.
func (m *MultiMap[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return m.FindOn(st, keys, device.Slice[V]{}, found)
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
	p := FindAllParams{Table: c.table(), Keys: b.Keys, Counts: b.Flags, N: uint64(b.N)}
	return c.kernel.all.count.Launch(st, c.frame.Grid(b.N, findBlocks), &p)
}

func (c *core) lookErased(st *device.Stream) (uint64, error) {
	_, err := c.look(st)
	return c.counters.Seen.Erased, err
}

// FindAll gives all values of each key (SEARCHALL): those of keys[i] are values[offsets[i]:offsets[i+1]], the least recent
// first.
func (m *MultiMap[K, V]) FindAll(keys []K) (offsets []uint64, values []V, err error) {
	in, err := device.From(m.frame.Device, keys)
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
	c, n := m.core, keys.Len()
	if err := family.CheckOn(c.frame.Device, st, keys); err != nil {
		return offsets, values, err
	}
	if offsets, err = device.Make[uint64](c.frame.Device, n+1); err != nil {
		return offsets, values, err
	}
	err = c.frame.Writing(st, func(st *device.Stream) (err error) { // it uses the table's scratch memory
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
	counts := table.Align(4 * int64(n))
	mem, err := c.frame.Scratch(counts + 8*int64(chunks) + 256)
	if err != nil {
		return values, err
	}
	base := mem.Addr()
	p := FindAllParams{Table: c.table(), Keys: keys, Counts: base, Totals: base + uint64(counts), Offsets: offsets.Addr(),
		N: uint64(n), Chunk: uint64(chunk), Chunks: uint64(chunks)}
	k := &c.kernel.all
	items, warps := c.frame.Grid(int64(n), findBlocks), c.frame.Grid(32*int64(chunks), findBlocks)
	if n > 0 {
		if err := errors.Join(k.count.Launch(st, items, &p), k.sum.Launch(st, warps, &p)); err != nil {
			return values, err
		}
	}
	if err := k.scan.Launch(st, device.Grid{Blocks: 1, Threads: table.Threads}, &p); err != nil {
		return values, err
	}
	var total [1]uint64
	if err := offsets.Slice(n, n+1).Read(st, total[:]); err != nil {
		return values, err
	}
	if values, err = device.Make[V](c.frame.Device, int(total[0])); err != nil || n == 0 {
		return values, err
	}
	p.Values = values.Addr()
	return values, errors.Join(k.offsets.Launch(st, warps, &p), k.fill.Launch(st, items, &p), st.SyncOf(c.frame.Device))
}

// DeleteOldest removes the least recent pair of each key (DELETE): a key that is twice in the batch loses two. deleted[i]
// tells whether position i removed one; it may be nil. The count is theirs.
func (m *MultiMap[K, V]) DeleteOldest(keys []K, deleted []bool) (int, error) {
	return table.Delete(&m.frame, keys, deleted, m.erase)
}

// DeleteOldestOn is DeleteOldest on the device.
func (m *MultiMap[K, V]) DeleteOldestOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return table.DeleteOn(&m.frame, st, keys, deleted, m.erase)
}

// Delete removes all pairs of each key (DELETEALL). deleted[i] tells whether position i removed any; it may be nil. The count
// is of pairs.
func (m *MultiMap[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	return table.DeletePairs(&m.frame, keys, deleted, m.eraseAll, m.lookErased)
}

// DeleteOn is Delete on the device, without the count.
func (m *MultiMap[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return table.DeleteOn(&m.frame, st, keys, deleted, m.eraseAll)
}

func (c *core) eraseAll(st *device.Stream, b table.Rows) error {
	return c.search(st, c.kernel.eraseAll, b)
}

// All exports every pair, in no order.
func (m *MultiMap[K, V]) All() ([]K, []V, error) {
	return table.All[K, V](&m.frame, false, m.look, m.export)
}

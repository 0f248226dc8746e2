package slab

import (
	"context"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// MultiMap is the slab hash whose keys may have any number of values (paper, §III-B). The pairs of a key keep the order
// in which batches brought them, the least recent first. Those of one batch are in no order. All methods take whole
// batches and are safe for use by several goroutines.
//
// The pairs of one key are in one bucket. So an operation on a key with v values goes through v/M slabs, where M is 15
// for pairs of 4+4 bytes, and to insert them all costs the square of that. For keys with thousands of values, MultiMap
// is the wrong table.
//
// MultiMap implements table.OuterFinder. It also has Find and DeleteOldest, and its FindAll keeps an order.
type MultiMap[K, V any] struct{ handle }

func _[K, V any](m *MultiMap[K, V]) table.OuterFinder[K, V] { return m }

// NewMultiMap makes an empty multimap on the device: see New.
func NewMultiMap[K, V any](d *device.Device, o Options) (*MultiMap[K, V], error) {
	c, err := newCore(d, frame.WidthsOf[K, V](), o, true)
	return frame.Made(&MultiMap[K, V]{handle{c}}, err)
}

// Insert adds n pairs, even if the table or the batch holds equal ones (the paper's INSERT). The table grows if it
// must. If it may not, *table.FullError names exactly the positions that are not in.
func (m *MultiMap[K, V]) Insert(keys []K, values []V) error {
	return frame.Insert(&m.made().frame, keys, values, m.made().insertion(m.made().kernel.insert))
}

// InsertOn does what Insert does, with slices on the device. It waits for the stream, to know that every pair found its
// slab.
func (m *MultiMap[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return frame.InsertOn(&m.made().frame, st, keys, values, device.Slice[bool]{}, m.made().insertion(m.made().kernel.insert))
}

// Find writes the least recent value of each key (SEARCH), or the zero value, and whether there is one. values or found
// may be nil.
func (m *MultiMap[K, V]) Find(keys []K, values []V, found []bool) error {
	return frame.Find(&m.made().frame, keys, values, found, m.made().find)
}

// FindOn does what Find does, with slices on the device.
func (m *MultiMap[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error {
	return frame.FindOn(&m.made().frame, st, keys, values, found, m.made().find)
}

// Contains tells for each key whether it has a value.
func (m *MultiMap[K, V]) Contains(keys []K, found []bool) error { return m.Find(keys, nil, found) }

// ContainsOn does what Contains does, with slices on the device.
func (m *MultiMap[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return m.FindOn(st, keys, device.Slice[V]{}, found)
}

// Count writes how many values each key has.
func (m *MultiMap[K, V]) Count(keys []K, counts []uint32) error {
	return frame.CountValues(&m.made().frame, keys, counts, m.made().count)
}

// CountOn does what Count does, with slices on the device.
func (m *MultiMap[K, V]) CountOn(st *device.Stream, keys device.Slice[K], counts device.Slice[uint32]) error {
	return frame.CountValuesOn(&m.made().frame, st, keys, counts, m.made().count)
}

func (c *core) count(st *device.Stream, b frame.Rows) error {
	p := findAllParams{Table: c.table(), Rows: frame.FindAll{Keys: b.Keys, Counts: b.Flags, N: uint64(b.N)}}
	return c.kernel.all.Count(st, c.findGrid, &p.Rows, &p)
}

// findAll is what frame.FindValues and the like run.
func (c *core) findAll(st *device.Stream, rows frame.FindAll, offsets device.Slice[uint64], values func(n int) (uint64, error)) (int, error) {
	p := findAllParams{Table: c.table(), Rows: rows}
	return c.kernel.all.Run(&c.frame, st, c.findGrid, &p.Rows, &p, 0, offsets, values)
}

func (c *core) findGrid(items int64) device.Grid { return c.frame.Grid(items, findBlocks) }

func (c *core) lookErased(st *device.Stream) (uint64, error) {
	_, err := c.look(st)
	return c.counters.Seen.Erased, err
}

// FindAll returns all values of each key (SEARCHALL). Those of keys[i] are values[offsets[i]:offsets[i+1]], the least
// recent first.
func (m *MultiMap[K, V]) FindAll(keys []K) (offsets []uint64, values []V, err error) {
	return frame.FindValues[K, V](&m.made().frame, keys, m.made().findAll)
}

// FindAllOn does what FindAll does, with slices on the device. It makes the slices that it returns, and the caller
// frees them. It waits for the stream. It passes over the chains of the keys twice.
func (m *MultiMap[K, V]) FindAllOn(st *device.Stream, keys device.Slice[K]) (offsets device.Slice[uint64], values device.Slice[V], err error) {
	return frame.FindValuesOn[K, V](&m.made().frame, st, keys, m.made().findAll)
}

// FindAllOuter does what FindAll does, but gives a key without values one value, none, as an outer join wants. found[i]
// tells whether key i has values; found may be nil. See table.OuterFinder. It costs as much as FindAll, and three
// passes over the keys' counts. The first call compiles kernels.
func (m *MultiMap[K, V]) FindAllOuter(keys []K, none V, found []bool) (offsets []uint64, values []V, err error) {
	return frame.FindOuter(&m.made().frame, keys, none, found, m.made().findAll)
}

// FindAllOuterOn does what FindAllOuter does, with slices on the device. It makes the slices that it returns, and the
// caller frees them. It waits for the stream.
func (m *MultiMap[K, V]) FindAllOuterOn(st *device.Stream, keys device.Slice[K], none V, found device.Slice[bool]) (offsets device.Slice[uint64], values device.Slice[V], err error) {
	return frame.FindOuterOn(&m.made().frame, st, keys, none, found, m.made().findAll)
}

// DeleteOldest removes the least recent pair of each key (DELETE). A key that is twice in the batch loses two pairs.
// deleted[i] tells whether position i removed one; deleted may be nil. DeleteOldest returns how many pairs it removed.
func (m *MultiMap[K, V]) DeleteOldest(keys []K, deleted []bool) (int, error) {
	return frame.Delete(&m.made().frame, keys, deleted, m.made().erase)
}

// DeleteOldestOn does what DeleteOldest does, with slices on the device.
func (m *MultiMap[K, V]) DeleteOldestOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return frame.DeleteOn(&m.made().frame, st, keys, deleted, m.made().erase)
}

// Delete removes all pairs of each key (DELETEALL). deleted[i] tells whether position i removed any; deleted may be
// nil. Delete returns how many pairs it removed.
func (m *MultiMap[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	return frame.DeletePairs(&m.made().frame, keys, deleted, m.made().eraseAll, m.made().lookErased)
}

// DeleteOn does what Delete does, with slices on the device, but returns no count.
func (m *MultiMap[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return frame.DeleteOn(&m.made().frame, st, keys, deleted, m.made().eraseAll)
}

func (c *core) eraseAll(st *device.Stream, b frame.Rows) error {
	return c.search(st, c.kernel.eraseAll, b)
}

// All exports every pair, in no order.
func (m *MultiMap[K, V]) All() ([]K, []V, error) {
	return frame.All[K, V](&m.made().frame, false, m.made().exporting)
}

// Chunks calls do with every pair, in chunks: see table.Map.
func (m *MultiMap[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return frame.Chunks(ctx, &m.made().frame, m.made().exporting, do)
}

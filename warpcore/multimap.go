package warpcore

import (
	"context"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// MultiMap is WarpCore's MultiValueHashTable (paper, §IV-B): a key may have any number of values, each in a slot of its
// own. If a key has 2³²-1 values or more, Count tells 2³²-1, and FindAll and its like return an error. All methods take
// whole batches and are safe for use by several goroutines.
//
// The pairs of one key stand on one probe sequence, so a look-up of a key with v values reads v/Window windows. If
// these are many, all of the GPU reads them. A large batch with several rows for each key goes in key by key: then one
// walk along the chain of a key serves thousands of its rows, and a long chain is not walked again. For keys with many
// values, BucketList is faster still, and does not take a slot for each value.
//
// MultiMap implements table.OuterFinder. It also has FindAllInto, FindAllIn, FindPages and Keys.
type MultiMap[K, V any] struct{ handle }

func _[K, V any](m *MultiMap[K, V]) table.OuterFinder[K, V] { return m }

// NewMultiMap makes an empty multimap on the device: see New.
func NewMultiMap[K, V any](d *device.Device, o Options) (*MultiMap[K, V], error) {
	c, err := newCore(d, frame.WidthsOf[K, V](), o, table.KindMultiMap)
	return frame.Made(&MultiMap[K, V]{handle{core: c}}, err)
}

// Insert adds n pairs, even if the table or the batch holds equal ones. The table grows if it must. If it may not,
// *table.FullError names exactly the positions that are not in.
func (m *MultiMap[K, V]) Insert(keys []K, values []V) error {
	return frame.Insert(&m.made().frame, keys, values, m.made().insertion(m.made().kernel.insertMulti))
}

// InsertOn does what Insert does, with slices on the device. It waits for the stream, to know that every pair found its
// slot.
func (m *MultiMap[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	insertion := m.insertion(m.made().kernel.insertMulti)
	return frame.InsertOn(&m.made().frame, st, keys, values, device.Slice[bool]{}, insertion)
}

// Contains tells for each key whether it has a value.
func (m *MultiMap[K, V]) Contains(keys []K, found []bool) error {
	return frame.Find[K, V](&m.made().frame, keys, nil, found, m.made().find)
}

// ContainsOn does what Contains does, with slices on the device.
func (m *MultiMap[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return frame.FindOn(&m.made().frame, st, keys, device.Slice[V]{}, found, m.finding())
}

// Count writes how many values each key has, or 2³²-1 if there are more.
func (m *MultiMap[K, V]) Count(keys []K, counts []uint32) error {
	return frame.CountValues(&m.made().frame, keys, counts, m.made().count)
}

// CountOn does what Count does, with slices on the device. In a table of a thousand windows or more it may wait for the
// stream, to see whether chains are long.
func (m *MultiMap[K, V]) CountOn(st *device.Stream, keys device.Slice[K], counts device.Slice[uint32]) error {
	return frame.CountValuesOn(&m.made().frame, st, keys, counts, m.made().count)
}

func (c *core) lookErased(st *device.Stream) (uint64, error) {
	_, err := c.look(st)
	if c.cfg.bucket > 0 {
		return c.counters.Seen.Removed, err
	}
	return c.counters.Seen.Erased, err
}

// FindAll returns all values of each key. Those of keys[i] are values[offsets[i]:offsets[i+1]], in no order.
func (m *MultiMap[K, V]) FindAll(keys []K) (offsets []uint64, values []V, err error) {
	return frame.FindValues[K, V](&m.made().frame, keys, m.made().findAll)
}

// FindAllOn does what FindAll does, with slices on the device. It makes the slices that it returns, and the caller
// frees them. It waits for the stream.
func (m *MultiMap[K, V]) FindAllOn(st *device.Stream, keys device.Slice[K]) (offsets device.Slice[uint64], values device.Slice[V], err error) {
	return frame.FindValuesOn[K, V](&m.made().frame, st, keys, m.made().findAll)
}

// FindAllInto does what FindAllOn does, but writes to memory that the caller provides. offsets has one element more
// than keys. Once the number of values is known, FindAllInto calls values with it, and values returns the memory for
// them. values must not use the table. FindAllInto waits for the stream, and returns the number of values. It makes a
// counting pass, a prefix sum and a filling pass (paper, §IV-B4). The filling pass reads the table again only for keys
// with several values.
func (m *MultiMap[K, V]) FindAllInto(st *device.Stream, keys device.Slice[K], offsets device.Slice[uint64], values func(n int) (device.Slice[V], error)) (int, error) {
	return frame.FindValuesInto(&m.made().frame, st, keys, offsets, values, m.made().findAll)
}

// FindAllIn does what FindAllInto does, but with a slice for the values that the caller has made before. It returns the
// number of values. If values has no room for all of them, FindAllIn writes none and returns *table.RoomError, which
// tells how many there are. The two offsets of a key without values are equal: so an outer join sees which rows have no
// partner.
func (m *MultiMap[K, V]) FindAllIn(st *device.Stream, keys device.Slice[K], offsets device.Slice[uint64], values device.Slice[V]) (int, error) {
	return frame.FindValuesIn(&m.made().frame, st, keys, offsets, values, m.made().findAll)
}

// FindPages does what FindAllOn does, for results larger than memory. It calls page for some keys after the others,
// each time with all values of these keys, and with no more than `most` values. These keys begin at number first of the
// batch. offsets has one element more than there are keys in the page. Both slices are good until page returns. page
// may use the table. What other calls change between two pages, the later page sees. If a key has more than `most`
// values, they come in several pages in a row, each with this key alone, and all as they were at the first of these
// pages. FindPages takes memory for one page, and for the values of such a key.
//
// Errors: *device.OutOfMemoryError; an error of page, which ends the call. Cost: that of FindAllInto, and one more
// counting pass for each page that was tried with too many keys.
func (m *MultiMap[K, V]) FindPages(st *device.Stream, keys device.Slice[K], most int,
	page func(first int, offsets device.Slice[uint64], values device.Slice[V]) error) error {
	return frame.FindPages(&m.made().frame, st, keys, most, page, m.made().findAll)
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

// Delete removes all values of each key. deleted[i] tells whether position i removed any; deleted may be nil. Delete
// returns how many pairs it removed.
func (m *MultiMap[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	return frame.DeletePairs(&m.made().frame, keys, deleted, m.made().erase, m.made().lookErased)
}

// DeleteOn does what Delete does, with slices on the device. It may wait for the stream, as CountOn does.
func (m *MultiMap[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return frame.DeleteOn(&m.made().frame, st, keys, deleted, m.erasing())
}

// Keys exports each key once, in no order.
func (m *MultiMap[K, V]) Keys() (keys []K, err error) {
	c := m.made()
	err = c.frame.Alone(nil, func(st *device.Stream) error {
		if _, err := c.look(st); err != nil {
			return err
		}
		k, err := frame.Make[K](&c.frame, c.live())
		if err != nil {
			return err
		}
		defer c.frame.Free(k)
		n, err := c.exporting(st, c.kernel.distinct, slotsParams{Keys: k.Addr(), Limit: uint64(k.Len())})
		if err != nil {
			return err
		}
		keys, err = frame.Host(st, k.Slice(0, int(n)))
		return err
	})
	return keys, err
}

// All exports every pair, in no order.
func (m *MultiMap[K, V]) All() ([]K, []V, error) {
	return frame.All[K, V](&m.made().frame, false, m.made().exporter)
}

// Chunks calls do with every pair, in chunks: see table.Map.
func (m *MultiMap[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return frame.Chunks(ctx, &m.made().frame, m.made().exporter, do)
}

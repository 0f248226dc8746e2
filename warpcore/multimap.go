package warpcore

import (
	"context"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// MultiMap is WarpCore's MultiValueHashTable (paper, §IV-B): a key may have any number of values, each in a slot of its
// own. All methods take whole batches and are safe for use by several goroutines.
//
// The pairs of one key stand on one probe sequence, so a key with v values costs v/Window windows to look up: by all of the GPU, where these are many.
// A batch that is large, and has several rows a key, goes in by keys: then a key's chain is gone through once for thousands of its rows; and a chain
// that is long is not gone through again. For keys with many values BucketList is faster still, and takes no slot a value.
//
// It implements table.OuterFinder; FindAllInto, FindAllIn, FindPages and Keys are its own.
type MultiMap[K, V any] struct{ handle }

func _[K, V any](m *MultiMap[K, V]) table.OuterFinder[K, V] { return m }

// NewMultiMap makes an empty multimap on the device; see New.
func NewMultiMap[K, V any](d *device.Device, o Options) (*MultiMap[K, V], error) {
	c, err := newCore(d, frame.WidthsOf[K, V](), o, table.KindMultiMap)
	return frame.Made(&MultiMap[K, V]{handle{c}}, err)
}

// Insert adds n pairs, equal ones too. The table grows as it must; where it may not, *table.FullError names exactly
// the positions that are not in.
func (m *MultiMap[K, V]) Insert(keys []K, values []V) error {
	return frame.Insert(&m.core.frame, keys, values, m.core.insertion(m.core.kernel.insertMulti))
}

// InsertOn is Insert on the device. It waits for the stream, to know that every pair found its slot.
func (m *MultiMap[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return frame.InsertOn(&m.core.frame, st, keys, values, device.Slice[bool]{}, m.core.insertion(m.core.kernel.insertMulti))
}

// Contains tells of each key whether it has a value.
func (m *MultiMap[K, V]) Contains(keys []K, found []bool) error {
	return frame.Find[K, V](&m.core.frame, keys, nil, found, m.core.find)
}

// ContainsOn is Contains on the device.
func (m *MultiMap[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return frame.FindOn(&m.core.frame, st, keys, device.Slice[V]{}, found, m.core.find)
}

// Count writes how many values each key has.
func (m *MultiMap[K, V]) Count(keys []K, counts []uint32) error {
	return frame.CountValues(&m.core.frame, keys, counts, m.core.count)
}

// CountOn is Count on the device.
func (m *MultiMap[K, V]) CountOn(st *device.Stream, keys device.Slice[K], counts device.Slice[uint32]) error {
	return frame.CountValuesOn(&m.core.frame, st, keys, counts, m.core.count)
}

func (c *core) lookErased(st *device.Stream) (uint64, error) {
	_, err := c.look(st)
	if c.cfg.bucket > 0 {
		return c.counters.Seen.Removed, err
	}
	return c.counters.Seen.Erased, err
}

// FindAll gives all values of each key: those of keys[i] are values[offsets[i]:offsets[i+1]], in no order.
func (m *MultiMap[K, V]) FindAll(keys []K) (offsets []uint64, values []V, err error) {
	return frame.FindValues[K, V](&m.core.frame, keys, m.core.findAll)
}

// FindAllOn is FindAll on the device, in slices of its own making, which the caller frees. It waits for the stream.
func (m *MultiMap[K, V]) FindAllOn(st *device.Stream, keys device.Slice[K]) (offsets device.Slice[uint64], values device.Slice[V], err error) {
	return frame.FindValuesOn[K, V](&m.core.frame, st, keys, m.core.findAll)
}

// FindAllInto is FindAllOn into memory of the caller's: offsets has one element more than keys, and values is asked for
// the memory once the number of values is known (paper, §IV-B4: a counting pass, a prefix sum, a filling pass; the
// filling pass reads the table again only for keys with several values). It returns that number, and waits for the stream.
// values must not use the table.
func (m *MultiMap[K, V]) FindAllInto(st *device.Stream, keys device.Slice[K], offsets device.Slice[uint64], values func(n int) (device.Slice[V], error)) (int, error) {
	return frame.FindValuesInto(&m.core.frame, st, keys, offsets, values, m.core.findAll)
}

// FindAllIn is FindAllInto into memory of the caller's for as many values as it has room for, and returns their number. *table.RoomError tells
// how many there are if they are more: nothing is written to values then. The offsets of a key without values are equal, and so tell an outer join
// which rows have no partner.
func (m *MultiMap[K, V]) FindAllIn(st *device.Stream, keys device.Slice[K], offsets device.Slice[uint64], values device.Slice[V]) (int, error) {
	return frame.FindValuesIn(&m.core.frame, st, keys, offsets, values, m.core.findAll)
}

// FindPages is FindAllOn for results larger than memory: page is called with the values of some keys after the others, of whole keys, and no more
// than `most` values at once. They are those of the keys from first on, at offsets, one more than there are of them; both slices
// are good until page returns, which may use the table. What other calls change between two pages, the later page sees. The values of a key that has
// more than `most` come in several pages in a row, each of this key alone, and all as they were at the first. Memory: one page, and the values of
// such a key.
//
// Errors: *device.OutOfMemoryError; page's own, which ends it. Cost: that of FindAllInto, and a counting pass again for a page that was tried with
// too many keys.
func (m *MultiMap[K, V]) FindPages(st *device.Stream, keys device.Slice[K], most int,
	page func(first int, offsets device.Slice[uint64], values device.Slice[V]) error) error {
	return frame.FindPages(&m.core.frame, st, keys, most, page, m.core.findAll)
}

// FindAllOuter is FindAll, in which a key without values gets one, none, as an outer join wants; found[i] tells whether key i has values, and may be
// nil: see table.OuterFinder. Cost: FindAll's, and three passes over the keys' counts. The first call compiles kernels.
func (m *MultiMap[K, V]) FindAllOuter(keys []K, none V, found []bool) (offsets []uint64, values []V, err error) {
	return frame.FindOuter(&m.core.frame, keys, none, found, m.core.findAll)
}

// FindAllOuterOn is FindAllOuter on the device, in slices of its own making, which the caller frees. It waits for the stream.
func (m *MultiMap[K, V]) FindAllOuterOn(st *device.Stream, keys device.Slice[K], none V, found device.Slice[bool]) (offsets device.Slice[uint64], values device.Slice[V], err error) {
	return frame.FindOuterOn(&m.core.frame, st, keys, none, found, m.core.findAll)
}

// Delete removes all values of each key. deleted[i] tells whether position i removed any; it may be nil. The count is
// of pairs.
func (m *MultiMap[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	return frame.DeletePairs(&m.core.frame, keys, deleted, m.core.erase, m.core.lookErased)
}

// DeleteOn is Delete on the device.
func (m *MultiMap[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return frame.DeleteOn(&m.core.frame, st, keys, deleted, m.core.erase)
}

// Keys exports each key once, in no order.
func (m *MultiMap[K, V]) Keys() (keys []K, err error) {
	c := m.core
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
	return frame.All[K, V](&m.core.frame, false, m.core.exporter)
}

// Chunks gives every pair to do, in chunks: see table.Map.
func (m *MultiMap[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return frame.Chunks(ctx, &m.core.frame, m.core.exporter, do)
}

package warpcore

import (
	"errors"
	"reflect"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Sums combines the values of equal keys in a batch on the device, and returns the sums. The map does not change. Sums is
// for package shard, which sends sums to other devices instead of rows. The caller frees them. There are none if the
// batch is small, if its keys repeat too rarely, if with is code of the user's, or if memory is short.
func (m *Map[K, V]) Sums(st *device.Stream, keys, values device.Slice[byte], with table.Combine) (frame.Sums, error) {
	header, err := frame.CombineHeader(with, reflect.TypeFor[V]())
	if err != nil {
		return frame.Sums{}, err
	}
	return m.made().sums(st, header, keys, values)
}

// Sums adds up the counts of equal keys in a batch on the device, or counts the keys if there are no values: see
// Map.Sums. It ignores the last argument.
func (c *Counter[K, C]) Sums(st *device.Stream, keys, values device.Slice[byte], _ table.Combine) (frame.Sums, error) {
	return c.made().sums(st, c.header, keys, values)
}

// sums combines the rows of a batch piece by piece. A key has at least one sum for each piece, and may have several. It
// waits for the stream.
func (c *core) sums(st *device.Stream, header device.File, keys, values device.Slice[byte]) (sums frame.Sums, err error) {
	if err := c.frame.Usable(); err != nil {
		return sums, err
	}
	b := frame.Rows{Keys: keys.Addr(), Values: values.Addr(), N: int64(keys.Len() / c.cfg.keyBytes)}
	if b.N < c.regions.MinRows {
		return sums, nil
	}
	err = c.frame.Alone(st, func(st *device.Stream) error {
		k, err := c.update(header)
		if err != nil || k.combine == (device.Kernel[combineParams]{}) {
			return err
		}
		own := c.combining // of the batches that the table itself gets
		c.combining = c.sources
		defer func() { c.sources, c.combining = c.combining, own }()
		if many, err := c.repeats(st, b); err != nil || !many || c.distinct*sumsShare > c.seen {
			return err
		}
		sums, err = c.sumsOf(st, k, b)
		return err
	})
	return sums, err
}

// sumsOf combines the rows of a batch. There are no sums if they take too much memory.
func (c *core) sumsOf(st *device.Stream, k inserts, b frame.Rows) (sums frame.Sums, err error) {
	most := 0
	place := func(r *frame.Partition) (err error) {
		if r.First == 0 {
			most = int((uint64(b.N)-r.N)/sumsShare + r.N)
			sums, err = frame.MakeSums(c.frame.Device, most, c.cfg.keyBytes, c.cfg.valueBytes)
		}
		if err == nil && sums.N+int(r.N) > most {
			err = errManySums
		}
		if err == nil {
			r.OutKeys = sums.Keys.Addr() + uint64(sums.N*c.cfg.keyBytes)
			r.OutValues = sums.Values.Addr() + uint64(sums.N*c.cfg.valueBytes)
		}
		return err
	}
	done, err := c.combine(st, k, b, place, func(int64, insertParams) error {
		_, err := c.look(st)
		sums.N += int(c.counters.Seen.Exported)
		return err
	})
	if err == nil && done {
		return sums.Shrink(st, most, c.cfg.keyBytes, c.cfg.valueBytes)
	}
	if errors.Is(err, errManySums) {
		c.repeated = false // until keys are looked at again
	}
	if errors.Is(err, errManySums) || device.IsOutOfMemory(err) {
		err = nil
	}
	return frame.Sums{}, errors.Join(err, sums.Free(st))
}

var errManySums = errors.New("a batch with more sums than were expected")

package cache

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// checkBatch checks what the slices of a batch are. A length of scores below 0 stands for none.
func (c *core) checkBatch(n, values, scores int) error {
	if c.cfg.valueBytes == 0 {
		values = -1
	}
	if err := c.frame.Family.CheckNamed("values scores", n, values, scores); err != nil {
		return err
	}
	return c.checkScores(scores >= 0)
}

// insert brings a batch of Go slices.
func (c *core) insert(n int, keys, values, scores, lives frame.Column) error {
	return c.frame.Batch(n, []frame.Column{keys, values, scores, lives}, func(st *device.Stream, _, n int,
		addr []uint64) error {
		return c.frame.Writing(st, func(st *device.Stream) error {
			return c.put(st, putParams{Keys: addr[0], Values: addr[1], Scores: addr[2], Lives: addr[3], N: uint64(n)})
		})
	})
}

// outColumns are an Out of any types.
type outColumns struct{ Keys, Values, Scores, Count frame.DeviceSlice }

// wanted tells whether pairs are told that go out.
func (o *outColumns) wanted() bool {
	return o.Count.Addr() != 0 || o.Keys.Addr() != 0 || o.Values.Addr() != 0 || o.Scores.Addr() != 0
}

// check says what is wrong with the columns beside a batch of n pairs.
func (o *outColumns) check(d *device.Device, n int) error {
	if o.Keys.Addr() == 0 || o.Count.Addr() == 0 {
		return fmt.Errorf("cache: out lacks Keys or Count (want both, with room for %d keys and for 1 number; Values and "+
			"Scores if they are wanted; or the zero Out)", n)
	}
	for _, x := range []struct {
		name     string
		s        frame.DeviceSlice
		want     int
		optional bool
	}{{"Keys", o.Keys, n, false}, {"Values", o.Values, n, true}, {"Scores", o.Scores, n, true}, {"Count", o.Count, 1,
		false}} {
		if x.optional && x.s.Addr() == 0 {
			continue
		}
		if x.s.Len() < x.want {
			return fmt.Errorf("cache: out's %s has %d elements (want %d)", x.name, x.s.Len(), x.want)
		}
		if err := x.s.On(d); err != nil {
			return fmt.Errorf("cache: out's %s: %w", x.name, err)
		}
	}
	return nil
}

// insertOn queues a batch of device slices. clear makes the count of what goes out 0.
func (c *core) insertOn(st *device.Stream, p putParams, o outColumns, clear func(st *device.Stream) error) error {
	if err := c.checkScores(p.Scores != 0); err != nil {
		return err
	}
	out := o.wanted()
	if out {
		if err := o.check(c.frame.Device, int(p.N)); err != nil {
			return err
		}
		p.OutCount, p.OutKeys, p.OutValues, p.OutScores = o.Count.Addr(), o.Keys.Addr(), o.Values.Addr(),
			o.Scores.Addr()
	}
	return c.frame.Writing(st, func(st *device.Stream) error {
		if out {
			if err := clear(st); err != nil {
				return err
			}
		}
		return c.put(st, p)
	})
}

// valuesOf is a part of a batch's values; a cache of keys alone may have none.
func valuesOf[V any](values []V, first, end int) []V {
	if values == nil {
		return nil
	}
	return values[first:end]
}

// rowBytes is how much memory rows of keys, values and scores take.
func rowBytes(cfg config, n int64) int64 {
	return frame.Align(n*int64(cfg.keyBytes)) + frame.Align(n*int64(cfg.valueBytes)) + frame.Align(4*n)
}

// rowsIn are n rows in memory of rowBytes. A cache of keys alone has no values.
func rowsIn[K, V any](cfg config, mem device.Slice[byte], n int) (k device.Slice[K], v device.Slice[V],
	s device.Slice[uint32]) {
	values := int(frame.Align(int64(n * cfg.keyBytes)))
	if cfg.valueBytes > 0 {
		v = device.View[V](mem, values, n)
	}
	return device.View[K](mem, 0, n), v, device.View[uint32](mem, values+int(frame.Align(int64(n*cfg.valueBytes))), n)
}

// hostRows downloads the first n rows.
func hostRows[K, V any](st *device.Stream, k device.Slice[K], v device.Slice[V], s device.Slice[uint32],
	n int) (keys []K, values []V, scores []uint32, err error) {
	if keys, err = k.Slice(0, n).Host(st); err == nil {
		scores, err = s.Slice(0, n).Host(st)
	}
	if err == nil && v.Addr() != 0 {
		values, err = v.Slice(0, n).Host(st)
	}
	return keys, values, scores, err
}

// outMemory makes memory for n rows that are put, as many that go out, and their number.
func (c *core) outMemory(n int) (device.Slice[byte], error) {
	return device.Make[byte](c.frame.Device, int(2*rowBytes(c.cfg, int64(n)))+8)
}

// insertOut puts one part of a batch, and tells what went out.
func (m *Cache[K, V]) insertOut(mem device.Slice[byte], keys []K, values []V, scores []uint32,
	tell func([]K, []V, []uint32)) error {
	c, n := m.made(), len(keys)
	half := rowBytes(c.cfg, int64(n))
	k, v, s := rowsIn[K, V](c.cfg, mem, n)
	var out Out[K, V]
	out.Keys, out.Values, out.Scores = rowsIn[K, V](c.cfg, mem.Slice(int(half), int(2*half)), n)
	out.Count = device.View[uint64](mem, int(2*half), 1)
	if err := k.Write(nil, keys); err != nil {
		return err
	}
	if v.Addr() != 0 {
		if err := v.Write(nil, values); err != nil {
			return err
		}
	}
	if scores == nil {
		s = device.Slice[uint32]{}
	} else if err := s.Write(nil, scores); err != nil {
		return err
	}
	if err := m.InsertOutOn(nil, k, v, s, out); err != nil {
		return err
	}
	count, err := out.Count.Host(nil)
	if err != nil {
		return err
	}
	k1, v1, s1, err := hostRows(nil, out.Keys, out.Values, out.Scores, int(count[0]))
	if err == nil {
		tell(k1, v1, s1)
	}
	return err
}

// Family is the family's name.
func (handle) Family() table.Family { return family }

// Len counts the pairs. It waits for what is queued.
func (h *handle) Len() (int, error) { return h.made().frame.Count(h.made().look) }

// Clear empties the cache, and sets its clock and its counts to 0. It queues the work.
func (h *handle) Clear() error { return h.made().frame.Writing(nil, h.made().empty) }

// Stats measures the cache. Cost: the heads of all buckets are read.
func (h *handle) Stats() (s Stats, err error) {
	c := h.made()
	err = c.frame.Alone(nil, func(st *device.Stream) error {
		if _, err := c.each(st, c.kernel.measure, slotsParams{N: c.t.Count}); err != nil {
			return err
		}
		k := &c.counters.Seen
		s = Stats{
			Stats: table.Stats{Len: int(k.live()), Capacity: int(c.slots()), MaxProbes: 1,
				Bytes: int64(c.mem.Len() + c.values.Len()), HostBytes: int64(c.values.Len())},
			Hits: k.Hits, Misses: k.Misses, Added: k.Added, Updated: k.Updated, Evictions: k.Evicted,
			Refused: k.Refused, Expired: k.Renewed + k.Swept, Clock: c.clock,
		}
		c.frame.Tell(&s.Stats, nil) // every look-up reads one bucket
		if k.live() > 0 {
			s.LeastScore = ^uint32(k.Youth)
		}
		return nil
	})
	return s, err
}

// Close frees the cache's memory. A second call does nothing.
func (h *handle) Close() error { return h.made().frame.Close() }

package bench

import (
	"errors"
	"math/rand/v2"

	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// CacheRow is what a Row has of caches beside the others: billions a second, of keys looked up and of pairs put.
type CacheRow struct {
	Absent    float64 `json:"absent"`    // look-ups of keys that are not in
	Quiet     float64 `json:"quiet"`     // look-ups of keys that are in, which do not count as use
	Told      float64 `json:"told"`      // inserts that send a pair out each, and write that
	Overwrite float64 `json:"overwrite"` // inserts of keys that are in
	Evicted   float64 `json:"evicted"`   // share of the inserts of Insert and Told that sent a pair out
}

// Cached is as much of a cache as Cache measures.
type Cached[K, V any] interface {
	InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error
	InsertOutOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], scores device.Slice[uint32],
		out cache.Out[K, V]) error
	FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error
	FindQuietOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error
	All() ([]K, []V, error)
	Stats() (cache.Stats, error)
	Close() error
}

// Cache is a cache that stays full. Fill inserts all pairs, which are to be several times as many as it holds: they go in
// one batch after the other and, whatever was there before, send others out. Look-ups are of keys that are in, in random
// order, the share of Options.Hits aside. An insert that neither takes an empty slot, nor sends a pair out, is a wrong
// answer. Errors: keys of which it is not known whether they are absent.
func Cache[K workload.Word, V workload.Wide](w *Work[K, V], m Cached[K, V]) (Subject, error) {
	c := &cacheWork[K, V]{w: w, m: m}
	st := w.Device.Stream()
	s := Subject{
		Table: c,
		Fill:  c.fill(cache.Out[K, V]{}),
		Ask:   c.ask,
		Find:  func() error { return m.FindOn(st, w.Queries, w.Results, w.Found) },
		Wrong: w.Count,
		Bytes: w.Options.pairBytes(),
		More:  c.more,
	}
	if !w.kinds.Unique() {
		return s, WrongOption("keys %q are hashes that meet: it is not known which are absent; want others", w.kinds.Kind)
	}
	return s, s.Fill()
}

// cacheWork is a cache under measurement.
type cacheWork[K workload.Word, V workload.Wide] struct {
	w      *Work[K, V]
	m      Cached[K, V]
	filled int64 // pairs that were put
}

// Clear leaves the cache full, as it is to be measured.
func (c *cacheWork[K, V]) Clear() error { return nil }
func (c *cacheWork[K, V]) Close() error { return c.m.Close() }
func (c *cacheWork[K, V]) Stats() (table.Stats, error) {
	s, err := c.m.Stats()
	return s.Stats, err
}

// fill inserts all pairs, and tells what goes out if out is not zero.
func (c *cacheWork[K, V]) fill(out cache.Out[K, V]) func() error {
	w := c.w
	return w.batches(func(first, end int) error {
		c.filled += int64(end - first)
		return c.m.InsertOutOn(w.Device.Stream(), w.Keys.Slice(first, end), w.Values.Slice(first, end),
			device.Slice[uint32]{}, out)
	})
}

// ask has look-ups be of keys that are in now, and of others.
func (c *cacheWork[K, V]) ask() error { return c.asking(c.w.Options.Hits) }

func (c *cacheWork[K, V]) asking(hits float64) error {
	w := c.w
	in, _, err := c.m.All()
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(w.Options.Seed, 2))
	rng.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
	queries, expect := make([]K, w.Options.Queries), make([]byte, w.Options.Queries)
	for i := range queries {
		if len(in) > 0 && rng.Float64() < hits {
			queries[i], expect[i] = in[i%len(in)], workload.Hit
		} else {
			queries[i], expect[i] = K(w.kinds.At(w.kinds.Span()-1-uint64(i))), workload.Miss // the last of all, which nobody put
		}
	}
	return errors.Join(w.Queries.Write(w.Device.Stream(), queries), w.Expect.Write(w.Device.Stream(), expect))
}

// more measures what is in CacheRow.
func (c *cacheWork[K, V]) more(row *Row) error {
	w, st := c.w, c.w.Device.Stream()
	row.Cache = &CacheRow{}
	asked := func(what string, hits float64, to *float64, find func() error) error {
		if err := c.asking(hits); err != nil {
			return err
		}
		var err error
		if *to, err = w.rate(what, w.Options.Queries, nil, find); err != nil {
			return err
		}
		wrong, err := w.Count()
		row.Wrong += wrong
		return err
	}
	err := asked("find quiet", 1, &row.Cache.Quiet, func() error {
		return c.m.FindQuietOn(st, w.Queries, w.Results, w.Found)
	})
	if err == nil {
		err = asked("find absent keys", 0, &row.Cache.Absent, func() error {
			return c.m.FindOn(st, w.Queries, w.Results, w.Found)
		})
	}
	if err == nil {
		err = c.told(row)
	}
	if err == nil {
		err = c.overwrite(row)
	}
	return err
}

// told measures inserts that write what goes out, and holds the cache's counts of all inserts so far against what was
// put.
func (c *cacheWork[K, V]) told(row *Row) (err error) {
	w := c.w
	n := w.Options.N
	if b := w.Options.Batch; b > 0 {
		n = min(n, b)
	}
	var out cache.Out[K, V]
	var errs [4]error
	out.Keys, errs[0] = device.Make[K](w.Device, n)
	out.Values, errs[1] = device.Make[V](w.Device, n)
	out.Scores, errs[2] = device.Make[uint32](w.Device, n)
	out.Count, errs[3] = device.Make[uint64](w.Device, 1)
	defer Free(out.Keys, out.Values, out.Scores, out.Count)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if row.Cache.Told, err = w.rate("insert that tells", w.Options.N, nil, c.fill(out)); err != nil {
		return err
	}
	s, err := c.m.Stats()
	row.Wrong += int(c.filled) - int(s.Added+s.Updated+s.Evictions+s.Refused)
	row.Cache.Evicted = float64(s.Evictions) / float64(c.filled)
	return err
}

// overwrite measures inserts of keys that are in, with the values that they have.
func (c *cacheWork[K, V]) overwrite(row *Row) error {
	w := c.w
	keys, values, err := c.m.All()
	if err != nil {
		return err
	}
	k, e1 := device.From(w.Device, keys)
	v, e2 := device.From(w.Device, values)
	defer Free(k, v)
	if err := errors.Join(e1, e2); err != nil {
		return err
	}
	before, err := c.m.Stats()
	if err != nil {
		return err
	}
	row.Cache.Overwrite, err = w.rate("overwrite", len(keys), nil, func() error {
		return c.m.InsertOn(w.Device.Stream(), k, v)
	})
	after, e := c.m.Stats()
	row.Wrong += int(after.Evictions - before.Evictions)
	return errors.Join(err, e)
}

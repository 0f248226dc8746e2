package operations

import (
	"bytes"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// cacheOf is a cache whose keys and values are numbers to the caller.
type cacheOf[K, V comparable] struct {
	m     *cache.Cache[K, V]
	d     *device.Device
	key   codec[K]
	value codec[V]
	sums  bool // values are numbers that can be added up
}

// policies are a cache's, by their names in files.
var policies = map[string]cache.Policy{"": cache.LRU, "lru": cache.LRU, "lfu": cache.LFU, "aged": cache.Aged,
	"scored": cache.Scored}

// lineValue is a number 16 times over, by which torn values are seen. That of an absent key is zero.
func lineValue() codec[[16]uint32] {
	return codec[[16]uint32]{func(n uint64) (x [16]uint32) {
		for i := range x {
			x[i] = uint32(n) * uint32(2*i+1)
		}
		return x
	}, func(x [16]uint32) (uint64, bool) {
		for i := range x {
			if x[i] != x[0]*uint32(2*i+1) {
				return 0, false
			}
		}
		return uint64(x[0]), true
	}}
}

// noValue is of caches of keys alone.
func noValue() codec[struct{}] {
	return codec[struct{}]{func(uint64) struct{} { return struct{}{} }, func(struct{}) (uint64, bool) { return 0, true }}
}

// cacheOptions are those of a table's line.
func cacheOptions(t Settings) cache.Options {
	return cache.Options{Capacity: t.number("capacity"), Bytes: t.number64("bytes"),
		HostValues: t.number("hostvalues") > 0, HostBytes: t.number64("hostbytes"), Policy: policies[t.Get("policy")],
		TimeToLive: millis(t.number64("ttl")), Lives: t.number("lives") > 0, Hash: t.number("hash"),
		Seed: t.seed("seed") | 1}
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func newCache[K, V comparable](f *File, o over, key codec[K], value codec[V], sums bool) (subject, error) {
	m, err := warpmap.NewCache[K, V](o.d(), cacheOptions(f.Table))
	return &cacheOf[K, V]{m, o.d(), key, value, sums}, err
}

func (m *cacheOf[K, V]) do(c *call) (a answer) {
	keys, values := m.key.all(c.Keys), m.value.all(c.Values)
	switch c.Name {
	case "len":
		a.N, a.Err = m.m.Len()
	case "check":
		a.Err = m.m.Check()
	case "stats":
		a.Cache, a.Err = m.m.Stats()
	case "clear":
		a.Err = m.m.Clear()
	case "close":
		a.Err = m.m.Close()
	case "sweep":
		a.N, a.Err = m.m.Sweep()
	case "save":
		return m.save(c)
	case "wrong":
		return m.wrong(c, keys, values)
	case "export":
		keys, values, a.Scores, a.Err = m.m.Export(uint32(c.N))
		m.numbers(&a, keys, values)
	case "all":
		keys, values, a.Err = m.m.All()
		m.numbers(&a, keys, values)
	case "chunks":
		keys, values = nil, nil
		a.Err = m.m.Chunks(background, func(k []K, v []V) error {
			keys, values = append(keys, k...), append(values, v...)
			return nil
		})
		m.numbers(&a, keys, values)
	case "update":
		if a.Lacks = !m.sums; !a.Lacks {
			m.batch(c, keys, values, &a)
		}
	default:
		m.batch(c, keys, values, &a)
	}
	return a
}

// numbers are the pairs of an answer. A cache of keys alone may give no values.
func (m *cacheOf[K, V]) numbers(a *answer, keys []K, values []V) {
	if values == nil && m.value.make(1) == *new(V) {
		values = make([]V, len(keys))
	}
	a.Keys, a.Values = m.key.numbers(keys, &a.Err), m.value.numbers(values, &a.Err)
}

func (m *cacheOf[K, V]) batch(c *call, keys []K, values []V, a *answer) {
	n := len(keys)
	out := make([]V, n)
	a.Flags, a.Status = make([]bool, n), make([]table.Status, n)
	if c.Device && c.Name != "insertfor" {
		m.onDevice(c, keys, values, out, a)
	} else {
		m.onHost(c, keys, values, out, a)
	}
	if c.Name == "insertout" || a.Lacks || a.Short {
		return
	}
	var torn error
	a.Values = m.value.numbers(out, &torn)
	if a.Err == nil {
		a.Err = torn
	}
}

func (m *cacheOf[K, V]) onHost(c *call, keys []K, values, out []V, a *answer) {
	switch c.Name {
	case "insert":
		a.Err = m.m.InsertScored(keys, values, c.Scores)
	case "insertout":
		var k []K
		var v []V
		k, v, a.Scores, a.Err = m.m.InsertOut(keys, values, c.Scores)
		m.numbers(a, k, v)
	case "insertfor":
		lives := make([]time.Duration, len(keys))
		for i := range lives {
			lives[i] = millis(int64(c.Lives[i]))
		}
		a.Err = m.m.InsertFor(keys, values, lives)
	case "find":
		a.Err = m.m.Find(keys, out, a.Flags)
	case "findquiet":
		a.Err = m.m.FindQuiet(keys, out, a.Flags)
	case "findorinsert":
		a.N, a.Err = m.m.FindOrInsert(keys, values, out, a.Flags)
	case "update":
		a.Err = m.m.Update(keys, values, combines[c.With])
	case "delete":
		a.N, a.Err = m.m.Delete(keys, a.Flags)
	case "mixed":
		a.Err = m.m.Mixed(c.Ops, keys, values, out, a.Status)
	default:
		a.Lacks = true
	}
}

// onDevice calls the methods for device slices, and brings the results back.
func (m *cacheOf[K, V]) onDevice(c *call, keys []K, values, out []V, a *answer) {
	s := newSlices(m.d, c.Stream)
	defer s.close(&a.Err)
	k, f := lend(s, keys), lend(s, a.Flags)
	var v, o device.Slice[V]
	if m.value.make(1) != *new(V) { // there are no device slices of nothing
		v, o = lend(s, values), lend(s, out)
	}
	ops, status := lend(s, c.Ops), lend(s, a.Status)
	var scores device.Slice[uint32]
	if c.Scores != nil {
		scores = lend(s, c.Scores)
	}
	if s.lacking(a) {
		return
	}
	switch c.Name {
	case "insert":
		a.Err = m.m.InsertOutOn(s.st, k, v, scores, cache.Out[K, V]{})
	case "insertout":
		m.insertOutOn(s, k, v, scores, a)
	case "find":
		a.Err = m.m.FindOn(s.st, k, o, f)
	case "findquiet":
		a.Err = m.m.FindQuietOn(s.st, k, o, f)
	case "findorinsert":
		a.Err = m.m.FindOrInsertOn(s.st, k, v, o, f)
	case "update":
		a.Err = m.m.UpdateOn(s.st, k, v, combines[c.With])
	case "delete":
		a.Err = m.m.DeleteOn(s.st, k, f)
	case "mixed":
		a.Err = m.m.MixedOn(s.st, ops, k, v, o, status)
	default:
		a.Lacks = true
	}
	if o.Addr() != 0 {
		read(s, o, out, &a.Err)
	}
	read(s, f, a.Flags, &a.Err)
	read(s, status, a.Status, &a.Err)
	a.N = trues(a.Flags)
}

// insertOutOn gives what went out in slices that hold as many rows as the batch.
func (m *cacheOf[K, V]) insertOutOn(s *deviceSlices, k device.Slice[K], v device.Slice[V], scores device.Slice[uint32],
	a *answer) {
	n := k.Len()
	keys, values, of := make([]K, n), make([]V, n), make([]uint32, n)
	count := []uint64{^uint64(0)}
	out := cache.Out[K, V]{Keys: lend(s, keys), Scores: lend(s, of), Count: lend(s, count)}
	if v.Addr() != 0 {
		out.Values = lend(s, values)
	}
	if s.lacking(a) {
		return
	}
	if a.Err = m.m.InsertOutOn(s.st, k, v, scores, out); a.Err != nil {
		return
	}
	read(s, out.Keys, keys, &a.Err)
	read(s, out.Scores, of, &a.Err)
	read(s, out.Count, count, &a.Err)
	if v.Addr() != 0 {
		read(s, out.Values, values, &a.Err)
	}
	if a.Err == nil {
		m.numbers(a, keys[:count[0]], values[:count[0]])
		a.Scores = of[:count[0]]
	}
}

// wrong calls what must be an error and change nothing.
func (m *cacheOf[K, V]) wrong(c *call, keys []K, values []V) (a answer) {
	switch c.With {
	case "lengths":
		a.Err = m.m.InsertScored(append(keys, m.key.make(1)), values, make([]uint32, len(keys)))
	case "freed":
		s := newSlices(m.d, false)
		k := lend(s, append(keys, m.key.make(1)))
		if s.lacking(&a) {
			s.close(&a.Err)
			return a
		}
		s.close(&a.Err)
		if a.Err == nil {
			a.Err = m.m.FindOn(nil, k, device.Slice[V]{}, device.Slice[bool]{})
		}
	default:
		a.Lacks = true
	}
	return a
}

// save saves the cache, and exports what is loaded from that into a cache of the operation's capacity.
func (m *cacheOf[K, V]) save(c *call) (a answer) {
	var file bytes.Buffer
	if a.Err = snapshot.Cache(m.m).Save(background, &file); a.Err != nil {
		return a
	}
	o := cacheOptions(c.Other)
	other, err := warpmap.NewCache[K, V](m.d, o)
	if a.Err = err; err != nil {
		return a
	}
	defer func() {
		if err := other.Close(); a.Err == nil {
			a.Err = err
		}
	}()
	if a.Err = snapshot.Cache(other).Load(background, &file); a.Err != nil {
		return a
	}
	if a.Err = other.Check(); a.Err != nil {
		return a
	}
	a = (&cacheOf[K, V]{other, m.d, m.key, m.value, m.sums}).do(&call{Name: "export"})
	if a.Err == nil {
		a.Cache, a.Err = other.Stats()
	}
	return a
}

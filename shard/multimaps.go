package shard

import (
	"context"
	"errors"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// MultiMap is a multimap over several devices: see table.MultiMap, whose comments are the contract of the methods, and Map.
type MultiMap[K, V any] struct {
	handle
	tables multiTables[K, V]
}

var _ table.MultiMap[uint32, uint32] = (*MultiMap[uint32, uint32])(nil)

// multiTables are the tables of a multimap, one a device, and the operations on them as jobs.
type multiTables[K, V any] []table.MultiMap[K, V]

// NewMultiMap makes an empty multimap over the devices: see NewMap.
func NewMultiMap[K, V any](devices []*device.Device, o Options, newTable func(d *device.Device, o table.Options) (table.MultiMap[K, V], error)) (*MultiMap[K, V], error) {
	m := &MultiMap[K, V]{tables: make(multiTables[K, V], len(devices))}
	var err error
	m.cluster, err = newCluster(devices, table.WidthsOf[K, V](), o, func(i int, d *device.Device, o table.Options) (table.Table, error) {
		t, err := newTable(d, o)
		m.tables[i] = t
		return t, err
	})
	return table.Made(m, err)
}

// left are the pairs of a batch that are not in, as bytes, and how many there are of each: pairs alike can stand for one another.
type left[K, V any] struct {
	pairs map[string]int
	why   error
}

func pairBytes[K, V any](k *K, v *V) string {
	return string(unsafe.Slice((*byte)(unsafe.Pointer(k)), unsafe.Sizeof(*k))) + string(unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)))
}

// note adds the pairs at the positions of rows that an owner got.
func (l *left[K, V]) note(e *table.FullError, r received) error {
	keys, err := device.View[K](r.keys, 0, r.n).Host(nil)
	if err != nil {
		return err
	}
	values, err := device.View[V](r.values, 0, r.n).Host(nil)
	if err != nil {
		return err
	}
	if l.pairs == nil {
		l.pairs = map[string]int{}
	}
	for _, p := range e.Positions {
		l.pairs[pairBytes(&keys[p], &values[p])]++
	}
	l.why = e.Why
	return nil
}

// add adds pairs that nobody took.
func (l *left[K, V]) add(keys []K, values []V, why error) {
	if l.pairs == nil {
		l.pairs = map[string]int{}
	}
	for i := range keys {
		l.pairs[pairBytes(&keys[i], &values[i])]++
	}
	l.why = why
}

// positions finds places for the pairs in the batch, the first there are, and takes them off.
func (l *left[K, V]) positions(keys []K, values []V) (out []int) {
	for i := range keys {
		pair := pairBytes(&keys[i], &values[i])
		if l.pairs[pair] > 0 {
			l.pairs[pair]--
			out = append(out, i)
		}
	}
	return out
}

func (m *MultiMap[K, V]) inserting(l *left[K, V]) job {
	return job{values: sent,
		full: func(_ int, e *table.FullError, r received) error { return l.note(e, r) },
		run: func(j int, st *device.Stream, r received) error {
			return m.tables[j].InsertOn(st, device.View[K](r.keys, 0, r.n), device.View[V](r.values, 0, r.n))
		}}
}

// Insert adds pairs: see table.MultiMap.
func (m *MultiMap[K, V]) Insert(keys []K, values []V) error {
	if err := family.CheckLens(len(keys), len(values)); err != nil {
		return err
	}
	var l left[K, V]
	err := m.cluster.batch(len(keys), func(from, to int) []table.Column {
		return []table.Column{table.In(keys[from:to]), table.In(values[from:to])}
	}, func(member int, st *device.Stream, first, n int, addr []uint64) error {
		return m.cluster.locked(func() error { // the lock guards l, too
			j := m.inserting(&l)
			j.sources = m.cluster.from(member, source{n: n, keys: addr[0], values: addr[1], st: st})
			err := m.cluster.exchange(&j)
			if device.IsOutOfMemory(err) { // none of these are in, but others may be
				l.add(keys[first:first+n], values[first:first+n], err)
				return nil
			}
			return err
		})
	}, func(from, to int, why error) {
		m.cluster.mu.Lock()
		defer m.cluster.mu.Unlock()
		l.add(keys[from:to], values[from:to], why)
	})
	if err != nil || l.why == nil {
		return err
	}
	lost := refusals{positions: l.positions(keys, values), why: l.why}
	return m.cluster.locked(func() error { return m.cluster.fullError(&lost) })
}

// InsertOn is Insert on the device of the slices: see table.MultiMap.
func (m *MultiMap[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return m.InsertEach([]Part[K, V]{{Stream: st, Keys: keys, Values: values}})
}

// InsertEach is InsertOn of a batch that is on several devices. FullError counts positions from the first part on.
func (m *MultiMap[K, V]) InsertEach(parts []Part[K, V]) error {
	return m.cluster.locked(func() error {
		sources, members, before, err := checked(m.cluster, parts, true, false)
		if err != nil {
			return err
		}
		var l left[K, V]
		j := m.inserting(&l)
		j.sources = sources
		if m.cluster.opts.Mode == Independent {
			return m.cluster.insertLocal(&j, members, before)
		}
		if err := m.cluster.exchange(&j); err != nil || l.why == nil {
			return err
		}
		var lost refusals
		for k, p := range parts {
			keys, err := p.Keys.Host(p.Stream)
			if err != nil {
				return err
			}
			values, err := p.Values.Host(p.Stream)
			if err != nil {
				return err
			}
			lost.add(l.positions(keys, values), before[k], l.why)
		}
		return m.cluster.fullError(&lost)
	})
}

func (t multiTables[K, V]) finding() job {
	return job{asks: true, flags: true, run: func(j int, st *device.Stream, r received) error {
		return t[j].ContainsOn(st, device.View[K](r.keys, 0, r.n), flagsOf(r))
	}}
}

func (t multiTables[K, V]) counting() job {
	return job{asks: true, values: back, counts: true, sum: true, run: func(j int, st *device.Stream, r received) error {
		return t[j].CountOn(st, device.View[K](r.keys, 0, r.n), outOf[uint32](r))
	}}
}

func (t multiTables[K, V]) deleting(deleted bool) job {
	return job{asks: true, erases: true, flags: deleted, run: func(j int, st *device.Stream, r received) error {
		return t[j].DeleteOn(st, device.View[K](r.keys, 0, r.n), flagsOf(r))
	}}
}

// Contains tells of each key whether it has a value: see table.MultiMap.
func (m *MultiMap[K, V]) Contains(keys []K, found []bool) error {
	if err := family.CheckLens(len(keys), len(found)); err != nil {
		return err
	}
	return look(m.cluster, hostBatch[K, V]{keys: keys, flags: found}, m.tables.finding())
}

// ContainsOn is Contains on the device of the slices: see table.MultiMap.
func (m *MultiMap[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return m.ContainsEach([]Part[K, V]{{Stream: st, Keys: keys, Flags: found}})
}

// ContainsEach is ContainsOn of a batch that is on several devices.
func (m *MultiMap[K, V]) ContainsEach(parts []Part[K, V]) error {
	return lookParts(m.cluster, parts, true, m.tables.finding())
}

// Count writes how many values each key has: see table.MultiMap.
func (m *MultiMap[K, V]) Count(keys []K, counts []uint32) error {
	if err := family.CheckLens(len(keys), len(counts)); err != nil {
		return err
	}
	return look(m.cluster, hostBatch[K, uint32]{keys: keys, out: counts}, m.tables.counting())
}

// CountOn is Count on the device of the slices: see table.MultiMap.
func (m *MultiMap[K, V]) CountOn(st *device.Stream, keys device.Slice[K], counts device.Slice[uint32]) error {
	return m.cluster.locked(func() (err error) {
		j := m.tables.counting()
		if j.sources, _, _, err = checked(m.cluster, []Part[K, uint32]{{Stream: st, Keys: keys, Values: counts}}, true, false); err != nil {
			return err
		}
		return m.cluster.exchange(&j)
	})
}

// FindAll gives all values of each key: see table.MultiMap. In the independent mode those of one device come after those of another.
func (m *MultiMap[K, V]) FindAll(keys []K) (offsets []uint64, values []V, err error) {
	if err := m.cluster.locked(func() error { return nil }); err != nil {
		return nil, nil, err
	}
	offsets = []uint64{0}
	for from := 0; from < len(keys); from += findAtOnce {
		o, v, err := m.findPiece(keys[from:min(from+findAtOnce, len(keys))])
		if err != nil {
			return nil, nil, err
		}
		for _, at := range o[1:] {
			offsets = append(offsets, uint64(len(values))+at)
		}
		values = append(values, v...)
	}
	return offsets, values, nil
}

// findAtOnce is the keys of a batch of Go slices whose values are found at once.
const findAtOnce = 1 << 22

func (m *MultiMap[K, V]) findPiece(keys []K) (offsets []uint64, values []V, err error) {
	k, err := table.From(m.cluster.members[0].d, keys)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, k.Free()) }()
	o, v, err := m.FindAllOn(nil, k)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, o.Free(), v.Free()) }()
	if offsets, err = table.Host(nil, o); err == nil {
		values, err = table.Host(nil, v)
	}
	return offsets, values, err
}

// FindAllOn is FindAll on the device of the keys, in device slices of its own making, which the caller frees: see table.MultiMap. It waits for the
// stream. Cost: the keys are looked up twice, first for how many values they have, and there is memory for all values on their owners and here.
func (m *MultiMap[K, V]) FindAllOn(st *device.Stream, keys device.Slice[K]) (offsets device.Slice[uint64], values device.Slice[V], err error) {
	err = m.cluster.locked(func() (err error) {
		offsets, values, err = m.findAll(st, keys)
		return err
	})
	return offsets, values, err
}

// listChunk is how many counts a warp adds up.
const listChunk = 256

// offsets adds up counts, one fewer than there are offsets, and tells how many there are in all. It waits for the stream.
func (m *member) offsets(st *device.Stream, counts device.Slice[uint32], offsets device.Slice[uint64]) (total int, err error) {
	n := counts.Len()
	chunks := (n + listChunk - 1) / listChunk
	totals, err := device.Make[uint64](m.d, chunks)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, totals.Free()) }()
	p := listRows{N: uint64(n), Chunk: listChunk, Chunks: uint64(chunks), Counts: counts.Addr(), Totals: totals.Addr(), Offsets: offsets.Addr()}
	warps, last := device.GridFor(int64(chunks)*32, threads), make([]uint64, 1)
	err = errors.Join(m.lists[0].Launch(st, warps, &p), m.lists[1].Launch(st, device.Grid{Blocks: 1, Threads: threads}, &p),
		m.lists[2].Launch(st, warps, &p), offsets.Slice(n, n+1).Read(st, last))
	if err != nil {
		return 0, err
	}
	return table.TotalOf(family, last[0])
}

func (m *MultiMap[K, V]) findAll(st *device.Stream, keys device.Slice[K]) (offsets device.Slice[uint64], values device.Slice[V], err error) {
	sources, members, _, err := checked(m.cluster, []Part[K, V]{{Stream: st, Keys: keys}}, false, false)
	if err != nil {
		return offsets, values, err
	}
	own := m.cluster.members[members[0]]
	n := keys.Len()
	var counts device.Slice[uint32]
	defer func() {
		m.cluster.settle()
		err = errors.Join(err, counts.Free())
		if err != nil {
			offsets.Free()
			values.Free()
			offsets, values = device.Slice[uint64]{}, device.Slice[V]{}
		}
	}()
	if offsets, err = device.Make[uint64](own.d, n+1); err != nil {
		return offsets, values, err
	}
	if n == 0 {
		values, err = device.Make[V](own.d, 0)
		return offsets, values, errors.Join(err, offsets.Fill(nil, 0), own.d.Stream().Sync())
	}
	if counts, err = device.Make[uint32](own.d, n); err != nil {
		return offsets, values, err
	}
	count := m.tables.counting()
	count.sources = make([]source, len(m.cluster.members))
	count.sources[members[0]] = source{n: n, keys: keys.Addr(), out: counts.Addr(), st: st,
		slices: &received{n: n, keys: keys.Raw(), out: counts.Raw()}}
	if err = m.cluster.exchange(&count); err != nil {
		return offsets, values, err
	}
	total, err := own.offsets(own.following(st), counts, offsets)
	if err != nil {
		return offsets, values, err
	}
	if values, err = device.Make[V](own.d, total); err != nil || total == 0 {
		return offsets, values, err
	}
	j := job{asks: true, sources: sources, lists: m.tables.listing, taken: func(_ *member, p *listRows, first int) {
		p.Offsets, p.OutValues = offsets.Addr()+8*uint64(first), values.Addr()
	}}
	return offsets, values, m.cluster.exchange(&j)
}

// listing finds all values of rows that an owner got, and puts them into memory that other devices can read.
func (t multiTables[K, V]) listing(owner int, st *device.Stream, r received) (l list, err error) {
	offsets, values, err := t[owner].FindAllOn(st, device.View[K](r.keys, 0, r.n))
	if err != nil {
		return l, err
	}
	d := st.Device()
	if l.offsets, err = device.Make[uint64](d, offsets.Len()); err == nil {
		l.values, err = device.Make[byte](d, int(values.Bytes()))
	}
	if err == nil {
		err = errors.Join(l.offsets.CopyFrom(st, offsets), l.values.CopyFrom(st, values.Raw()))
	}
	return l, errors.Join(err, offsets.FreeAfter(st), values.FreeAfter(st))
}

// Delete removes all values of each key, and counts the pairs: see table.MultiMap.
func (m *MultiMap[K, V]) Delete(keys []K, deleted []bool) (n int, err error) {
	if err := family.CheckLens(len(keys), table.OptionalLen(deleted)); err != nil {
		return 0, err
	}
	err = m.cluster.batch(len(keys), func(from, to int) []table.Column {
		return []table.Column{table.In(keys[from:to]), table.Out(within(deleted, from, to))}
	}, func(member int, st *device.Stream, _, rows int, addr []uint64) error {
		return m.cluster.locked(func() error {
			before, err := m.cluster.len()
			if err != nil {
				return err
			}
			j := m.tables.deleting(deleted != nil)
			j.sources = m.cluster.from(member, source{n: rows, keys: addr[0], flags: addr[1], st: st})
			if err := m.cluster.exchange(&j); err != nil {
				return err
			}
			after, err := m.cluster.len()
			n += before - after
			return err
		})
	}, nil)
	return n, err
}

// DeleteOn is Delete on the device of the slices: see table.MultiMap.
func (m *MultiMap[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return lookParts(m.cluster, []Part[K, V]{{Stream: st, Keys: keys, Flags: deleted}}, false, m.tables.deleting(deleted.Addr() != 0))
}

// All exports every pair, in no order.
func (m *MultiMap[K, V]) All() (keys []K, values []V, err error) {
	err = m.cluster.locked(func() (err error) {
		keys, values, err = allPairs(m.cluster, func(i int) ([]K, []V, error) { return m.tables[i].All() })
		return err
	})
	return keys, values, err
}

// Chunks gives every pair to do, in chunks, one device's after the other's: see table.Map.
func (m *MultiMap[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return m.cluster.chunks(func(i int, unchanged func() error) error {
		return m.tables[i].Chunks(ctx, func(keys []K, values []V) error {
			if err := unchanged(); err != nil {
				return err
			}
			return do(keys, values)
		})
	})
}

// Check walks the invariants of every device's multimap, and in the distributed mode sees that each key is where it belongs. Slow.
func (m *MultiMap[K, V]) Check() error {
	return m.cluster.check(func(i int) ([]uint64, error) {
		keys, _, err := m.tables[i].All()
		return patterns(keys), err
	})
}

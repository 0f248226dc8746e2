package library

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/swiss"
	"github.com/puzpuzpuz/xsync/v4"

	"github.com/warpmap/warpmap/kernel"
)

// peer is a map of Go that tables are beside. Those that are shared are written to by all goroutines, the others by one; all are read by all.
type peer struct {
	name   string
	shared bool
	most   int // pairs, for the memory that more of them take; 0: any
	make   func(room int) goStore
}

// goStore is a peer's map. Several goroutines may each do a part of a batch.
type goStore interface {
	insert(keys, values []uint32)
	add(keys, values []uint32) // m[k] += v
	find(keys, values []uint32, found []bool)
}

var goPeers = []peer{
	{"Go map", false, 0, func(room int) goStore { return plainMap(make(map[uint32]uint32, room)) }},
	{"Go map and RWMutex", true, 0, func(room int) goStore { return &lockedMap{m: make(map[uint32]uint32, room)} }},
	{"Go map in 256 shards", true, 0, func(room int) goStore {
		s := new(shardedMap)
		for i := range s {
			s[i].m = make(map[uint32]uint32, room/len(s))
		}
		return s
	}},
	{"sync.Map", true, heavy, func(int) goStore { return new(syncMap) }},
	{"xsync.Map", true, heavy, func(room int) goStore { return (*xsyncMap)(xsync.NewMap[uint32, uint32](xsync.WithPresize(room))) }},
	{"swiss.Map", false, 0, func(room int) goStore { return swissMap{swiss.New[uint32, uint32](room)} }},
}

// heavy is how many pairs maps have that take 100 bytes for each.
const heavy = 10 * million

type plainMap map[uint32]uint32

func (m plainMap) insert(keys, values []uint32) {
	for i, k := range keys {
		m[k] = values[i]
	}
}

func (m plainMap) add(keys, values []uint32) {
	for i, k := range keys {
		m[k] += values[i]
	}
}

func (m plainMap) find(keys, values []uint32, found []bool) {
	for i, k := range keys {
		values[i], found[i] = m[k]
	}
}

type lockedMap struct {
	sync.RWMutex
	m map[uint32]uint32
}

func (m *lockedMap) insert(keys, values []uint32) {
	for i, k := range keys {
		m.Lock()
		m.m[k] = values[i]
		m.Unlock()
	}
}

func (m *lockedMap) add(keys, values []uint32) {
	for i, k := range keys {
		m.Lock()
		m.m[k] += values[i]
		m.Unlock()
	}
}

func (m *lockedMap) find(keys, values []uint32, found []bool) {
	for i, k := range keys {
		m.RLock()
		values[i], found[i] = m.m[k]
		m.RUnlock()
	}
}

type shardedMap [256]struct {
	lockedMap
	_ [32]byte // a line of the cache each
}

func (m *shardedMap) of(k uint32) *lockedMap { return &m[kernel.Fmix32(k)>>24].lockedMap }

func (m *shardedMap) insert(keys, values []uint32) {
	for i, k := range keys {
		s := m.of(k)
		s.Lock()
		s.m[k] = values[i]
		s.Unlock()
	}
}

func (m *shardedMap) add(keys, values []uint32) {
	for i, k := range keys {
		s := m.of(k)
		s.Lock()
		s.m[k] += values[i]
		s.Unlock()
	}
}

func (m *shardedMap) find(keys, values []uint32, found []bool) {
	for i, k := range keys {
		s := m.of(k)
		s.RLock()
		values[i], found[i] = s.m[k]
		s.RUnlock()
	}
}

// syncMap has values, or where they are added up, counters.
type syncMap struct{ m sync.Map }

func (m *syncMap) insert(keys, values []uint32) {
	for i, k := range keys {
		m.m.Store(k, values[i])
	}
}

func (m *syncMap) add(keys, values []uint32) {
	for i, k := range keys {
		c, ok := m.m.Load(k)
		if !ok {
			c, _ = m.m.LoadOrStore(k, new(atomic.Uint32))
		}
		c.(*atomic.Uint32).Add(values[i])
	}
}

func (m *syncMap) find(keys, values []uint32, found []bool) {
	for i, k := range keys {
		v, ok := m.m.Load(k)
		found[i] = ok
		switch v := v.(type) {
		case uint32:
			values[i] = v
		case *atomic.Uint32:
			values[i] = v.Load()
		default:
			values[i] = 0
		}
	}
}

type xsyncMap xsync.Map[uint32, uint32]

func (m *xsyncMap) insert(keys, values []uint32) {
	for i, k := range keys {
		(*xsync.Map[uint32, uint32])(m).Store(k, values[i])
	}
}

func (m *xsyncMap) add(keys, values []uint32) {
	for i, k := range keys {
		(*xsync.Map[uint32, uint32])(m).Compute(k, func(old uint32, _ bool) (uint32, xsync.ComputeOp) { return old + values[i], xsync.UpdateOp })
	}
}

func (m *xsyncMap) find(keys, values []uint32, found []bool) {
	for i, k := range keys {
		values[i], found[i] = (*xsync.Map[uint32, uint32])(m).Load(k)
	}
}

type swissMap struct{ *swiss.Map[uint32, uint32] }

func (m swissMap) insert(keys, values []uint32) {
	for i, k := range keys {
		m.Put(k, values[i])
	}
}

func (m swissMap) add(keys, values []uint32) {
	for i, k := range keys {
		v, _ := m.Get(k)
		m.Put(k, v+values[i])
	}
}

func (m swissMap) find(keys, values []uint32, found []bool) {
	for i, k := range keys {
		values[i], found[i] = m.Get(k)
	}
}

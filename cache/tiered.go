package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/warpmap/warpmap/internal/crash"
)

// Source is what a Tiered stands before: any slower store of the same pairs. A table.Map is one with
//
//	Fetch: func(_ context.Context, keys []K, values []V, found []bool) error { return m.Find(keys, values, found) },
//	Store: func(_ context.Context, keys []K, values []V) error { return m.Insert(keys, values) },
//
// As for an io.Writer, neither function may change the slices that it reads, not even their order, and neither may keep
// a slice after it returns. A Fetch that sorts keys in place would give the callers values of other keys: it sorts a
// copy. The Tiered does not copy keys for each call, because most stores only read them.
type Source[K, V any] struct {
	// Fetch writes to values the value of each key, and to found whether there is one. No key is twice in keys. Several
	// calls may run at once, but not for the same key. It must not call methods of the Tiered.
	Fetch func(ctx context.Context, keys []K, values []V, found []bool) error
	// Store puts or replaces pairs, whose keys and values it only reads. No key is twice in keys. It may be nil: then there
	// is no Put.
	Store func(ctx context.Context, keys []K, values []V) error
}

// Tiered is a cache before a slower store: what a look-up does not find in the cache is fetched, once for all that want
// the key meanwhile, and goes into the cache. Puts go to the store first, and then to the cache; those of
// NewTieredBehind the other way round. All methods are safe for use by several goroutines. Closing the Cache closes it.
//
// A value of the cache is that of the store, or one that waits for it, as long as only Put changes the store: a value
// that was fetched while its key was put is given to those who asked, but does not go into the cache. Where several Puts
// of a key run at once that do not write behind, or one fails, the key leaves the cache, because nobody knows which of
// them the store did last.
type Tiered[K, V any] struct {
	// Cache is the upper tier. What is done to it is not done to the store.
	Cache  *Cache[K, V]
	source Source[K, V]

	mu      sync.Mutex // is held while pairs go into the cache
	flights map[uint64]*flight[V]
	writers map[uint64]*writers
	landed  landings
	behind  *behind[K, V] // nil: it writes through
}

// landings are the keys that were fetched last. Who missed such a key before it came in finds it in the cache.
type landings struct {
	n      uint64            // how many there were
	keys   map[uint64]uint64 // the number of each
	before uint64            // of those that are forgotten
}

// mostLandings are how many are kept.
const mostLandings = 1 << 14

func (l *landings) add(key uint64) {
	if len(l.keys) >= mostLandings {
		clear(l.keys)
		l.before = l.n
	}
	l.n++
	l.keys[key] = l.n
}

// since tells whether the key may have landed since there were n.
func (l *landings) since(n, key uint64) bool { return l.before > n || l.keys[key] > n }

// flight is a key on its way from the store. done is closed when the rest is known.
type flight[V any] struct {
	done  chan struct{}
	value V
	found bool
	err   error
	stale bool // its key is put, or was meanwhile; guarded by the Tiered's lock
}

// writers are the Puts of a key that run.
type writers struct {
	n       int
	several bool // at some time
}

// NewTiered puts a cache before a store. Errors: a source without Fetch; no cache.
func NewTiered[K, V any](c *Cache[K, V], source Source[K, V]) (*Tiered[K, V], error) {
	if c == nil || source.Fetch == nil {
		return nil, errors.New("cache: a Tiered without a cache, or with a source that has no Fetch")
	}
	return &Tiered[K, V]{Cache: c, source: source, flights: map[uint64]*flight[V]{}, writers: map[uint64]*writers{},
		landed: landings{keys: map[uint64]uint64{}}}, nil
}

func (t *Tiered[K, V]) made() error {
	if t.Cache == nil {
		return errors.New("cache: a Tiered that NewTiered has not made")
	}
	return nil
}

// bitsOf is a key as a map's: equality is of bits.
func bitsOf[K any](k K) uint64 {
	if unsafe.Sizeof(k) == 4 {
		return uint64(*(*uint32)(unsafe.Pointer(&k)))
	}
	return *(*uint64)(unsafe.Pointer(&k))
}

// Get writes each key's value, or the zero value, and whether there is one; found may be nil. Cost: a look-up in the
// cache, and for what that lacks, a call of Fetch and an insert. Errors: those of the cache and of Fetch;
// context.Cause(ctx).
func (t *Tiered[K, V]) Get(ctx context.Context, keys []K, values []V, found []bool) error {
	if err := t.made(); err != nil {
		return err
	}
	if found == nil {
		found = make([]bool, len(keys))
	}
	if err := t.Cache.made().frame.Family.CheckNamed("values found", len(keys), len(values), len(found)); err != nil {
		return err
	}
	t.mu.Lock()
	landed := t.landed.n
	t.mu.Unlock()
	if err := t.Cache.Find(keys, values, found); err != nil {
		return err
	}
	var missing []int
	for i, in := range found {
		if !in {
			missing = append(missing, i)
		}
	}
	for len(missing) > 0 {
		if err := crash.Ended(ctx); err != nil {
			return err
		}
		own, ownKeys, all, old, err := t.board(keys, &missing, values, found, landed)
		if err != nil {
			return err
		}
		if len(own) > 0 {
			if err := t.fetch(ctx, own, ownKeys); err != nil {
				return err
			}
		}
		again := missing[:0]
		for _, i := range missing {
			b := bitsOf(keys[i])
			f := all[b]
			select {
			case <-f.done:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if f.err != nil || old[b] { // of another's call, which may have had another context; or before a Put
				again = append(again, i)
				continue
			}
			values[i], found[i] = f.value, f.found
		}
		missing = again
	}
	return nil
}

// board gives the flights of the keys at some positions, and those of them that begin now, for the caller to fetch. old
// are keys whose flight may have read the store before a Put that has returned. Positions whose values are known by now
// leave missing: of keys that wait for the store, and of those that came into the cache since so many had landed.
func (t *Tiered[K, V]) board(keys []K, missing *[]int, values []V, found []bool, landed uint64) (own []*flight[V],
	ownKeys []K, all map[uint64]*flight[V], old map[uint64]bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if *missing, err = t.known(keys, *missing, values, found, landed); err != nil {
		return nil, nil, nil, nil, err
	}
	all, old = map[uint64]*flight[V]{}, map[uint64]bool{}
	for _, i := range *missing {
		b := bitsOf(keys[i])
		f := t.flights[b]
		if f == nil {
			_, written := t.writers[b]
			f = &flight[V]{done: make(chan struct{}), stale: written}
			t.flights[b] = f
			own, ownKeys = append(own, f), append(ownKeys, keys[i])
		} else if f.stale && all[b] == nil {
			old[b] = true
		}
		all[b] = f
	}
	return own, ownKeys, all, old, nil
}

// known gives the values that are known by now, and the positions that are left.
func (t *Tiered[K, V]) known(keys []K, missing []int, values []V, found []bool, landed uint64) (left []int, err error) {
	var again []int
	for _, i := range missing {
		bits := bitsOf(keys[i])
		if t.behind != nil {
			if p, ok := t.behind.of(bits); ok {
				values[i], found[i] = p.value, true
				continue
			}
		}
		if t.flights[bits] == nil && t.landed.since(landed, bits) {
			again = append(again, i)
			continue
		}
		left = append(left, i)
	}
	if len(again) == 0 {
		return left, nil
	}
	some, got, in := make([]K, len(again)), make([]V, len(again)), make([]bool, len(again))
	for j, i := range again {
		some[j] = keys[i]
	}
	err = t.Cache.Find(some, got, in)
	for j, i := range again {
		if in[j] {
			values[i], found[i] = got[j], true
		} else {
			left = append(left, i)
		}
	}
	return left, err
}

// fetch brings keys from the store, and puts into the cache what is not stale.
func (t *Tiered[K, V]) fetch(ctx context.Context, own []*flight[V], keys []K) (err error) {
	values, found := make([]V, len(keys)), make([]bool, len(keys))
	err = errors.New("cache: Fetch panicked")
	defer func() { // of a panic, too: others wait
		t.mu.Lock()
		defer t.mu.Unlock()
		var inKeys []K
		var inValues []V
		for i, f := range own {
			if err == nil && found[i] && !f.stale {
				inKeys, inValues = append(inKeys, keys[i]), append(inValues, values[i])
			}
		}
		if len(inKeys) > 0 {
			if err = t.Cache.Insert(inKeys, inValues); err == nil {
				for _, k := range inKeys {
					t.landed.add(bitsOf(k))
				}
			}
		}
		for i, f := range own {
			f.err = err
			if f.found = err == nil && found[i]; f.found {
				f.value = values[i]
			}
			delete(t.flights, bitsOf(keys[i]))
			close(f.done)
		}
	}()
	err = t.source.Fetch(ctx, keys, values, found)
	return err
}

// Put puts or replaces pairs in the store, and then in the cache; one that writes behind in the cache alone: see
// NewTieredBehind. No key may be twice in keys. Errors: those of Store, after which the keys are not in the cache, or of
// one that writes behind, as they were before; those of the cache; a source without Store; a key that is there twice;
// table.ErrClosed behind Close.
func (t *Tiered[K, V]) Put(ctx context.Context, keys []K, values []V) (err error) {
	if err := t.made(); err != nil {
		return err
	}
	if t.source.Store == nil {
		return errors.New("cache: Put to a source that has no Store")
	}
	if err := t.Cache.made().frame.Family.CheckNamed("values", len(keys), len(values)); err != nil {
		return err
	}
	seen := make(map[uint64]bool, len(keys))
	for i, k := range keys {
		if seen[bitsOf(k)] {
			return fmt.Errorf("cache: the key at position %d is put twice at once (want each key once)", i)
		}
		seen[bitsOf(k)] = true
	}
	if t.behind != nil {
		return t.putBehind(ctx, keys, values)
	}
	t.mu.Lock()
	for b := range seen {
		if f := t.flights[b]; f != nil {
			f.stale = true
		}
		w := t.writers[b]
		if w == nil {
			w = &writers{}
			t.writers[b] = w
		}
		w.n++
		w.several = w.several || w.n > 1
	}
	t.mu.Unlock()
	err = errors.New("cache: Store panicked")
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		var inKeys, outKeys []K
		var inValues []V
		for i, k := range keys {
			b := bitsOf(k)
			w := t.writers[b]
			if err != nil || w.several {
				outKeys = append(outKeys, k)
			} else {
				inKeys, inValues = append(inKeys, k), append(inValues, values[i])
			}
			if w.n--; w.n == 0 {
				delete(t.writers, b)
			}
		}
		if len(outKeys) > 0 {
			_, wrong := t.Cache.Delete(outKeys, nil)
			err = errors.Join(err, wrong)
		}
		if len(inKeys) > 0 {
			if wrong := t.Cache.Insert(inKeys, inValues); wrong != nil { // what is there may be what was there before
				_, more := t.Cache.Delete(inKeys, nil)
				err = errors.Join(err, wrong, more)
			}
		}
	}()
	err = t.source.Store(ctx, keys, values)
	return err
}

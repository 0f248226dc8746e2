package cache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/table"
)

// Behind says how a Tiered writes behind: see NewTieredBehind.
type Behind struct {
	// Keys is how many pairs wait for the store at most, those among them that are on their way. They lie in host
	// memory. A Put for which there is no room writes first. Zero means 65,536.
	Keys int
	// Wait is how long a pair waits at most, as long as the store takes what it is given. Half as many pairs as may
	// wait are written at once. Zero means a second.
	Wait time.Duration
}

const (
	behindKeys = 1 << 16
	behindWait = time.Second
)

// NewTieredBehind makes a Tiered that writes behind: Put returns when the cache has the pairs, and they wait in host
// memory until one call of Store writes all that wait. That is when they are many, or have waited for long; at Flush; and
// at Close, which the caller must call before the program ends, and before the Cache is closed. Of several Puts of a key
// the last is written: one call of Store runs at a time, so an older value never comes behind a newer one. A look-up
// finds what waits, also when it has gone out of the cache.
//
// Where Store fails, all that it was to write goes on waiting, unless a newer value of the key does. The error is told
// once, by the next Put, which then puts nothing, or by the next Flush or Close; or by nobody, if the same pairs were
// written since. Store must be one that may be tried again.
//
// Errors: those of NewTiered; a source without Store; a Behind with numbers below 0.
func NewTieredBehind[K, V any](c *Cache[K, V], source Source[K, V], o Behind) (*Tiered[K, V], error) {
	t, err := NewTiered(c, source)
	if err != nil {
		return nil, err
	}
	if source.Store == nil || o.Keys < 0 || o.Wait < 0 {
		return nil, fmt.Errorf("cache: to write %d keys behind, after %v, want a source with Store, and no numbers below 0",
			o.Keys, o.Wait)
	}
	if o.Keys == 0 {
		o.Keys = behindKeys
	}
	if o.Wait == 0 {
		o.Wait = behindWait
	}
	b := &behind[K, V]{o: o, waiting: map[uint64]pair[K, V]{}, writing: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	t.behind = b
	go func() {
		defer close(b.ended)
		for { // of a panic, too, the store is tried again
			err := crash.Catch(func() error { t.run(); return nil })
			if err == nil {
				return
			}
			t.mu.Lock()
			b.failed = err
			t.mu.Unlock()
		}
	}()
	return t, nil
}

// pair is one that waits.
type pair[K, V any] struct {
	key   K
	value V
}

// behind is what a Tiered has that writes behind. What has no comment of its own is guarded by the Tiered's lock.
type behind[K, V any] struct {
	o       Behind
	waiting map[uint64]pair[K, V]
	flying  map[uint64]pair[K, V] // is being written
	since   time.Time             // when the first of waiting was put
	next    time.Time             // not before then is the store tried again that has failed
	failed  error                 // is to be told
	closed  bool

	writing chan struct{} // has an element while somebody writes
	wake    chan struct{} // has an element where run is to look
	stop    chan struct{} // is closed by Close
	ended   chan struct{} // is closed by run
	ctx     context.Context
	cancel  func() // ends ctx, which run writes with
}

// put puts pairs, part by part if there are more than may wait.
func (t *Tiered[K, V]) putBehind(ctx context.Context, keys []K, values []V) error {
	most := t.behind.o.Keys
	for first := 0; first == 0 || first < len(keys); first += most {
		end := min(first+most, len(keys))
		if err := t.putPart(ctx, keys[first:end], values[first:end]); err != nil {
			if first > 0 {
				err = fmt.Errorf("cache: %d of %d pairs are put: %w", first, len(keys), err)
			}
			return err
		}
	}
	return nil
}

// putPart puts as many pairs as may wait.
func (t *Tiered[K, V]) putPart(ctx context.Context, keys []K, values []V) error {
	b := t.behind
	for {
		t.mu.Lock()
		err := b.failed
		if b.closed {
			err = errors.Join(tieredClosed{}, err)
		}
		if b.failed = nil; err != nil {
			t.mu.Unlock()
			return err
		}
		if len(keys) == 0 || len(b.waiting)+len(b.flying)+len(keys) <= b.o.Keys {
			break
		}
		t.mu.Unlock()
		if err := t.write(ctx, false); err != nil {
			return err
		}
	}
	defer t.mu.Unlock()
	for _, k := range keys {
		if f := t.flights[bitsOf(k)]; f != nil {
			f.stale = true
		}
	}
	if err := t.Cache.Insert(keys, values); err != nil { // what is there may be what was there before
		_, more := t.Cache.Delete(keys, nil)
		return errors.Join(err, more)
	}
	if len(b.waiting) == 0 {
		b.since = time.Now()
	}
	for i, k := range keys {
		b.waiting[bitsOf(k)] = pair[K, V]{k, values[i]}
	}
	b.look()
	return nil
}

// look has run look whether something is to be written.
func (b *behind[K, V]) look() {
	select {
	case b.wake <- struct{}{}:
	default: // it is going to, anyway
	}
}

// of is what waits of a key, or is being written.
func (b *behind[K, V]) of(bits uint64) (p pair[K, V], ok bool) {
	if p, ok = b.waiting[bits]; !ok {
		p, ok = b.flying[bits]
	}
	return p, ok
}

// write writes all that waits, once nobody else writes. Where it is to tell, its error is kept for the next call.
func (t *Tiered[K, V]) write(ctx context.Context, tell bool) (err error) {
	if ctx == nil {
		return crash.Ended(ctx)
	}
	b := t.behind
	select {
	case b.writing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-b.writing }()
	t.mu.Lock()
	b.flying, b.waiting = b.waiting, map[uint64]pair[K, V]{}
	since := b.since
	keys, values := make([]K, 0, len(b.flying)), make([]V, 0, len(b.flying))
	for _, p := range b.flying {
		keys, values = append(keys, p.key), append(values, p.value)
	}
	t.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	err = errors.New("cache: Store panicked")
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if err == nil {
			b.failed = nil // what that was about is written now
		} else {
			if tell && b.ctx.Err() == nil { // else Close, which has ended it, writes
				b.failed = err
			}
			for bits, p := range b.flying {
				if _, newer := b.waiting[bits]; !newer {
					b.waiting[bits] = p
				}
			}
			b.since, b.next = since, time.Now().Add(b.o.Wait)
		}
		b.flying = nil
	}()
	err = t.source.Store(ctx, keys, values)
	return err
}

// due says whether something is to be written now, or else when to look again; zero: not before there is more.
func (t *Tiered[K, V]) due() (now bool, at time.Time) {
	b := t.behind
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(b.waiting) == 0 {
		return false, at
	}
	if at = b.since.Add(b.o.Wait); len(b.waiting) >= b.o.Keys-b.o.Keys/2 {
		at = time.Time{}
	}
	if b.next.After(at) {
		at = b.next
	}
	return !at.After(time.Now()), at
}

// run writes what waits, when it is due, until Close.
func (t *Tiered[K, V]) run() {
	b := t.behind
	for {
		now, at := t.due()
		if now {
			_ = t.write(b.ctx, true) // the next call tells
		}
		var later <-chan time.Time
		if !now && !at.IsZero() {
			later = time.After(time.Until(at))
		}
		if now { // there may be more by now
			b.look()
		}
		select {
		case <-b.stop:
			return
		case <-b.wake:
		case <-later:
		}
	}
}

// told gives the error that is to be told, and forgets it.
func (t *Tiered[K, V]) told() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.behind.failed
	t.behind.failed = nil
	return err
}

// Flush writes what waits for the store, and returns when all that was put before has been written. Where the Tiered
// does not write behind, there is nothing to do. Errors: those of Store, after which all that was not written goes on
// waiting; context.Cause(ctx).
func (t *Tiered[K, V]) Flush(ctx context.Context) error {
	if t.behind == nil {
		return t.made()
	}
	if err := t.write(ctx, false); err != nil {
		return err
	}
	return t.told()
}

// Close writes what waits for the store, and has later Puts fail with table.ErrClosed. It does not close the Cache, and
// look-ups go on. After an error, what was not written still waits: call Close again, or Flush. Where the Tiered does
// not write behind, there is nothing to do. Errors: those of Flush.
func (t *Tiered[K, V]) Close(ctx context.Context) error {
	b := t.behind
	if b == nil {
		return nil
	}
	if ctx == nil {
		return crash.Ended(ctx)
	}
	t.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.stop)
	}
	t.mu.Unlock()
	select {
	case <-b.ended:
	case <-ctx.Done():
		b.cancel()
		return context.Cause(ctx)
	}
	b.cancel()
	return t.Flush(ctx)
}

// tieredClosed is what a closed Tiered returns as ErrClosed; its Cache may be open.
type tieredClosed struct{}

func (tieredClosed) Error() string        { return "cache: the Tiered is closed" }
func (tieredClosed) Is(target error) bool { return target == table.ErrClosed }

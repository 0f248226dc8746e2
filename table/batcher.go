package table

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/warpmap/warpmap/internal/crash"
)

// Batcher puts the small batches of many goroutines together, so that they share one launch instead of costing one
// each. A server whose requests look up a few keys asks a Batcher, and not the table. Larger batches go to the table as
// they are.
//
// While a batch is under way, new requests are gathered into the next one. They wait for no longer than that batch
// takes; to have them wait longer, set BatcherOptions.Wait. A request gets the results that the table's own methods
// give. Requests that are under way at the same time happen in any order, key by key. A request that begins after
// another has returned comes behind it. The table itself can be used meanwhile.
//
// A request whose context ends returns context.Cause(ctx) at once. If its keys are in a batch by then, the batch goes
// on. A request that goes to the table as it is looks at its context only before it begins.
//
// Cost of a request, beside its share of the batch: two copies of its keys and values, and waking its goroutine. All
// methods are safe for use by several goroutines.
type Batcher[K, V any] struct {
	m       batched[K, V]
	o       BatcherOptions
	shards  []batcherShard[K, V]
	wake    chan struct{}
	stop    chan struct{}
	runners sync.WaitGroup
	closing sync.Once
}

// BatcherOptions say how batches form. The zero value is good.
type BatcherOptions struct {
	// Keys is the most keys that are looked up, inserted or deleted at once. A request of a quarter of that, or more,
	// goes to the table as it is. Zero means 65,536.
	Keys int
	// Wait is how long the first request waits for others when none is under way. Zero means not at all: then a request
	// on its own is as fast as the table's.
	Wait time.Duration
	// Launches is the most batches that are under way at once. Zero means 2: while the results of one are handed out,
	// the next is at work.
	Launches int
}

const (
	batcherKeys     = 1 << 16
	batcherDirect   = 4 // a request of Keys/batcherDirect keys has a batch of its own
	batcherLaunches = 2
)

// batcherClosed is what a closed Batcher returns as ErrClosed; its table may be open.
type batcherClosed struct{}

func (batcherClosed) Error() string        { return "table: the Batcher is closed" }
func (batcherClosed) Is(target error) bool { return target == ErrClosed }

// batcherOp is what a request wants.
type batcherOp int

const (
	batchInsert batcherOp = iota
	batchDelete
	batchFind
	batcherOps
)

// lot is requests of one operation that go together.
type lot[K, V any] struct {
	keys   []K
	values []V    // to insert, or found
	flags  []bool // deleted or found
	first  int    // its first key's number among all that went together
	pieces []piece
	done   chan struct{} // closed when all above is there
}

// piece is keys that went to the table at once, by their numbers among all that went together, and what came of it.
type piece struct {
	from, to int
	err      error
}

// batcherShard is where some goroutines put their requests. There are several, so that they are seldom in one another's way.
type batcherShard[K, V any] struct {
	mu     sync.Mutex
	closed bool
	lots   [batcherOps]*lot[K, V]
	_      [64]byte
}

// batched is what a Batcher needs of a table.
type batched[K, V any] interface {
	Find(keys []K, values []V, found []bool) error
	Insert(keys []K, values []V) error
	Delete(keys []K, deleted []bool) (int, error)
}

// NewBatcher makes a Batcher over a table: a Map or a cache.Cache. The caller closes the table, after the Batcher.
// Errors: no table; options out of range.
func NewBatcher[K, V any](m interface {
	Find(keys []K, values []V, found []bool) error
	Insert(keys []K, values []V) error
	Delete(keys []K, deleted []bool) (int, error)
}, o BatcherOptions) (*Batcher[K, V], error) {
	if m == nil {
		return nil, errors.New("table: a batcher without a table")
	}
	if o.Keys < 0 || o.Wait < 0 || o.Launches < 0 {
		return nil, fmt.Errorf("table: a batcher of %d keys that waits %v, with %d launches at once (want 0 or more of each)", o.Keys, o.Wait, o.Launches)
	}
	if o.Keys == 0 {
		o.Keys = batcherKeys
	}
	if o.Launches == 0 {
		o.Launches = batcherLaunches
	}
	b := &Batcher[K, V]{m: m, o: o, shards: make([]batcherShard[K, V], runtime.GOMAXPROCS(0)), wake: make(chan struct{}, 1), stop: make(chan struct{})}
	for range o.Launches {
		b.runners.Go(b.run)
	}
	return b, nil
}

// Find looks keys up, as the table's Find does; values or found may be nil. Errors: those of the table; ErrClosed;
// context.Cause(ctx), and then nothing is written.
func (b *Batcher[K, V]) Find(ctx context.Context, keys []K, values []V, found []bool) error {
	if err := Family("table").CheckNamed("values found", len(keys), optionalLen(values), optionalLen(found)); err != nil {
		return err
	}
	if b.direct(len(keys)) {
		return b.directly(ctx, func() error { return b.m.Find(keys, values, found) })
	}
	l, at, err := b.ask(ctx, batchFind, keys, nil)
	if err != nil {
		return err
	}
	copy(values, l.values[at:])
	copy(found, l.flags[at:])
	return nil
}

// Get looks up one key: see Find.
func (b *Batcher[K, V]) Get(ctx context.Context, key K) (value V, found bool, err error) {
	l, at, err := b.ask(ctx, batchFind, []K{key}, nil)
	if err != nil {
		return value, false, err
	}
	return l.values[at], l.flags[at], nil
}

// Insert puts or replaces pairs, as the table's Insert does. Errors: *FullError, with the positions of this batch that
// are not in; any other that the table gave for these pairs or for some that went in together with them; ErrClosed;
// context.Cause(ctx), and then the pairs may get in all the same.
func (b *Batcher[K, V]) Insert(ctx context.Context, keys []K, values []V) error {
	if err := Family("table").CheckNamed("values", len(keys), len(values)); err != nil {
		return err
	}
	if b.direct(len(keys)) {
		return b.directly(ctx, func() error { return b.m.Insert(keys, values) })
	}
	_, _, err := b.ask(ctx, batchInsert, keys, values)
	return err
}

// Put inserts one pair: see Insert.
func (b *Batcher[K, V]) Put(ctx context.Context, key K, value V) error {
	return b.Insert(ctx, []K{key}, []V{value})
}

// Delete removes keys, as the table's Delete does; deleted may be nil. Errors: those of the table; ErrClosed;
// context.Cause(ctx), and then the keys may be removed all the same.
func (b *Batcher[K, V]) Delete(ctx context.Context, keys []K, deleted []bool) (n int, err error) {
	if err := Family("table").CheckNamed("deleted", len(keys), optionalLen(deleted)); err != nil {
		return 0, err
	}
	if b.direct(len(keys)) {
		err = b.directly(ctx, func() (err error) { n, err = b.m.Delete(keys, deleted); return err })
		return n, err
	}
	l, at, err := b.ask(ctx, batchDelete, keys, nil)
	if err != nil {
		return 0, err
	}
	own := l.flags[at : at+len(keys)]
	copy(deleted, own)
	return countTrue(own), nil
}

// direct tells whether a request has a batch of its own.
func (b *Batcher[K, V]) direct(n int) bool { return n == 0 || n >= max(1, b.o.Keys/batcherDirect) }

func (b *Batcher[K, V]) directly(ctx context.Context, do func() error) error {
	if err := crash.Ended(ctx); err != nil {
		return err
	}
	if b.m == nil { // the zero value
		return batcherClosed{}
	}
	select {
	case <-b.stop:
		return batcherClosed{}
	default:
		return do()
	}
}

// ask puts a request into a lot, and waits for it: its keys are from number `at` on. Errors: also what came of them.
func (b *Batcher[K, V]) ask(ctx context.Context, op batcherOp, keys []K, values []V) (l *lot[K, V], at int, err error) {
	if err := crash.Ended(ctx); err != nil {
		return nil, 0, err
	}
	if b.m == nil { // the zero value
		return nil, 0, batcherClosed{}
	}
	s := &b.shards[rand.N(len(b.shards))]
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, 0, batcherClosed{}
	}
	first := s.lots[op] == nil
	if first {
		s.lots[op] = &lot[K, V]{done: make(chan struct{})}
	}
	l = s.lots[op]
	at = len(l.keys)
	l.keys, l.values = append(l.keys, keys...), append(l.values, values...)
	s.mu.Unlock()
	if first {
		select {
		case b.wake <- struct{}{}:
		default: // somebody comes already
		}
	}
	select {
	case <-l.done:
		return l, at, l.outcome(at, len(keys))
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
}

// run does what is asked for, until the Batcher is closed.
func (b *Batcher[K, V]) run() {
	for {
		select {
		case <-b.stop:
			return
		case <-b.wake:
		}
		if b.o.Wait > 0 {
			time.Sleep(b.o.Wait)
		}
		for op := range batcherOps {
			if lots := b.take(op); len(lots) > 0 {
				b.do(op, lots)
			}
		}
	}
}

// take takes what all shards have of an operation.
func (b *Batcher[K, V]) take(op batcherOp) (lots []*lot[K, V]) {
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		if s.lots[op] != nil {
			lots = append(lots, s.lots[op])
			s.lots[op] = nil
		}
		s.mu.Unlock()
	}
	return lots
}

// do does lots of an operation, and wakes who waits for them.
func (b *Batcher[K, V]) do(op batcherOp, lots []*lot[K, V]) {
	all := lot[K, V]{}
	for _, l := range lots {
		all.keys, all.values = append(all.keys, l.keys...), append(all.values, l.values...)
	}
	b.inPieces(op, &all)
	at := 0
	for _, l := range lots {
		n := len(l.keys)
		l.first, l.pieces = at, all.pieces
		if op != batchInsert {
			l.values, l.flags = all.part(at, n)
		}
		at += n
		go close(l.done) // who wakes many takes time: the next batch need not wait for that
	}
}

// part is what a lot of n keys gets of all, from `at` on.
func (l *lot[K, V]) part(at, n int) (values []V, flags []bool) {
	if l.values != nil {
		values = l.values[at : at+n]
	}
	return values, l.flags[at : at+n]
}

// outcome is the error of n of the lot's keys, from number `at` on. A FullError says that all else is done: so it gives
// way to any other error of one of these keys.
func (l *lot[K, V]) outcome(at, n int) error {
	from, to := l.first+at, l.first+at+n
	var full *FullError
	for _, p := range l.pieces {
		if p.err == nil || p.to <= from || p.from >= to {
			continue
		}
		some := (*FullError)(nil)
		if !errors.As(p.err, &some) {
			return p.err
		}
		first, _ := slices.BinarySearch(some.Positions, from-p.from)
		behind, _ := slices.BinarySearch(some.Positions, to-p.from)
		if first == behind { // all of these are in
			continue
		}
		if full == nil {
			full = &FullError{}
		}
		for _, i := range some.Positions[first:behind] {
			full.Positions = append(full.Positions, p.from+i-from)
		}
		full.Capacity, full.Len, full.Why = some.Capacity, some.Len, some.Why
	}
	if full == nil {
		return nil
	}
	return full
}

// inPieces does an operation on no more than Keys keys at a time. What comes of one piece is nothing to requests in the
// others: these are tried whatever becomes of it.
func (b *Batcher[K, V]) inPieces(op batcherOp, all *lot[K, V]) {
	n := len(all.keys)
	if op != batchInsert {
		all.flags = make([]bool, n)
	}
	if op == batchFind {
		all.values = make([]V, n)
	}
	for from := 0; from < n; from += b.o.Keys {
		to := min(n, from+b.o.Keys)
		all.pieces = append(all.pieces, piece{from, to, b.piece(op, all, from, to)})
	}
}

// piece does an operation on some keys. A panic is an error of these.
func (b *Batcher[K, V]) piece(op batcherOp, all *lot[K, V], from, to int) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("table: a batch broke off: %w", crash.Of(r))
		}
	}()
	switch op {
	case batchFind:
		err = b.m.Find(all.keys[from:to], all.values[from:to], all.flags[from:to])
	case batchDelete:
		_, err = b.m.Delete(all.keys[from:to], all.flags[from:to])
	case batchInsert:
		err = b.m.Insert(all.keys[from:to], all.values[from:to])
	}
	return err
}

// Close waits for the batches that are under way. Requests that wait for their batch, and all later requests, get
// ErrClosed, though the table is open. Close is idempotent. The table stays open.
func (b *Batcher[K, V]) Close() error {
	b.closing.Do(func() {
		if b.stop == nil { // the zero value
			return
		}
		close(b.stop)
		b.runners.Wait()
		for i := range b.shards {
			s := &b.shards[i]
			s.mu.Lock()
			s.closed = true
			for _, l := range s.lots {
				if l != nil {
					l.pieces = []piece{{0, len(l.keys), batcherClosed{}}}
					close(l.done)
				}
			}
			s.lots = [batcherOps]*lot[K, V]{}
			s.mu.Unlock()
		}
	})
	return nil
}

// optionalLen is the length of a slice that may be nil, for CheckLens.
func optionalLen[T any](s []T) int {
	if s == nil {
		return -1
	}
	return len(s)
}

func countTrue(flags []bool) (n int) {
	for _, set := range flags {
		if set {
			n++
		}
	}
	return n
}

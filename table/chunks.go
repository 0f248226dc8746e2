package table

import (
	"context"
	"errors"
	"iter"
)

// ErrChanged says that a table was changed while its chunks were given out, and that they end early.
var ErrChanged = errors.New("the table was changed while its chunks were given out (let those who change it wait, or begin anew)")

// errEnough ends chunks early.
var errEnough = errors.New("enough")

// Pairs iterates over a table's pairs, in no order, by Chunks. What Chunks says of memory, and of calls that change the
// table meanwhile, holds here too. When the loop is over, err returns what broke it off, or nil. Without err, a loop
// that did not come to the table's end looks like any other.
//
//	pairs, err := table.Pairs(ctx, m)
//	for k, v := range pairs {
//		…
//	}
//	if err() != nil {
//
// A loop may stop early; nothing stays behind. Each range over pairs begins anew.
func Pairs[K, V any](ctx context.Context, t interface {
	Chunks(ctx context.Context, do func(keys []K, values []V) error) error
}) (pairs iter.Seq2[K, V], err func() error) {
	var failed error
	pairs = func(yield func(K, V) bool) {
		failed = enough(t.Chunks(ctx, func(keys []K, values []V) error {
			for i, k := range keys {
				if !yield(k, values[i]) {
					return errEnough
				}
			}
			return nil
		}))
	}
	return pairs, func() error { return failed }
}

// Keys iterates over a set's keys: see Pairs.
func Keys[K any](ctx context.Context, s Set[K]) (keys iter.Seq[K], err func() error) {
	var failed error
	keys = func(yield func(K) bool) {
		failed = enough(s.Chunks(ctx, func(keys []K) error {
			for _, k := range keys {
				if !yield(k) {
					return errEnough
				}
			}
			return nil
		}))
	}
	return keys, func() error { return failed }
}

func enough(err error) error {
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

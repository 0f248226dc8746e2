package table

import (
	"errors"
	"slices"
	"testing"
)

// A request that is cut between two pieces has the positions of both. If one of them fails otherwise, it has that error
// alone: a FullError would say that all else is in.
func TestOutcomeOfACutRequest(t *testing.T) {
	broken := errors.New("broken")
	l := lot[int, int]{first: 5, pieces: []piece{
		{0, 8, &FullError{Positions: []int{4, 5, 7}, Capacity: 1, Len: 1, Why: errors.New("first")}},
		{8, 16, &FullError{Positions: []int{0, 3}, Capacity: 2, Len: 2, Why: ErrMaxBytes}},
		{16, 24, nil},
		{24, 32, broken},
	}}
	for _, c := range []struct {
		at, n int
		want  []int // nil: all are in
		why   error // of another error
	}{
		{at: 0, n: 1, want: []int{0}},
		{at: 1, n: 1},
		{at: 0, n: 7, want: []int{0, 2, 3, 6}},
		{at: 2, n: 2, want: []int{0, 1}},
		{at: 4, n: 2},
		{at: 6, n: 13, want: []int{0}},
		{at: 7, n: 12},
		{at: 18, n: 2, why: broken},
		{at: 0, n: 20, why: broken},
		{at: 26, n: 1, why: broken},
	} {
		err := l.outcome(c.at, c.n)
		full := (*FullError)(nil)
		switch is := errors.As(err, &full); {
		case c.why != nil:
			if is || !errors.Is(err, c.why) {
				t.Errorf("%d keys from %d on: %v, want %v", c.n, c.at, err, c.why)
			}
		case c.want == nil:
			if err != nil {
				t.Errorf("%d keys from %d on: %v", c.n, c.at, err)
			}
		case !is || !slices.Equal(full.Positions, c.want) || full.Why == nil || full.Len != full.Capacity:
			t.Errorf("%d keys from %d on: %v, want positions %d", c.n, c.at, err, c.want)
		}
	}
}

// A Batcher that NewBatcher did not make is as a closed one, and NewBatcher makes none without a table.
func TestZeroBatcher(t *testing.T) {
	var b Batcher[uint64, uint64]
	ctx, keys := t.Context(), []uint64{1, 2}
	_, _, get := b.Get(ctx, 1)
	_, deleted := b.Delete(ctx, keys, nil)
	for _, err := range []error{get, deleted, b.Find(ctx, keys, keys, nil), b.Insert(ctx, keys, keys), b.Put(ctx, 1, 2)} {
		if !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if b, err := NewBatcher[uint64, uint64](nil, BatcherOptions{}); err == nil {
		t.Errorf("%v without a table", b)
	}
}

package table

import (
	"context"
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/internal/crash"
)

// partRows is how many rows InParts hands on at once: enough for the full rate, and milliseconds on a GPU.
const partRows = 1 << 22

// InParts does a batch of n rows part by part, in order, until ctx ends, so that any batch of Go slices can be stopped:
//
//	err := table.InParts(ctx, len(keys), func(from, to int) error { return m.Insert(keys[from:to], values[from:to]) })
//
// A part has up to 4,194,304 rows. InParts looks at ctx before each part, so the end of ctx leaves no part half done.
//
// Errors: what do returns, and then no more parts begin; but after a *FullError the other parts follow, and the error
// at the end has all positions, as for the whole batch. If ctx ends, the error tells how many rows are done, and wraps
// context.Cause(ctx). Such an error, and another of do, is joined with the *FullError of the parts before, if there was
// one. Build of package gph takes all of its pairs at once, and cannot be done in parts.
func InParts(ctx context.Context, n int, do func(from, to int) error) error {
	return inParts(ctx, n, partRows, do)
}

func inParts(ctx context.Context, n, step int, do func(from, to int) error) error {
	var full *FullError
	told := func(err error) error {
		if full == nil {
			return err
		}
		return errors.Join(full, err)
	}
	for from := 0; from < n; from += step {
		if err := crash.Ended(ctx); err != nil {
			return told(fmt.Errorf("table: %d of %d rows are done: %w", from, n, err))
		}
		err := do(from, min(n, from+step))
		some := (*FullError)(nil)
		if !errors.As(err, &some) {
			if err != nil {
				return told(err)
			}
			continue
		}
		if full == nil {
			full = &FullError{}
		}
		for _, p := range some.Positions {
			full.Positions = append(full.Positions, from+p)
		}
		full.Capacity, full.Len, full.Why = some.Capacity, some.Len, some.Why
	}
	if full == nil {
		return nil
	}
	return full
}

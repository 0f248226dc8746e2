package table

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestInParts(t *testing.T) {
	var parts []string
	seen := func(from, to int) { parts = append(parts, fmt.Sprintf("%d-%d", from, to)) }
	check := func(what, want string) {
		t.Helper()
		if got := strings.Join(parts, " "); got != want {
			t.Errorf("%s: parts %s, want %s", what, got, want)
		}
		parts = nil
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := inParts(ctx, 10, 4, func(from, to int) error { seen(from, to); return nil }); err != nil {
		t.Error(err)
	}
	check("all", "0-4 4-8 8-10")
	if err := InParts(ctx, partRows+1, func(from, to int) error { seen(from, to); return nil }); err != nil {
		t.Error(err)
	}
	check("a row too many", "0-4194304 4194304-4194305")
	if err := InParts(ctx, 0, func(from, to int) error { return errors.New("called") }); err != nil {
		t.Error(err)
	}

	// A part that is full does not keep others from being tried, and positions are those of the batch.
	fullAt := func(from, to int) error {
		seen(from, to)
		return &FullError{Positions: []int{to - from - 1}, Capacity: 100, Len: 90 + from, Why: ErrMaxBytes}
	}
	full := (*FullError)(nil)
	err := inParts(ctx, 10, 4, fullAt)
	if !errors.As(err, &full) || !slices.Equal(full.Positions, []int{3, 7, 9}) || full.Len != 98 || full.Capacity != 100 || !errors.Is(err, ErrMaxBytes) {
		t.Errorf("%v, %+v", err, full)
	}
	check("full", "0-4 4-8 8-10")

	// Another error ends it, and what was full before is told, too.
	broken := errors.New("broken")
	err = inParts(ctx, 10, 4, func(from, to int) error {
		if from == 4 {
			seen(from, to)
			return broken
		}
		return fullAt(from, to)
	})
	if !errors.Is(err, broken) || !errors.As(err, &full) || !slices.Equal(full.Positions, []int{3}) {
		t.Errorf("%v, %+v", err, full)
	}
	check("broken", "0-4 4-8")

	err = inParts(ctx, 10, 4, func(from, to int) error {
		seen(from, to)
		cancel(broken)
		return nil
	})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "4 of 10 rows are done") {
		t.Error(err)
	}
	check("stopped", "0-4")
}

// An error names the slice that is too long or too short, host's or device's.
func TestCheckNamed(t *testing.T) {
	f := Family("x")
	for _, c := range []struct {
		err  error
		want string
	}{
		{f.CheckNamed("values found", 2, 2, -1), ""},
		{f.CheckNamed("values found", 2, 1, -1), "x: slice values has 1 elements, keys 2"},
		{f.CheckNamed("values found", 2, -1, 3), "x: slice found has 3 elements, keys 2"},
		{f.CheckLens(2, 3), "x: 2 keys beside a slice of 3 elements"},
	} {
		if got := fmt.Sprint(c.err); got != c.want && !(c.err == nil && c.want == "") {
			t.Errorf("%s, want %q", got, c.want)
		}
	}
}

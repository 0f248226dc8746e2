package table_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/table"
)

// Of two chunks, positions 0 to 9 and 10 to 19, positions 2, 5 and 12 are refused, and those from 17 on are not tried. Keys 5,
// 12 and 18 are in the table in the end.
func TestMissing(t *testing.T) {
	keys := make([]int, 20)
	for i := range keys {
		keys[i] = i
	}
	contains := func(keys []int, found []bool) error {
		for i, k := range keys {
			found[i] = k == 5 || k == 12 || k == 18
		}
		return nil
	}
	for _, c := range []struct {
		contains func([]int, []bool) error
		want     []int
	}{
		{contains, []int{2, 17, 18, 19}},
		{nil, []int{2, 5, 12, 17, 18, 19}}, // a multimap
	} {
		var m table.Missing
		if !m.None() {
			t.Error("nothing was added, and something is missing")
		}
		m.Add(0, 10, []int{5, 2}, 10, nil)
		m.Add(10, 10, []int{2}, 7, table.ErrMaxBytes)
		must(t, table.StrikeOff(&m, keys, c.contains))
		var full *table.FullError
		if err := table.Full(m.Positions(), 100, 90, m.Why); m.None() || !errors.As(err, &full) || !errors.Is(err, table.ErrMaxBytes) || !slices.Equal(full.Positions, c.want) {
			t.Errorf("%v, want positions %v", err, c.want)
		}
		added := slices.Repeat([]bool{true}, len(keys))
		if n := table.CountAdded(added, full); n != len(keys)-len(c.want) || added[17] {
			t.Errorf("%d are added, %t", n, added[17])
		}
	}
	// Within one chunk, kernels see to it that equal keys are in or out together.
	var m table.Missing
	m.Add(0, 20, []int{5, 2}, 20, table.ErrMaxBytes)
	must(t, table.StrikeOff(&m, keys, func([]int, []bool) error { t.Error("looked up for nothing"); return nil }))
	if got := m.Positions(); !slices.Equal(got, []int{5, 2}) {
		t.Errorf("%v is missing", got)
	}
	if err := table.Full(nil, 1, 1, nil); err != nil {
		t.Errorf("full of nothing: %v", err)
	}
}

package slabhash

import (
	"testing"

	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
)

// A table that is changed for long stays as it is.
func TestChurn(t *testing.T) {
	fig, err := benchtest.Study(t, Studies, "slab/churn").Measure(benchtest.CPU(t), bench.FigOptions{N: 4001, Batches: 33})
	if err != nil {
		t.Fatal(err)
	}
	if len(fig.Rows) != 10 || len(fig.Notes) != 3 {
		t.Fatalf("%d rows, notes %q", len(fig.Rows), fig.Notes)
	}
	for _, r := range fig.Rows {
		at := benchtest.At(fig, r)
		if at("wrong") != 0 || at("note") != "" || at("pairs") != 4001 {
			t.Errorf("%v", r)
		}
		for _, c := range []string{"mixed G/s", "slowest ms", "table MB", "slabs a bucket"} {
			benchtest.AtLeast(t, c, at(c), 1e-9)
		}
		benchtest.AtLeast(t, "utilization", at("utilization"), 0.2)
	}
	if at := fig.Rows[9][0]; at != 33 {
		t.Errorf("%v batches, want 33", at)
	}
	if _, err := benchtest.Study(t, Studies, "slab/churn").Measure(benchtest.CPU(t), bench.FigOptions{N: 1 << 30, Batches: 1000}); err == nil {
		t.Error("more new keys than there are")
	}
}

// What is wrong is seen: an operation that did nothing, and a pair too many.
func TestChurnSeesWrongAnswers(t *testing.T) {
	c, err := newChurn(benchtest.CPU(t), 1000, 250)
	if err != nil {
		t.Fatal(err)
	}
	defer c.free()
	if _, err := c.m.Delete(c.parts[0].present, nil); err != nil {
		t.Fatal(err)
	}
	wrong := 0
	for range 20 {
		_, n, err := c.run()
		if err != nil {
			t.Fatal(err)
		}
		wrong += n
	}
	if wrong == 0 {
		t.Error("a table that lost a sixteenth of its pairs gives no wrong answer")
	}
}

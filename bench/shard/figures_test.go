package shard

import (
	"testing"

	"github.com/warpmap/warpmap/bench"
	"github.com/warpmap/warpmap/bench/benchtest"
)

// Rates are there, and steps where they are apart.
func TestFigure6(t *testing.T) {
	benchtest.Draw(t, benchtest.Rows(t, Studies, "shard/6", 3000, 2*(1+2*len(ways)), func(at func(string) any) {
		for _, c := range []string{"insert G/s", "find G/s", "insert efficiency", "find efficiency"} {
			benchtest.AtLeast(t, c, at(c), 1e-9)
		}
		if way := at("way").(string); way == "step by step, copies" {
			for _, c := range []string{"count ms", "split ms", "send ms", "insert ms", "find: count ms", "find: look up ms", "find: fetch ms"} {
				benchtest.AtLeast(t, c, at(c), 1e-6)
			}
		} else if way == "overlapped, copies" && at("insert ms") != nil {
			t.Errorf("%s has steps", way)
		}
		if filled, _ := bench.Number(at("filled")); filled < 0.5 || filled > 0.81 {
			t.Errorf("%v filled", filled)
		}
	}))
}

func TestAsk(t *testing.T) {
	benchtest.Draw(t, benchtest.Rows(t, Studies, "shard/ask", 1500, 2*5, func(at func(string) any) {
		benchtest.AtLeast(t, "µs", at("µs"), 1e-3)
	}))
}

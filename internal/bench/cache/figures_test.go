package cache

import (
	"testing"

	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
	"github.com/warpmap/warpmap/internal/testenv"
)

func TestRates(t *testing.T) {
	testenv.ByTurns(t)
	fig := benchtest.Rows(t, Studies, "cache/rates", 3000, 8, func(at func(string) any) {
		for _, c := range []string{"find G/s, all hits", "find quiet G/s", "find G/s, no hits", "insert G/s",
			"told G/s", "overwrite G/s", "find Zipf G/s", "overwrite Zipf G/s"} {
			benchtest.AtLeast(t, c, at(c), 1e-9)
		}
		benchtest.AtLeast(t, "filled", at("filled"), 0.98)
	})
	benchtest.Draw(t, fig)
}

// Caches come near the exact orders: within a point, in long runs. Of pairs as few as a short run has, a bucket more or
// less is some tenths of a point.
func TestHits(t *testing.T) {
	n, within := 10_000, 2.5
	if testenv.Long() {
		n, within = 100_000, 1
	}
	fig := benchtest.Rows(t, Studies, "cache/hits", n, 2*len(traces), func(at func(string) any) {
		for _, c := range []string{"LRU %", "LFU %"} {
			got, _ := bench.Number(at(c))
			exact, _ := bench.Number(at("exact " + c))
			// LFU in buckets forgets, which shifts reward
			if got < exact-within || got < 5 || got > exact+within && (c == "LRU %" || at("requests") != "that shifts") {
				t.Errorf("%v, %v%%: %s is %v, exact %v", at("requests"), at("cache %"), c, got, exact)
			}
		}
	})
	benchtest.Draw(t, fig)
}

// The exact orders are what they say, of requests that one can follow.
func TestExact(t *testing.T) {
	requests := []uint64{1, 1, 2, 1, 3, 2, 1, 3} // the last four count
	if got := exactLRU(requests, 2); got != 0 {  // {1,3} {2,3} {1,2} {3,1}
		t.Errorf("LRU has %v", got)
	}
	if got := exactLFU(requests, 2); got != 25 { // {1,3} {1,2} hit {1,3}
		t.Errorf("LFU has %v", got)
	}
}

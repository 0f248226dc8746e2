package cuckoo_test

import (
	"testing"

	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
	"github.com/warpmap/warpmap/internal/bench/cuckoo"
	"github.com/warpmap/warpmap/internal/testenv"
)

func TestRates(t *testing.T) {
	testenv.ByTurns(t)
	fig := benchtest.Rows(t, cuckoo.Studies, "cuckoo/rates", 20_000, 8, func(at func(string) any) {
		for _, c := range []string{"insert G/s", "hits G/s", "misses G/s"} {
			benchtest.AtLeast(t, c, at(c), 1e-9)
		}
		bits, _ := bench.Number(at("bits a key"))
		positives, _ := bench.Number(at("false positives %"))
		if at("filter") == "cuckoo" {
			benchtest.AtLeast(t, "delete", at("delete G/s"), 1e-9)
			benchtest.AtLeast(t, "delete told", at("delete told G/s"), 1e-9)
			benchtest.AtLeast(t, "load", at("load"), 0.93)
			most := map[any][2]float64{16: {18.3, 0.1}, 12: {13.8, 0.7}, 8: {9.8, 5}}[at("tag bits")]
			if bits > most[0] || positives > most[1] {
				t.Errorf("tags of %v bits: %v bits a key, %v%% false positives", at("tag bits"), bits, positives)
			}
		}
	})
	benchtest.Draw(t, fig)
}

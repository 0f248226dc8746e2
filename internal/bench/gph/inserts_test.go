package gph

import (
	"math"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// few is a study of some of its settings, for each is compiled for itself; in long runs, of all.
func few(name string, run func(*device.Device, bench.FigOptions, []gph.Setting) (*bench.Fig, error), settings []gph.Setting) []bench.Study {
	if testenv.Long() {
		return Studies
	}
	return []bench.Study{{Name: name, Run: func(d *device.Device, o bench.FigOptions) (*bench.Fig, error) { return run(d, o, settings) }}}
}

// More virtual buckets and larger buckets reach more, and what a table took until it refused is there.
func TestFigure15a(t *testing.T) {
	testenv.ByTurns(t)
	loads := map[[2]any]float64{}
	settings := []gph.Setting{{Bucket: 4, VirtualBuckets: 2}, {Bucket: 4, VirtualBuckets: 8}, {Bucket: 16, VirtualBuckets: 2}, {Bucket: 16, VirtualBuckets: 8}}
	fig := benchtest.Rows(t, few("gph/15a", reaches, settings), "gph/15a", 6000, len(settings), func(at func(string) any) {
		loads[[2]any{at("M"), at("R")}], _ = bench.Number(at("load"))
		benchtest.AtLeast(t, "refused", at("refused"), 1)
	})
	benchtest.Draw(t, fig)
	if !(loads[[2]any{16, 8}] > 0.8 && loads[[2]any{4, 2}] < loads[[2]any{4, 8}] && loads[[2]any{4, 2}] < loads[[2]any{16, 2}]) {
		t.Errorf("loads by M and R: %v", loads)
	}
}

func TestFigure15b(t *testing.T) {
	sizes := map[any]int{}
	fig := benchtest.Rows(t, Studies, "gph/15b", 50_000, 5, func(at func(string) any) {
		sizes[at("pair bytes")]++
		benchtest.AtLeast(t, "mean", at("mean G/s"), 1e-9)
	})
	benchtest.Draw(t, fig)
	if sizes[4] != 1 || sizes[8] != 2 || sizes[16] != 2 {
		t.Errorf("rows by size: %v", sizes)
	}
}

func TestFigure15c(t *testing.T) {
	before := math.Inf(1)
	benchtest.Rows(t, Studies, "gph/15c", 8000, 8, func(at func(string) any) {
		distinct, _ := bench.Number(at("distinct"))
		if distinct >= before || distinct < 1 {
			t.Errorf("s = %v: %v distinct keys, and with less skew %v", at("s"), distinct, before)
		}
		before = distinct
		benchtest.AtLeast(t, "insert", at("insert G/s"), 1e-9)
	})
}

func TestOverwrite(t *testing.T) {
	benchtest.Rows(t, Studies, "gph/overwrite", 2000, 5*len(warpmap.Families(table.KindMap)), func(at func(string) any) {
		benchtest.AtLeast(t, "overwrite", at("overwrite G/s"), 1e-9)
		benchtest.AtLeast(t, "insert-new", at("insert-new G/s"), 1e-9)
	})
}

// No table takes all pairs, none refuses any while it is half empty, and moves examine fewer rings than the theorem's bound,
// but for a share of the first ones that find no room.
func TestTheorem(t *testing.T) {
	settings := []gph.Setting{{Bucket: 4, VirtualBuckets: 2}, {Bucket: 4, VirtualBuckets: 8}, {Bucket: 16, VirtualBuckets: 8}}
	fig := benchtest.Rows(t, few("gph/theorem", relocations, settings), "gph/theorem", 6000, 25*len(settings), func(at func(string) any) {
		load, _ := bench.Number(at("load"))
		if r, _ := bench.Number(at("refused %")); load < 0.5 && r > 0 && at("R") != 2 {
			t.Errorf("load %v, R = %v: %v%% refused", load, at("R"), r)
		}
		rings, ok := bench.Number(at("rings a move"))
		if bound, there := bench.Number(at("bound (1/(1-α))^R")); ok && there && load > 0.5 && at("R") == 8 && rings > bound {
			t.Errorf("load %v: %v rings, over the bound of %v", load, rings, bound)
		}
	})
	benchtest.Draw(t, fig)
}

// The paper's example: 70% of 1.5 GB, M = 16, R = 8: 0.00539% (section 6.2).
func TestFailure(t *testing.T) {
	const slots = 187_500_000
	if got := 100 * failure(slots*7/10, slots, 16, 8); math.Abs(got-0.00539) > 0.0003 {
		t.Errorf("%.5f%%, the paper has 0.00539%%", got)
	}
	if failure(3, 100, 4, 2) != 0 || failure(100, 100, 4, 2) <= 0 {
		t.Error("a table with few pairs can fail, or a full one cannot")
	}
}

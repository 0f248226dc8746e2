package bench

import (
	"math"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/table"
)

// rows runs a figure on the CPU device and hands each row to check, by column.
func rows(t *testing.T, name string, n, want int, check func(at func(string) any)) *Fig {
	t.Helper()
	fig, err := Figure(cpu(t), name, FigOptions{N: n})
	if err != nil {
		t.Fatal(err)
	}
	if len(fig.Rows) < want {
		t.Errorf("%s: %d rows, want %d", name, len(fig.Rows), want)
	}
	for _, r := range fig.Rows {
		if len(r) != len(fig.Columns) {
			t.Fatalf("%s: %d cells beside %d columns: %v", name, len(r), len(fig.Columns), r)
		}
		at := func(c string) any { return r[fig.column(c)] }
		if c := fig.column("wrong"); c >= 0 && r[c] != 0 || fig.column("note") >= 0 && at("note") != "" {
			t.Errorf("%s: %v", name, r)
		}
		check(at)
	}
	return fig
}

func atLeast(t *testing.T, what string, x any, least float64) {
	t.Helper()
	if v, ok := number(x); !ok || !(v >= least) {
		t.Errorf("%s is %v, want %v at least", what, x, least)
	}
}

func TestLookupWays(t *testing.T) {
	ways := map[any]int{}
	rows(t, "gph/13", 3000, 9, func(at func(string) any) {
		ways[at("way")]++
		atLeast(t, "find", at("find G/s"), 1e-9)
	})
	if len(ways) != 3 || ways[brOnPhOn] != ways[brOffPhOff] {
		t.Errorf("ways %v", ways)
	}
}

// More virtual buckets and larger buckets reach more, and what a table took until it refused is there.
func TestReach(t *testing.T) {
	loads := map[[2]any]float64{}
	rows(t, "gph/15a", 6000, 15, func(at func(string) any) {
		loads[[2]any{at("M"), at("R")}], _ = number(at("load"))
		atLeast(t, "refused", at("refused"), 1)
	})
	if !(loads[[2]any{16, 32}] > 0.85 && loads[[2]any{4, 2}] < loads[[2]any{4, 16}] && loads[[2]any{4, 2}] < loads[[2]any{16, 2}]) {
		t.Errorf("loads by M and R: %v", loads)
	}
}

func TestPairSizes(t *testing.T) {
	sizes := map[any]int{}
	rows(t, "gph/15b", 60_000, 5, func(at func(string) any) {
		sizes[at("pair bytes")]++
		atLeast(t, "mean", at("mean G/s"), 1e-9)
	})
	if sizes[4] != 1 || sizes[8] != 2 || sizes[16] != 2 {
		t.Errorf("rows by size: %v", sizes)
	}
}

func TestSkew(t *testing.T) {
	before := math.Inf(1)
	rows(t, "gph/15c", 8000, 8, func(at func(string) any) {
		distinct, _ := number(at("distinct"))
		if distinct >= before || distinct < 1 {
			t.Errorf("s = %v: %v distinct keys, and with less skew %v", at("s"), distinct, before)
		}
		before = distinct
		atLeast(t, "insert", at("insert G/s"), 1e-9)
	})
}

func TestOverwrite(t *testing.T) {
	rows(t, "gph/overwrite", 2000, 5*len(warpmap.Families(table.KindMap)), func(at func(string) any) {
		atLeast(t, "overwrite", at("overwrite G/s"), 1e-9)
		atLeast(t, "insert-new", at("insert-new G/s"), 1e-9)
	})
}

// No table takes all pairs, none refuses any while it is half empty, and moves examine fewer rings than the theorem's bound,
// but for a share of the first ones that find no room.
func TestTheorem(t *testing.T) {
	rows(t, "gph/theorem", 6000, 6*25, func(at func(string) any) {
		load, _ := number(at("load"))
		if r, _ := number(at("refused %")); load < 0.5 && r > 0 && at("R") != 2 {
			t.Errorf("load %v, R = %v: %v%% refused", load, at("R"), r)
		}
		rings, ok := number(at("rings a move"))
		if bound, there := number(at("bound (1/(1-α))^R")); ok && there && load > 0.5 && at("R") == 8 && rings > bound {
			t.Errorf("load %v: %v rings, over the bound of %v", load, rings, bound)
		}
	})
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

package slabhash

import (
	"math"
	"testing"

	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
)

// Chains get longer with β, and the measured utilization is the expected one.
func TestFigure4(t *testing.T) {
	before, cuckoos := 0.0, 0
	benchtest.Rows(t, Studies, "slab/4", 6000, 2*14+1, func(at func(string) any) {
		for _, c := range []string{"insert G/s", "find G/s, all hits", "find G/s, no hits"} {
			benchtest.AtLeast(t, c, at(c), 1e-9)
		}
		u, _ := bench.Number(at("utilization"))
		if at("table") == "cuckoo" {
			cuckoos++
			benchtest.AtLeast(t, "load factor", u, 0.15)
			return
		}
		beta, _ := bench.Number(at("β"))
		benchtest.AtLeast(t, "β", beta, before)
		before = beta
		if want := slabUtilization(beta); math.Abs(u-want) > 0.04 {
			t.Errorf("β = %v: utilization %v, want about %v", beta, u, want)
		}
	})
	if before < 2.5 || cuckoos != 15 {
		t.Errorf("β came to %v only; %d rows of cuckoo", before, cuckoos)
	}
}

func TestFigure5(t *testing.T) {
	benchtest.Rows(t, Studies, "slab/5", 1<<13, 2*12, func(at func(string) any) { benchtest.AtLeast(t, "insert", at("insert G/s"), 1e-9) })
}

func TestFigure6(t *testing.T) {
	tables := map[any]int{}
	benchtest.Rows(t, Studies, "slab/6", 1500, 3*4*8, func(at func(string) any) {
		tables[at("table")]++
		benchtest.AtLeast(t, "time", at("total ms"), 1e-9)
		if at("table") != "slab" {
			benchtest.AtLeast(t, "speed-up", at("slab is faster"), 1e-9)
		}
	})
	if len(tables) != 4 {
		t.Errorf("tables %v", tables)
	}
}

func TestFigure7a(t *testing.T) {
	benchtest.Rows(t, Studies, "slab/7a", 6000, 3*8, func(at func(string) any) { benchtest.AtLeast(t, "mixed", at("mixed G/s"), 1e-9) })
	if b := betaFor(0.6); math.Abs(b-0.7) > 0.1 {
		t.Errorf("β of %v for a utilization of 0.6, the paper has 0.7", b)
	}
}

func TestAllocators(t *testing.T) {
	benchtest.Rows(t, Studies, "slab/alloc", 3000, 9, func(at func(string) any) {
		benchtest.AtLeast(t, "allocate", at("allocate G/s"), 1e-9)
		benchtest.AtLeast(t, "release", at("release G/s"), 1e-9)
	})
}

func TestFigure7b(t *testing.T) {
	fig := benchtest.Rows(t, Studies, "slab/7b", 3000, 3*8*2, func(at func(string) any) {
		benchtest.AtLeast(t, "mixed", at("mixed G/s"), 1e-9)
		if at("table") == "Misra" {
			benchtest.AtLeast(t, "speed-up", at("slab is faster"), 1e-9)
		}
	})
	if len(fig.Notes) != 6 {
		t.Errorf("%d notes, want one with a mean for each Γ: %v", len(fig.Notes), fig.Notes)
	}
}

func TestUnlike(t *testing.T) {
	if n := unlike([]uint32{3, 1, 2, 2, 9}, []uint32{1, 2, 4}); n != 4 {
		t.Errorf("%d keys are unlike, want 4", n)
	}
}

package warpcore_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
	"github.com/warpmap/warpmap/internal/bench/warpcore"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// Every family's map is measured, with the kernels that users run.
func TestFigure5(t *testing.T) {
	testenv.ByTurns(t)
	testenv.UsersKernels(t)
	subjects := 2 + len(warpmap.Families(table.KindMap)) + 1
	benchtest.Draw(t, benchtest.Rows(t, warpcore.Studies, "warpcore/5", 1500, 6*subjects, func(at func(string) any) {
		benchtest.AtLeast(t, "insert", at("insert G/s"), 1e-9)
		benchtest.AtLeast(t, "retrieve", at("retrieve G/s"), 1e-9)
	}))
}

// Each size has six rows, and reads are told what they are of.
func TestFigure8(t *testing.T) {
	testenv.ByTurns(t)
	benchtest.Draw(t, benchtest.Rows(t, warpcore.Studies, "warpcore/8", 64_000, 5*6, func(at func(string) any) {
		benchtest.AtLeast(t, at("what").(string), at("M/s"), 1e-9)
		benchtest.AtLeast(t, at("what").(string), at("seconds"), 1e-9)
	}))
}

// Packed letters are counted three ways, reads are queried with blocks of three sizes, and their k-mers counted that come again and that do not.
func TestGenomeRates(t *testing.T) {
	benchtest.Draw(t, benchtest.Rows(t, warpcore.Studies, "genome/rates", 64_000, 19, func(at func(string) any) {
		benchtest.AtLeast(t, at("what").(string), at("M/s"), 1e-9)
		benchtest.AtLeast(t, at("what").(string), at("seconds"), 1e-9)
	}))
}

// A bucket list is as dense as its buckets at most, and densest after Shrink; in many batches, the more so the less its buckets grow.
func TestDensity(t *testing.T) {
	testenv.ByTurns(t)
	of := map[string]float64{}
	fig := benchtest.Rows(t, warpcore.Studies, "warpcore/density", 1500, 8*3*6, func(at func(string) any) {
		name, r, come := at("table").(string), at("values a key").(int), at("pairs come").(string)
		density, _ := bench.Number(at("density"))
		benchtest.AtLeast(t, "density of "+name, density, 0.05)
		if density > 1 {
			t.Errorf("%s has density %v", name, density)
		}
		benchtest.AtLeast(t, "insert", at("insert G/s"), 1e-9)
		if strings.HasPrefix(name, "lists") {
			benchtest.AtLeast(t, "density of buckets of "+name, at("density of buckets"), density)
			benchtest.AtLeast(t, "density after Shrink of "+name, at("density after Shrink"), 0.99*density)
			of[fmt.Sprint(r, come, name)], _ = bench.Number(at("density of buckets"))
		}
	})
	for _, r := range []int{16, 64} {
		if even, doubled := of[fmt.Sprint(r, "in 64 batches", "lists, s₀ = r, λ = 1")], of[fmt.Sprint(r, "in 64 batches", "lists, s₀ = 1, λ = 2")]; doubled <= 0 || even <= doubled {
			t.Errorf("%d values a key: densities %v and %v", r, even, doubled)
		}
	}
	benchtest.Draw(t, fig)
}

// The rate that is measured is that of the formula, but for chance, and no key that is in is missed (benchtest.Rows).
func TestFilters(t *testing.T) {
	testenv.ByTurns(t)
	const n = 20_000
	benchtest.Draw(t, benchtest.Rows(t, warpcore.Studies, "warpcore/filter", n, len(warpcore.FilterShapes(n)), func(at func(string) any) {
		number := func(column string) float64 { x, _ := bench.Number(at(column)); return x }
		rate, formula, estimate := number("false positives"), number("formula"), number("estimate")
		keys := number("keys")
		chance := 6*math.Sqrt(formula/keys) + 10/keys // of as many look-ups, and of how blocks came out
		if math.Abs(rate-formula) > 0.05*formula+chance || math.Abs(estimate-formula) > 0.1*formula+chance {
			t.Errorf("%v, %v bits a key, blocks of %v, %v hashes: false positives %v, formula %v, estimate %v", at("sweep"), at("bits a key"), at("block (bytes)"),
				at("hashes"), rate, formula, estimate)
		}
		if ideal := number("ideal"); formula < ideal {
			t.Errorf("a blocked filter has fewer false positives by its formula, %v, than one that is not, %v", formula, ideal)
		}
		for _, column := range []string{"insert G/s", "contains G/s", "absent G/s", "hashes", "bytes"} {
			benchtest.AtLeast(t, column, at(column), 1e-9)
		}
	}))
}

func TestCounters(t *testing.T) {
	benchtest.Draw(t, benchtest.Rows(t, warpcore.Studies, "warpcore/counter", 3000, 9*len(warpcore.Counting), func(at func(string) any) {
		benchtest.AtLeast(t, "rows", at("rows G/s"), 1e-9)
		benchtest.AtLeast(t, "find", at("find G/s"), 1e-9)
		if n := at("distinct").(int); n < 1 || n > 300 || (n == 1) != (at("keys are") == "one key") {
			t.Errorf("%v: %d keys", at("keys are"), n)
		}
	}))
}

// Fewer keys have all values, each as many as the row says, about.
func TestFigure7(t *testing.T) {
	subjects := 2
	for _, kind := range table.MultiMapKinds() {
		subjects += len(warpmap.Families(kind))
	}
	benchtest.Draw(t, benchtest.Rows(t, warpcore.Studies, "warpcore/7", 1500, 9*subjects, func(at func(string) any) {
		benchtest.AtLeast(t, "insert", at("insert G/s"), 1e-9)
		benchtest.AtLeast(t, "retrieve", at("retrieve G/s"), 1e-9)
		benchtest.AtLeast(t, "count", at("count G/s"), 1e-9)
		r, keys := at("values a key").(int), at("keys").(int)
		if keys > 1500/r || keys < 1500/r*6/10 {
			t.Errorf("%d values a key, and %d keys came", r, keys)
		}
		if name := at("table").(string); r == 1 && !strings.Contains(name, "bucket") {
			benchtest.AtLeast(t, "single-value find", at("single-value find G/s"), 1e-9)
		}
	}))
}

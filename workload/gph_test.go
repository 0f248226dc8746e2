package workload

import (
	"math"
	"testing"
)

func keysOf(t *testing.T, kind string, bytes int) Keys {
	t.Helper()
	k, err := NewKeys(kind, bytes, 1)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// The most frequent 20% of TaoBenchmark's keys get 82.14% of the look-ups.
func TestTaoSkew(t *testing.T) {
	const draws = 400_000
	for _, n := range []uint64{100, 10_000, 1_000_000} {
		k := keysOf(t, "tao", 8)
		frequent := map[uint64]bool{}
		for i := range n / 5 {
			frequent[k.At(i)] = true
		}
		for _, hits := range []float64{1, 0.5} {
			queries, expect := make([]uint64, draws), make([]byte, draws)
			Queries(k, n, hits, queries, expect)
			all, top := 0, 0
			for i, q := range queries {
				if expect[i] == Hit {
					all++
				}
				if frequent[q] {
					top++
				}
			}
			if got := 100 * float64(top) / float64(all); math.Abs(got-82.14) > 0.5 {
				t.Errorf("%d keys, %v hits: the most frequent fifth gets %.2f%%", n, hits, got)
			}
		}
	}
	for _, n := range []uint64{1, 2, 3, 5, 6} {
		if s := taoExponent(n); !(s >= 0 && s <= 9) {
			t.Errorf("%d keys: exponent %v", n, s)
		}
	}
	if s := taoExponent(165_000_000); s < 0.8 || s > 1 {
		t.Errorf("the paper's 165,000,000 keys: exponent %v", s)
	}
}

func TestHarmonic(t *testing.T) {
	for _, s := range []float64{0, 0.5, 0.9, 1, 1.5, 4} {
		for _, n := range []uint64{1, 64, 65, 1000, 100_000} {
			want := 0.0
			for r := n; r >= 1; r-- {
				want += math.Pow(float64(r), -s)
			}
			if got := harmonic(n, s); math.Abs(got-want) > 1e-7*want {
				t.Errorf("harmonic(%d, %v) = %v, want %v", n, s, got, want)
			}
		}
	}
}

// Rows of lineitem are distinct; 4 bytes of hash are not, as often as chance has it, and Unique says so.
func TestLineitem(t *testing.T) {
	const n = 280_000
	for _, bytes := range []int{4, 8} {
		k := keysOf(t, "lineitem", bytes)
		seen := map[uint64]bool{}
		for i := range uint64(n) {
			seen[k.At(i)] = true
		}
		again := n - len(seen)
		if k.Unique() && again > 0 {
			t.Errorf("%d bytes: %d keys come again, and Unique says that none does", bytes, again)
		}
		if expected := float64(n) * n / 2 / (1 << 32); bytes == 4 && math.Abs(float64(again)-expected) > 6*math.Sqrt(expected) {
			t.Errorf("%d of %d keys come again, want about %.0f", again, n, expected)
		}
	}
	if keysOf(t, "lineitem", 4).Unique() || !keysOf(t, "lineitem", 8).Unique() {
		t.Error("Unique is wrong of lineitem")
	}
}

// The ids of a run count up by one, and their 4-byte keys are distinct at both ends of the span.
func TestReddit(t *testing.T) {
	k := keysOf(t, "reddit", 4)
	seen := map[uint64]bool{}
	for i := range uint64(100_000) {
		seen[k.At(i)], seen[k.At(k.Span()-1-i)] = true, true
	}
	if len(seen) != 200_000 {
		t.Errorf("%d keys of 200,000", len(seen))
	}
}

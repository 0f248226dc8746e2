package workload

import (
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/kernel"
)

var update = flag.Bool("update", false, "write testdata/keys.golden anew")

// The same seed gives the same keys and look-ups on every machine: results of different days can be compared.
func TestKeysGolden(t *testing.T) {
	var b strings.Builder
	for _, kind := range []string{"rand", "sequential", "zipf:0.99", "line", "lineitem", "tao", "reddit"} {
		for _, bytes := range []int{4, 8} {
			k, err := NewKeys(kind, bytes, 1)
			if err != nil {
				t.Fatal(err)
			}
			queries, expect := make([]uint64, 6), make([]byte, 6)
			Queries(k, 1000, 0.5, queries, expect)
			fmt.Fprintf(&b, "%s %d:", kind, bytes)
			for i := range uint64(4) {
				fmt.Fprintf(&b, " %x", k.At(i))
			}
			fmt.Fprintf(&b, " | %x %v\n", queries, expect)
		}
	}
	const file = "testdata/keys.golden"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != b.String() {
		t.Errorf("keys are\n%s\nand were (%v)\n%s", b.String(), err, want)
	}
}

func TestUniqueAndMisses(t *testing.T) {
	const n, q = 20_000, 50_000
	for _, kind := range []string{"rand", "sequential", "zipf:1", "zipf:1.5", "tao", "reddit"} {
		k, err := NewKeys(kind, 4, 9)
		if err != nil {
			t.Fatal(err)
		}
		keys, values := make([]uint32, n), make([]uint32, n)
		Pairs(k, keys, values)
		in := map[uint32]bool{}
		for i, key := range keys {
			if in[key] || values[i] != uint32(Value(uint64(key))) {
				t.Fatalf("%s: key %d of index %d again, or with value %d", kind, key, i, values[i])
			}
			in[key] = true
		}
		queries, expect := make([]uint32, q), make([]byte, q)
		Queries(k, n, 0.25, queries, expect)
		hits := 0
		for i, key := range queries {
			if in[key] != (expect[i] == Hit) {
				t.Fatalf("%s: look-up %d of %d expects %d", kind, i, key, expect[i])
			}
			if in[key] {
				hits++
			}
		}
		if math.Abs(float64(hits)/q-0.25) > 0.01 {
			t.Errorf("%s: %d hits of %d", kind, hits, q)
		}
	}
}

// Rank r is drawn with a probability proportional to 1/r^s.
func TestZipf(t *testing.T) {
	const n, draws = 1000, 400_000
	for _, s := range []float64{0.5, 0.99, 1, 2} {
		z := newZipf(s, n)
		counts := make([]float64, n+1)
		for i := range uint64(draws) {
			r := z.draw(fmixForTest(i))
			if r < 1 || r > n {
				t.Fatalf("s=%v: rank %d", s, r)
			}
			counts[r]++
		}
		sum := 0.0
		for r := 1; r <= n; r++ {
			sum += math.Pow(float64(r), -s)
		}
		for _, r := range []int{1, 2, 3, 10} {
			want := draws * math.Pow(float64(r), -s) / sum
			if math.Abs(counts[r]-want) > 6*math.Sqrt(want) {
				t.Errorf("s=%v: rank %d drawn %v times, want about %.0f", s, r, counts[r], want)
			}
		}
	}
}

func fmixForTest(i uint64) uint64 { return (i*2 + 1) * 0x9e3779b97f4a7c15 }

func TestSameOnAnyCores(t *testing.T) {
	k, err := NewKeys("zipf:0.9", 8, 3)
	if err != nil {
		t.Fatal(err)
	}
	one, expectOne := make([]uint64, 1001), make([]byte, 1001)
	all, expectAll := make([]uint64, 1001), make([]byte, 1001)
	Queries(k, 500, 0.9, all, expectAll)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	Queries(k, 500, 0.9, one, expectOne)
	if !slices.Equal(one, all) || !slices.Equal(expectOne, expectAll) {
		t.Error("look-ups differ with the number of cores")
	}
	drawn := make([]uint32, 1000)
	Draw(drawn, 10, 1)
	for _, x := range drawn {
		if x < 1 || x > 10 {
			t.Fatalf("Draw gave %d of 1 … 10", x)
		}
	}
}

func TestNewKeysRefuses(t *testing.T) {
	for _, kind := range []string{"", "random", "zipf", "zipf:0", "zipf:x", "rand:1", "tao:1"} {
		if _, err := NewKeys(kind, 4, 0); err == nil {
			t.Errorf("kind %q is taken", kind)
		}
	}
	if _, err := NewKeys("rand", 5, 0); err == nil {
		t.Error("keys of 5 bytes are taken")
	}
}

// Wide keys have the number first, and what follows depends on all of it.
func TestWiden(t *testing.T) {
	for _, x := range []uint64{0, 1, 1 << 40, math.MaxUint64} {
		if Widen[uint32](x) != uint32(x) || Widen[uint64](x) != x || Widen[[2]uint64](x) != [2]uint64{x, kernel.Fmix64(x + 1)} {
			t.Errorf("%#x is made %#x, %#x, %#x", x, Widen[uint32](x), Widen[uint64](x), Widen[[2]uint64](x))
		}
		if Number(Widen[uint32](x)) != uint64(uint32(x)) || Number(Widen[uint64](x)) != x || Number(Widen[[4]uint64](x)) != x {
			t.Errorf("%#x is not what it was made to", x)
		}
		a, b := Widen[[4]uint64](x), Widen[[4]uint64](x^1<<63)
		for i := range a {
			if a[i] == b[i] {
				t.Errorf("word %d of %#x is that of another number", i, x)
			}
		}
	}
}

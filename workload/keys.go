// Package workload generates the data sets and request mixes that tables are measured on. They come from a seed, and
// are the same whatever the number of cores.
package workload

import (
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/kernel"
)

// Keys is a sequence of keys of 4 or 8 bytes: a pure function of the index.
type Keys struct {
	Kind  string // "rand", "sequential", "zipf:S", "line", "lineitem", "tao", "reddit"
	Bytes int    // 4 or 8
	Seed  uint64
	skew  float64
}

// NewKeys checks a kind of keys:
//
//	rand        distinct keys in random order: a bijection of the index
//	sequential  0, 1, 2, …
//	zipf:S      the keys of rand; look-ups ask for key number r with a probability ∝ 1/r^S
//	line        three key columns of TPC-H's lineitem (order, part, supplier), hashed to a key
//	lineitem    its order, part and line number, hashed to a key as in the GPH paper, section 7.1
//	tao         the keys of rand; the first fifth of them gets 82.14% of the look-ups that hit, as in TaoBenchmark
//	reddit      ids of comments, which count up with few gaps, hashed to a key
func NewKeys(kind string, bytes int, seed uint64) (Keys, error) {
	k := Keys{Kind: kind, Bytes: bytes, Seed: seed}
	if bytes != 4 && bytes != 8 {
		return k, fmt.Errorf("keys of %d bytes (want 4 or 8)", bytes)
	}
	name, arg, _ := strings.Cut(kind, ":")
	switch name {
	case "rand", "sequential", "line", "lineitem", "tao", "reddit":
		if arg == "" {
			return k, nil
		}
	case "zipf":
		s, err := strconv.ParseFloat(arg, 64)
		if err == nil && s > 0 && s < 10 {
			k.skew = s
			return k, nil
		}
		return k, fmt.Errorf("keys %q: want zipf:S with 0 < S < 10, such as zipf:0.99", kind)
	}
	return k, fmt.Errorf("keys %q: want %s", kind, Kinds)
}

// Kinds lists the kinds that NewKeys takes.
const Kinds = "rand, sequential, zipf:S, line, lineitem, tao, reddit"

// Unique tells whether different indices below Span always give different keys. If a row is hashed to 4 bytes, two rows
// may get the same key: of 100 million lines of lineitem, 1.2% have another's key.
func (k Keys) Unique() bool { return k.Kind != "line" && !(k.Kind == "lineitem" && k.Bytes == 4) }

// Span returns the number of indices that the kind is made for.
func (k Keys) Span() uint64 {
	switch {
	case k.Kind == "lineitem" && k.Bytes == 8:
		return lineitemSpan
	case k.Kind == "reddit" && k.Bytes == 4:
		return redditSpan
	case k.Bytes == 4:
		return 1 << 32
	}
	return math.MaxUint64
}

// At returns the key with the given index.
func (k Keys) At(i uint64) uint64 {
	switch {
	case k.Kind == "sequential":
		return i
	case k.Kind == "line":
		return k.line(i)
	case k.Kind == "lineitem":
		return k.lineitem(i)
	case k.Kind == "reddit":
		return k.reddit(i)
	case k.Bytes == 4:
		return uint64(kernel.Fmix32(uint32(i) ^ uint32(k.Seed)*0x9e3779b9))
	}
	return kernel.Fmix64(i ^ k.Seed*0x9e3779b97f4a7c15)
}

// line hashes the key columns of lineitem number i: orders have four lines on average, sparse keys (8 of every 32), and
// the part and supplier are drawn as the specification says, for a scale factor of 10.
func (k Keys) line(i uint64) uint64 {
	const parts, suppliers = 2_000_000, 100_000
	order := i / 4
	orderKey := order/8*32 + order%8
	part := kernel.Reduce(kernel.Seeded64(i, k.Seed), parts) + 1
	corner := kernel.Seeded64(i, k.Seed+1) & 3
	supplier := (part+corner*(suppliers/4+(part-1)/suppliers))%suppliers + 1
	h := kernel.Fmix64(orderKey ^ kernel.Fmix64(part^kernel.Fmix64(supplier)))
	if k.Bytes == 4 {
		return h & math.MaxUint32
	}
	return h
}

// Value returns what every measured table holds for a key, so that any answer can be checked.
func Value(key uint64) uint64 { return kernel.Fmix64(key ^ 0x5bd1e995) }

// Word is a key or value that kernels see as an integer.
type Word interface{ ~uint32 | ~uint64 }

// Wide is a Word, or a key or value that consists of several words.
type Wide interface {
	Word | [2]uint64 | [4]uint64 | [8]uint64 | [32]uint64
}

// Widen makes a key or value of a number. Two results differ if their numbers do. A result of 4 bytes keeps the lower
// half of the number. A wide one holds the number first, and then numbers that follow from it.
func Widen[T Wide](x uint64) (t T) {
	p := unsafe.Pointer(&t)
	switch n := unsafe.Sizeof(t); n {
	case 4:
		*(*uint32)(p) = uint32(x)
	default:
		for i := range n / 8 {
			*(*uint64)(unsafe.Add(p, 8*i)) = x
			x = kernel.Fmix64(x + 1)
		}
	}
	return t
}

// Number returns the number that Widen made t of; if t has 4 bytes, the lower half of it.
func Number[T Wide](t T) uint64 {
	if unsafe.Sizeof(t) == 4 {
		return uint64(*(*uint32)(unsafe.Pointer(&t)))
	}
	return *(*uint64)(unsafe.Pointer(&t))
}

// Pairs fills keys with the keys of index 0 … len(keys)-1, and values with their values.
func Pairs[K, V Wide](k Keys, keys []K, values []V) {
	parallel(len(keys), func(from, to int) {
		for i := from; i < to; i++ {
			key := k.At(uint64(i))
			keys[i], values[i] = Widen[K](key), Widen[V](Value(key))
		}
	})
}

// These are what Queries may expect of a look-up.
const (
	Miss    = 0
	Hit     = 1
	Unknown = 2 // a key that may be there by chance
)

// Queries fills keys with look-ups, in random order, into a table of the first n keys. A share hits of them are among
// these keys. Queries fills expect with what must come of each look-up.
func Queries[K Wide](k Keys, n uint64, hits float64, keys []K, expect []byte) {
	QueriesFrom(k, n, hits, 0, keys, expect)
}

// QueriesFrom does what Queries does, beginning with look-up number first. It makes a piece of a batch that is too
// large for memory.
func QueriesFrom[K Wide](k Keys, n uint64, hits float64, first uint64, keys []K, expect []byte) {
	Pick(k, n, hits, first, len(keys), func(i int, index uint64) {
		keys[i], expect[i] = Widen[K](k.At(index)), Hit
		if index >= n {
			expect[i] = Miss
			if !k.Unique() {
				expect[i] = Unknown
			}
		}
	})
}

// Pick calls to with the indices of the count keys that QueriesFrom asks for, on every core. Look-ups with an index
// below n hit.
func Pick(k Keys, n uint64, hits float64, first uint64, count int, to func(i int, index uint64)) {
	span, z := k.Span(), k.zipf(n)
	limit := uint64(hits * (1 << 53))
	parallel(count, func(from, end int) {
		for i := from; i < end; i++ {
			r := kernel.Seeded64(first+uint64(i), k.Seed+2)
			draw := kernel.Seeded64(first+uint64(i), k.Seed+3)
			switch {
			case r>>11 < limit && z != nil:
				to(i, z.draw(draw)-1)
			case r>>11 < limit:
				to(i, kernel.Reduce(draw, n))
			default:
				to(i, n+kernel.Reduce(draw, span-n))
			}
		}
	})
}

// zipf is the distribution of look-ups over the first n keys; nil where all are as likely.
func (k Keys) zipf(n uint64) *zipf {
	switch {
	case k.Kind == "tao":
		return newZipf(taoExponent(n), n)
	case k.skew > 0:
		return newZipf(k.skew, n)
	}
	return nil
}

// zipf draws ranks 1 … n with probability ∝ rank^-s by rejection-inversion (Hörmann and Derflinger, 1996).
type zipf struct {
	s, hFirst, hLast, cut float64
	n                     uint64
}

func newZipf(s float64, n uint64) *zipf {
	z := &zipf{s: s, n: n}
	z.hFirst = z.h(1.5) - 1
	z.hLast = z.h(float64(n) + 0.5)
	z.cut = 2 - z.inverse(z.h(2.5)-math.Pow(2, -s))
	return z
}

// h is the integral of x^-s, and inverse its inverse.
func (z *zipf) h(x float64) float64 {
	if z.s == 1 {
		return math.Log(x)
	}
	return (math.Pow(x, 1-z.s) - 1) / (1 - z.s)
}

func (z *zipf) inverse(y float64) float64 {
	if z.s == 1 {
		return math.Exp(y)
	}
	return math.Pow(1+y*(1-z.s), 1/(1-z.s))
}

func (z *zipf) draw(seed uint64) uint64 {
	for {
		u := z.hLast + float64(seed>>11)/(1<<53)*(z.hFirst-z.hLast)
		x := z.inverse(u)
		r := math.Min(math.Max(math.Round(x), 1), float64(z.n))
		if r-x <= z.cut || u >= z.h(r+0.5)-math.Pow(r, -z.s) {
			return uint64(r)
		}
		seed = kernel.Fmix64(seed + 0x9e3779b97f4a7c15)
	}
}

// parallel runs f over 0 … n-1 in pieces, on every core.
func parallel(n int, f func(from, to int)) {
	workers := runtime.GOMAXPROCS(0)
	var wg crash.WaitGroup
	for w := range workers {
		from, to := n/workers*w, n/workers*(w+1)
		if w == workers-1 {
			to = n
		}
		wg.Go(func() { f(from, to) })
	}
	wg.Wait()
}

// Draw fills keys with numbers from 1 to n, each as likely.
func Draw(keys []uint32, n, seed uint64) {
	parallel(len(keys), func(from, to int) {
		for i := from; i < to; i++ {
			keys[i] = uint32(kernel.Reduce(kernel.Seeded64(uint64(i), seed), n) + 1)
		}
	})
}

package workload

import (
	"math"

	"github.com/warpmap/warpmap/kernel"
)

// The data sets of the GPH paper, section 7.1: stand-ins with the keys' structure, from a seed.

// lineitemSpan keeps the three packed columns within 64 bits: 38 of an order's key, 22 of a part's, 3 of a line's number.
const lineitemSpan = 1 << 38

// lineitem hashes the order, part and number of line i of TPC-H's lineitem, at the paper's scale factor of 17. Orders
// have 1 to 7 lines, each as likely: any 7 orders in a row, from a multiple of 7, have 28 lines, in an order of their own.
func (k Keys) lineitem(i uint64) uint64 {
	const parts = 17 * 200_000
	order, line := i/28*7, i%28
	shuffle := kernel.Seeded64(i/28, k.Seed)
	lines := [7]uint64{1, 2, 3, 4, 5, 6, 7}
	for j := uint64(0); ; j++ {
		pick := j + shuffle%(7-j)
		shuffle /= 7 - j
		lines[j], lines[pick] = lines[pick], lines[j]
		if line < lines[j] {
			order += j
			break
		}
		line -= lines[j]
	}
	line++
	orderKey := order/8*32 + order%8 + 1
	part := kernel.Reduce(kernel.Seeded64(i, k.Seed+1), parts) + 1
	if k.Bytes == 8 {
		return kernel.Fmix64(orderKey<<25 | part<<3 | line)
	}
	// The paper's H₀(H₁(k₁) + H₂(k₂) + H₃(k₃)), each an fmix32 with a seed of its own.
	sum := kernel.Fmix32(uint32(orderKey)^0x7feb352d) + kernel.Fmix32(uint32(part)^0x846ca68b) + kernel.Fmix32(uint32(line)^0x9e3779b9)
	return uint64(kernel.Fmix32(sum ^ uint32(k.Seed)*0x9e3779b9))
}

// Of every 65 ids, 64 are comments: the 54.5 million of May 2015 lie in a range that is 1 or 2% larger.
const (
	redditRun  = 64
	redditSpan = (1 << 32) / (redditRun + 1) * redditRun
)

// reddit is the id of comment number i of May 2015, a number of seven digits in base 36, by a bijection. Runs break off
// where a comment is missing, once in every redditRun+1 ids.
func (k Keys) reddit(i uint64) uint64 {
	const first = 27_744_655_264 // "cqug90g"
	run, at := i/redditRun, i%redditRun
	if at >= kernel.Reduce(kernel.Seeded64(run, k.Seed), redditRun+1) {
		at++
	}
	id := first + run*(redditRun+1) + at
	if k.Bytes == 4 {
		return uint64(kernel.Fmix32(uint32(id) ^ uint32(k.Seed)*0x9e3779b9))
	}
	return kernel.Fmix64(id ^ k.Seed*0x9e3779b97f4a7c15)
}

// taoExponent is the exponent with which the most frequent fifth of n keys gets 82.14% of the look-ups: about 0.9 for
// many keys. For fewer than five keys it is what fits best.
func taoExponent(n uint64) float64 {
	const share = 0.8214
	lo, hi := 0.0, 9.0
	for range 60 {
		s := (lo + hi) / 2
		if harmonic(max(n/5, 1), s) < share*harmonic(n, s) {
			lo = s
		} else {
			hi = s
		}
	}
	return (lo + hi) / 2
}

// harmonic is the sum of r^-s for r from 1 to n: the first terms one by one, the others by Euler and Maclaurin.
func harmonic(n uint64, s float64) float64 {
	const exact = 64
	sum := 0.0
	for r := uint64(1); r <= min(n, exact); r++ {
		sum += math.Pow(float64(r), -s)
	}
	if n <= exact {
		return sum
	}
	a, b := float64(exact), float64(n)
	integral := math.Log(b / a)
	if s != 1 {
		integral = (math.Pow(b, 1-s) - math.Pow(a, 1-s)) / (1 - s)
	}
	fa, fb := math.Pow(a, -s), math.Pow(b, -s)
	return sum + integral + (fb-fa)/2 + s*(fa/a-fb/b)/12
}

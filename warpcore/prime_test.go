package warpcore

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// isPrime agrees with math/big, whose test is exact for such numbers: small ones, squares of primes, pseudoprimes, and any.
func TestIsPrime(t *testing.T) {
	check := func(n int64) {
		if got, want := isPrime(n), big.NewInt(n).ProbablyPrime(0); got != want {
			t.Errorf("isPrime(%d) = %v", n, got)
		}
	}
	for n := int64(-3); n < 20_000; n++ {
		check(n)
	}
	// Strong pseudoprimes to the first bases, of Jaeschke and of Jiang and Deng; Carmichael numbers; the ends.
	for _, n := range []int64{2047, 1373653, 25326001, 3215031751, 2152302898747, 3474749660383, 341550071728321, 3825123056546413051,
		561, 41041, 825265, 321197185, 5394826801, math.MaxInt64, math.MaxInt64 - 24, 37 * 37, 41 * 41, 3037000493 * 3037000493} {
		check(n)
	}
	for range 3000 {
		n := rand.Int64() >> rand.IntN(60)
		check(n)
		check(n | 1)
		if r := int64(math.Sqrt(float64(n))); r < 1<<31 {
			check(primeUpTo(r) * primeUpTo(r))
		}
	}
}

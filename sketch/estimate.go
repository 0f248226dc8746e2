package sketch

import "math"

// estimate is O. Ertl's improved raw estimator (2017, algorithm 6), from how many registers have each value, of 0 to
// 65-precision. Registers that all have the largest value, as only a crafted file has them, stand for 2⁶⁴ keys, which
// are all that a hash tells apart.
func estimate(counts []int) float64 {
	m, last := 0.0, len(counts)-1
	for _, n := range counts {
		m += float64(n)
	}
	z := m * tau(1-float64(counts[last])/m)
	for k := last - 1; k >= 1; k-- {
		z = 0.5 * (z + float64(counts[k]))
	}
	z += m * sigma(float64(counts[0])/m)
	return min(m*m/(2*math.Ln2*z), 1<<64)
}

// sigma is x + the sum of x^(2^k)·2^(k-1) over k from 1 on, for x from 0 to 1. That of 1 is infinite.
func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	y, z := 1.0, x
	for before := -1.0; z != before; y += y {
		x *= x
		before = z
		z += x * y
	}
	return z
}

// tau is a third of 1 - x - the sum of (1 - x^(2^-k))²·2^-k over k from 1 on, for x from 0 to 1.
func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	y, z := 1.0, 1-x
	for before := -1.0; z != before; {
		x = math.Sqrt(x)
		before = z
		y *= 0.5
		z -= (1 - x) * (1 - x) * y
	}
	return z / 3
}

// standardError is the estimate's for many keys, as a share of their number.
func standardError(precision int) float64 {
	return math.Sqrt(3*math.Ln2-1) / math.Sqrt(math.Ldexp(1, precision))
}

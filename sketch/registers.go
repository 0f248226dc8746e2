package sketch

import (
	"fmt"
	"math/bits"

	"github.com/warpmap/warpmap/internal/siphash"
	"github.com/warpmap/warpmap/kernel"
)

// Registers are those of a HyperLogLog in the caller's memory, a byte for each: as many as 2 to the power of a
// precision of 4 to 18. They are for programs that hold many sketches of which each gets few texts at a time, such as a
// server: nothing here asks a device. A HyperLogLog[string] of the same seed that had the same texts has the same
// registers.
type Registers []byte

// precision is that of so many registers. Errors: numbers that are no power of two, or out of range.
func (r Registers) precision() (int, error) {
	p := bits.Len(uint(len(r))) - 1
	if p < leastPrecision || p > mostPrecision || len(r) != 1<<p {
		return 0, fmt.Errorf("sketch: %d registers (want a power of two of 2^%d to 2^%d)", len(r), leastPrecision,
			mostPrecision)
	}
	return p, nil
}

// mustPrecision is precision for methods that have no error.
func (r Registers) mustPrecision() int {
	p, err := r.precision()
	if err != nil {
		panic(err)
	}
	return p
}

// Check tells whether these can be registers: a number of them that can be, and none above the largest rank. Cost: all
// are read.
func (r Registers) Check() error {
	p, err := r.precision()
	if err != nil {
		return err
	}
	for i, rank := range r {
		if most := hashBits + 1 - p; int(rank) > most {
			return fmt.Errorf("sketch: register %d of %d is %d, and at most %d can be", i, len(r), rank, most)
		}
	}
	return nil
}

// Place is the register that a text names under a seed, and its rank there: the register of a sketch that has had the
// text is at least that. r is what Check accepts; a wrong number of registers is a
// panic that says so. Cost: some ten nanoseconds for a short text.
func (r Registers) Place(text []byte, seed uint64) (register int, rank byte) {
	p := r.mustPrecision()
	state := siphash.New(seed, kernel.Fmix64(seed))
	h := kernel.Hash64(0, state.Of(text), seed)
	return int(h >> (hashBits - p)), byte(bits.LeadingZeros64(h<<p|1<<(p-1)) + 1)
}

// Merge makes r the registers of the union with others of the same seed. Errors: another number of registers.
func (r Registers) Merge(other Registers) error {
	if len(r) != len(other) {
		return fmt.Errorf("sketch: %d registers and %d (want as many)", len(r), len(other))
	}
	for i, rank := range other {
		r[i] = max(r[i], rank)
	}
	return nil
}

// Estimate gives about how many distinct texts there were: see HyperLogLog.Estimate. r is what Check accepts, as
// for Place. Cost: all are read, 10 µs for 2^14.
func (r Registers) Estimate() float64 {
	p := r.mustPrecision()
	var counts [hashBits + 1]int
	for _, rank := range r {
		counts[rank]++
	}
	return estimate(counts[:hashBits+2-p])
}

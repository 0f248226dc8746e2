package classify

import (
	"hash/crc32"
	"runtime"

	"github.com/warpmap/warpmap/internal/crash"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkedAtOnce is how many bytes a core checks at once.
const checkedAtOnce = 16 << 20

// Polynomials over GF(2) modulo the checksum's have x⁰ in the highest bit.
const one, power8 = 1 << 31, 1 << 23

// checksum is the CRC-32C of b, which all cores read: one alone is slower than the disks, and the memory, that large
// databases lie in.
func checksum(b []byte) uint32 {
	n := (len(b) + checkedAtOnce - 1) / checkedAtOnce
	sums := make([]uint32, n)
	part := func(i int) []byte { return b[i*checkedAtOnce : min((i+1)*checkedAtOnce, len(b))] }
	ranges(n, 1, func(i, _ int) error { sums[i] = crc32.Checksum(part(i), castagnoli); return nil })
	all := uint32(0)
	for i, sum := range sums {
		all = times(all, power(len(part(i)))) ^ sum
	}
	return all
}

// times is the product of two polynomials.
func times(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a&one != 0 {
			product ^= b
		}
		x := b & 1
		b = b>>1 ^ -x&crc32.Castagnoli
	}
	return product
}

// power is x to the number of bits of n bytes: what a checksum is multiplied by where as many bytes come behind.
func power(n int) uint32 {
	all, x := uint32(one), uint32(power8)
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			all = times(all, x)
		}
		x = times(x, x)
	}
	return all
}

// ranges has do go over the ranges from … to-1 of n, each of size or less, on all cores; err is one of theirs.
func ranges(n, size int, do func(from, to int) error) error {
	var work crash.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	for from := 0; from < n; from += size {
		work.Go(func() error { return do(from, min(from+size, n)) })
	}
	return work.Wait()
}

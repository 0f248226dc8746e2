package classify

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// Sums of parts make the sum of all, whatever the parts' lengths.
func TestChecksum(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	b := make([]byte, 2*checkedAtOnce+12345)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for _, n := range []int{0, 1, 7, 4096, checkedAtOnce - 1, checkedAtOnce, checkedAtOnce + 1, 2 * checkedAtOnce,
		len(b)} {
		if got, want := checksum(b[:n]), crc32.Checksum(b[:n], castagnoli); got != want {
			t.Errorf("of %d bytes: %08x, want %08x", n, got, want)
		}
	}
}

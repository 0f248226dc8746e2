package bulk_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/warpmap/warpmap/internal/bulk"
)

// Copies of all lengths from and to all alignments bring what is to be copied, and touch nothing beside it.
func TestCopy(t *testing.T) {
	const most, beside = 40 << 10, 200
	random := rand.New(rand.NewPCG(1, 2))
	src, dst, want := make([]byte, most+beside), make([]byte, most+2*beside), make([]byte, most+2*beside)
	for i := range src {
		src[i] = byte(random.Uint32())
	}
	for run := range 3000 {
		n, from, to := random.IntN(most), random.IntN(beside), random.IntN(beside)
		if run < 600 {
			n = run
		}
		for i := range dst {
			dst[i], want[i] = byte(run), byte(run)
		}
		copy(want[to:], src[from:from+n])
		bulk.Copy(dst[to:to+n], src[from:from+n])
		if !bytes.Equal(dst, want) {
			t.Fatalf("%d bytes from %d to %d: a wrong copy", n, from, to)
		}
	}
	clear(dst)
	bulk.Copy(dst[:9000], src[:10_000])
	bulk.Copy(dst[9000:], src[9000:17_000])
	if !bytes.Equal(dst[:17_000], src[:17_000]) || dst[17_000] != 0 {
		t.Error("the shorter of both is not what counts")
	}
}

// BenchmarkCopy is of one core, and of memory that no cache holds.
func BenchmarkCopy(b *testing.B) {
	const ring, piece = 256 << 20, 256 << 10
	src, dst := bytes.Repeat([]byte{1}, ring), bytes.Repeat([]byte{2}, ring)
	for name, f := range map[string]func(dst, src []byte){
		"bulk": bulk.Copy,
		"copy": func(dst, src []byte) { copy(dst, src) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(piece)
			at := 0
			for b.Loop() {
				f(dst[at:at+piece], src[at:at+piece])
				at = (at + piece) % ring
			}
		})
	}
}

package workload

import (
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// FuzzKinds: a kind of keys that is taken gives keys of its width, or the error says which kinds there are.
func FuzzKinds(f *testing.F) {
	for _, kind := range append(strings.Split(Kinds, ", "), "zipf:0.99", "zipf:1e-300", "zipf:NaN", "zipf:0x1p3", "rand:1", "") {
		f.Add(kind, byte(4), uint64(1))
		f.Add(kind, byte(8), uint64(1)<<63)
	}
	f.Fuzz(func(t *testing.T, kind string, bytes byte, seed uint64) {
		testenv.Bounded(t, len(kind), func() {
			k, err := NewKeys(kind, int(bytes), seed)
			if err != nil {
				if !strings.Contains(err.Error(), "want") {
					t.Errorf("an error that does not say what is wanted: %v", err)
				}
				return
			}
			for _, i := range []uint64{0, 1, seed % k.Span()} {
				if x := k.At(i); bytes == 4 && x>>32 != 0 {
					t.Errorf("%q: key %d is %x, want 4 bytes", kind, i, x)
				}
			}
		})
	})
}

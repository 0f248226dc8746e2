package unique

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// Words and texts, few and many, with the word 0 and the empty text, and with texts that share a hash, are counted as a
// Go map does, by several goroutines.
func TestKeys(t *testing.T) {
	seed := maphash.MakeSeed()
	for _, texts := range []bool{false, true} {
		for _, counting := range []bool{false, true} {
			for _, distinct := range []int{1, 3, 5000, 20_000} {
				k, model := New(texts, counting), map[string]uint64{}
				var wg sync.WaitGroup
				rng := rand.New(rand.NewPCG(uint64(distinct), 3))
				for batch := range 6 {
					n := rng.IntN(12_000)
					words, times, values := make([]uint64, n), make([]uint64, n), make([][]byte, n)
					for i := range n {
						x := uint64(rng.IntN(distinct))
						times[i] = 1
						if batch%2 == 1 {
							times[i] = 1 + x%3
						}
						values[i] = []byte(fmt.Sprintf("%.*d", int(x%40), x))
						if x == 0 {
							values[i] = nil
						}
						words[i] = x * 0x9e3779b97f4a7c15
						name := fmt.Sprint(words[i])
						if texts {
							name = string(values[i])
							words[i] = maphash.Bytes(seed, values[i]) % uint64(distinct/2+1) // some share one
						}
						model[name] += times[i]
					}
					if batch%2 == 0 {
						times = nil
					}
					wg.Go(func() { k.Add(words, func(i int) []byte { return values[i] }, times) })
				}
				wg.Wait()
				if k.Len() != int64(len(model)) {
					t.Errorf("texts %t, %d keys: %d, want %d", texts, distinct, k.Len(), len(model))
				}
				if least := int64(8 * max(0, len(model)-1)); k.Bytes() < least {
					t.Errorf("texts %t, %d keys take %d bytes, want %d at least", texts, distinct, k.Bytes(), least)
				}
				if !counting {
					continue
				}
				name := func(c Count) string {
					if texts {
						return string(c.Text)
					}
					return fmt.Sprint(c.Word)
				}
				names := slices.SortedFunc(maps.Keys(model), func(a, b string) int {
					return cmp.Or(cmp.Compare(model[b], model[a]), cmp.Compare(a, b))
				})
				for _, n := range []int{0, 1, 100, 5000} {
					top := k.Top(n, func(a, b Count) int { return bytes.Compare([]byte(name(a)), []byte(name(b))) })
					if len(top) != min(n, len(names)) {
						t.Fatalf("%d of the %d most frequent of %d", len(top), n, len(names))
					}
					for i, c := range top {
						if name(c) != names[i] || c.Times != model[names[i]] {
							t.Fatalf("number %d of texts %t is %q, %d times, want %q, %d times", i, texts, name(c), c.Times,
								names[i], model[names[i]])
						}
					}
				}
			}
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, distinct := range []uint64{1000, 1 << 20, 1 << 24} {
		b.Run(fmt.Sprint(distinct), func(b *testing.B) {
			words := make([]uint64, 1<<16)
			b.SetBytes(8 << 16)
			k := New(false, false)
			for b.Loop() {
				for i := range words {
					words[i] = rand.Uint64N(distinct)
				}
				k.Add(words, nil, nil)
			}
		})
	}
}

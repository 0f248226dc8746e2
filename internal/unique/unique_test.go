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

// The methods may be called concurrently, Prune too: the race detector watches.
func TestKeysConcurrently(t *testing.T) {
	k := New(true, true)
	texts := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	words := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	var all sync.WaitGroup
	for _, do := range []func(){
		func() { k.Add(words, func(i int) []byte { return []byte(texts[i]) }, nil) },
		func() { k.Prune(3) },
		func() {
			if n := k.Len(); n > 8 {
				t.Errorf("%d keys of 8", n)
			}
		},
		func() {
			if top := k.Top(8, func(a, b Count) int { return bytes.Compare(a.Text, b.Text) }); len(top) > 8 {
				t.Errorf("%d keys of 8", len(top))
			}
		},
		func() { k.Bytes() },
	} {
		all.Go(func() {
			for range 300 {
				do()
			}
		})
	}
	all.Wait()
}

// Of a stream by Zipf's law, pruned whenever it has too many keys, each count is too low by no more than Prune gave in
// all, which is less than the stream's length by one more than the keys that stay: the bound of Misra and Gries, and of
// SpaceSaving. So no key that came more often than that is missing.
func TestPrune(t *testing.T) {
	for _, texts := range []bool{false, true} {
		for _, most := range []int{1, 10, 1000} {
			k, model, less, all := New(texts, true), map[uint64]uint64{}, uint64(0), uint64(0)
			rng := rand.New(rand.NewPCG(uint64(most), 9))
			zipf := rand.NewZipf(rng, 1.1, 1, 1<<20)
			for range 30 {
				words := make([]uint64, 5000)
				for i := range words {
					x := zipf.Uint64()
					words[i] = x
					model[x]++
				}
				all += uint64(len(words))
				k.Add(words, func(i int) []byte { return fmt.Append(nil, words[i]) }, nil)
				if k.Len() > int64(2*most) {
					less += k.Prune(most)
					if k.Len() > int64(most) {
						t.Fatalf("%d keys are left, want %d at most", k.Len(), most)
					}
				}
			}
			if less == 0 || less*uint64(most+1) > all {
				t.Errorf("counts are less by %d, and %d keys stay of a stream of %d", less, most, all)
			}
			seen := map[uint64]uint64{}
			for _, c := range k.Top(4*most, func(a, b Count) int { return 0 }) {
				word := c.Word
				if texts {
					fmt.Sscan(string(c.Text), &word)
				}
				seen[word] = c.Times
			}
			for word, n := range model {
				if got := seen[word]; got > n || n-got > less {
					t.Errorf("%d came %d times, and is told to have come %d times, within %d", word, n, got, less)
				}
			}
			if n := k.Prune(1 << 20); n != 0 {
				t.Errorf("few keys are pruned, by %d", n)
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

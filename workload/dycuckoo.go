package workload

import (
	"math/rand/v2"

	"github.com/warpmap/warpmap/kernel"
)

// DataSet is a sequence of pairs of 4+4 bytes. Some pairs have a key that came before. The value of a key is Value of
// it.
type DataSet struct {
	Name            string
	Pairs, Distinct int
	Keys            Keys // key number 0 … Distinct-1
	// Skewed tells whether keys that came early come again most often. If not, all keys that came before are equally
	// likely to come again.
	Skewed bool
}

// dyCuckooPairs is the number of pairs of the paper's RAND: what the others are scaled by.
const dyCuckooPairs = 100_000_000

// DyCuckooSets returns stand-ins for the data sets of the DyCuckoo paper (Table 2). They have as many pairs and
// distinct keys as those, scaled so that RAND has n pairs; the paper's n is 100 million. In TW, RE and COM, where keys
// stand for people, some keys come far more often than others.
func DyCuckooSets(n int, seed uint64) []DataSet {
	sets := []DataSet{
		{Name: "TW", Pairs: 50_876_784, Distinct: 44_523_684, Keys: Keys{Kind: "rand"}, Skewed: true},
		{Name: "RE", Pairs: 48_104_875, Distinct: 41_466_682, Keys: Keys{Kind: "reddit"}, Skewed: true},
		{Name: "LINE", Pairs: 50_000_000, Distinct: 45_159_880, Keys: Keys{Kind: "rand"}},
		{Name: "COM", Pairs: 10_000_000, Distinct: 4_583_941, Keys: Keys{Kind: "rand"}, Skewed: true},
		{Name: "RAND", Pairs: dyCuckooPairs, Distinct: dyCuckooPairs, Keys: Keys{Kind: "rand"}},
	}
	scaled := func(x int) int { return max(1, int(float64(x)*float64(n)/dyCuckooPairs+0.5)) }
	for i := range sets {
		s := &sets[i]
		s.Pairs, s.Distinct = scaled(s.Pairs), scaled(s.Distinct)
		s.Keys.Bytes, s.Keys.Seed = 4, seed+uint64(i)
	}
	return sets
}

// came is how many different keys are among the first i pairs: new ones come evenly, the first of them at once.
func (s DataSet) came(i int) int { return (i*s.Distinct + s.Pairs - 1) / s.Pairs }

// Number returns the number of the key of pair i.
func (s DataSet) Number(i int) int {
	before := s.came(i)
	if s.came(i+1) > before {
		return before
	}
	n := uint64(before)
	if s.Skewed { // the product of two draws: the first tenth of the keys gets a third of the repeats
		n = kernel.Reduce(kernel.Seeded64(uint64(i), s.Keys.Seed+5), n) + 1
	}
	return int(kernel.Reduce(kernel.Seeded64(uint64(i), s.Keys.Seed+4), n))
}

// Sized returns a data set like this one, with that many distinct keys, and as many repeats of each.
func (s DataSet) Sized(distinct int) DataSet {
	s.Pairs, s.Distinct = max(distinct, s.Pairs*distinct/s.Distinct), distinct
	return s
}

// Fill writes the pairs from number first on.
func (s DataSet) Fill(first int, keys, values []uint32) {
	parallel(len(keys), func(from, to int) {
		for i := from; i < to; i++ {
			key := s.Keys.At(uint64(s.Number(first + i)))
			keys[i], values[i] = uint32(key), uint32(Value(key))
		}
	})
}

// Churn is the dynamic workload of the DyCuckoo paper (§6.1) over a data set, batch by batch, as keys. In the first
// round, a batch inserts pairs of the set in their order, looks up keys that came before, and deletes some that are in.
// In the second round, the same batches come once more, with inserts and deletions exchanged.
type Churn struct {
	Set     DataSet
	Steps   []ChurnStep
	Deleted []uint32 // keys that the first round deletes, and the second inserts
	Finds   []uint32
	Expect  []byte // what each look-up of Finds comes to: Hit or Miss
	Ops     int    // in all
}

// ChurnStep is one batch. Each range is a pair of from and to. A batch of the first round inserts Pairs of the set,
// then looks up Finds, then deletes Deleted. A batch of the second round deletes Pairs, then looks up Finds, then
// inserts Deleted.
type ChurnStep struct {
	Second                bool
	Pairs, Finds, Deleted [2]int
	Live                  int // pairs in the table after it
}

// NewChurn makes the batches. Each has batch inserts, as many look-ups, and r times as many deletions. A deletion takes
// a key that is in, each as likely.
func NewChurn(s DataSet, batch int, r float64) *Churn {
	batches := (s.Pairs + batch - 1) / batch
	c := &Churn{Set: s, Finds: make([]uint32, 2*s.Pairs), Expect: make([]byte, 2*s.Pairs)}
	in, live := make([]bool, s.Distinct), 0
	set := func(number int, to bool) {
		if in[number] != to {
			in[number] = to
			if to {
				live++
			} else {
				live--
			}
		}
	}
	rng := rand.New(rand.NewPCG(s.Keys.Seed, uint64(batch)))
	var gone []int // numbers of Deleted
	for round := range 2 {
		for b := range batches {
			t := ChurnStep{Second: round == 1, Pairs: [2]int{b * batch, min((b+1)*batch, s.Pairs)}}
			n := t.Pairs[1] - t.Pairs[0]
			t.Finds = [2]int{round*s.Pairs + t.Pairs[0], round*s.Pairs + t.Pairs[1]}
			for i := t.Pairs[0]; i < t.Pairs[1]; i++ {
				set(s.Number(i), !t.Second)
			}
			came := s.came(t.Pairs[1])
			if t.Second {
				came = s.Distinct
			}
			parallel(n, func(from, to int) {
				for i := t.Finds[0] + from; i < t.Finds[0]+to; i++ {
					number := kernel.Reduce(kernel.Seeded64(uint64(i), s.Keys.Seed+6), uint64(came))
					c.Finds[i], c.Expect[i] = uint32(s.Keys.At(number)), Miss
					if in[number] {
						c.Expect[i] = Hit
					}
				}
			})
			if t.Second {
				t.Deleted = c.Steps[b].Deleted
				for _, number := range gone[t.Deleted[0]:t.Deleted[1]] {
					set(number, true)
				}
			} else {
				t.Deleted[0] = len(gone)
				for range min(int(r*float64(n)+0.5), live) {
					number := rng.IntN(came)
					for !in[number] {
						number = rng.IntN(came)
					}
					set(number, false)
					gone = append(gone, number)
				}
				t.Deleted[1] = len(gone)
			}
			t.Live = live
			c.Steps = append(c.Steps, t)
			c.Ops += 2*n + t.Deleted[1] - t.Deleted[0]
		}
	}
	c.Deleted = make([]uint32, len(gone))
	parallel(len(gone), func(from, to int) {
		for i := from; i < to; i++ {
			c.Deleted[i] = uint32(s.Keys.At(uint64(gone[i])))
		}
	})
	return c
}

package kmers

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// counted is k-mers by their mixes, each of some words, the high one first, with their counts.
type counted struct {
	words  int
	mixes  []uint64
	counts []uint32
}

func newCounted(words, n int) counted {
	return counted{words, make([]uint64, n*words), make([]uint32, n)}
}

// mix is the words of one k-mer.
func (x counted) mix(i int) []uint64 { return x.mixes[i*x.words : (i+1)*x.words] }

// compare tells which of two k-mers comes first.
func (x counted) compare(i int, y counted, j int) int {
	if x.words == 1 {
		return cmp.Compare(x.mixes[i], y.mixes[j])
	}
	return slices.Compare(x.mix(i), y.mix(j))
}

// move brings k-mer i to place n, and gives it a count.
func (x counted) move(n, i int, count uint32) {
	copy(x.mixes[n*x.words:(n+1)*x.words], x.mixes[i*x.words:])
	x.counts[n] = count
}

// first is the first n.
func (x counted) first(n int) counted { return counted{x.words, x.mixes[:n*x.words], x.counts[:n]} }

// append appends k-mer i of another.
func (x *counted) append(y counted, i int, count uint32) {
	if x.words == 1 {
		x.mixes = append(x.mixes, y.mixes[i])
	} else {
		x.mixes = append(x.mixes, y.mix(i)...)
	}
	x.counts = append(x.counts, count)
}

// atLeast leaves out, in place, those that came less often.
func (x counted) atLeast(least uint32) counted {
	if least < 2 {
		return x
	}
	n := 0
	for i, c := range x.counts {
		if c >= least {
			x.move(n, i, c)
			n++
		}
	}
	return x.first(n)
}

// inOrder sorts k-mers of a part by their mixes, in place: it deals them out by the bits behind the part's, two or so
// together, and sorts what fell together.
func (x counted) inOrder() {
	type pair struct {
		high, low uint64
		count     uint32
	}
	n := len(x.counts)
	shift := 64 - max(bits.Len(uint(n))-1, 0)
	bucket := func(high uint64) uint64 { return high << partBits >> shift }
	begins := make([]int, bucket(math.MaxUint64)+2)
	for i := range n {
		begins[bucket(x.mixes[i*x.words])+1]++
	}
	for b := range len(begins) - 1 {
		begins[b+1] += begins[b]
	}
	pairs := make([]pair, n)
	for i, c := range x.counts {
		m := x.mix(i)
		b := bucket(m[0])
		pairs[begins[b]] = pair{m[0], m[len(m)-1], c}
		begins[b]++
	}
	from := 0
	for _, end := range begins[:len(begins)-1] { // each is where the next began
		if end > from+1 {
			slices.SortFunc(pairs[from:end], func(a, b pair) int {
				if a.high != b.high {
					return cmp.Compare(a.high, b.high)
				}
				return cmp.Compare(a.low, b.low)
			})
		}
		from = end
	}
	for i, p := range pairs {
		m := x.mix(i)
		m[len(m)-1] = p.low
		m[0] = p.high
		x.counts[i] = p.count
	}
}

// sum adds the counts of two.
func sum(a, b counted) (out counted) {
	switch {
	case len(a.counts) == 0:
		return b
	case len(b.counts) == 0:
		return a
	}
	both, i, j := 0, 0, 0 // how many are in both
	for i < len(a.counts) && j < len(b.counts) {
		order := a.compare(i, b, j)
		if order == 0 {
			both++
		}
		if order <= 0 {
			i++
		}
		if order >= 0 {
			j++
		}
	}
	n := len(a.counts) + len(b.counts) - both
	out = counted{a.words, make([]uint64, 0, n*a.words), make([]uint32, 0, n)}
	i, j = 0, 0
	for i < len(a.counts) || j < len(b.counts) {
		order := -1
		switch {
		case i == len(a.counts):
			order = 1
		case j < len(b.counts):
			order = a.compare(i, b, j)
		}
		switch {
		case order < 0:
			out.append(a, i, a.counts[i])
			i++
		case order > 0:
			out.append(b, j, b.counts[j])
			j++
		default:
			out.append(a, i, uint32(min(uint64(a.counts[i])+uint64(b.counts[j]), math.MaxUint32)))
			i, j = i+1, j+1
		}
	}
	return out
}

// sumAll adds the counts of many, two and two: all k-mers are moved as often as their number can be halved.
func sumAll(all []counted) counted {
	for len(all) > 1 {
		half := (len(all) + 1) / 2
		for i := half; i < len(all); i++ {
			all[i-half] = sum(all[i-half], all[i])
		}
		all = all[:half]
	}
	return all[0]
}

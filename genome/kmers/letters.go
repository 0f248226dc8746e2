package kmers

import (
	"cmp"
	"fmt"

	"github.com/warpmap/warpmap/kernel"
)

// Kmer is a packed k-mer. A, C, G, T are 0 … 3, two bits each, the last letter lowest. Hi is 0 if k is 32 or less.
type Kmer struct{ Hi, Lo uint64 }

// Pack packs a k-mer of letters A, C, G, T or U of either case, two bits each, the first highest. Errors: other
// letters; no letters, or more than MaxK.
func Pack(letters string) (kmer Kmer, err error) {
	if len(letters) < 1 || len(letters) > MaxK {
		return kmer, fmt.Errorf("a k-mer of %d letters: want 1 to %d", len(letters), MaxK)
	}
	for i := range len(letters) {
		var code uint64
		switch letters[i] &^ 0x20 {
		case 'A':
			code = 0
		case 'C':
			code = 1
		case 'G':
			code = 2
		case 'T', 'U':
			code = 3
		default:
			return Kmer{}, fmt.Errorf("a k-mer %q: want letters A, C, G and T", letters)
		}
		kmer = kmer.with(code)
	}
	return kmer, nil
}

// with is the k-mer with one more letter.
func (x Kmer) with(code uint64) Kmer { return Kmer{x.Hi<<2 | x.Lo>>62, x.Lo<<2 | code} }

// Append appends the k letters of a packed k-mer to a text.
func Append(to []byte, kmer Kmer, k int) []byte {
	for i := 2*k - 2; i >= 64; i -= 2 {
		to = append(to, "ACGT"[kmer.Hi>>(i-64)&3])
	}
	for i := 2*min(k, wordK) - 2; i >= 0; i -= 2 {
		to = append(to, "ACGT"[kmer.Lo>>i&3])
	}
	return to
}

// Canonical gives the smaller of a k-mer and its reverse complement.
func Canonical(kmer Kmer, k int) Kmer {
	reverse := Kmer{}
	for i, x := 0, kmer; i < k; i, x = i+1, (Kmer{x.Hi >> 2, x.Lo>>2 | x.Hi<<62}) {
		reverse = reverse.with(3 - x.Lo&3)
	}
	if cmp.Or(cmp.Compare(reverse.Hi, kmer.Hi), cmp.Compare(reverse.Lo, kmer.Lo)) < 0 {
		return reverse
	}
	return kmer
}

// mix is the words that a k-mer is held as, as kmers.cu makes them.
func mix(x Kmer, words int) [2]uint64 {
	if words == 1 {
		return [2]uint64{kernel.Fmix64(x.Lo)}
	}
	x.Hi ^= kernel.Fmix64(x.Lo)
	x.Lo ^= kernel.Fmix64(x.Hi)
	x.Hi ^= kernel.Fmix64(x.Lo)
	return [2]uint64{x.Hi, x.Lo}
}

// unmix undoes mix.
func unmix(mix []uint64) Kmer {
	if len(mix) == 1 {
		return Kmer{Lo: unmix64(mix[0])}
	}
	x := Kmer{mix[0], mix[1]}
	x.Hi ^= kernel.Fmix64(x.Lo)
	x.Lo ^= kernel.Fmix64(x.Hi)
	x.Hi ^= kernel.Fmix64(x.Lo)
	return x
}

// unmix64 undoes kernel.Fmix64: a shift by more than half undoes itself, and odd factors have inverses.
func unmix64(h uint64) uint64 {
	h ^= h >> 33
	h *= 0x9cb4b2f8129337db
	h ^= h >> 33
	h *= 0x4f74430c22a54005
	return h ^ h>>33
}

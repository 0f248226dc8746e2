package kmers

import "fmt"

// Pack packs a k-mer of letters A, C, G, T or U of either case, two bits each, the first highest. Errors: other letters; none, or more than MaxK.
func Pack(letters string) (kmer uint64, err error) {
	if len(letters) < 1 || len(letters) > MaxK {
		return 0, fmt.Errorf("a k-mer of %d letters: want 1 to %d", len(letters), MaxK)
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
			return 0, fmt.Errorf("a k-mer %q: want letters A, C, G and T", letters)
		}
		kmer = kmer<<2 | code
	}
	return kmer, nil
}

// Append appends the k letters of a packed k-mer.
func Append(to []byte, kmer uint64, k int) []byte {
	for i := 2*k - 2; i >= 0; i -= 2 {
		to = append(to, "ACGT"[kmer>>i&3])
	}
	return to
}

// Canonical is the smaller of a k-mer and its reverse complement.
func Canonical(kmer uint64, k int) uint64 {
	reverse := uint64(0)
	for i, x := 0, kmer; i < k; i, x = i+1, x>>2 {
		reverse = reverse<<2 | (3 - x&3)
	}
	return min(kmer, reverse)
}

// unmix undoes kernel.Fmix64: a shift by more than half undoes itself, and odd factors have inverses.
func unmix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0x9cb4b2f8129337db
	h ^= h >> 33
	h *= 0x4f74430c22a54005
	return h ^ h>>33
}

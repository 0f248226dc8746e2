package text

import "github.com/warpmap/warpmap/internal/siphash"

// hasher is the Go twin of the kernels' hash.
type hasher struct {
	seed [2]uint64
	mask uint64
}

// of is a key's hash.
func (h hasher) of(key []byte) uint64 {
	if len(key) <= blockBytes {
		s := siphash.New(h.seed[0], h.seed[1])
		return s.Of(key) & h.mask
	}
	sum := uint64(0)
	for b := 0; b*blockBytes < len(key); b++ {
		s := siphash.New(^h.seed[0], h.seed[1])
		s.Word(uint64(b))
		sum += s.Of(key[b*blockBytes : min(len(key), (b+1)*blockBytes)])
	}
	s := siphash.New(h.seed[0], ^h.seed[1])
	s.Word(sum)
	s.Word(uint64(len(key)))
	return s.End() & h.mask
}

package text

import (
	"encoding/binary"
	"math/bits"
)

// hasher is the Go twin of the kernels' hash.
type hasher struct {
	seed [2]uint64
	mask uint64
}

type sip struct{ a, b, c, d uint64 }

func newSip(k0, k1 uint64) sip {
	return sip{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
}

func (s *sip) round() {
	s.a += s.b
	s.b = bits.RotateLeft64(s.b, 13) ^ s.a
	s.a = bits.RotateLeft64(s.a, 32)
	s.c += s.d
	s.d = bits.RotateLeft64(s.d, 16) ^ s.c
	s.a += s.d
	s.d = bits.RotateLeft64(s.d, 21) ^ s.a
	s.c += s.b
	s.b = bits.RotateLeft64(s.b, 17) ^ s.c
	s.c = bits.RotateLeft64(s.c, 32)
}

func (s *sip) word(m uint64) {
	s.d ^= m
	s.round()
	s.a ^= m
}

func (s *sip) end() uint64 {
	s.c ^= 0xff
	s.round()
	s.round()
	s.round()
	return s.a ^ s.b ^ s.c ^ s.d
}

func (s *sip) of(key []byte) uint64 {
	n := len(key)
	for ; len(key) >= 8; key = key[8:] {
		s.word(binary.LittleEndian.Uint64(key))
	}
	var last [8]byte
	copy(last[:], key)
	s.word(binary.LittleEndian.Uint64(last[:]) | uint64(n)<<56)
	return s.end()
}

// of is a key's hash.
func (h hasher) of(key []byte) uint64 {
	if len(key) <= blockBytes {
		s := newSip(h.seed[0], h.seed[1])
		return s.of(key) & h.mask
	}
	sum := uint64(0)
	for b := 0; b*blockBytes < len(key); b++ {
		s := newSip(^h.seed[0], h.seed[1])
		s.word(uint64(b))
		sum += s.of(key[b*blockBytes : min(len(key), (b+1)*blockBytes)])
	}
	s := newSip(h.seed[0], ^h.seed[1])
	s.word(sum)
	s.word(uint64(len(key)))
	return s.end() & h.mask
}

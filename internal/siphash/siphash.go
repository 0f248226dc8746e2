// Package siphash is SipHash-1-3 of J.-P. Aumasson and D. J. Bernstein (2012): a hash of text under a secret key of 128
// bits, so that nobody can choose texts that collide. It is the Go twin of the hash in the kernels of table/text.
package siphash

import (
	"encoding/binary"
	"math/bits"
)

// State is a hash on its way.
type State struct{ a, b, c, d uint64 }

// New begins a hash under a key.
func New(k0, k1 uint64) State {
	return State{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
}

func (s *State) round() {
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

// Word takes eight bytes in.
func (s *State) Word(m uint64) {
	s.d ^= m
	s.round()
	s.a ^= m
}

// End gives the hash of what was taken in.
func (s *State) End() uint64 {
	s.c ^= 0xff
	s.round()
	s.round()
	s.round()
	return s.a ^ s.b ^ s.c ^ s.d
}

// Of takes a text in, with its length, and gives the hash.
func (s *State) Of(text []byte) uint64 {
	n := len(text)
	for ; len(text) >= 8; text = text[8:] {
		s.Word(binary.LittleEndian.Uint64(text))
	}
	var last [8]byte
	copy(last[:], text)
	s.Word(binary.LittleEndian.Uint64(last[:]) | uint64(n)<<56)
	return s.End()
}

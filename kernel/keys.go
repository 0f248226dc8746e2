package kernel

import "encoding/binary"

// Reserved counts the key patterns that mark slots: empty, tombstone and busy are the three highest. See keys.cuh.
const Reserved = 3

// Marks are the patterns, among those of keys of one width, that mark slots: the Go twin of Marks in keys.cuh.
type Marks struct{ Empty, Tombstone, Busy uint64 }

// MarksOf is for keys of so many bytes.
func MarksOf(keyBytes int) Marks {
	all := ^uint64(0) >> (64 - 8*keyBytes)
	return Marks{all, all - 1, all - 2}
}

// Has tells whether a pattern marks slots, so that a key of it lives on the table's side.
func (m Marks) Has(pattern uint64) bool { return pattern > m.Empty-Reserved }

// Alias is how a key, of which the low bits of its width count, stands in its slot, and whether that is on the side.
func (m Marks) Alias(key uint64) (stored uint64, side bool) {
	key &= m.Empty
	if m.Has(key) {
		return key - Reserved, true
	}
	return key, false
}

// Real is the key of a slot as users know it.
func (m Marks) Real(stored uint64, side bool) uint64 {
	if side {
		return stored + Reserved
	}
	return stored
}

// Pattern reads a key of 1, 2, 4 or 8 bytes.
func Pattern(b []byte, keyBytes int) uint64 {
	var x [8]byte
	copy(x[:], b[:keyBytes])
	return binary.LittleEndian.Uint64(x[:])
}

// Ones tells whether all bits are set.
func Ones(b []byte) bool {
	for _, x := range b {
		if x != 0xff {
			return false
		}
	}
	return true
}

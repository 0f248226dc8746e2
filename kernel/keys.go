package kernel

import "encoding/binary"

// Reserved is the number of key patterns that mark slots. These are the three highest: empty, tombstone and busy. See
// keys.cuh.
const Reserved = 3

// Marks holds the patterns that mark slots, among those of keys of one width. It is the Go twin of Marks in keys.cuh.
type Marks struct{ Empty, Tombstone, Busy uint64 }

// MarksOf returns the Marks for keys of keyBytes bytes.
func MarksOf(keyBytes int) Marks {
	all := ^uint64(0) >> (64 - 8*keyBytes)
	return Marks{all, all - 1, all - 2}
}

// Has tells whether a pattern marks slots. A key with such a pattern lives on the table's side.
func (m Marks) Has(pattern uint64) bool { return pattern > m.Empty-Reserved }

// Alias returns how a key stands in its slot, and whether that is on the side. Only as many low bits of the key count
// as the width has.
func (m Marks) Alias(key uint64) (stored uint64, side bool) {
	key &= m.Empty
	if m.Has(key) {
		return key - Reserved, true
	}
	return key, false
}

// Real returns the key of a slot as users know it.
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

// Ones tells whether all bits of b are set.
func Ones(b []byte) bool {
	for _, x := range b {
		if x != 0xff {
			return false
		}
	}
	return true
}

package inflate

import (
	"bytes"
	"compress/gzip"
	"hash/crc32"
	"slices"
)

// Text is text in a row that was unpacked, in one or two parts, and where members end in it.
type Text struct {
	Parts [2][]byte
	ends  []end
	sums  []uint32 // CRC-32 of what lies before each end and behind the last; nil: they are not known yet
}

// Len is how many bytes the text has.
func (t *Text) Len() int { return len(t.Parts[0]) + len(t.Parts[1]) }

// Empty tells whether there is no text, and no member's end.
func (t *Text) Empty() bool { return t.Len() == 0 && len(t.ends) == 0 }

// Clone copies the text.
func (t *Text) Clone() *Text {
	return &Text{Parts: [2][]byte{bytes.Clone(t.Parts[0]), bytes.Clone(t.Parts[1])}, ends: slices.Clone(t.ends),
		sums: slices.Clone(t.sums)}
}

// sum finds the sums.
func (t *Text) sum() {
	t.sums = t.sums[:0]
	at := 0
	for _, e := range t.ends {
		t.sums = append(t.sums, t.crc(0, at, e.at))
		at = e.at
	}
	t.sums = append(t.sums, t.crc(0, at, t.Len()))
}

// crc goes on with a sum over a stretch of the text.
func (t *Text) crc(crc uint32, from, to int) uint32 {
	n := len(t.Parts[0])
	crc = crc32.Update(crc, crc32.IEEETable, t.Parts[0][min(from, n):min(to, n)])
	return crc32.Update(crc, crc32.IEEETable, t.Parts[1][max(from-n, 0):max(to-n, 0)])
}

// Check compares members with the sums and the lengths in their trailers.
type Check struct{ crc, size uint32 }

// Add takes the next text, and gives how much of it is good. Errors: gzip.ErrChecksum, behind that.
func (c *Check) Add(t *Text) (good int, err error) {
	at := 0
	for i := range len(t.ends) + 1 {
		to := t.Len()
		if i < len(t.ends) {
			to = t.ends[i].at
		}
		if t.sums == nil {
			c.crc = t.crc(c.crc, at, to)
		} else {
			c.crc = combined(c.crc, t.sums[i], to-at)
		}
		c.size += uint32(to - at)
		at = to
		if i == len(t.ends) {
			break
		}
		if e := t.ends[i]; e.crc != c.crc || e.size != c.size {
			return at, gzip.ErrChecksum
		}
		*c = Check{}
	}
	return at, nil
}

// powers are x to the power of 1, 2, 4 and so on, modulo the polynomial of CRC-32. The highest bit stands for 1.
var powers = func() (powers [64]uint32) {
	p := uint32(1) << 30
	for i := range powers {
		powers[i] = p
		p = times(p, p)
	}
	return powers
}()

// times multiplies modulo the polynomial.
func times(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ crc32.IEEE&-(b&1)
	}
	return product
}

// combined is the sum of two texts in a row, of which the second has n bytes.
func combined(first, second uint32, n int) uint32 {
	for bit, left := 3, uint64(n); left > 0; bit, left = bit+1, left>>1 {
		if left&1 == 1 {
			first = times(powers[bit], first)
		}
	}
	return first ^ second
}

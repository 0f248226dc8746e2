package inflate

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// magic are the first bytes of a member of gzip.
var magic = []byte{0x1f, 0x8b, 8}

// finder finds places where a block or a member may begin, in order. Most of what it finds is no such place.
type finder struct {
	in   []byte
	upTo int // in bits: places lie before it
	next int // the bit that has not been looked at

	// The next of each kind, in bits; what is before next is to be found anew.
	dynamic, stored, member int
}

// newFinder makes a finder of places in the first bytes of in.
func newFinder(in []byte, bytes int) *finder {
	return &finder{in: in, upTo: 8 * bytes, dynamic: -1, stored: -1, member: -1}
}

// find gives the next place, in bits. Of the kinds that are rare, no more is looked for than what comes first.
func (f *finder) find() (bit int, at place, ok bool) {
	if f.dynamic < f.next {
		f.dynamic = f.nextDynamic()
	}
	if f.stored < f.next {
		f.stored = f.nextStored(f.dynamic)
	}
	bit, at = min(f.dynamic, f.stored), atBlockHeader
	if f.member < f.next {
		f.member = f.nextMember(bit)
	}
	if f.member < bit {
		bit, at = f.member, atMember
	}
	f.next = bit + 1
	return bit, at, bit < f.upTo
}

// nextMember finds what may be the header of a member, before a bit; else it gives that.
func (f *finder) nextMember(before int) int {
	from, to := (f.next+7)/8, min(len(f.in), (before+7)/8+len(magic)-1)
	if from < to {
		if i := bytes.Index(f.in[from:to], magic); i >= 0 {
			return 8 * (from + i)
		}
	}
	return before
}

// A block that is stored begins with three zeros, and zeros up to the next byte: how many there were is not known
// until the block before it is decoded. So its place is three bits before the lengths.
func (f *finder) nextStored(before int) int {
	for at := (f.next + 10) / 8; at+4 <= len(f.in) && 8*at-3 < before; at++ {
		n := binary.LittleEndian.Uint32(f.in[at:])
		if (n^n>>16)&0xffff == 0xffff && f.in[at-1] < 1<<5 {
			return 8*at - 3
		}
	}
	return before
}

// settled is the place of a block that begins at a bit: that which find gives for one that is stored. What is not there
// is not taken for zeros.
func settled(in []byte, bit int) int {
	last := (bit+3+7)&^7 - 3
	if w := peek(in, bit); w&(1<<(last+3-bit)-1) != 0 || last+3 > 8*len(in) {
		return bit
	}
	return last
}

// share is what four lengths of the code for lengths take of all patterns of seven bits; all must be taken.
var share = func() (share [1 << 12]uint16) {
	for w := range share {
		for i := range 4 {
			if n := w >> (3 * i) & 7; n > 0 {
				share[w] += 1 << (7 - n)
			}
		}
	}
	return share
}()

// nextDynamic finds headers of dynamic blocks whose code for lengths is one. The header of such a block that is not the
// last of its member begins with 0, 0, 1, and then says with five bits each how many codes there are: 30 and 31 are too
// many. That is looked up at 45 places at once.
func (f *finder) nextDynamic() int {
	const places = 57 - 12
	for bit := f.next; bit < f.upTo; bit += places {
		w := peek(f.in, bit)
		may := ^w & ^(w >> 1) & (w >> 2) &^ (w >> 4 & (w >> 5) & (w >> 6) & (w >> 7)) &^
			(w >> 9 & (w >> 10) & (w >> 11) & (w >> 12))
		for may &= 1<<places - 1; may != 0; may &= may - 1 {
			if at := bit + bits.TrailingZeros64(may); isCode(f.in, at) && at < f.upTo {
				return at
			}
		}
	}
	return f.upTo
}

// isCode tells whether the lengths of the code for lengths of a block are those of a code.
func isCode(in []byte, bit int) bool {
	n := 3 * (int(peek(in, bit+13)&15) + 4)
	w := peek(in, bit+17) & (1<<n - 1)
	return share[w&0xfff]+share[w>>12&0xfff]+share[w>>24&0xfff]+share[w>>36&0xfff]+share[w>>48] == 1<<7
}

package inflate

import (
	"compress/flate"
	"encoding/binary"
)

// stop says why a decoder does not go on.
type stop byte

const (
	atBlock stop = iota // the block has ended, and another follows
	atEnd               // the last block has ended
	full                // there is no room for more text
	starved             // what comes next is not all there
	corrupt             // see decoder.wrong
)

// state is what comes next.
type state byte

const (
	inHeader state = iota // of a block
	inCodes
	inStored
)

// history is how far back a match can reach.
const history = 32 << 10

// decoder decodes blocks of deflate (RFC 1951). It can stop between any two symbols, and go on in other memory.
type decoder struct {
	in    []byte
	bit   int // of in, which comes next; a symbol and a block's header are taken whole or not at all
	state state
	final bool // the block is the last
	left  int  // bytes of a stored block
	wrong int  // where corrupt data was found out, in bytes of in: as many were looked at
	low   int  // of symbols: the first that a match has copied

	fixed      bool                 // the tables are those of fixed blocks
	litLengths [fixedLits]uint8     // of codes
	litAhead   int                  // as many bits are looked at, at least, to tell a literal or a length
	distAhead  int                  // a distance
	lengths    [litCodes + 32]uint8 // of both codes, in a row
	lit        [litEntries]uint32
	dist       [distEntries]uint32
}

// reset has the decoder begin with a block at a bit of in.
func (d *decoder) reset(in []byte, bit int) {
	d.in, d.bit, d.state = in, bit, inHeader
}

// peek gives at least 57 bits of in from a bit on. Behind the end there are zeros.
func peek(in []byte, bit int) uint64 {
	at := bit >> 3
	if at+8 <= len(in) {
		return binary.LittleEndian.Uint64(in[at:]) >> (bit & 7)
	}
	w := uint64(0)
	for i := len(in) - 1; i >= at; i-- {
		w = w<<8 | uint64(in[i])
	}
	return w >> (bit & 7)
}

// fail notes that data is corrupt, which is known once the bits before this one are looked at. But data that ends
// before it is not all there.
func (d *decoder) fail(bit int) stop {
	if bit > 8*len(d.in) {
		return starved
	}
	d.wrong = (bit + 7) / 8
	return corrupt
}

// errAt is the error of corrupt data that was found out behind so many bytes.
func errAt(offset int64) error { return flate.CorruptInputError(offset) }

// order is that of the lengths of the code for lengths.
var order = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// begin takes the header of a block.
func (d *decoder) begin() stop {
	w, bit := peek(d.in, d.bit), d.bit+3
	if bit > 8*len(d.in) {
		return starved
	}
	switch w >> 1 & 3 {
	case 0:
		at := (bit + 7) / 8
		if at+4 > len(d.in) {
			return starved
		}
		n := binary.LittleEndian.Uint32(d.in[at:])
		if (n^n>>16)&0xffff != 0xffff {
			return d.fail(8 * (at + 4))
		}
		d.left, d.bit, d.state = int(n&0xffff), 8*(at+4), inStored
	case 1:
		d.fix()
		d.bit, d.state = bit, inCodes
	case 2:
		bit, why := d.codes(bit)
		if why != atBlock {
			return why
		}
		d.fixed = false
		if d.litAhead = max(d.litAhead, int(d.litLengths[256])); w&1 == 0 {
			d.litAhead += 10 // the least that a block behind it takes
		}
		d.bit, d.state = bit, inCodes
	default:
		return d.fail(bit)
	}
	d.final = w&1 == 1
	return atBlock
}

// fix makes the tables of fixed blocks.
func (d *decoder) fix() {
	if d.fixed {
		return
	}
	var dist [fixedDist]uint8
	for i := range d.litLengths {
		switch {
		case i < 144 || i >= 280:
			d.litLengths[i] = 8
		case i < 256:
			d.litLengths[i] = 9
		default:
			d.litLengths[i] = 7
		}
	}
	for i := range dist {
		dist[i] = 5
	}
	d.litAhead, _ = build(d.lit[:], litMeans[:], d.litLengths[:], litBits)
	d.distAhead, _ = build(d.dist[:], distMeans[:], dist[:], distBits)
	merge(&d.lit)
	d.fixed = true
}

// codes takes the codes of a dynamic block, and gives the bit behind them.
func (d *decoder) codes(bit int) (int, stop) {
	nLit, nDist, bit, why := d.codeLengths(bit)
	if why != atBlock {
		return bit, why
	}
	d.fixed = false // the tables are changed from here on
	clear(d.litLengths[copy(d.litLengths[:], d.lengths[:nLit]):])
	var ok bool
	if d.litAhead, ok = build(d.lit[:], litMeans[:], d.litLengths[:], litBits); !ok {
		return bit, d.fail(bit)
	}
	if d.distAhead, ok = build(d.dist[:], distMeans[:], d.lengths[nLit:nLit+nDist], distBits); !ok {
		return bit, d.fail(bit)
	}
	merge(&d.lit)
	return bit, atBlock
}

// codeLengths takes the lengths of the codes of a dynamic block.
func (d *decoder) codeLengths(bit int) (nLit, nDist, next int, why stop) {
	w := peek(d.in, bit)
	nLit, nDist = int(w&31)+257, int(w>>5&31)+1
	n := int(w>>10&15) + 4
	if bit += 14; nLit > litCodes || nDist > distCodes {
		return 0, 0, bit, d.fail(bit)
	}
	var lengths [19]uint8
	w = peek(d.in, bit)
	for i := range n {
		lengths[order[i]] = uint8(w & 7)
		w >>= 3
	}
	bit += 3 * n
	var table [1 << 7]uint32
	ahead, ok := build(table[:], codeMeans[:], lengths[:], 7)
	if !ok {
		return 0, 0, bit, d.fail(bit)
	}
	for i := 0; i < nLit+nDist; {
		w = peek(d.in, bit)
		e := table[w&(1<<7-1)]
		if e&kindMask == isOther {
			return 0, 0, bit, d.fail(bit + max(1, ahead))
		}
		bit += int(e & usedMask)
		x := e >> moreShift
		if x < 16 {
			d.lengths[i] = uint8(x)
			i++
			continue
		}
		if x == 16 && i == 0 {
			return 0, 0, bit, d.fail(bit)
		}
		again, more, of := 3, 3, uint8(0)
		switch w >>= e & usedMask; x {
		case 16:
			more, of = 2, d.lengths[i-1]
		case 18:
			again, more = 11, 7
		}
		again += int(w & (1<<more - 1))
		if bit += more; i+again > nLit+nDist {
			return 0, 0, bit, d.fail(bit)
		}
		for ; again > 0; again-- {
			d.lengths[i] = of
			i++
		}
	}
	if bit > 8*len(d.in) {
		return 0, 0, bit, starved
	}
	return nLit, nDist, bit, atBlock
}

// codeMeans are the entries of the code for lengths.
var codeMeans = func() (means [19]uint32) {
	for i := range means {
		means[i] = uint32(i)<<moreShift | isLiterals
	}
	return means
}()

// ends tells how the block has ended.
func (d *decoder) ends() stop {
	d.state = inHeader
	if d.final {
		d.bit = (d.bit + 7) &^ 7
		return atEnd
	}
	return atBlock
}

// symbol is what comes next in a block with codes: some literal, or a match, or the end.
type symbol struct {
	literal          byte
	length, distance int // length 0: a literal; -1: the block's end
	next             int // the bit behind it
}

// one tells the next symbol, with no more of in than there is.
func (d *decoder) one() (s symbol, why stop) {
	w, bit := peek(d.in, d.bit), d.bit
	e, used := lookUp(d.lit[:], w, litBits)
	if e&kindMask == isLiterals {
		s.literal = byte(e >> moreShift)
		s.next = bit + int(d.litLengths[s.literal])
		return s, d.there(max(s.next, bit+d.litAhead))
	}
	switch bit += used; {
	case e&^usedMask == otherEnd:
		s.length, s.next = -1, bit
		return s, d.there(max(bit, d.bit+d.litAhead))
	case e&kindMask == isOther:
		return s, d.fail(max(bit, d.bit+max(1, d.litAhead)))
	}
	more := int(e >> moreShift & moreMask)
	s.length = int(e>>leastShift) + int(w>>used&(1<<more-1))
	bit += more
	looked := max(bit, d.bit+d.litAhead)
	w = peek(d.in, bit)
	e, used = lookUp(d.dist[:], w, distBits)
	looked = max(looked, bit+d.distAhead)
	if bit += used; e&kindMask == isOther {
		return s, d.fail(max(looked, bit, bit-used+1))
	}
	more = int(e >> moreShift & moreMask)
	s.distance = int(e>>leastShift) + int(w>>used&(1<<more-1))
	s.next = bit + more
	looked = max(looked, s.next)
	d.wrong = (looked + 7) / 8 // if there is no text so far back
	return s, d.there(looked)
}

func (d *decoder) there(bit int) stop {
	if bit > 8*len(d.in) {
		return starved
	}
	return atBlock
}

// lookUp finds the entry for the bits that come next, and tells how many it uses.
func lookUp(table []uint32, w uint64, first int) (e uint32, used int) {
	e = table[w&(1<<first-1)]
	if e&^(usedMask|0xffff<<leastShift|15<<subShift) != otherSecond {
		return e, int(e & usedMask)
	}
	from, second := e>>leastShift, e>>subShift&15
	e = table[from+uint32(w>>first)&(1<<second-1)]
	return e, first + int(e&usedMask)
}

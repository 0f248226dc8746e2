package inflate

import "encoding/binary"

// What the fast loops need at each turn: two loads of eight bytes of in, and room for nine literals and the longest
// match, whose copy may write 31 bytes too many.
const (
	turnIn  = 16
	turnOut = 9 + 258 + 32
)

// bytes decodes into text[p:], until the block ends or it must stop, and gives where the text ends then. Matches reach
// back to text[from:].
func (d *decoder) bytes(text []byte, p, from int) (int, stop) {
	for {
		switch d.state {
		case inHeader:
			if why := d.begin(); why != atBlock {
				return p, why
			}
		case inStored:
			n := copy(text[p:], d.in[d.bit/8:][:min(d.left, len(d.in)-d.bit/8)])
			p, d.left, d.bit = p+n, d.left-n, d.bit+8*n
			switch {
			case d.left == 0:
				return p, d.ends()
			case p == len(text):
				return p, full
			}
			return p, starved
		case inCodes:
			p = d.manyBytes(text, p, from)
			s, why := d.one()
			switch {
			case why != atBlock:
				return p, why
			case s.length < 0:
				d.bit = s.next
				return p, d.ends()
			case len(text)-p < max(1, s.length):
				return p, full
			case s.length == 0:
				text[p] = s.literal
				p++
			case s.distance > p-from:
				return p, corrupt
			default:
				for end := p + s.length; p < end; p++ {
					text[p] = text[p-s.distance]
				}
			}
			d.bit = s.next
		}
	}
}

// manyBytes decodes symbols while there are much of in and much room, and stops before the block's end, and before what
// may be wrong.
func (d *decoder) manyBytes(text []byte, p, from int) int {
	in, lit, dist := d.in, &d.lit, &d.dist
	at, mostAt, mostP := d.bit>>3, len(in)-turnIn, len(text)-turnOut
	if at > mostAt || p > mostP {
		return p
	}
	// There are n bits in buf. Those above them are zeros, or what the next load brings.
	buf, n := binary.LittleEndian.Uint64(in[at:])>>(d.bit&7), uint(56-d.bit&7)
	at += 7
	stopped := at*8 - int(n)
	for at <= mostAt && p <= mostP {
		buf |= binary.LittleEndian.Uint64(in[at:]) << (n & 63)
		at += int((63 - n) >> 3)
		n |= 56
		e := lit[buf&(1<<litBits-1)]
		if e&kindMask == isLiterals {
			binary.LittleEndian.PutUint32(text[p:], e>>moreShift)
			p += int(e >> countShift & countMask)
			buf >>= e & usedMask
			n -= uint(e & usedMask)
			e = lit[buf&(1<<litBits-1)]
			if e&kindMask == isLiterals {
				binary.LittleEndian.PutUint32(text[p:], e>>moreShift)
				p += int(e >> countShift & countMask)
				buf >>= e & usedMask
				n -= uint(e & usedMask)
				e = lit[buf&(1<<litBits-1)]
				if e&kindMask == isLiterals {
					binary.LittleEndian.PutUint32(text[p:], e>>moreShift)
					p += int(e >> countShift & countMask)
					buf >>= e & usedMask
					n -= uint(e & usedMask)
					stopped = at*8 - int(n)
					continue
				}
			}
		}
		stopped = at*8 - int(n)
		if e&kindMask == isOther {
			if e>>moreShift&moreMask != otherSecond>>moreShift&moreMask {
				break
			}
			buf >>= litBits
			n -= litBits
			e = lit[(e>>leastShift+uint32(buf)&(1<<(e>>subShift&15)-1))%litEntries]
			if e&kindMask == isLiterals {
				text[p] = byte(e >> moreShift)
				p++
				buf >>= e & usedMask
				n -= uint(e & usedMask)
				stopped = at*8 - int(n)
				continue
			}
			if e&kindMask == isOther {
				break
			}
		}
		buf >>= e & usedMask
		more := e >> moreShift & moreMask
		length := int(e>>leastShift) + int(buf&(1<<more-1))
		buf >>= more
		n -= uint(e&usedMask + more)
		buf |= binary.LittleEndian.Uint64(in[at:]) << (n & 63)
		at += int((63 - n) >> 3)
		n |= 56
		e = dist[buf&(1<<distBits-1)]
		if e&kindMask == isOther {
			if e>>moreShift&moreMask != otherSecond>>moreShift&moreMask {
				break
			}
			buf >>= distBits
			n -= distBits
			e = dist[(e>>leastShift+uint32(buf)&(1<<(e>>subShift&15)-1))%distEntries]
			if e&kindMask == isOther {
				break
			}
		}
		buf >>= e & usedMask
		more = e >> moreShift & moreMask
		distance := int(e>>leastShift) + int(buf&(1<<more-1))
		buf >>= more
		n -= uint(e&usedMask + more)
		if distance > p-from {
			break
		}
		copyBytes(text, p, distance, length)
		p += length
		stopped = at*8 - int(n)
	}
	d.bit = stopped
	return p
}

// copyBytes copies a match to text[p:]. It may write 31 bytes behind it.
func copyBytes(text []byte, p, distance, length int) {
	end := p + length
	switch {
	case distance >= 16: // most matches of letters are no longer than 32
		copy16(text, p, p-distance)
		copy16(text, p+16, p+16-distance)
		for p += 32; p < end; p += 16 {
			copy16(text, p, p-distance)
		}
		return
	case distance == 1:
		w := uint64(text[p-1]) * 0x0101010101010101
		for ; p < end; p += 8 {
			binary.LittleEndian.PutUint64(text[p:], w)
		}
		return
	case distance < 8: // what is repeated is repeated at a multiple of its length, too
		wide := distance * (7/distance + 1)
		for i := range wide {
			text[p+i] = text[p+i-distance]
		}
		p, distance = p+wide, wide
	}
	for ; p < end; p += 8 {
		binary.LittleEndian.PutUint64(text[p:], binary.LittleEndian.Uint64(text[p-distance:]))
	}
}

// copy16 copies 16 bytes, in a load and a store.
func copy16(text []byte, to, from int) { *(*[16]byte)(text[to:]) = *(*[16]byte)(text[from:]) }

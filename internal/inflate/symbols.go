package inflate

import "encoding/binary"

// A symbol takes two bytes, the lower one first: a byte of text, or the place in the unknown text before it that it is
// copied from. history symbols stand for that text.
const (
	symbolBytes = 2
	unknown     = 0x8000
	beforeBytes = history * symbolBytes
)

// before writes the symbols that stand for the text before the first block.
func before(to []byte) {
	for i := range history {
		binary.LittleEndian.PutUint16(to[i*symbolBytes:], uint16(unknown|i))
	}
}

// symbols decodes to to[p:], as symbols, what bytes decodes as text. p counts bytes. to begins with what before writes,
// and d.low becomes the first symbol that a match reaches back to.
func (d *decoder) symbols(to []byte, p int) (int, stop) {
	for {
		switch d.state {
		case inHeader:
			if why := d.begin(); why != atBlock {
				return p, why
			}
		case inStored:
			n := min(d.left, len(d.in)-d.bit/8, (len(to)-p)/symbolBytes)
			for _, b := range d.in[d.bit/8:][:n] {
				binary.LittleEndian.PutUint16(to[p:], uint16(b))
				p += symbolBytes
			}
			d.left, d.bit = d.left-n, d.bit+8*n
			switch {
			case d.left == 0:
				return p, d.ends()
			case p == len(to):
				return p, full
			}
			return p, starved
		case inCodes:
			p = d.manySymbols(to, p)
			s, why := d.one()
			switch {
			case why != atBlock:
				return p, why
			case s.length < 0:
				d.bit = s.next
				return p, d.ends()
			case (len(to)-p)/symbolBytes < max(1, s.length):
				return p, full
			case s.length == 0:
				binary.LittleEndian.PutUint16(to[p:], uint16(s.literal))
				p += symbolBytes
			default:
				distance := s.distance * symbolBytes
				d.low = min(d.low, (p-distance)/symbolBytes)
				for end := p + s.length*symbolBytes; p < end; p++ {
					to[p] = to[p-distance]
				}
			}
			d.bit = s.next
		}
	}
}

// manySymbols is manyBytes for symbols.
func (d *decoder) manySymbols(to []byte, p int) int {
	in, lit, dist := d.in, &d.lit, &d.dist
	at, mostAt, mostP := d.bit>>3, len(in)-turnIn, len(to)-turnOut*symbolBytes
	if at > mostAt || p > mostP {
		return p
	}
	low := d.low * symbolBytes
	buf, n := binary.LittleEndian.Uint64(in[at:])>>(d.bit&7), uint(56-d.bit&7)
	at += 7
	stopped := at*8 - int(n)
	for at <= mostAt && p <= mostP {
		buf |= binary.LittleEndian.Uint64(in[at:]) << (n & 63)
		at += int((63 - n) >> 3)
		n |= 56
		e := lit[buf&(1<<litBits-1)]
		if e&kindMask == isLiterals {
			binary.LittleEndian.PutUint64(to[p:], spread(e))
			p += int(e>>countShift&countMask) * symbolBytes
			buf >>= e & usedMask
			n -= uint(e & usedMask)
			e = lit[buf&(1<<litBits-1)]
			if e&kindMask == isLiterals {
				binary.LittleEndian.PutUint64(to[p:], spread(e))
				p += int(e>>countShift&countMask) * symbolBytes
				buf >>= e & usedMask
				n -= uint(e & usedMask)
				e = lit[buf&(1<<litBits-1)]
				if e&kindMask == isLiterals {
					binary.LittleEndian.PutUint64(to[p:], spread(e))
					p += int(e>>countShift&countMask) * symbolBytes
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
				binary.LittleEndian.PutUint16(to[p:], uint16(byte(e>>moreShift)))
				p += symbolBytes
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
		distance := (int(e>>leastShift) + int(buf&(1<<more-1))) * symbolBytes
		buf >>= more
		n -= uint(e&usedMask + more)
		if p-distance < low {
			low = p - distance
		}
		end := p + length*symbolBytes
		copySymbols(to, p, distance, end)
		p = end
		stopped = at*8 - int(n)
	}
	d.bit, d.low = stopped, low/symbolBytes
	return p
}

// spread makes four symbols of the literals of an entry, of which the last is none.
func spread(e uint32) uint64 {
	x := uint64(e >> moreShift)
	return x&0xff | x&0xff00<<8 | x&0xff0000<<16
}

// copySymbols copies a match to to[p:end]. It may write 31 bytes behind it.
func copySymbols(to []byte, p, distance, end int) {
	if distance >= 16 {
		copy16(to, p, p-distance)
		copy16(to, p+16, p+16-distance)
		for p += 32; p < end; p += 16 {
			copy16(to, p, p-distance)
		}
		return
	}
	if distance < 8 {
		wide := distance * (7/distance + 1)
		for i := 0; i < wide; i += symbolBytes {
			binary.LittleEndian.PutUint16(to[p+i:], binary.LittleEndian.Uint16(to[p+i-distance:]))
		}
		p, distance = p+wide, wide
	}
	for ; p < end; p += 8 {
		binary.LittleEndian.PutUint64(to[p:], binary.LittleEndian.Uint64(to[p-distance:]))
	}
}

// meaning is what each symbol stands for, once the text before is known.
type meaning [1 << 16]byte

// set has the symbols of text before the first block stand for the end of window.
func (m *meaning) set(window []byte) {
	if m[1] == 0 {
		for i := range 256 {
			m[i] = byte(i)
		}
	}
	copy(m[len(m)-len(window):], window)
}

// four makes four bytes of four symbols.
func (m *meaning) four(x uint64) uint64 {
	return uint64(m[uint16(x)]) | uint64(m[uint16(x>>16)])<<8 | uint64(m[uint16(x>>32)])<<16 | uint64(m[x>>48])<<24
}

// resolve makes text of symbols, in place: text is the first half of what it gets.
func resolve(symbols []byte, m *meaning) (text []byte) {
	n := len(symbols) / symbolBytes
	i := 0
	for ; i+8 <= n; i += 8 {
		from := symbols[i*symbolBytes : i*symbolBytes+16]
		a, b := binary.LittleEndian.Uint64(from), binary.LittleEndian.Uint64(from[8:])
		if (a|b)&0x8000800080008000 == 0 {
			a, b = a|a>>8, b|b>>8
			a, b = a&0xffff|a>>16&0xffff0000, b&0xffff|b>>16&0xffff0000
			a |= b << 32
		} else {
			a = m.four(a) | m.four(b)<<32
		}
		binary.LittleEndian.PutUint64(symbols[i:], a)
	}
	for ; i < n; i++ {
		symbols[i] = m[binary.LittleEndian.Uint16(symbols[i*symbolBytes:])]
	}
	return symbols[:n]
}

package kmers

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"math/bits"
	"slices"
)

// A part of a file is coded: mixes are hashes, so of n that are sorted the high bits tell little, and the low bits all.
// A mix is the part's number, then `high` bits, about as many as n has, then low bits.
//
//	low      the low bits of each mix, packed; words of 64 bits
//	high     a bit for each mix, at its high bits' value and the number of mixes before it (Elias and Fano)
//	second   of mixes of two words, the second of each
//	codes    of each count, less the part's least: Width bits, packed. All ones: it is among the large ones
//	large    the counts, of four bytes, that Width does not hold
//
// Of 21-mers of genomes that takes 5.1 bytes for a mix and a quarter for a count, where 8 and 4 did. A part is read and
// checked whole; of 50 million k-mers it has 120 KB.
type partHeader struct {
	N     uint64
	Sum   uint32 // CRC-32C of the part
	Large uint32 // how many counts are large
	Least uint32 // the least count
	Width uint32 // of codes: 1, 2, 4, 8 or 16
}

// plainHeader is a part's header in versions 1 and 2.
type plainHeader struct {
	N   uint64
	Sum uint32
	_   uint32
}

var errCoded = errors.New("its numbers do not fit together: the file is damaged")

// highBits is how many bits of a mix n of them tell by their places.
func highBits(n uint64) int { return min(max(bits.Len64(n)-1, 0), 64-partBits) }

func packedBytes(n uint64, width int) int64 { return int64(n*uint64(width)+63) / 64 * 8 }

// sizes are the bytes of a part's low and high bits, second words, and codes. N is no more than a file has bits.
func (p *partHeader) sizes(words int) (low, high, second, codes int64) {
	if p.N == 0 {
		return 0, 0, 0, 0
	}
	b := highBits(p.N)
	return packedBytes(p.N, 64-partBits-b), packedBytes(p.N+1<<b, 1), 8 * int64(words-1) * int64(p.N),
		packedBytes(p.N, int(p.Width))
}

// bytes is how long a part is; an error if it cannot be one of so many bytes at most.
func (p *partHeader) bytes(words int, most int64) (int64, error) {
	switch p.Width {
	case 1, 2, 4, 8, 16:
	default:
		if p.N > 0 {
			return 0, errCoded
		}
	}
	if uint64(p.Large) > p.N {
		return 0, errCoded
	}
	if p.N > uint64(most) { // a k-mer takes more than a byte, and there are no sums beyond 64 bits below
		return 0, errShort
	}
	low, high, second, codes := p.sizes(words)
	if n := low + high + second + codes + 4*int64(p.Large); n <= most {
		return n, nil
	}
	return 0, errShort
}

var errShort = errors.New("too few bytes")

// spread is how counts of a part spread: how many are of so many bits, less the least, and as numbers of which one more
// is none.
type spread [33]uint64

func (s *spread) add(count, least uint32) { s[bits.Len64(uint64(count-least)+1)%len(s)]++ }

// width is that of codes which take the fewest bytes, and how many counts are then large.
func (s *spread) width(n int) (width, large uint32) {
	best := int64(math.MaxInt64)
	for _, w := range []int{1, 2, 4, 8, 16} {
		longer := s[0] // 2³² has one bit too many for the list, and is at its begin
		for _, more := range s[w+1:] {
			longer += more
		}
		if bytes := packedBytes(uint64(n), w) + 4*int64(longer); bytes < best {
			best, width, large = bytes, uint32(w), uint32(longer)
		}
	}
	return width, large
}

// code appends a part to memory: of counts that are least or more, and spread so.
func (x counted) code(to []byte, least uint32, s *spread) ([]byte, partHeader) {
	n := len(x.counts)
	if n == 0 {
		return to, partHeader{}
	}
	from, h := len(to), partHeader{N: uint64(n), Least: least}
	h.Width, h.Large = s.width(n)
	low, high, second, codes := h.sizes(x.words)
	to = slices.Grow(to, int(low+high+second+codes)+4*int(h.Large))[:from+int(low+high+second+codes)]
	x.codeMixes(highBits(h.N), to[from:from+int(low)], to[from+int(low):from+int(low+high)])
	if x.words > 1 {
		seconds := to[from+int(low+high):]
		for i := range n {
			binary.LittleEndian.PutUint64(seconds[8*i:], x.mixes[2*i+1])
		}
	}
	to = x.codeCounts(to[from+int(low+high+second):], to, h.Least, int(h.Width))
	h.Sum = crc32.Checksum(to[from:], castagnoli)
	return to, h
}

// codeMixes codes the first words of mixes. Words are written when they are full: to be changed, they would have to be
// waited for.
func (x counted) codeMixes(b int, low, high []byte) {
	width, mask := 64-partBits-b, uint64(1)<<(64-partBits-b)-1
	var word, ones, at uint64
	full, n := 0, 0
	for i := 0; i < len(x.mixes); i += x.words {
		m := x.mixes[i]
		v := m & mask
		word |= v << n
		if n += width; n >= 64 {
			binary.LittleEndian.PutUint64(low[full:], word)
			full += 8
			n -= 64
			word = v >> (width - n) // where nothing is left, the shift gives 0
		}
		place := uint64(i/x.words) + m<<partBits>>1>>(63-b)
		for place/64 > at {
			binary.LittleEndian.PutUint64(high[8*at:], ones)
			ones = 0
			at++
		}
		ones |= 1 << (place % 64)
	}
	if n > 0 {
		binary.LittleEndian.PutUint64(low[full:], word)
	}
	for ; 8*at < uint64(len(high)); at++ {
		binary.LittleEndian.PutUint64(high[8*at:], ones)
		ones = 0
	}
}

// codeCounts codes counts, and appends those that are large.
func (x counted) codeCounts(codes, to []byte, least uint32, width int) []byte {
	most, each, full := uint64(1)<<width-1, 64/width, 0
	for rest := x.counts; len(rest) > 0; full += 8 {
		some := rest[:min(each, len(rest))]
		rest = rest[len(some):]
		word := uint64(0)
		for i, c := range some {
			code := uint64(c - least)
			if code >= most {
				code = most
				to = binary.LittleEndian.AppendUint32(to, c)
			}
			word |= code << (i * width & 63)
		}
		binary.LittleEndian.PutUint64(codes[full:], word)
	}
	return to
}

// decode gives the k-mers of a part, whose bytes are as many as its header says. Without mixes, counts are all that it
// gives. Bytes of somebody who knows the checksum may say anything: what does not fit is an error.
func (h *partHeader) decode(part, words int, text []byte, mixes bool) (x counted, err error) {
	n := int(h.N)
	low, high, second, codes := h.sizes(words)
	x = counted{words: words}
	if mixes {
		x.mixes = make([]uint64, n*words)
		if err := x.decodeMixes(part, n, text[:low], text[low:low+high], text[low+high:low+high+second]); err != nil {
			return x, err
		}
	}
	x.counts = make([]uint32, n)
	text = text[low+high+second:]
	large, most, width := text[codes:], uint64(1)<<h.Width-1, int(h.Width)
	word := uint64(0)
	for i := range x.counts {
		if i*width%64 == 0 {
			word = binary.LittleEndian.Uint64(text[i*width/8:])
		}
		code := word & most
		word >>= width
		switch {
		case code < most && uint64(h.Least)+code <= math.MaxUint32:
			x.counts[i] = h.Least + uint32(code)
		case code < most || len(large) == 0:
			return x, errCoded
		default:
			x.counts[i], large = binary.LittleEndian.Uint32(large), large[4:]
		}
	}
	if len(large) > 0 {
		return x, errCoded
	}
	return x, nil
}

func (x counted) decodeMixes(part, n int, low, high, second []byte) error {
	b := highBits(uint64(n))
	width, mask := 64-partBits-b, uint64(1)<<(64-partBits-b)-1
	first, i, last, same := uint64(part)<<(64-partBits), 0, uint64(0), false
	word, left := uint64(0), 0 // of the low bits
	for at := 0; at < len(high); at += 8 {
		for ones := binary.LittleEndian.Uint64(high[at:]); ones != 0; ones &= ones - 1 {
			value := uint64(8*at+bits.TrailingZeros64(ones)) - uint64(i)
			if i == n || value>>b != 0 {
				return errCoded
			}
			v := word
			if word >>= width; left < width {
				word, low = binary.LittleEndian.Uint64(low), low[8:]
				v |= word << left
				word >>= width - left
				left += 64
			}
			left -= width
			m := first | value<<width | v&mask
			switch same = i > 0 && m == last; {
			case i > 0 && m < last || same && x.words == 1:
				return errCoded
			case x.words == 1:
				x.mixes[i] = m
			default:
				x.mixes[2*i], x.mixes[2*i+1] = m, binary.LittleEndian.Uint64(second[8*i:])
				if same && x.mixes[2*i+1] <= x.mixes[2*i-1] {
					return errCoded
				}
			}
			last = m
			i++
		}
	}
	if i < n {
		return errCoded
	}
	return nil
}

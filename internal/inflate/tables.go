package inflate

import "math/bits"

// Codes have at most 15 bits. The first bits of what comes next choose an entry of a table; codes that are longer have
// a second table for each of their beginnings. A beginning stands for two codes at least, and a code of 286 literals
// and lengths has so at most 143 second tables.
const (
	mostBits  = 15
	litBits   = 11
	distBits  = 9
	litCodes  = 286 // that mean something: 286 and 287 have codes in fixed blocks
	distCodes = 30
	fixedLits = 288
	fixedDist = 32

	litEntries  = 1<<litBits + fixedLits/2<<(mostBits-litBits)
	distEntries = 1<<distBits + fixedDist/2<<(mostBits-distBits)
)

// An entry of a table says what the bits that chose it mean:
//
//	bits 0–3    how many of the bits are used, of a second table without those that chose it
//	bits 4–5    literals: how many there are, 1 to 3
//	bits 6–7    0 literals, 1 a length or a distance, 2 anything else
//	bits 8–31   literals: they, the first one lowest
//	bits 8–11   a length or a distance: how many more bits are added to it
//	bits 16–31  a length or a distance: the least that it can be
//
// Of anything else, bits 8–11 say what it is, and bits 16–31 and 12–15 where its second table begins, and how many
// bits choose there.
const (
	usedMask    = 15
	kindMask    = 3 << 6
	isLiterals  = 0 << 6
	isMatch     = 1 << 6
	isOther     = 2 << 6
	countShift  = 4
	countMask   = 3
	moreShift   = 8
	moreMask    = 15
	leastShift  = 16
	subShift    = 12
	otherEnd    = isOther | 0<<moreShift // of the block
	otherSecond = isOther | 1<<moreShift
	otherWrong  = isOther | 2<<moreShift // a symbol that means nothing
	otherNone   = isOther | 3<<moreShift // no code
)

// litMeans and distMeans are the entries of symbols, without how many bits they use.
var litMeans, distMeans = meanings()

func meanings() (lit [fixedLits]uint32, dist [fixedDist]uint32) {
	for i := range 256 {
		lit[i] = uint32(i)<<moreShift | 1<<countShift | isLiterals
	}
	lit[256] = otherEnd
	least := 3
	for i := 257; i < 285; i++ {
		more := max(0, (i-261)/4)
		lit[i] = uint32(least)<<leastShift | uint32(more)<<moreShift | isMatch
		least += 1 << more
	}
	lit[285] = 258<<leastShift | isMatch
	lit[286], lit[287] = otherWrong, otherWrong
	least = 1
	for i := range distCodes {
		more := max(0, (i-2)/2)
		dist[i] = uint32(least)<<leastShift | uint32(more)<<moreShift | isMatch
		least += 1 << more
	}
	dist[30], dist[31] = otherWrong, otherWrong
	return lit, dist
}

// build makes a table of the lengths of codes, of which the first bits choose. least is the length of the shortest
// code. It is false where lengths are those of no code: all patterns of bits must mean something, but for a code of one
// symbol with one bit, and one of no symbols.
func build(table, means []uint32, lengths []uint8, first int) (least int, ok bool) {
	var count, next [mostBits + 1]int
	for _, n := range lengths {
		count[n]++
	}
	most, code := 0, 0
	count[0] = 0
	for n := 1; n <= mostBits; n++ {
		code <<= 1
		next[n] = code
		code += count[n]
		if count[n] > 0 {
			most = n
			if least == 0 {
				least = n
			}
		}
	}
	used := code >> (mostBits - most) // of the patterns of so many bits
	if most > 0 && used != 1<<most && !(most == 1 && used == 1) {
		return least, false
	}
	root := table[:1<<first]
	if most <= 1 {
		for i := range root {
			root[i] = otherNone
		}
	}
	second, free := most-first, len(root)
	if second > 0 { // longer codes are the last, and so are their beginnings
		for begin := next[first+1] >> 1; begin < 1<<first; begin++ {
			root[reversed(begin, first)] = uint32(free)<<leastShift | uint32(second)<<subShift | otherSecond |
				uint32(first)
			free += 1 << second
		}
	}
	for symbol, n := range lengths {
		if n == 0 {
			continue
		}
		n := int(n)
		at, e := reversed(next[n], n), means[symbol]|uint32(n)
		next[n]++
		if n <= first {
			for ; at < len(root); at += 1 << n {
				root[at] = e
			}
			continue
		}
		from := root[at&(len(root)-1)] >> leastShift
		sub := table[from : from+1<<second]
		e -= uint32(first)
		for at >>= first; at < len(sub); at += 1 << (n - first) {
			sub[at] = e
		}
	}
	return least, true
}

// reversed is the first n bits of a code in the order in which they come.
func reversed(code, n int) int { return int(bits.Reverse16(uint16(code)) >> (16 - n)) }

// merge makes entries of literals that stand for as many as their bits choose, and adds to lengths what is known of
// their further bits.
func merge(table *[litEntries]uint32) {
	var single [1 << litBits]uint32
	copy(single[:], table[:])
	for i, e := range single {
		used := e & usedMask
		switch e & kindMask {
		case isLiterals:
			second := single[i>>used]
			more := used + second&usedMask
			if second&kindMask != isLiterals || more > litBits {
				continue
			}
			e += second&^0xff<<8 + 1<<countShift + second&usedMask
			third := single[i>>more]
			if third&kindMask == isLiterals && more+third&usedMask <= litBits {
				e += third&^0xff<<16 + 1<<countShift + third&usedMask
			}
			table[i] = e
		case isMatch:
			n := e >> moreShift & moreMask
			if n == 0 || used+n > litBits {
				continue
			}
			least := e>>leastShift + uint32(i)>>used&(1<<n-1)
			table[i] = least<<leastShift | isMatch | (used + n)
		}
	}
}

package genome

import (
	"encoding/binary"
	"fmt"
)

// Letters of sequences are A to Z of either case, * (a stop), and - and . (gaps).

// wrongLetters tells what is wrong with a line of letters. Lines of other formats, such as + and qualities, would
// otherwise pass for letters of which nobody hears again.
func wrongLetters(line []byte) error {
	at := oddLetter(line)
	if at < 0 {
		return nil
	}
	switch b := line[at]; {
	case b == 0:
		return errZero
	case b == '\r':
		return errReturn
	case b == '+' && at == 0:
		return fmt.Errorf("a line %q, as records of FASTQ have, where letters should be: is FASTQ in the middle of "+
			"FASTA? want a file for each", clip(line))
	default:
		return fmt.Errorf("%q in a line of letters, %q: want A to Z, *, a dot or a dash", b, clip(line[max(0, at-8):]))
	}
}

// oddLetter is where the first byte stands that is no letter of a sequence; -1: there is none. It looks at eight bytes
// at once: parsing does little else.
func oddLetter(line []byte) int {
	at := 0
	for ; at+32 <= len(line); at += 32 {
		some := line[at : at+32]
		if notLetters(binary.LittleEndian.Uint64(some))|notLetters(binary.LittleEndian.Uint64(some[8:]))|
			notLetters(binary.LittleEndian.Uint64(some[16:]))|notLetters(binary.LittleEndian.Uint64(some[24:])) != 0 {
			break
		}
	}
	for ; at+8 <= len(line); at += 8 {
		if odd := notLetters(binary.LittleEndian.Uint64(line[at:])); odd != 0 {
			if i := oddByte(line[at : at+8]); i >= 0 {
				return at + i
			}
		}
	}
	if i := oddByte(line[at:]); i >= 0 {
		return at + i
	}
	return -1
}

// notLetters has the highest bit of each byte that is not A to Z or a to z.
func notLetters(w uint64) uint64 {
	const each = 0x0101010101010101
	low := (w | 0x20*each) &^ (0x80 * each) // of lower case, and without the highest bits: sums stay in their bytes
	atLeastA := low + (0x80-'a')*each
	aboveZ := low + (0x7f-'z')*each
	return (^atLeastA | aboveZ | w) & (0x80 * each)
}

func oddByte(b []byte) int {
	for i, x := range b {
		if y := x | 0x20; (y < 'a' || y > 'z') && x != '*' && x != '-' && x != '.' {
			return i
		}
	}
	return -1
}

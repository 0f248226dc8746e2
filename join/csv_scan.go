package join

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// dialect is how the fields of CSV stand in a file.
type dialect struct {
	delimiter byte
	quote     byte     // 0 where no field is in quotes
	nulls     []string // fields that are nulls, beside the empty one, where they have no quotes
	headless  bool     // the first record is a row
}

// words are eight delimiters, and eight quotes, or delimiters again where there are none.
func (d dialect) words() (delimiters, quotes uint64) {
	delimiters, quotes = uint64(d.delimiter)*eachByte, uint64(d.quote)*eachByte
	if d.quote == 0 {
		quotes = delimiters
	}
	return delimiters, quotes
}

// csvTokens are the fields of a block of CSV (RFC 4180; lines may also end in a line feed or a carriage return alone).
// A quote inside a field that does not begin with one is an ordinary character.
type csvTokens struct {
	dialect
	b      []byte
	n      int // fields of a row
	rows   int
	starts []uint32 // where each field begins, behind its quote
	ends   []uint32 // where it ends, before its quote
	from   []byte   // for fields with quotes in them
}

// A field's start tells whether it is quoted, and its end whether it has quotes in it, which are doubled.
const (
	csvQuoted  = 1 << 31
	csvDoubled = 1 << 31
	csvPlace   = 1<<31 - 1
)

// field is the field of a row and column, as it is when nothing is quoted.
func (t *csvTokens) field(row, column int) (f []byte, quoted bool) {
	i := row*t.n + column
	s, e := t.starts[i], t.ends[i]
	f = t.b[s&csvPlace : e&csvPlace]
	if e >= csvDoubled {
		t.from = t.from[:0]
		for {
			q := bytes.IndexByte(f, t.quote)
			if q < 0 {
				break
			}
			t.from = append(t.from, f[:q+1]...)
			f = f[q+2:]
		}
		t.from = append(t.from, f...)
		f = t.from
	}
	return f, s >= csvQuoted
}

// null tells whether a field is a null.
func (t *csvTokens) null(f []byte, quoted bool) bool {
	return !quoted && (len(f) == 0 || t.nulls != nil && slices.Contains(t.nulls, string(f)))
}

// place is where a field stands in the block.
func (t *csvTokens) place(row, column int) int { return int(t.starts[row*t.n+column] & csvPlace) }

const (
	eachByte = 0x0101010101010101
	lowBits  = 0x7f7f7f7f7f7f7f7f
)

// zeroBytes has the high bit of each byte of w that is zero.
func zeroBytes(w uint64) uint64 { return ^((w & lowBits) + lowBits | w | lowBits) }

// scan finds the fields of b, which is whole records of n fields each. Blank lines are passed over, unless n is 1.
// Where n is 0 it finds the first record alone, whatever its fields, and tells its end.
func (t *csvTokens) scan(b []byte, d dialect, n int) (end int, err error) {
	t.b, t.dialect = b, d
	t.empty(n)
	starts, ends := t.starts, t.ends
	k, row := 0, 0 // fields so far, and those of whole rows
	start, begun := 0, 0
	// line ends the row that began at begun.
	line := func() error {
		if got := k - row; got != n && n != 0 {
			if got == 1 && starts[row] == ends[row] { // a quoted one's bits differ
				k = row
				return nil
			}
			return at(b, begun, fmt.Errorf("%d fields, where the header has %d", got, n))
		}
		row = k
		t.rows++
		return nil
	}
	delimiter, quote := d.delimiter, d.quote
	wanted, quotes := d.words()
	for i := 0; i < len(b); {
		var w uint64
		if i+8 <= len(b) {
			w = binary.LittleEndian.Uint64(b[i:])
		} else {
			w = lastWord(b[i:])
		}
		m := zeroBytes(w^wanted) | zeroBytes(w^'\n'*eachByte) | zeroBytes(w^'\r'*eachByte) | zeroBytes(w^quotes)
		base := i
		for i += 8; m != 0; m &= m - 1 {
			if k == len(starts) {
				starts, ends = t.grow()
			}
			p := base + bits.TrailingZeros64(m)>>3
			c := b[p]
			if c == delimiter {
				starts[k], ends[k] = uint32(start), uint32(p)
				k++
				start = p + 1
				continue
			}
			if c == quote {
				if p != start {
					continue
				}
				close, doubled, ok := closing(b, p+1, quote)
				if !ok {
					return 0, at(b, begun, errors.New("a quoted field without its closing quote"))
				}
				starts[k], ends[k] = uint32(p+1)|csvQuoted, uint32(close)|doubled
				k++
				p = close + 1
				start, i, m = p+1, p+1, 0
				if p < len(b) && b[p] == delimiter {
					break
				}
				if p < len(b) && b[p] != '\n' && b[p] != '\r' {
					return 0, at(b, begun, fmt.Errorf("column %d: text after a closing quote", k-row))
				}
			} else {
				if c == '\n' && p == start && p > 0 && b[p-1] == '\r' && k == row { // the second half of a line's end
					start, begun = p+1, p+1
					continue
				}
				starts[k], ends[k] = uint32(start), uint32(p)
				k++
				start = p + 1
			}
			if err := line(); err != nil {
				return 0, err
			}
			begun = start
			if n == 0 {
				if p < len(b)-1 && b[p] == '\r' && b[p+1] == '\n' {
					p++
				}
				t.n = k
				return min(p+1, len(b)), nil
			}
			if m == 0 {
				break
			}
		}
	}
	if start < len(b) || start == len(b) && k > row { // the last line has no end
		if k == len(starts) {
			starts, ends = t.grow()
		}
		starts[k], ends[k] = uint32(start), uint32(len(b))
		k++
		if err := line(); err != nil {
			return 0, err
		}
		if n == 0 {
			t.n = k
		}
	}
	return len(b), nil
}

// lastWord is fewer than 8 bytes, with zeros behind.
func lastWord(b []byte) uint64 {
	var w [8]byte
	copy(w[:], b)
	return binary.LittleEndian.Uint64(w[:])
}

// empty begins with no rows, of n fields each.
func (t *csvTokens) empty(n int) {
	if len(t.starts) == 0 {
		t.starts, t.ends = make([]uint32, 1<<10), make([]uint32, 1<<10)
	}
	t.n, t.rows = n, 0
}

// upTo adds rows without values, up to so many in all.
func (t *csvTokens) upTo(rows int) {
	if rows <= t.rows {
		return
	}
	for len(t.starts) < rows*t.n {
		t.grow()
	}
	clear(t.starts[t.rows*t.n : rows*t.n])
	clear(t.ends[t.rows*t.n : rows*t.n])
	t.rows = rows
}

// grow makes room for twice as many fields.
func (t *csvTokens) grow() (starts, ends []uint32) {
	t.starts = append(t.starts, make([]uint32, len(t.starts))...)
	t.ends = append(t.ends, make([]uint32, len(t.ends))...)
	return t.starts, t.ends
}

// closing finds the quote that closes a field, and tells whether quotes in it are doubled.
func closing(b []byte, from int, quote byte) (at int, doubled uint32, ok bool) {
	for i := from; ; i += 2 {
		q := bytes.IndexByte(b[i:], quote)
		if q < 0 {
			return 0, 0, false
		}
		i += q
		if i+1 == len(b) || b[i+1] != quote {
			return i, doubled, true
		}
		doubled = csvDoubled
	}
}

// lastRecord is the end of the last record in b, which begins with one, that is known to be whole.
func lastRecord(b []byte, d dialect) (end int) {
	delimiter := d.delimiter
	for i := 0; ; {
		q := -1
		if d.quote != 0 {
			q = bytes.IndexByte(b[i:], d.quote)
		}
		if q < 0 {
			if e := lastLine(b[i:]); e > 0 {
				end = i + e
			}
			return end
		}
		q += i
		if e := lastLine(b[i:q]); e > 0 {
			end = i + e
		}
		if q > 0 && b[q-1] != delimiter && b[q-1] != '\n' && b[q-1] != '\r' {
			i = q + 1
			continue
		}
		if q > 0 && b[q-1] != delimiter { // the line before ends at the quote
			end = q
		}
		close, _, ok := closing(b, q+1, d.quote)
		if !ok || close+1 == len(b) {
			return end
		}
		i = close + 1
	}
}

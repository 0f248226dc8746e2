package join

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonScan finds the members of JSON lines. It checks and passes over eight bytes at a time. A line that it does not
// know to be right goes to a decoder, which is slower by far, and says what is wrong.
type jsonScan struct {
	// column gives the column of a name, or a number below 0 if nobody wants its values. It is asked once for each
	// name, unless it gives an error.
	column func(name string) (int, error)

	names   []jsonName // the first stands for a line's beginning
	places  map[string]int
	members []jsonMember // of the present line
	lines   int64        // that each has passed
	decoder *jsontext.Decoder

	anyBytes bool // nothing need be UTF-8
}

// jsonName is a name of members.
type jsonName struct {
	quoted string // as most lines have it
	column int
	row    int // the last that had it, from 1
	next   int // the name that came behind it last; 0 for none
}

// jsonMember is a member whose value is wanted.
type jsonMember struct{ column, from, to int }

func newJSONScan(column func(name string) (int, error), anyBytes bool) *jsonScan {
	return &jsonScan{column: column, names: make([]jsonName, 1), places: map[string]int{},
		decoder: jsontext.NewDecoder(bytes.NewReader(nil)), anyBytes: anyBytes}
}

// each calls member with the members of the objects in b, one a line: the row, the column, the value, and where in b
// the line begins.
func (s *jsonScan) each(b []byte, member func(row, column int, value []byte, place int) error) (rows int, err error) {
	valid := s.anyBytes || utf8.Valid(b)
	for from := 0; from < len(b); s.lines++ {
		end := 0
		if valid {
			end = s.line(b, from, rows)
		}
		if end > 0 {
			for _, m := range s.members {
				if err := member(rows, m.column, b[m.from:m.to], from); err != nil {
					return rows, at(b, from, err)
				}
			}
			rows++
			from = end
			continue
		}
		to := len(b)
		if i := bytes.IndexByte(b[from:], '\n'); i >= 0 {
			to = from + i
		}
		line := bytes.TrimPrefix(b[from:to], bom)
		if len(bytes.Trim(line, " \t\r")) > 0 {
			err := s.decode(line, func(column int, value []byte) error { return member(rows, column, value, from) })
			if err != nil {
				return rows, at(b, from, err)
			}
			rows++
		}
		from = to + 1
	}
	return rows, nil
}

// line finds the members of an object that are wanted, in UTF-8 if that must be, and gives the end of its line, or 0 if
// the decoder should look.
func (s *jsonScan) line(b []byte, i, row int) (end int) {
	s.members = s.members[:0]
	if i = blanks(b, i); i == len(b) || b[i] != '{' {
		return 0
	}
	if i = blanks(b, i+1); i < len(b) && b[i] == '}' {
		return lineEnd(b, i+1)
	}
	for last := 0; ; {
		n := s.names[last].next
		if q := s.names[n].quoted; n == 0 || len(b)-i < len(q) || string(b[i:i+len(q)]) != q {
			if n = s.name(b, i); n == 0 {
				return 0
			}
			s.names[last].next = n
		}
		name := &s.names[n]
		if name.row > row { // it came in this line before
			return 0
		}
		name.row = row + 1
		if i = blanks(b, i+len(name.quoted)); i == len(b) || b[i] != ':' {
			return 0
		}
		from := blanks(b, i+1)
		to := valueEnd(b, from)
		if to == 0 {
			return 0
		}
		if name.column >= 0 {
			s.members = append(s.members, jsonMember{name.column, from, to})
		}
		if i = blanks(b, to); i == len(b) {
			return 0
		}
		switch b[i] {
		case ',':
			i = blanks(b, i+1)
		case '}':
			return lineEnd(b, i+1)
		default:
			return 0
		}
		last = n
	}
}

// name finds the number of a name that has no escapes; 0 if there is none.
func (s *jsonScan) name(b []byte, i int) int {
	if i == len(b) || b[i] != '"' {
		return 0
	}
	end := stringEnd(b, i+1)
	if end == 0 || bytes.IndexByte(b[i:end], '\\') >= 0 {
		return 0
	}
	n, err := s.named(b[i+1 : end-1])
	if err != nil { // the decoder finds it, too
		return 0
	}
	return n
}

// named gives the number of a name.
func (s *jsonScan) named(name []byte) (n int, err error) {
	if n, ok := s.places[string(name)]; ok {
		return n, nil
	}
	c, err := s.column(string(name))
	if err != nil {
		return 0, err
	}
	n = len(s.names)
	s.names = append(s.names, jsonName{quoted: `"` + string(name) + `"`, column: c})
	s.places[string(name)] = n
	return n, nil
}

// decode calls member with the members of a line that are wanted.
func (s *jsonScan) decode(line []byte, member func(column int, value []byte) error) error {
	d := s.decoder
	d.Reset(bytes.NewBuffer(line), jsontext.AllowInvalidUTF8(s.anyBytes))
	t, err := d.ReadToken()
	if err != nil {
		return plainly(err)
	}
	if t.Kind() == '[' {
		return errors.New("an array, where each line should be an object: jq -c '.[]' makes such lines of an array")
	}
	if t.Kind() != '{' {
		return fmt.Errorf("%s, where each line should be an object", t)
	}
	var name []byte
	for d.PeekKind() == '"' {
		v, err := d.ReadValue()
		if err != nil {
			return plainly(err)
		}
		if name, err = textOf(name[:0], v); err != nil {
			return err
		}
		if v, err = d.ReadValue(); err != nil {
			return plainly(err)
		}
		n, err := s.named(name)
		if err != nil {
			return err
		}
		if c := s.names[n].column; c >= 0 {
			if err := member(c, v); err != nil {
				return err
			}
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return plainly(err)
	}
	if _, err := d.ReadToken(); err == nil {
		return errors.New("more than one value in a line")
	} else if err != io.EOF {
		return plainly(err)
	}
	return nil
}

// plainly is what a decoder says of a line, without what it says of itself.
func plainly(err error) error {
	var s *jsontext.SyntacticError
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("not JSON: the line ends before the object does")
	} else if errors.As(err, &s) {
		return fmt.Errorf("not JSON: %w, behind %d bytes", s.Err, s.ByteOffset)
	}
	return err
}

// blanks passes over blanks within a line, of which most lines have none.
func blanks(b []byte, i int) int {
	if i < len(b) && b[i] <= ' ' {
		return blanksEnd(b, i)
	}
	return i
}

func blanksEnd(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// lineEnd is where the next line begins, if nothing but blanks comes before that; else 0.
func lineEnd(b []byte, i int) int {
	if i = blanks(b, i); i == len(b) {
		return i
	} else if b[i] == '\n' {
		return i + 1
	}
	return 0
}

// valueEnd is the end of the value that begins there, if it is right; else, or if the decoder should look, 0.
func valueEnd(b []byte, i int) int {
	if i == len(b) {
		return 0
	}
	switch b[i] {
	case '"':
		return stringEnd(b, i+1)
	case '{', '[':
		return nestedEnd(b, i)
	case 't':
		return wordEnd(b, i, "true")
	case 'f':
		return wordEnd(b, i, "false")
	case 'n':
		return wordEnd(b, i, "null")
	}
	return numberEnd(b, i)
}

func wordEnd(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return 0
	}
	return i + len(word)
}

// numberEnd is valueEnd of a number: -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?
func numberEnd(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	end := digitsEnd(b, i)
	if end == i || b[i] == '0' && end > i+1 {
		return 0
	}
	if i = end; i < len(b) && b[i] == '.' {
		if end = digitsEnd(b, i+1); end == i+1 {
			return 0
		}
		i = end
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '-' || b[i] == '+') {
			i++
		}
		if end = digitsEnd(b, i); end == i {
			return 0
		}
	}
	return end
}

func digitsEnd(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

// stringEnd is behind the quote that ends the string whose text begins there. It is 0 for a string with escapes of
// numbers, with control characters, or in the last bytes of b, which the decoder should look at.
func stringEnd(b []byte, i int) int {
	const high = 0x80 * eachByte
	for i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, escape := w^'"'*eachByte, w^'\\'*eachByte
		// The lowest bit is that of the first such byte; those above it may be wrong.
		m := ((quote-eachByte)&^quote | (escape-eachByte)&^escape | (w-' '*eachByte)&^w) & high
		if m == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(m) / 8
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			if i+1 == len(b) || bytes.IndexByte([]byte(`"\/bfnrt`), b[i+1]) < 0 {
				return 0
			}
			i += 2
		default:
			return 0
		}
	}
	return 0
}

// mostNested is how deep values may be that are looked at one by one: the decoder bounds how deep a whole line is.
const mostNested = 1000

// nestedEnd is valueEnd of an object or an array.
func nestedEnd(b []byte, from int) int {
	depth := 0
	for i := from; i < len(b); i++ {
		switch b[i] {
		case '"':
			if i = stringEnd(b, i+1) - 1; i < 0 {
				return 0
			}
		case '{', '[':
			if depth++; depth > mostNested {
				return 0
			}
		case '}', ']':
			if depth--; depth > 0 {
				continue
			}
			if !jsontext.Value(b[from : i+1]).IsValid() {
				return 0
			}
			return i + 1
		case '\n':
			return 0
		}
	}
	return 0
}

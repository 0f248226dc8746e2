package inflate

import (
	"bytes"
	"errors"
	"io"
	"math"
)

// Sequence unpacks gzip data in a row, and takes chunks where they fit.
type Sequence struct {
	d      decoder
	place  place
	base   int64  // the offset of the input
	member int64  // where the data of the member begins
	text   []byte // a window, then what is new
	p      int    // text[:p] is there
	from   int    // matches reach back to text[from:]
	given  int    // text[given:p] is for Text
	ends   []end
	spare  []byte // for a window
	out    Text
}

// NewSequence makes a Sequence that has room for so many bytes of text at a time, at least 1 KiB. Memory: these, and
// 150 KiB.
func NewSequence(room int) *Sequence {
	return &Sequence{text: make([]byte, history+room), place: atMember}
}

// Input has the sequence go on in other memory, which holds what comes from an offset on. That must be the offset of
// Needs, or before it, but not before the offset of the first input.
func (s *Sequence) Input(in []byte, base int64) {
	s.d.bit -= int(base-s.base) * 8
	s.d.in, s.base = in, base
}

// Needs is the offset of the first byte that is still needed.
func (s *Sequence) Needs() int64 { return s.base + int64(s.d.bit/8) }

// Why says why a Sequence does not go on.
type Why byte

const (
	Placed  Why = iota // it has come to the place that it was to go to
	Full               // there is no more room before Text is called
	Starved            // it needs more input
)

// Next unpacks up to a place between blocks or members that lies upTo bits or more behind the begin of the input, or
// until it must stop. last tells that nothing comes behind the input. Errors: io.EOF behind the last member;
// flate.CorruptInputError, with the number of bytes from the begin of the member's data; gzip.ErrHeader; ErrBehind;
// io.ErrUnexpectedEOF. There may be text before an error.
func (s *Sequence) Next(upTo int, last bool) (why Why, err error) {
	if s.given == s.p && s.p > history {
		keep := max(s.from, s.p-history)
		n := copy(s.text, s.text[keep:s.p])
		s.p, s.given, s.from = n, n, 0
	}
	for {
		switch {
		case s.d.state != inHeader || s.place == atTrailer:
		case s.place == atMember && s.d.bit >= upTo:
			return Placed, nil
		case s.place == atBlockHeader && settled(s.d.in, s.d.bit) >= upTo:
			// The header may begin before upTo: what lies there is not needed any more.
			s.d.bit = settled(s.d.in, s.d.bit)
			return Placed, nil
		}
		switch s.place {
		case atMember:
			err = s.begin(last)
		case atTrailer:
			err = s.end()
		default:
			var why stop
			s.p, why = s.d.bytes(s.text, s.p, s.from)
			switch why {
			case atEnd:
				s.place = atTrailer
			case full:
				return Full, nil
			case starved:
				err = errStarved
			case corrupt:
				return Full, errAt(s.base + int64(s.d.wrong) - s.member)
			}
		}
		switch {
		case err == nil:
		case !errors.Is(err, errStarved):
			return Full, err
		case last:
			return Full, io.ErrUnexpectedEOF
		default:
			return Starved, nil
		}
	}
}

// Rest goes on up to the end.
const Rest = math.MaxInt

// begin begins a member. What stands between members is told from what ends too early as gzip does.
func (s *Sequence) begin(last bool) error {
	in := s.d.in[s.d.bit/8:]
	zeros := len(in) - len(bytes.TrimLeft(in, "\x00"))
	s.d.bit += 8 * zeros
	in = in[zeros:]
	switch {
	case len(in) == 0 && last:
		return io.EOF
	case len(in) > 0 && in[0] != magic[0], len(in) > 1 && in[1] != magic[1]:
		return ErrBehind
	}
	n, err := header(in)
	if err != nil {
		return err
	}
	s.d.reset(s.d.in, s.d.bit+8*n)
	s.place, s.from, s.member = atBlockHeader, s.p, s.Needs()
	return nil
}

// end takes the trailer of a member.
func (s *Sequence) end() error {
	at := s.d.bit / 8
	if at+trailerBytes > len(s.d.in) {
		return errStarved
	}
	s.ends = append(s.ends, trailer(s.d.in[at:], s.p-s.given))
	s.d.bit += 8 * trailerBytes
	s.place = atMember
	return nil
}

// Text is what was unpacked since it was called last. It is good until the next call of Next or Take.
func (s *Sequence) Text() *Text {
	s.out = Text{Parts: [2][]byte{s.text[s.given:s.p]}, ends: append(s.out.ends[:0], s.ends...)}
	s.given, s.ends = s.p, s.ends[:0]
	return &s.out
}

// Take takes what a chunk has decoded of the input, if it begins here, and goes on behind it. The text up to here must
// have been taken; that of the chunk comes next. Otherwise it tells the bit of the input where the chunk begins, which
// is 0 where that is of no use.
func (s *Sequence) Take(c *Chunk) (at int, ok bool) {
	if !c.sound {
		return 0, false
	}
	here := s.d.bit
	if s.place == atBlockHeader && s.d.state == inHeader {
		here = settled(s.d.in, s.d.bit)
	}
	window := s.text[max(s.from, s.p-history):s.p]
	if s.place == atMember {
		window = nil
	}
	switch {
	case here > c.first.bit:
		return 0, false
	case here < c.first.bit:
		return c.first.bit, false
	case s.d.state != inHeader || s.place != c.first.place:
		return 0, false
	case !c.first.known && history-c.d.low > len(window):
		return 0, false // a match reaches back behind the begin of its member
	}
	s.spare = c.follow(window, s.spare[:0])
	n := copy(s.text, s.spare)
	s.p, s.given, s.from = n, n, 0
	s.place = c.here.place
	s.d.reset(s.d.in, c.here.bit)
	if c.here.member >= 0 {
		s.member = s.base + int64(c.here.member)
	}
	return 0, true
}

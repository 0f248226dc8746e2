package inflate

import (
	"encoding/binary"
	"sync/atomic"
)

const (
	// mostRatio bounds a chunk's memory: what has more bytes of text for each of its own is decoded in a row.
	mostRatio = 12
	// firstRatio is what there is room for at first.
	firstRatio = 8
	// headerTries and codeTries are how many bytes could be decoded in the time that a header takes that is none, and
	// one that has codes.
	headerTries, codeTries = 16, 4096
)

// Chunk is what is decoded of a piece of gzip data whose text before is not known. It can be used again and again.
type Chunk struct {
	d       decoder
	symbols []byte // behind those of before
	text    []byte // behind history bytes, which are what is before if that is known
	ends    []end
	first   mark
	here    mark // the last place: what was decoded behind it does not count
	sound   bool // the first place is one
	looked  int  // how many bytes of symbols there were when it was last tried to do without
	tried   int  // how much was done at places that are none, as bytes that were decoded
	meaning meaning
	out     Text
}

// mark is a place between blocks, and what a chunk has up to it.
type mark struct {
	bit    int
	place  place
	p      int  // symbols[:p]
	q      int  // text[:q]
	from   int  // matches reach back to text[from:]
	known  bool // the text before is known: bytes are decoded, and not symbols
	ends   int
	member int // where the data of the member begins; -1: before the chunk
}

// length is how many bytes of text there are.
func (m *mark) length() int { return (m.p-beforeBytes)/symbolBytes + m.q - history }

// Decode looks in the first bytes of in, of which there are piece, for a place where a block or a member begins, and
// decodes from there up to the first such place behind them. What comes behind the piece in in is what it may need for
// that. It ends soon once quit is set. To look takes a small part of the time, unless there is no such place: then it
// is about as long as decoding takes. Memory: up to 50 bytes for each of the piece, mostly 12.
func (c *Chunk) Decode(in []byte, piece int, quit *atomic.Bool) {
	if c.symbols == nil {
		c.symbols = make([]byte, beforeBytes+firstRatio*piece*symbolBytes)
		before(c.symbols)
	}
	c.sound = false
	f := newFinder(in, piece)
	for c.tried = 0; c.tried < mostRatio*piece && !quit.Load(); {
		bit, at, ok := f.find()
		if !ok {
			return
		}
		if c.from(in, piece, bit, at, quit); c.sound {
			return
		}
	}
}

// from decodes from a place on. What it takes for the beginning of a block is sound if there is a block with codes, for
// that is hardly ever so by chance.
func (c *Chunk) from(in []byte, piece, bit int, at place, quit *atomic.Bool) {
	c.first = mark{bit: bit, place: at, p: beforeBytes, q: history, from: history, known: at == atMember, member: -1}
	c.here, c.ends, c.looked, c.sound = c.first, c.ends[:0], beforeBytes, false
	for c.d.low = history; !quit.Load(); {
		if c.here.bit >= 8*piece && c.here.place != atTrailer {
			c.sound = true
			return
		}
		next := c.here
		if !c.step(in, mostRatio*piece, &next) {
			if c.tried += headerTries; c.d.state != inHeader {
				c.tried += codeTries + next.length()
			}
			return
		}
		c.here = next
	}
}

// step goes to the next place, and is false where it does not get there.
func (c *Chunk) step(in []byte, most int, m *mark) bool {
	switch at := m.bit / 8; m.place {
	case atMember:
		n, err := header(in[at:])
		if err != nil {
			return false
		}
		m.bit, m.place, m.member = m.bit+8*n, atBlockHeader, at+n
		m.known, m.from = true, m.q
	case atTrailer:
		if at+trailerBytes > len(in) {
			return false
		}
		c.ends = append(c.ends[:m.ends], trailer(in[at:], m.length()))
		m.bit, m.place, m.ends = m.bit+8*trailerBytes, atMember, len(c.ends)
	default:
		stored := peek(in, m.bit)>>1&3 == 0
		c.d.reset(in, m.bit)
		why := c.block(m, most)
		if why != atBlock && why != atEnd {
			return false
		}
		c.sound = c.sound || !stored || c.first.place == atMember
		if m.bit, m.place = c.d.bit, atTrailer; why == atBlock {
			m.bit, m.place = settled(in, c.d.bit), atBlockHeader
		}
		c.forget(m)
	}
	return true
}

// block decodes a block, and makes room for it.
func (c *Chunk) block(m *mark, most int) (why stop) {
	for {
		if m.known {
			c.needText()
			m.q, why = c.d.bytes(c.text, m.q, m.from)
		} else {
			m.p, why = c.d.symbols(c.symbols, m.p)
		}
		switch {
		case why != full || m.length() >= most:
			return why
		case m.known:
			c.text = twice(c.text)
		default:
			c.symbols = twice(c.symbols)
		}
	}
}

func (c *Chunk) needText() {
	if c.text == nil {
		c.text = make([]byte, history+len(c.symbols)/symbolBytes)
	}
}

func twice(x []byte) []byte {
	y := make([]byte, 2*len(x))
	copy(y, x)
	return y
}

// forget has bytes decoded from here on if no symbol that a match reaches is of the unknown text.
func (c *Chunk) forget(m *mark) {
	if m.known || m.p-c.looked < beforeBytes {
		return
	}
	c.looked = m.p
	last := c.symbols[m.p-beforeBytes : m.p]
	for i := len(last) - 8; i >= 0; i -= 8 {
		if binary.LittleEndian.Uint64(last[i:])&0x8000800080008000 != 0 {
			return
		}
	}
	c.needText()
	for i := range history {
		c.text[i] = last[i*symbolBytes]
	}
	m.known, m.from = true, 0
}

// Text is what the chunk has, once a Sequence has taken it. The sums are those of all of it. It is good until the chunk
// decodes something else. Time: a third of that of decoding.
func (c *Chunk) Text() *Text {
	c.out = Text{ends: c.ends[:c.here.ends], sums: c.out.sums}
	c.out.Parts[0] = resolve(c.symbols[beforeBytes:c.here.p], &c.meaning)
	if c.text != nil {
		c.out.Parts[1] = c.text[history:c.here.q]
	}
	c.out.sum()
	return &c.out
}

// follow has the chunk follow a window of text, and appends the window behind it to next.
func (c *Chunk) follow(window, next []byte) []byte {
	c.meaning.set(window)
	if c.here.known {
		c.needText()
		return append(next, c.text[max(c.here.from, c.here.q-history):c.here.q]...)
	}
	symbols := c.symbols[max(beforeBytes, c.here.p-beforeBytes):c.here.p]
	next = append(next, window[max(0, len(window)+len(symbols)/symbolBytes-history):]...)
	for i := 0; i < len(symbols); i += symbolBytes {
		next = append(next, c.meaning[binary.LittleEndian.Uint16(symbols[i:])])
	}
	return next
}

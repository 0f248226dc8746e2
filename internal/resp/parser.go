package resp

import (
	"bytes"
	"fmt"
)

// Limits bound requests. All must be positive.
type Limits struct {
	Args    int // most arguments of a request, its command among them
	Bulk    int // most bytes of an argument
	Request int // most bytes of a request
}

// Bounds that Redis has, of which no option speaks.
const (
	mostLine            = 64 << 10 // bytes of a line of words, or of the line of a length
	mostUnknownArgs     = 10       // of a client that has not said its password
	mostUnknownBulk     = 16 << 10
	leastKept, mostKept = 512, 16 << 10 // memory for a part of a request that stays when there is no part
)

// Error is what is wrong with a client's bytes, as Redis words it. The connection cannot go on.
type Error string

func (e Error) Error() string { return "Protocol error: " + string(e) }

// span is an argument, as offsets from the beginning of its request.
type span struct{ from, to uint32 }

// Parser takes requests out of a connection's bytes. Make one with NewParser.
type Parser struct {
	// Strict says that the client has not said its password yet: then its requests are short.
	Strict bool

	limits Limits
	buf    []byte // what came, borrowed or own
	own    []byte
	base   int // where the request under way begins
	pos    int // up to where it is parsed
	want   int // arguments that are still to come; 0: no request is under way
	bulk   int // bytes of the argument under way; −1: its length is to come
	spans  []span
	args   [][]byte
	words  []byte // the arguments of lines, without quotes
	err    error
}

// NewParser makes a Parser.
func NewParser(l Limits) *Parser { return &Parser{limits: l, bulk: -1} }

// Feed gives the next bytes of the connection. They stay the caller's, who must not change them before Keep.
func (p *Parser) Feed(data []byte) {
	if len(p.own) == 0 {
		p.buf = data
		return
	}
	p.own = append(p.own, data...)
	p.buf = p.own
}

// Room is memory for n more bytes behind what is held, for those who read there and call Filled instead of Feed: large
// arguments are copied once less. It is nil if nothing is held.
func (p *Parser) Room(n int) []byte {
	if len(p.own) == 0 {
		return nil
	}
	if cap(p.own)-len(p.own) < n {
		p.own = append(make([]byte, 0, len(p.own)+max(n, min(len(p.own), p.missing()))), p.own...)
	}
	return p.own[len(p.own) : len(p.own)+n]
}

// missing is how many bytes of the argument under way are to come.
func (p *Parser) missing() int { return max(0, p.bulk+2-(len(p.own)-p.pos)) }

// Filled says that n bytes of Room came.
func (p *Parser) Filled(n int) {
	p.own = p.own[:len(p.own)+n]
	p.buf = p.own
}

// Keep ends the use of what Feed gave: a part of a request is copied. Arguments of Next are no more.
func (p *Parser) Keep() {
	rest := p.buf[p.base:]
	switch {
	case len(rest) == 0:
		if p.own = p.own[:0]; cap(p.own) > mostKept {
			p.own = nil
		}
	case len(p.own) == 0:
		if cap(p.own) < len(rest) {
			p.own = make([]byte, 0, max(leastKept, len(rest)+len(rest)/4))
		}
		p.own = append(p.own, rest...)
	case p.base > 0:
		p.own = p.own[:copy(p.own, rest)]
	}
	p.pos -= p.base
	p.base, p.buf = 0, p.own
	if p.want == 0 && cap(p.spans) > mostKept/8 {
		p.spans = nil
	}
	p.Done()
}

// Done ends the use of the arguments that Next gave.
func (p *Parser) Done() {
	if p.args, p.words = p.args[:0], p.words[:0]; cap(p.args) > mostKept/8 {
		p.args = nil
	}
	if cap(p.words) > mostKept {
		p.words = nil
	}
}

// At is where the next request begins, for Back.
func (p *Parser) At() int { return p.base }

// Back has Next begin again where At was, behind Feed and before Keep.
func (p *Parser) Back(at int) { p.base, p.pos, p.want, p.bulk, p.err = at, at, 0, -1, nil }

// Held is how many bytes of memory are held between Keep and Feed.
func (p *Parser) Held() int {
	return cap(p.own) + 8*cap(p.spans) + 24*cap(p.args) + cap(p.words)
}

// Partial tells whether a part of a request is there.
func (p *Parser) Partial() bool { return p.Came() > 0 }

// Came is how many bytes of the request under way came.
func (p *Parser) Came() int { return len(p.buf) - p.base }

// Next is the next whole request: its command and arguments, which stay until Done or Keep. It is empty where more
// bytes must come. Errors: Error.
func (p *Parser) Next() ([][]byte, error) {
	for p.err == nil {
		if p.want == 0 {
			p.base = p.pos
			if p.pos == len(p.buf) {
				return nil, nil
			}
			if p.buf[p.pos] != '*' {
				args, more, err := p.line()
				if p.err = err; more || len(args) > 0 || err != nil {
					return args, err
				}
				continue
			}
			n, ok, err := p.length("mbulk count string", "invalid multibulk length", p.limits.Args)
			if err != nil || !ok {
				p.err = err
				return nil, err
			}
			if p.Strict && n > mostUnknownArgs {
				p.err = Error("unauthenticated multibulk length")
				break
			}
			if n <= 0 {
				continue
			}
			p.want, p.bulk, p.spans = n, -1, p.spans[:0]
		}
		if whole, err := p.bulks(); err != nil || !whole {
			p.err = err
			return nil, err
		}
		first := len(p.args)
		for _, s := range p.spans {
			p.args = append(p.args, p.buf[p.base+int(s.from):p.base+int(s.to):p.base+int(s.to)])
		}
		p.base = p.pos
		return p.args[first:len(p.args):len(p.args)], nil
	}
	return nil, p.err
}

// bulks goes on with the arguments of the request under way, and tells whether all are there.
func (p *Parser) bulks() (whole bool, err error) {
	for p.want > 0 {
		if p.bulk < 0 {
			if p.pos < len(p.buf) && p.buf[p.pos] != '$' && bytes.IndexByte(p.line64(), '\r') >= 0 {
				return false, Error(fmt.Sprintf("expected '$', got '%c'", p.buf[p.pos]))
			}
			n, ok, err := p.length("bulk count string", "invalid bulk length", p.limits.Bulk)
			switch {
			case err != nil || !ok:
				return false, err
			case n < 0:
				return false, Error("invalid bulk length")
			case p.Strict && n > mostUnknownBulk:
				return false, Error("unauthenticated bulk length")
			case p.pos-p.base+n+2 > p.limits.Request:
				return false, Error("too big request")
			}
			p.bulk = n
		}
		if len(p.buf)-p.pos < p.bulk+2 {
			return false, nil
		}
		from := p.pos - p.base
		p.spans = append(p.spans, span{uint32(from), uint32(from + p.bulk)})
		p.pos += p.bulk + 2 // Redis does not look at the two, either
		p.bulk = -1
		p.want--
	}
	return true, nil
}

// line64 is what came behind pos, as far as a line may reach.
func (p *Parser) line64() []byte { return p.buf[p.pos:min(len(p.buf), p.pos+mostLine+1)] }

// length reads a line such as "*3\r\n", if it is there.
func (p *Parser) length(what, invalid string, most int) (n int, ok bool, err error) {
	if v, size := short(p.buf[p.pos:]); size > 0 && v <= most {
		p.pos += size
		return v, true, nil
	}
	line := p.line64()
	end := bytes.IndexByte(line, '\r')
	if end < 0 && len(line) > mostLine {
		return 0, false, Error("too big " + what)
	}
	if end < 0 || p.pos+end+2 > len(p.buf) {
		return 0, false, nil
	}
	v, ok := Int(line[1:max(1, end)])
	if !ok || v > int64(most) {
		return 0, false, Error(invalid)
	}
	p.pos += end + 2
	return int(max(v, -1)), true, nil
}

// short is the number of a line such as "*3\r\n" and how many bytes that is, if it is a small number and all is there.
func short(b []byte) (n, size int) {
	for i := 1; i < min(len(b)-1, 8); i++ {
		d := b[i] - '0'
		if d > 9 {
			if b[i] == '\r' && i > 1 && (i == 2 || b[1] != '0') {
				return n, i + 2
			}
			break
		}
		n = 10*n + int(d)
	}
	return 0, 0
}

// line takes a line of words. more says that it is not whole.
func (p *Parser) line() (args [][]byte, more bool, err error) {
	line := p.line64()
	end := bytes.IndexByte(line, '\n')
	if end < 0 {
		if len(line) > mostLine {
			return nil, false, Error("too big inline request")
		}
		return nil, true, nil
	}
	p.pos += end + 1
	p.base = p.pos
	if end > 0 && line[end-1] == '\r' {
		end--
	}
	first := len(p.args)
	if !p.split(line[:end]) {
		return nil, false, Error("unbalanced quotes in request")
	}
	return p.args[first:len(p.args):len(p.args)], false, nil
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// split appends the words of a line to args, as sdssplitargs of Redis does.
func (p *Parser) split(line []byte) bool {
	p.spans = p.spans[:0]
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) || line[i] == 0 {
			break
		}
		from := len(p.words)
		used, ok := p.word(line[i:])
		if !ok {
			return false
		}
		i += used
		p.spans = append(p.spans, span{uint32(from), uint32(len(p.words))})
	}
	for _, s := range p.spans { // words has moved while it grew
		p.args = append(p.args, p.words[s.from:s.to:s.to])
	}
	p.spans = p.spans[:0]
	return true
}

// word appends a word without its quotes to words, and tells how many bytes of the line it took.
func (p *Parser) word(line []byte) (used int, ok bool) {
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == 0 && (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == 0):
			return i, true
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0:
			p.words = append(p.words, c)
		case c == 0:
			return 0, false
		case c == quote: // behind it there is a space, or nothing
			return i + 1, i+1 == len(line) || isSpace(line[i+1])
		case c == '\\' && quote == '"' && isHex(line[i+1:]):
			p.words = append(p.words, hex(line[i+2])<<4|hex(line[i+3]))
			i += 3
		case c == '\\' && quote == '"' && i+1 < len(line):
			i++
			p.words = append(p.words, escaped(line[i]))
		case c == '\\' && quote == '\'' && i+1 < len(line) && line[i+1] == '\'':
			i++
			p.words = append(p.words, '\'')
		default:
			p.words = append(p.words, c)
		}
	}
	return len(line), quote == 0
}

// isHex tells whether a text begins as x41 does.
func isHex(text []byte) bool {
	return len(text) >= 3 && text[0] == 'x' && hex(text[1]) < 16 && hex(text[2]) < 16
}

func hex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 16
}

func escaped(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return c
}

// Int is a number as Redis takes it: digits without zeros before them, and without a plus.
func Int(text []byte) (n int64, ok bool) {
	digits, negative := text, false
	if len(digits) > 0 && digits[0] == '-' {
		digits, negative = digits[1:], true
	}
	if len(digits) == 0 || len(digits) > 19 || digits[0] == '0' && (len(digits) > 1 || negative) {
		return 0, false
	}
	u := uint64(0)
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		u = 10*u + uint64(c-'0') // 19 digits fit
	}
	if negative {
		return -int64(u), u <= 1<<63
	}
	return int64(u), u < 1<<63
}

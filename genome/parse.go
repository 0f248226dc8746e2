package genome

import (
	"bytes"
	"errors"
	"fmt"
)

// format is what a text holds.
type format byte

const (
	unknown format = 0
	fasta   format = '>'
	fastq   format = '@'
)

var (
	errEmpty   = errors.New("no records: the input is empty (want FASTA or FASTQ)")
	errNeither = errors.New("neither FASTA, which begins with >, nor FASTQ, which begins with @")
	errReturn  = errors.New("a carriage return within a line: lines that end so are those of old Macs; change them, " +
		"as with tr '\\r' '\\n'")
	errZero  = errors.New("a zero byte: the file is damaged, or is no text")
	errFastq = errors.New(
		"a line that begins with @, as records of FASTQ do: FASTQ in the middle of FASTA; want a file for each")
	errFasta = errors.New(
		"a line that begins with >, as records of FASTA do: FASTA in the middle of FASTQ; want a file for each")
)

// mostName is how long a name may be. Those of sequencers and of NCBI take some hundred bytes; a longer one is a file
// without line ends, or is meant to be told again and again.
const mostName = 64 << 10

func longName(n int) error {
	return fmt.Errorf("%w: a name of %d bytes, want %d at most; shorten it, or see whether line ends are missing",
		ErrTooLong, n, mostName)
}

// formatOf tells the format of a text by its first byte that is not blank; ok is false where all are.
func formatOf(text []byte) (f format, ok bool) {
	for _, b := range text {
		switch b {
		case '\n', '\r', ' ', '\t':
		case '>', '@':
			return format(b), true
		default:
			return unknown, true
		}
	}
	return unknown, false
}

// cut is where the last record of a text begins, which may not be whole: what is before it is whole records. 0: there
// is one record at most.
func (f format) cut(text []byte) int {
	last := lastHeader
	if f == fastq {
		last = lastRead
	}
	for width := 1 << 14; ; width *= 4 {
		start := max(len(text)-width, 0)
		if at := last(text, start); at > 0 || start == 0 {
			return at
		}
	}
}

// lastHeader is where the last line from start on begins that is a header of FASTA.
func lastHeader(text []byte, start int) (last int) {
	for at := start; ; at++ {
		next := bytes.IndexByte(text[at:], '>')
		if next < 0 {
			return last
		}
		if at += next; at > 0 && text[at-1] == '\n' {
			last = at
		}
	}
}

// lastRead is where the last line from start on begins that is a header of FASTQ: it begins with @, and the second
// behind it with +. Qualities may begin with @, but the second line behind them are letters, or what stands before
// them.
func lastRead(text []byte, start int) (last int) {
	before, header := -1, -1 // the lines before this one, where they begin with @
	at := start
	if start > 0 {
		next := bytes.IndexByte(text[start-1:], '\n')
		if next < 0 {
			return 0
		}
		at = start + next
	}
	for at < len(text) {
		if text[at] == '+' && before > 0 {
			last = before
		}
		before, header = header, -1
		if text[at] == '@' {
			header = at
		}
		next := bytes.IndexByte(text[at:], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	return last
}

// parser makes a block of a text, in the text's own memory: its letters are moved to the front.
type parser struct {
	text    []byte
	at      int // of the next line
	to      int // of the next letter
	line    int64
	names   []byte
	records []Record
	most    int // records of a block
	base    int // where the letters of the block begin
	skip    bool
	broken  int64

	from  *texts // gives lists
	lists *lists // that names and records are of

	dropped []dropped // lines that are no more in the text
	passed  int       // as many of them are counted
}

// dropped are blank lines that stood before a byte of a text.
type dropped struct {
	at    int
	lines int64
}

// pass counts the lines that were dropped up to here.
func (p *parser) pass() {
	for ; p.passed < len(p.dropped) && p.dropped[p.passed].at <= p.at; p.passed++ {
		p.line += p.dropped[p.passed].lines
	}
}

// next is the next line without its end, and false behind the last.
func (p *parser) next() ([]byte, bool) {
	if p.at >= len(p.text) {
		return nil, false
	}
	p.pass()
	line := p.text[p.at:]
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		line = line[:end]
	}
	p.at += len(line) + 1
	p.line++
	for len(line) > 0 && line[len(line)-1] <= ' ' && line[len(line)-1] != 0 {
		line = line[:len(line)-1]
	}
	return line, true
}

// plus is next for a line that is mostly a plus alone.
func (p *parser) plus() ([]byte, bool) {
	if p.at+2 > len(p.text) || p.text[p.at] != '+' || p.text[p.at+1] != '\n' {
		return p.next()
	}
	p.pass()
	p.at += 2
	p.line++
	return p.text[p.at-2 : p.at-1], true
}

// begin begins a record.
func (p *parser) begin(name []byte) {
	if n := len(p.records); n == cap(p.records) { // no more than a block can have
		p.records = append(make([]Record, 0, max(n+1, min(p.most, max(2*n, 1<<8)))), p.records...)
	}
	from := len(p.names)
	p.names = append(p.names, name...)
	p.records = append(p.records, Record{Name: p.names[from:len(p.names):len(p.names)], Start: p.to - p.base})
}

func (p *parser) letters(line []byte) { p.to += copy(p.text[p.to:], line) }

func (p *parser) end() {
	p.records[len(p.records)-1].End = p.to - p.base
	p.text[p.to] = '\n' // a record's header has a byte for it
	p.to++
}

// parse makes a block of records, of the whole text unless it has more than p.most. The line of an error is counted
// from the text's first.
func (p *parser) parse(f format) error {
	from := p.at
	p.lists, p.base = p.from.list(len(p.text)-from, p.most), p.to
	p.names, p.records = p.lists.names[:0], p.lists.records[:0]
	defer func() {
		p.lists.names, p.lists.records = p.names, p.records
		p.from.had(p.at-from, p.lists)
	}()
	if f == fasta {
		return p.fasta()
	}
	return p.fastq()
}

// more tells whether there is text that parse has not gone over.
func (p *parser) more() bool { return p.at < len(p.text) }

// fault notes a broken record, which is an error unless such are skipped.
func (p *parser) fault(line int64, err error) error {
	if !p.skip {
		return &InputError{Line: line, Err: err}
	}
	p.broken++
	return nil
}

func (p *parser) fasta() error {
	in, bad, from := false, false, 0
	end := func() {
		if bad {
			p.records, p.to = p.records[:len(p.records)-1], from
		} else if in {
			p.end()
		}
	}
	begin := func(name []byte, wrong error) {
		end()
		in, bad, from = true, wrong != nil, p.to
		p.begin(name)
	}
	for {
		at := p.at
		line, more := p.next()
		if !more {
			end()
			return nil
		}
		if len(line) == 0 {
			continue
		}
		var wrong error
		switch header := line[0] == '>'; {
		case header && len(p.records) == p.most:
			end()
			p.at, p.line = at, p.line-1
			return nil
		case header:
			wrong = p.wrongHeader(line)
			begin(line[1:], wrong)
		case line[0] == '@' && p.skip && p.atRead(): // its record is left out, and the one before may be whole
			wrong = errFastq
			begin(nil, wrong)
		case line[0] == '@' && !p.skip: // of another file, as like as not
			wrong = errFastq
		case !in:
			wrong = fmt.Errorf("%q before the first line that begins with >", clip(line))
		case bad:
			continue
		default:
			if wrong = wrongLetters(line); wrong == nil {
				p.letters(line)
			}
			bad = wrong != nil
		}
		if wrong != nil {
			if err := p.fault(p.line, wrong); err != nil {
				return err
			}
		}
	}
}

// wrongHeader tells what is wrong with a header of FASTA.
func (p *parser) wrongHeader(line []byte) error {
	switch {
	case bytes.IndexByte(line, 0) >= 0:
		return errZero
	case bytes.IndexByte(line, '\r') >= 0:
		return errReturn
	case len(line) > 1+mostName:
		return longName(len(line) - 1)
	}
	return nil
}

// atRead tells whether the line before p.at is a header of FASTQ: the second behind it begins with +.
func (p *parser) atRead() bool {
	second := behind(p.text[min(p.at, len(p.text)):])
	return len(second) > 0 && second[0] == '+'
}

func (p *parser) fastq() error {
	for len(p.records) < p.most {
		line, more := p.next()
		if !more {
			return nil
		}
		if len(line) == 0 {
			continue
		}
		header, at, passed := p.line, p.at, p.passed
		if err := p.read(line); err != nil {
			if err := p.fault(err.Line, err.Err); err != nil {
				return err
			}
			// The next line that is a header begins the next record: it may be one of those that were taken for this
			// one's.
			p.at, p.line, p.passed = at, header, passed
			p.seek()
		}
	}
	return nil
}

// read takes the three lines behind a header.
func (p *parser) read(header []byte) *InputError {
	first := p.line
	at := func(line int64, text string, with ...any) *InputError {
		return &InputError{Line: line, Err: fmt.Errorf(text, with...)}
	}
	if header[0] == '>' {
		return &InputError{Line: first, Err: errFasta}
	}
	if header[0] != '@' {
		return at(first, "a record of FASTQ begins with %q, not with @", clip(header))
	}
	if len(header) > 1+mostName {
		return &InputError{Line: first, Err: longName(len(header) - 1)}
	}
	letters, more := p.next()
	if !more {
		return at(first, "the input ends within a record of FASTQ")
	}
	lettersLine := p.line
	plus, more := p.plus()
	switch {
	case !more:
		return at(first, "the input ends within a record of FASTQ")
	case len(letters) > 0 && letters[0] == '+':
		return at(p.line-1, "a line %q where FASTQ has letters", clip(letters))
	case len(plus) == 0 || plus[0] != '+':
		return at(p.line, "a line %q where FASTQ has one that begins with +: records of FASTQ have four lines each",
			clip(plus))
	}
	quality, _ := p.next() // a record without letters may lack the line
	switch {
	case len(quality) != len(letters):
		return at(p.line, "%d qualities for %d letters", len(quality), len(letters))
	case bytes.IndexByte(header, 0) >= 0:
		return at(first, "%w", errZero)
	}
	if wrong := wrongLetters(letters); wrong != nil {
		if bytes.IndexByte(letters, 0) >= 0 {
			return at(first, "%w", errZero)
		}
		return at(lettersLine, "%w", wrong)
	}
	p.begin(header[1:])
	p.letters(letters)
	p.end()
	return nil
}

// seek goes to the next line that begins a record.
func (p *parser) seek() {
	for p.at < len(p.text) {
		p.pass()
		rest := p.text[p.at:]
		if rest[0] == '@' {
			if second := behind(behind(rest)); len(second) > 0 && second[0] == '+' {
				return
			}
		}
		if rest[0] == '>' { // of FASTA, as like as not: one broken record would not tell how much is left out
			p.broken++
		}
		p.at = len(p.text) - len(behind(rest))
		p.line++
	}
}

// behind is the text behind its first line.
func behind(text []byte) []byte {
	end := bytes.IndexByte(text, '\n')
	if end < 0 {
		return nil
	}
	return text[end+1:]
}

// clip is the beginning of a line, for an error.
func clip(line []byte) []byte { return line[:min(len(line), 40)] }

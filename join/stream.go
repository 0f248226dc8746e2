package join

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/files"
)

// A probe side that comes through a pipe is joined while it comes: what is there is looked up, and comes out, before
// more has come. Nothing of it goes to a file. That needs the types of its columns from the start: an Arrow stream says
// them, and CSV has text, where the output is text, too; its keys are of the types of the build side's, and a value
// that is not is an error. All else goes to a temporary file first, and is read from there.

// openProbe opens the probe side of a join with a build side.
func (o Options) openProbe(inputs []inputFile, build *Reader) (*Reader, error) {
	if len(inputs) != 1 || len(inputs[0].keys) > 0 || !readOnce(inputs[0].path) {
		return openFiles(o.ProbeFormat, inputs, o.Text)
	}
	r, f, format, err := begin(inputs[0].path, o.ProbeFormat)
	if err != nil {
		return nil, err
	}
	if err := r.openStream(f, format, o, build); err != nil {
		return nil, r.fail(err)
	}
	return r, nil
}

// readOnce tells that an input is a pipe, or what else has no size.
func readOnce(path string) bool {
	about, err := os.Stat(path)
	if path == "-" {
		about, err = os.Stdin.Stat()
	}
	return err == nil && about.Mode()&(fs.ModeNamedPipe|fs.ModeSocket|fs.ModeCharDevice) != 0
}

// openStream opens a probe side that can be read once. It takes care of the file.
func (r *Reader) openStream(f *os.File, format Format, o Options, build *Reader) (err error) {
	spool := func(from io.Reader) error {
		spooled, err := spool(from)
		f.Close()
		if err != nil {
			return err
		}
		return r.open(spooled, format, o.Text)
	}
	first := make([]byte, len(ipc.Magic))
	n, err := f.Read(first[:1])
	if format == "" || format == Arrow {
		for err == nil && n < len(first) && toldBy(first[:n]) == "" { // an Arrow stream may be shorter than the magic
			var m int
			m, err = f.Read(first[n:])
			n += m
		}
	}
	if err != nil && err != io.EOF {
		f.Close()
		return err
	}
	whole := io.MultiReader(bytes.NewReader(first[:n]), f)
	if format == "" {
		if format = toldBy(first[:n]); format == "" {
			f.Close()
			return errNoFormat(orSay)
		}
	}
	switch {
	case format == Arrow && !bytes.HasPrefix(first[:n], []byte("A")):
		r.formats = []Format{format}
		return catch(broken, func() error { return r.arrowStream(whole, f) })
	case format != CSV && format != TSV || !o.untyped() && o.Text.Types == nil && o.Select == nil:
		return spool(whole)
	}
	text, err := files.NewText(struct {
		io.Reader
		io.Closer
	}{whole, f}, files.Unpacking{})
	if err != nil {
		return err
	}
	r.formats = []Format{format}
	live := newLive(text)
	c := &csvFile{as: o.Text.dialect(format), live: live}
	seen, err := c.header(live)
	if err == nil && !o.knows(c.names) {
		return spool(io.MultiReader(bytes.NewReader(seen[:c.body]), live))
	}
	if err != nil {
		live.stop()
		return err
	}
	o.Text.warn(r.path, c)
	r.liveText(c, o, build)
	return nil
}

// untyped tells that the output is the same whatever the types of columns that are no keys.
func (o Options) untyped() bool {
	f, _ := o.writeOptions().format(o.Out)
	return o.Count || f == CSV || f == TSV
}

// knows tells that a join can do without more types than there are given for text with these columns.
func (o Options) knows(names []string) bool {
	for _, name := range names {
		key := slices.ContainsFunc(o.On, func(p Pair) bool { return p.Probe == name })
		out := len(o.Select) == 0 || slices.Contains(o.Select, name)
		if !o.untyped() && !key && out && o.Text.Types[name] == nil {
			return false
		}
	}
	return true
}

// liveText makes a reader of CSV whose keys are as the build side's, unless their types are given, and whose other
// columns are text.
func (r *Reader) liveText(c *csvFile, o Options, build *Reader) {
	columns := columnsOf(c.names, o.Text.Types)
	c.given, c.allowed = given(columns), make([]int, len(columns))
	for i := range columns {
		columns[i].seen, columns[i].made.path = csvText, r.path
		if c.given[i] {
			continue
		}
		for _, p := range o.On {
			at := build.schema.FieldIndices(p.Build)
			if p.Probe == c.names[i] && len(at) == 1 && columns[i].given == nil {
				columns[i].given, c.allowed[i] = keyOfStream(build.schema.Field(at[0]).Type)
			}
		}
	}
	r.text = &textFile{columns: columns, rows: -1, csv: c, read: c.read}
	r.live, r.close = c.live, func() error { c.live.stop(); return nil }
	r.typed(columns)
}

// keyOfStream is the type of a key column of CSV beside one of the build side, and what its fields may be; nil for
// text.
func keyOfStream(build arrow.DataType) (arrow.DataType, int) {
	d, _ := domainOf(build)
	const whole = csvNegative | csvInt | csvWide
	switch {
	case d.kind == "integer" && d.u64:
		return arrow.PrimitiveTypes.Uint64, csvInt | csvUint | csvWide
	case d.kind == "integer", d.kind == "decimal" && d.unit == 0:
		return arrow.PrimitiveTypes.Int64, whole
	case d.kind == "decimal", d.kind == "float":
		return arrow.PrimitiveTypes.Float64, csvNegative | csvInt | csvFloat
	case d.kind == "boolean":
		return arrow.FixedWidthTypes.Boolean, csvBool
	case d.kind == "date":
		return arrow.FixedWidthTypes.Date32, csvDate
	}
	switch t := build.(type) {
	case *arrow.TimestampType:
		of := &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: t.TimeZone}
		class := csvStamp
		if t.TimeZone != "" {
			of.TimeZone, class = "UTC", csvStampZ
		}
		if t.Unit == arrow.Nanosecond {
			of.Unit = t.Unit
			return of, class | csvNano
		}
		return of, class | csvFar
	case *extensions.UUIDType:
		return t, csvText
	}
	return nil, 0
}

// check tells which field of a live column is not what it may be.
func (f *csvFile) check(t *csvTokens, c int, typ arrow.DataType) error {
	for r := 0; r < t.rows && f.allowed[c] != csvText; r++ {
		v, quoted := t.field(r, c)
		if t.null(v, quoted) {
			continue
		}
		class := classify(v)
		if class&^f.allowed[c] == 0 {
			continue
		}
		other := sqlName(csvType(f.allowed[c]&^(csvUint|csvWide|csvNano|csvFar) | class))
		return &lineError{line: 1 + countLines(t.b[:t.place(r, c)]), row: r,
			err: fmt.Errorf("%q is no %s, as the build side's keys are, and what comes through a pipe gets its types "+
				"before its end: say the type (--types %s=%s), or name a file", v[:min(len(v), 100)], sqlName(typ),
				escaped(f.names[c]), other)}
	}
	return nil
}

// liveColumn makes a column of a block that came through a pipe.
func (f *csvFile) liveColumn(t *csvTokens, c int, typ arrow.DataType) (arrow.Array, error) {
	if f.allowed[c] != 0 {
		if err := f.check(t, c, typ); err != nil {
			return nil, err
		}
	}
	return csvColumn(t, c, typ, f.given[c] || f.allowed[c] == csvText)
}

// live is an input that comes piece by piece, whenever there is more. One goroutine waits for it, so that nobody else
// has to: not even whoever stops it.
type live struct {
	pieces chan arrival
	done   chan struct{}
	stop   func()
	rest   []byte // before the next piece
	err    error  // behind it
}

type arrival struct {
	b   []byte
	err error
}

const (
	pieceBytes  = 1 << 16
	piecesAhead = 16
)

// newLive begins to read an input, which it closes in the end.
func newLive(from io.ReadCloser) *live {
	l := &live{pieces: make(chan arrival, piecesAhead), done: make(chan struct{})}
	l.stop = sync.OnceFunc(func() { close(l.done) })
	go func() {
		defer close(l.pieces)
		err := crash.Catch(func() error {
			defer from.Close()
			for {
				b := make([]byte, pieceBytes)
				n, err := from.Read(b)
				if n > 0 {
					select {
					case l.pieces <- arrival{b: b[:n:n]}:
					case <-l.done:
						return nil
					}
				}
				if err != nil {
					return err
				}
			}
		})
		if err == nil {
			return
		}
		select {
		case l.pieces <- arrival{err: err}:
		case <-l.done:
		}
	}()
	return l
}

// some gives what has come, up to about so many bytes, and waits where that is nothing. Its memory is the caller's.
func (l *live) some(most int) ([]byte, error) {
	b := l.rest
	l.rest = nil
	for wait := len(b) == 0; len(b) < most && l.err == nil; wait = false {
		var p arrival
		if wait {
			select {
			case p = <-l.pieces:
			case <-l.done:
			}
		} else {
			select {
			case p = <-l.pieces:
			default:
				return b, nil
			}
		}
		if p.b == nil && p.err == nil { // it was stopped, or all has come
			p.err = io.EOF
		}
		if l.err = p.err; b == nil {
			b = p.b
		} else {
			b = append(b, p.b...)
		}
	}
	if len(b) > 0 {
		return b, nil
	}
	return nil, l.err
}

// Read gives what has come, or waits.
func (l *live) Read(to []byte) (int, error) {
	b, err := l.some(1)
	n := copy(to, b)
	if n < len(b) {
		l.rest = b[n:]
	}
	return n, err
}

// liveBlocks is blocks for an input that comes piece by piece.
func liveBlocks(in *live, end func(b []byte) int, send func(textPart) bool) error {
	var b []byte
	for tried := 0; ; {
		some, err := in.some(max(1, textBlock-len(b)))
		if err == io.EOF {
			if len(b) > 0 {
				send(textPart{b, nil})
			}
			return nil
		}
		if err != nil {
			return err
		}
		b = append(b, some...)
		if len(b) < tried+tried/2 && len(in.pieces) > 0 { // a long record is not looked through for each piece of it
			continue
		}
		at := end(b)
		if tried = len(b); at == 0 {
			if len(b) >= maxRecord {
				return tooLong
			}
			continue
		}
		if !send(textPart{b[:at:at], nil}) {
			return nil
		}
		b, tried = bytes.Clone(b[at:]), 0
	}
}

// arrowStream reads an Arrow stream as it comes.
func (r *Reader) arrowStream(from io.Reader, f *os.File) error {
	l := newLive(struct {
		io.Reader
		io.Closer
	}{from, f})
	sr, err := ipc.NewReader(&checkedStream{from: l}, ipc.WithAllocator(allocator), ipc.WithMetadataSizeLimit(0),
		ipc.WithBodySizeLimit(0))
	if err != nil {
		l.stop()
		return fmt.Errorf("not a readable Arrow stream: %w", err)
	}
	r.arrowBatches(sr, func() error { l.stop(); return nil })
	r.live = l
	return nil
}

// checkedStream is an Arrow stream whose metadata is walked before it is handed on.
type checkedStream struct {
	from io.Reader
	m    metadata
	head []byte // a message's metadata, with its length
	body int64  // what is left of its body
	end  bool
}

// mostMetadata bounds a message's metadata, in bytes, and largeBody is that of a body that may not be true.
const (
	mostMetadata = 256 << 20
	largeBody    = 64 << 20
)

// endsEarly is an error within a message.
func endsEarly(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (s *checkedStream) Read(to []byte) (int, error) {
	for len(s.head) == 0 && s.body == 0 {
		if s.end {
			return 0, io.EOF
		}
		if err := s.message(); err != nil {
			return 0, err
		}
	}
	if len(s.head) > 0 {
		n := copy(to, s.head)
		s.head = s.head[n:]
		return n, nil
	}
	n, err := s.from.Read(to[:min(int64(len(to)), s.body)])
	if s.body -= int64(n); s.body > 0 {
		err = endsEarly(err)
	}
	return n, err
}

// message reads a message's metadata.
func (s *checkedStream) message() error {
	var b bytes.Buffer
	word := func() (uint32, error) {
		if _, err := io.CopyN(&b, s.from, 4); err != nil {
			return 0, err
		}
		return binary.LittleEndian.Uint32(b.Bytes()[b.Len()-4:]), nil
	}
	n, err := word()
	if b.Len() == 0 && err == io.EOF { // writers may leave the end's mark out
		s.end = true
		return nil
	}
	if err == nil && n == continued {
		n, err = word()
	}
	if err == nil && n > mostMetadata {
		return fmt.Errorf("%s: a message with metadata of %d bytes", broken, n)
	}
	if err == nil {
		_, err = io.CopyN(&b, s.from, int64(n)) // memory grows as they come
	}
	if err != nil {
		return endsEarly(err)
	}
	s.head = b.Bytes()
	if n == 0 {
		s.end = true
		return nil
	}
	body := s.m.message(s.head[len(s.head)-int(n):])
	switch {
	case body < 0:
		return fmt.Errorf("%s: a message of %d bytes", broken, body)
	case body > largeBody: // the reader makes memory of what a message says: here it grows as the bytes come
		if _, err := io.CopyN(&b, s.from, body); err != nil {
			return endsEarly(err)
		}
		s.head = b.Bytes()
	default:
		s.body = body
	}
	return nil
}

// isLive tells that rows come as they come, and that whoever waits for them should not wait for more of them.
func (r *Reader) isLive() bool { return r.live != nil }

// interrupt lets whoever waits for rows that come through a pipe get none: all that have come are read.
func (r *Reader) interrupt() {
	if r.live != nil {
		r.live.stop()
	}
}

// toldBy is the format that the first bytes tell.
func toldBy(first []byte) Format {
	switch {
	case strings.HasPrefix(string(first), "PAR1"):
		return Parquet
	case bytes.HasPrefix(first, ipc.Magic), bytes.HasPrefix(first, []byte{0xff, 0xff, 0xff, 0xff}):
		return Arrow
	}
	return ""
}

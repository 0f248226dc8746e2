package join

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/warpmap/warpmap/internal/files"
)

// Format says how a file holds its rows.
type Format string

// The formats. An Arrow file may be in the file format or the stream format.
const (
	Parquet Format = "parquet"
	CSV     Format = "csv"
	TSV     Format = "tsv"   // CSV with tabs in place of commas
	JSONL   Format = "jsonl" // one JSON object a line
	Arrow   Format = "arrow"
)

// suffixes are the file name endings that tell a format.
var suffixes = []struct {
	suffix string
	format Format
}{
	{".parquet", Parquet}, {".csv", CSV}, {".arrow", Arrow}, {".ipc", Arrow}, {".feather", Arrow}, {".tsv", TSV},
	{".jsonl", JSONL}, {".ndjson", JSONL},
}

// Suffixes lists the file name endings that Open and Create know. The endings of text formats may be followed by .gz or
// .zst.
func Suffixes() (out []string) {
	for _, s := range suffixes {
		out = append(out, s.suffix)
	}
	return out
}

// Formats lists the names that ParseFormat takes.
func Formats() []string {
	return []string{string(Parquet), string(CSV), string(TSV), string(JSONL), string(Arrow)}
}

// ParseFormat reads "parquet", "csv", "tsv", "jsonl" or "arrow".
func ParseFormat(s string) (Format, error) {
	if slices.Contains(Formats(), s) {
		return Format(s), nil
	}
	return "", fmt.Errorf("a format %q: want one of %s", s, strings.Join(Formats(), ", "))
}

// text tells whether a format is text, which may be compressed as a whole.
func (f Format) text() bool { return f == CSV || f == TSV || f == JSONL }

// named is the format and the compression that a file's name tells, empty where it tells none.
func named(path string) (f Format, packing string) {
	if strings.HasSuffix(strings.ToLower(path), ".bgz") {
		return "", "" // BGZF, which joins read as gzip of any name, and do not write
	}
	name, packing := files.CutPacking(path)
	for _, s := range suffixes {
		if strings.HasSuffix(name, s.suffix) && (packing == "" || s.format.text()) {
			return s.format, packing
		}
	}
	return "", packing
}

const orSay = "; or say which it is, such as --format csv"

// errNoFormat says why a name tells no format.
func errNoFormat(or string) error {
	return fmt.Errorf("no known file format (the name should end in one of %s%s)", strings.Join(Suffixes(), ", "), or)
}

// Open opens a Parquet, CSV, TSV, JSON lines or Arrow IPC file for reading. It is OpenAs without a format: the file
// name's suffix tells the format.
func Open(path string) (*Reader, error) { return OpenAs(path, "") }

// OpenAs opens a file of a format for reading. If the format is empty, the file name's suffix tells it, or else the
// file's first bytes do. "-" is standard input. Text may be compressed with gzip or zstd, whatever its name. An input
// that can be read only once, such as a pipe, is copied to a temporary file first.
//
// Text is read twice. The first reading finds the columns' types: int64 (uint64 where int64 does not do), float64, bool
// (true, false), date32 (2006-01-02) and timestamps (2006-01-02 15:04:05.999, with Z behind it in UTC). A column gets
// such a type if it holds every value of the column exactly; otherwise the column is a string column. CSV and TSV have
// a header line; empty fields are nulls, and "" is an empty string. JSON lines are objects, whose members are columns;
// nested values become strings of JSON. A column without values has the null type.
func OpenAs(path string, format Format) (*Reader, error) { return openAs(path, format, TextOptions{}) }

// openAs is OpenAs with options for text.
func openAs(path string, format Format, text TextOptions) (*Reader, error) {
	r, f, format, err := begin(path, format)
	if err != nil {
		return nil, err
	}
	if err := r.open(f, format, text); err != nil {
		return nil, r.fail(err)
	}
	return r, nil
}

// begin opens a file, and gives the format that its name tells, where none is given.
func begin(path string, format Format) (*Reader, *os.File, Format, error) {
	r, f := &Reader{path: path, rows: -1}, os.Stdin
	if format == "" {
		if format, _ = named(path); format == "" && strings.Contains(filepath.Base(path), ".") {
			return nil, nil, "", r.fail(errNoFormat(orSay))
		}
	}
	if path == "-" {
		r.path = "standard input"
	} else {
		var err error
		if f, err = os.Open(path); err != nil {
			return nil, nil, "", ofInput(err)
		}
	}
	return r, f, format, nil
}

// open reads a file's columns. It takes care of the file.
func (r *Reader) open(f *os.File, format Format, text TextOptions) (err error) {
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	r.anyBytes = text.anyBytes
	s, err := f.Stat()
	if err != nil {
		return err
	}
	if s.IsDir() {
		return errors.New("not a regular file but a folder")
	}
	if !s.Mode().IsRegular() {
		spooled, err := spool(f)
		if err != nil {
			return err
		}
		f.Close()
		f = spooled
	}
	if format == "" {
		if format, err = told(f); err != nil {
			return err
		}
	}
	if s, err = f.Stat(); err != nil {
		return err
	}
	r.size, r.formats = s.Size(), []Format{format}
	r.close = f.Close
	return catch(decoding(format.text()), func() error {
		switch format {
		case Parquet:
			return r.parquet(f)
		case Arrow:
			return r.ipc(f)
		}
		return r.openText(f, format, text)
	})
}

// spool copies what can be read once to a file without a name.
func spool(from io.Reader) (*os.File, error) {
	f, err := files.Temporary("")
	if err != nil {
		return nil, spooling(err)
	}
	if _, err := io.Copy(spoolFile{f}, from); err != nil {
		f.Close()
		return nil, err
	}
	_, err = f.Seek(0, io.SeekStart)
	return f, err
}

// spoolFile says what a file is for that cannot be written.
type spoolFile struct{ f *os.File }

func (s spoolFile) Write(b []byte) (int, error) {
	n, err := s.f.Write(b)
	return n, spooling(err)
}

func spooling(err error) error {
	if err == nil {
		return nil
	}
	return &spoolError{fmt.Errorf("what can be read once goes to a temporary file in %s (TMPDIR names another "+
		"folder): %w", os.TempDir(), files.Cause(err))}
}

// spoolError is an error of a temporary file, not of the input that goes there.
type spoolError struct{ err error }

func (e *spoolError) Error() string { return e.err.Error() }
func (e *spoolError) Unwrap() error { return e.err }

// told is the format that a file's first bytes tell.
func told(f *os.File) (Format, error) {
	first := make([]byte, 8)
	n, err := f.ReadAt(first, 0)
	if err != nil && err != io.EOF {
		return "", err
	}
	if f := toldBy(first[:n]); f != "" {
		return f, nil
	}
	return "", errNoFormat(orSay)
}

// unpacked is the text of a file, whatever it is compressed with.
func unpacked(f *os.File) (textSource, error) {
	about, err := f.Stat()
	if err != nil {
		return nil, err
	}
	threads := runtime.GOMAXPROCS(0)
	u := files.Unpacking{Threads: min(threads, 4), Work: make(chan struct{}, threads), Ahead: threads, Frugal: true}
	return func() (io.ReadCloser, error) {
		return files.NewText(io.NopCloser(io.NewSectionReader(f, 0, about.Size())), u)
	}, nil
}

// textFile is a file of text whose columns are known.
type textFile struct {
	columns []textColumn
	rows    int64
	csv     *csvFile // where it is one
	// rowBytes is the mean length of the first rows, if no more were looked at; else 0
	rowBytes float64
	// read reads the columns that have a type.
	read func(types []arrow.DataType, schema *arrow.Schema) (next func() (arrow.RecordBatch, error), stop func(),
		err error)
}

// textColumn is what was seen of a column.
type textColumn struct {
	name  string
	given arrow.DataType // its type, where that was given
	seen  int            // what makes its type, where not
	made  witness        // of what made it so
}

// witness is a value that made its column's type what it is.
type witness struct {
	path  string
	line  int64 // 0 where a folder's name in path says it
	value string
}

// sighting is the first value of its class in a block's column.
type sighting struct {
	column, class int
	line          int64
	value         string
}

// see adds a sighting in a block that so many lines were before.
func (c *textColumn) see(s sighting, lines int64) {
	old := c.typ()
	if c.seen |= s.class; !arrow.TypeEqual(old, c.typ()) {
		c.made = witness{"", lines + s.line, s.value}
	}
}

func (c textColumn) typ() arrow.DataType {
	if c.given != nil {
		return c.given
	}
	return csvType(c.seen)
}

// counted counts what is read.
type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.n.Add(int64(n))
	return n, err
}

func (r *Reader) openText(f *os.File, format Format, text TextOptions) error {
	packed, err := unpacked(f)
	if err != nil {
		return err
	}
	packing, err := files.PackingIn(f)
	if err != nil {
		return err
	}
	var size atomic.Int64 // of the text: what is packed is read whole for its types
	src := func() (io.ReadCloser, error) {
		in, err := packed()
		return &counted{in, &size}, err
	}
	if packing == "" {
		about, err := f.Stat()
		if err != nil {
			return err
		}
		size.Store(about.Size())
		src = func() (io.ReadCloser, error) {
			return plainText{io.NewSectionReader(f, 0, about.Size())}, nil
		}
	} else {
		text.key = nil // nobody knows how much it is
	}
	if format == JSONL {
		if !text.alone {
			text.key = nil
		}
		r.text, err = openJSON(src, text.Types, text.key, text.anyBytes)
	} else {
		r.text, err = openCSV(src, text.dialect(format), text.Types, text.key, text.anyBytes)
	}
	if err != nil {
		return err
	}
	if r.text.csv != nil {
		text.warn(r.path, r.text.csv)
	}
	r.size = size.Load()
	for i := range r.text.columns {
		r.text.columns[i].made.path = r.path
	}
	r.rows = r.text.rows
	r.typed(r.text.columns)
	return nil
}

// asText makes a reader of CSV leave all columns text but the keys, whose values need not be read only to be written
// again.
func (r *Reader) asText(key func(name string) bool) {
	if r.text == nil || r.text.csv == nil {
		return
	}
	columns := slices.Clone(r.text.columns)
	for i, c := range columns {
		if c.seen != 0 && c.given == nil && !key(c.name) {
			columns[i].seen |= csvText
		}
	}
	r.typed(columns)
}

// typed makes a reader of text read its columns as what was seen in these.
func (r *Reader) typed(columns []textColumn) {
	fields, types := make([]arrow.Field, len(columns)), make([]arrow.DataType, len(columns))
	r.columns, r.made = columns, make([]witness, len(columns))
	for i, c := range columns {
		types[i], r.made[i] = c.typ(), c.made
		fields[i] = arrow.Field{Name: c.name, Type: types[i], Nullable: true}
	}
	r.schema = arrow.NewSchema(fields, nil)
	r.pick = func(wanted []int) {
		for i := range types {
			if !slices.Contains(wanted, i) {
				types[i] = nil
			}
		}
	}
	closeFile, stop := r.close, func() {}
	var next func() (arrow.RecordBatch, error)
	r.next = func() (rec arrow.RecordBatch, err error) {
		if next == nil {
			if next, stop, err = r.text.read(types, r.schema); err != nil {
				return nil, err
			}
		}
		return next()
	}
	r.close = func() error {
		stop()
		return closeFile()
	}
}

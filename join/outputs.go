package join

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/warpmap/warpmap/internal/files"
)

// WriteOptions say how an output is written.
type WriteOptions struct {
	Format Format // if empty, the name's suffix tells; CSV on standard output, Parquet in a folder
	// Compression is one of Compressions. If it is empty, Parquet is compressed with Snappy, text as the name says
	// (.csv.gz, .csv.zst), and Arrow not at all.
	Compression string
	// RowsPerFile makes the output a folder of files with so many rows each; the last may have fewer. 0 means one file.
	RowsPerFile int64

	widths []int // of csvRows
}

// nowhere is where nothing is kept.
const nowhere = "/dev/null"

// folder tells whether an output is a folder: by a slash behind its name, by RowsPerFile, or as it is there.
func (o WriteOptions) folder(path string) bool {
	if path == "-" {
		return false
	}
	if f, _ := named(path); o.RowsPerFile > 0 || strings.HasSuffix(path, "/") {
		return true
	} else if f != "" {
		return false
	}
	s, err := os.Stat(path)
	return err == nil && s.IsDir()
}

// format is how an output is written: its format, empty for none, and its compression.
func (o WriteOptions) format(path string) (Format, string) {
	f, packing := named(path)
	switch {
	case o.Format != "":
		f = o.Format
	case o.folder(path):
		f = Parquet
	case path == "-":
		f = CSV
	}
	if packing == "" || !f.text() || o.Compression != "" {
		packing = o.Compression
	}
	return f, packing
}

// check says what is wrong with an output before anything is read.
func (o WriteOptions) check(path string) error {
	f, packing := o.format(path)
	name := path
	if path == "-" {
		name = "standard output"
	}
	if f == "" && path != nowhere {
		return &OptionError{fmt.Sprintf("%s: %s", name, errNoFormat("; or - for CSV on standard output"))}
	}
	switch {
	case o.RowsPerFile < 0:
		return &OptionError{fmt.Sprintf("%d rows a file: want a number above 0", o.RowsPerFile)}
	case o.RowsPerFile > 0 && path == "-":
		return &OptionError{fmt.Sprintf("%d rows a file, on standard output: want the name of a folder as the output",
			o.RowsPerFile)}
	}
	if can := compressionsOf(f); packing != "" && f != "" && !slices.Contains(can, packing) {
		return &OptionError{fmt.Sprintf("%s: %s compressed with %s: want one of %s", name, f, packing,
			strings.Join(can, ", "))}
	}
	if _, says := named(path); f.text() && !o.folder(path) && says != "" && packing != says {
		return &OptionError{fmt.Sprintf("%s: the name says %s, and the compression is %s: want another name, or %s",
			path, says, packing, says)}
	}
	return nil
}

// compressionsOf lists how a format can be compressed.
func compressionsOf(f Format) []string {
	switch f {
	case Parquet:
		return Compressions()
	case Arrow:
		return []string{"none", "zstd", "lz4"}
	}
	return []string{"none", "gzip", "zstd"}
}

// Create makes a writer for a file. It is CreateAs without options: the name tells everything.
func Create(path string, schema *arrow.Schema) (*Writer, error) {
	return CreateAs(path, schema, WriteOptions{})
}

// CreateAs makes a writer for a Parquet, CSV, TSV, JSON lines or Arrow IPC file; "-" is standard output. A slash behind
// the name, or RowsPerFile, makes a folder of files part-00000 and so on. If the folder is there already, it must be
// empty. An output that is not a regular file, such as a pipe or a device, is written directly. To /dev/null, rows go
// unencoded unless a format is given.
//
// Parquet keeps the Arrow schema. Arrow files hold every type. Parquet has no unions, run-end encoding, views,
// intervals, 32- and 64-bit decimals and null fixed-size lists: these are errors. Parquet has no date64, which becomes
// date32, no time32 in seconds, which becomes milliseconds, and only dictionaries of text; other dictionaries become
// their values. CSV and TSV are text, with nested values as JSON and binary values as base64. A row of JSON lines is an
// object of all columns; dates and times are strings as in CSV.
func CreateAs(path string, schema *arrow.Schema, o WriteOptions) (*Writer, error) {
	return create(path, schema, o, parquetOptions{})
}

// create is CreateAs with options for Parquet.
func create(path string, schema *arrow.Schema, o WriteOptions, pq parquetOptions) (*Writer, error) {
	if err := o.check(path); err != nil {
		return nil, err
	}
	w := &Writer{name: path}
	format, _ := o.format(path)
	switch {
	case o.folder(path):
		var err error
		if w.folder, err = newParts(path, schema, o, pq); err != nil {
			return nil, w.fail(err)
		}
		w.enc = w.folder
		return w, nil
	case format == "": // nowhere
		pq.null = true
		e, err := newParquetEncoder(nil, schema, pq)
		w.enc = e
		return w, w.fail(err)
	}
	var err error
	if w.out, err = files.Create(path); err != nil {
		return nil, err
	}
	if path == "-" {
		w.name = "standard output"
	}
	o.Format = format
	return w.begin(path, schema, o, pq)
}

// begin makes the encoder of an output, whose path may tell how it is packed.
func (w *Writer) begin(path string, schema *arrow.Schema, o WriteOptions, pq parquetOptions) (_ *Writer, err error) {
	size := 1 << 16
	if w.out.Regular {
		size = 1 << 20
	}
	w.buf = bufio.NewWriterSize(w.out, size)
	text := io.Writer(w.buf)
	if path == "-" || !w.out.Regular { // someone may read what is there
		text = prompt{w.buf}
	}
	format, packing := o.format(path)
	err = catch("cannot be written", func() (err error) {
		switch format {
		case Parquet:
			if pq.compression, err = parseCompression(packing); err == nil {
				var e *parquetEncoder
				if e, err = newParquetEncoder(w.buf, schema, pq); err == nil {
					if w.out.Regular {
						e.file = w.out.File
					}
					w.enc = e
				}
			}
		case Arrow:
			w.enc, err = newIPCEncoder(w, schema, packing)
		case JSONL:
			w.enc, err = newTextEncoder(text, schema, jsonRows{}, packing)
		case TSV:
			w.enc, err = newTextEncoder(text, schema, csvRows{'\t', o.widths}, packing)
		default:
			w.enc, err = newTextEncoder(text, schema, csvRows{',', o.widths}, packing)
		}
		return err
	})
	if err != nil {
		w.enc = nil
		w.Abort()
		return nil, w.fail(err)
	}
	return w, nil
}

// prompt is a buffer that keeps nothing back: what is written to it comes in large pieces, where there are such.
type prompt struct{ buf *bufio.Writer }

func (p prompt) Write(b []byte) (int, error) {
	n, err := p.buf.Write(b)
	if err == nil {
		err = p.buf.Flush()
	}
	return n, err
}

// parts writes a folder of files.
type parts struct {
	files  *files.Folder
	schema *arrow.Schema
	o      WriteOptions // of a file
	pq     parquetOptions
	suffix string
	most   int64 // rows of a file
	n      int   // files so far
	w      *Writer
	rows   int64 // in the present file
	whole  int64 // rows of the files that are closed
}

// partSuffix is how the names of a folder's files end.
func partSuffix(f Format, packing string) string {
	suffix := "." + string(f)
	if f.text() {
		suffix += map[string]string{"gzip": ".gz", "zstd": ".zst"}[packing]
	}
	return suffix
}

func newParts(path string, schema *arrow.Schema, o WriteOptions, pq parquetOptions) (p *parts, err error) {
	pq.columns = nil // batches go by their types
	p = &parts{schema: schema, pq: pq, most: cmp.Or(o.RowsPerFile, math.MaxInt64)}
	p.o.Format, p.o.Compression = o.format(path + "/")
	p.o.widths = o.widths
	p.suffix = partSuffix(p.o.Format, p.o.Compression)
	if p.files, err = files.CreateFolder(path); err != nil {
		return nil, err
	}
	if err := p.next(); err != nil {
		p.files.Close(false)
		return nil, err
	}
	return p, nil
}

// next begins a file.
func (p *parts) next() (err error) {
	if p.w != nil {
		err := p.w.Close()
		p.whole += p.w.enc.written()
		if p.w = nil; err != nil { // finish and stop have no file then
			return err
		}
	}
	w := &Writer{name: fmt.Sprintf("part-%05d%s", p.n, p.suffix)} // in errors it stands behind the folder's name
	p.n, p.rows = p.n+1, 0
	if w.out, err = p.files.Create(w.name); err == nil {
		p.w, err = w.begin(w.name, p.schema, p.o, p.pq)
	}
	return err
}

func (p *parts) write(rec arrow.RecordBatch) error {
	for from := int64(0); from < rec.NumRows(); {
		if p.rows == p.most {
			if err := p.next(); err != nil {
				return err
			}
		}
		to := min(rec.NumRows(), from+p.most-p.rows)
		some := rec.NewSlice(from, to)
		err := p.w.Write(some)
		some.Release()
		if err != nil {
			return err
		}
		p.rows += to - from
		from = to
	}
	return nil
}

func (p *parts) finish() error {
	if p.w == nil {
		return errors.New("a file of the folder could not be begun")
	}
	return p.w.Close()
}

func (p *parts) written() int64 { return p.whole + p.w.enc.written() }

// stop ends what is under way.
func (p *parts) stop() {
	if p.w != nil {
		p.w.Abort()
	}
}

package join

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/files"
)

// Reader reads the rows of a file, in order, as record batches. It is an array.RecordReader. Close it after use.
type Reader struct {
	path   string
	schema *arrow.Schema
	rows   int64
	size   int64 // about, of its text or file
	// formats are those of its files, in their order
	formats  []Format
	next     func() (arrow.RecordBatch, error) // a batch that the reader owns; io.EOF at the end
	pick     func(columns []int)               // reads these columns only; nil where that saves nothing
	within   func(bytes int64) error           // makes batches of about so many bytes; nil where they are what they are
	anyBytes bool                              // texts need not be UTF-8
	close    func() error
	columns  []textColumn // of text
	made     []witness    // of text, by column
	text     *textFile    // where it is one
	pq       *parquetFile // where it is one
	live     *live        // where set, it comes through a pipe, and is read as it comes
	cols     []int        // where set: these columns, of batches that have more
	cur      arrow.RecordBatch
	err      error
}

// broken is what catch says of a decoder's panic.
const broken = "the file is broken"

// catch turns a panic into an error: of a decoder that meets a broken file, of an encoder, and of whatever runs on a
// goroutine, where nobody else could. It is a *crash.Error, a defect of warpmap's, unless the decoder is a library's,
// which panics at broken files, or the allocator refuses what a file asks for.
func catch(what string, f func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case tooMuch:
			err = fmt.Errorf("%s: %s", what, p)
		case *crash.Error:
			err = fmt.Errorf("%s: %w", what, p)
		default:
			if what == broken {
				err = fmt.Errorf("%s: %v", what, p)
			} else {
				err = fmt.Errorf("%s: %w", what, crash.Of(p))
			}
		}
	}()
	if crash.Plant != nil {
		crash.Plant()
	}
	return f()
}

// decoding is what catch says where a file is decoded: text is by our own decoders, which panic at nothing.
func decoding(text bool) string {
	if text {
		return unread
	}
	return broken
}

// tooMuch is the panic of the allocator.
type tooMuch string

// oneLine makes an error that quotes a file's bytes fit for a terminal: a line, and not a long one.
func oneLine(err error) error {
	const most = 500
	text := err.Error()
	if len(text) <= most && !strings.ContainsFunc(text, unicode.IsControl) {
		return err
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " …"
	}
	return &shortened{text, err}
}

type shortened struct {
	text string
	err  error
}

func (e *shortened) Error() string { return e.text }
func (e *shortened) Unwrap() error { return e.err }

// bounded is an allocator that refuses what the machine cannot give. A broken length in a file would end the process;
// so it is a panic, which catch makes an error.
type bounded struct{ memory.Allocator }

var allocator = bounded{memory.DefaultAllocator}

var machine = sync.OnceValue(machineMemory)

func (b bounded) check(size int) {
	if size < 0 || uint64(size) > machine() {
		panic(tooMuch(fmt.Sprintf("it asks for %d bytes at once, and the machine has %d", size, machine())))
	}
}

func (b bounded) Allocate(size int) []byte {
	b.check(size)
	return b.Allocator.Allocate(size)
}

func (b bounded) Reallocate(size int, old []byte) []byte {
	b.check(size)
	return b.Allocator.Reallocate(size, old)
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

func (r *Reader) ipc(f *os.File) error {
	s, err := f.Stat()
	if err != nil {
		return err
	}
	magic := make([]byte, len(ipc.Magic))
	if _, err := f.ReadAt(magic, 0); err != nil && err != io.EOF {
		return err
	}
	options := []ipc.Option{ipc.WithAllocator(allocator), ipc.WithMetadataSizeLimit(s.Size()),
		ipc.WithBodySizeLimit(s.Size())}
	if string(magic) == string(ipc.Magic) {
		if r.size, err = checkArrowFile(f, s.Size()); err != nil {
			return fmt.Errorf("not a readable Arrow file: %w", err)
		}
		fr, err := ipc.NewFileReader(f, options...)
		if err != nil {
			return fmt.Errorf("not a readable Arrow file: %w", err)
		}
		r.schema = arrow.NewSchema(fr.Schema().Fields(), nil)
		i := 0
		r.next = func() (arrow.RecordBatch, error) {
			if i == fr.NumRecords() {
				return nil, io.EOF
			}
			i++
			rec, err := fr.RecordBatchAt(i - 1)
			if err != nil {
				return nil, err
			}
			return rec, sound(rec, r.anyBytes)
		}
		r.close = func() error { return cmp.Or(fr.Close(), f.Close()) }
		return nil
	}
	if r.size, err = checkArrowStream(f, s.Size()); err != nil {
		return fmt.Errorf("not a readable Arrow file or stream: %w", err)
	}
	sr, err := ipc.NewReader(bufio.NewReaderSize(f, 1<<20), options...)
	if err != nil {
		return fmt.Errorf("not a readable Arrow file or stream: %w", err)
	}
	r.arrowBatches(sr, f.Close)
	return nil
}

// arrowBatches reads the batches of an Arrow stream.
func (r *Reader) arrowBatches(sr *ipc.Reader, end func() error) {
	r.schema = arrow.NewSchema(sr.Schema().Fields(), nil)
	r.next = func() (arrow.RecordBatch, error) {
		if !sr.Next() {
			if err := sr.Err(); err != nil {
				return nil, err
			}
			return nil, io.EOF
		}
		rec := sr.RecordBatch()
		rec.Retain()
		return rec, sound(rec, r.anyBytes)
	}
	r.close = func() error { sr.Release(); return end() }
}

// sound checks what an Arrow file says of its columns: offsets, indices and lengths are used as they stand afterwards.
// With anyBytes texts need not be UTF-8, and nobody looks at nested values.
func sound(rec arrow.RecordBatch, anyBytes bool) error {
	if rec.NumRows() > math.MaxInt32 { // columns of nulls alone have room for any number
		return fmt.Errorf("a batch of %d rows: at most %d are possible", rec.NumRows(), math.MaxInt32)
	}
	for i, c := range rec.Columns() {
		if _, nested := c.DataType().(arrow.NestedType); nested && anyBytes {
			continue
		}
		a := array.MakeFromData(buffered(c.Data(), anyBytes))
		err := cmp.Or(array.ValidateFull(a), scalesFit(c.DataType()))
		a.Release()
		if err != nil {
			return fmt.Errorf("%s: column %q: %w", broken, rec.Schema().Field(i).Name, err)
		}
	}
	return nil
}

// mostScale is how many places decimals have behind the point, or zeros before it: as many as the widest has digits.
const mostScale = 76

// scalesFit refuses decimals with a scale that no digits fill: their text would have as many zeros as a file says.
func scalesFit(t arrow.DataType) error {
	switch t := t.(type) {
	case arrow.DecimalType:
		if s := t.GetScale(); s < -mostScale || s > mostScale {
			return fmt.Errorf("a decimal with a scale of %d: want %d at most", s, mostScale)
		}
	case *arrow.DictionaryType:
		return scalesFit(t.ValueType)
	case arrow.NestedType:
		for _, f := range t.Fields() {
			if err := scalesFit(f.Type); err != nil {
				return err
			}
		}
	}
	return nil
}

// buffered gives nulls the buffer that a file lets out, and that ValidateFull wants. With anyBytes it gives texts a
// type of which that does not want UTF-8.
func buffered(d arrow.ArrayData, anyBytes bool) arrow.ArrayData {
	buffers, children := slices.Clone(d.Buffers()), slices.Clone(d.Children())
	if len(buffers) == 0 {
		buffers = []*memory.Buffer{nil}
	}
	for i := range children {
		children[i] = buffered(children[i], false)
	}
	is := d.DataType()
	if anyBytes {
		is = asBytes(is)
	}
	out := array.NewData(is, d.Len(), buffers, children, d.NullN(), d.Offset())
	if dict, ok := d.Dictionary().(*array.Data); ok && dict != nil {
		out.SetDictionary(buffered(dict, anyBytes))
	}
	return out
}

// asBytes is a type whose texts are bytes.
func asBytes(t arrow.DataType) arrow.DataType {
	switch t := t.(type) {
	case *arrow.StringType:
		return arrow.BinaryTypes.Binary
	case *arrow.LargeStringType:
		return arrow.BinaryTypes.LargeBinary
	case *arrow.StringViewType:
		return arrow.BinaryTypes.BinaryView
	case *arrow.DictionaryType:
		return &arrow.DictionaryType{IndexType: t.IndexType, ValueType: asBytes(t.ValueType), Ordered: t.Ordered}
	}
	return t
}

// only restricts a reader that has not started to columns of its schema, by their numbers in rising order.
func (r *Reader) only(cols []int) {
	var fields []arrow.Field
	for _, c := range cols {
		fields = append(fields, r.schema.Field(c))
	}
	r.schema = arrow.NewSchema(fields, nil)
	if r.pick != nil {
		r.pick(cols)
	} else {
		r.cols = cols
	}
}

// Schema gives the file's columns.
func (r *Reader) Schema() *arrow.Schema { return r.schema }

// Rows is the number of rows in the file, or -1 if its format does not tell.
func (r *Reader) Rows() int64 { return r.rows }

// Next reads a batch, which RecordBatch gives until the next call of Next. It returns false at the end or on an error.
func (r *Reader) Next() bool {
	if r.cur != nil {
		r.cur.Release()
		r.cur = nil
	}
	if r.err != nil {
		return false
	}
	err := catch(decoding(r.text != nil), func() (err error) { r.cur, err = r.next(); return err })
	if err != nil {
		r.cur = nil
		if r.err = io.EOF; err != io.EOF {
			r.err = r.fail(err)
		}
		return false
	}
	cols := r.cur.Columns()
	if r.cols != nil {
		cols = nil
		for _, c := range r.cols {
			cols = append(cols, r.cur.Column(c))
		}
	}
	rec := array.NewRecordBatch(r.schema, cols, r.cur.NumRows())
	r.cur.Release()
	r.cur = rec
	return true
}

// fail says which file an error is of. Where there are several, they say so themselves.
func (r *Reader) fail(err error) error {
	if r.path == "" {
		return err
	}
	of := fmt.Errorf("%s: %w", r.path, oneLine(err))
	if errors.As(err, new(*spoolError)) {
		return of
	}
	return &InputError{of}
}

// InputError is an error of an input: it cannot be read, or it cannot be joined as was asked for.
type InputError struct{ err error }

func (e *InputError) Error() string { return e.err.Error() }
func (e *InputError) Unwrap() error { return e.err }

// ofInput makes an error one of an input, nil none.
func ofInput(err error) error {
	if err == nil {
		return nil
	}
	return &InputError{err}
}

// RecordBatch gives the present batch.
func (r *Reader) RecordBatch() arrow.RecordBatch { return r.cur }

// Record is the old name of RecordBatch.
func (r *Reader) Record() arrow.RecordBatch { return r.cur }

// Err is the error that ended the reading. It is nil at the file's end.
func (r *Reader) Err() error {
	if r.err == io.EOF {
		return nil
	}
	return r.err
}

// Retain and Release do nothing: Close ends a Reader.
func (r *Reader) Retain()  {}
func (r *Reader) Release() {}

// Close closes the file.
func (r *Reader) Close() error {
	if r.cur != nil {
		r.cur.Release()
		r.cur = nil
	}
	if r.err == nil {
		r.err = io.EOF
	}
	return ignoreClosed(r.close())
}

// encoder writes record batches in one format.
type encoder interface {
	write(rec arrow.RecordBatch) error
	finish() error
	// written returns the number of rows that were encoded and passed to the file. It is final after finish.
	written() int64
}

// Writer writes record batches to a file. Before Close, nothing appears under the file's name: the rows go to a hidden
// file beside it, which Abort removes.
type Writer struct {
	enc    encoder
	buf    *bufio.Writer
	out    *files.Output // nil of a folder, and where nothing is kept
	folder *parts        // where the output is one
	name   string        // as the caller knows it
	rows   int64         // that the file must have when it is closed
	done   bool
	spool  *os.File // without a name, while an encoder needs one
	failed error    // of a Write
}

// columns is the encoder of row groups of columns, nil for the other formats.
func (w *Writer) columns() *parquetEncoder {
	e, _ := w.enc.(*parquetEncoder)
	return e
}

// Write appends a batch of the writer's schema. After an error the file cannot be whole: later calls, Close among them,
// return that error.
func (w *Writer) Write(rec arrow.RecordBatch) error {
	if w.done {
		return fmt.Errorf("%s: written to after Close", w.name)
	}
	if w.failed == nil {
		w.failed = w.fail(catch("cannot be written", func() error { return w.enc.write(rec) }))
		w.rows += rec.NumRows()
	}
	return w.failed
}

// fail says what went wrong with the file that the caller named, not with the hidden one.
func (w *Writer) fail(err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, oneLine(files.Cause(err)))
	}
	return nil
}

// Close ends the file and renames it to its own name. If Close returns an error, a file that had that name before is
// unchanged, unless the error says that the file is written and that its name may not be on the disk.
func (w *Writer) Close() error {
	if w.done {
		return nil
	}
	defer w.Abort()
	if w.failed != nil {
		return w.failed
	}
	err := catch("cannot be written", w.enc.finish)
	if err == nil && w.buf != nil {
		err = w.buf.Flush()
	}
	if err == nil && w.enc.written() != w.rows {
		err = crash.Of(fmt.Sprintf("%d rows were written, want %d", w.enc.written(), w.rows))
	}
	if err != nil {
		return w.fail(err)
	}
	return w.fail(w.end(true))
}

// Abort gives the file up. After Close it does nothing.
func (w *Writer) Abort() {
	if w.done {
		return
	}
	if e, ok := w.enc.(interface{ stop() }); ok {
		e.stop() // what is under way
	}
	w.end(false)
}

// end closes all files.
func (w *Writer) end(whole bool) error {
	w.done = true
	if w.spool != nil {
		w.spool.Close()
	}
	switch {
	case w.folder != nil:
		return w.folder.files.Close(whole)
	case w.out != nil:
		return w.out.Close(whole)
	}
	return nil
}

// RemoveHidden removes the hidden files of all writers that neither Close nor Abort has ended, and lets no new ones be
// created. It is for a process that has to end at once, while a call that cannot be interrupted still runs.
func RemoveHidden() { files.RemoveHidden() }

type ipcEncoder struct {
	w     *ipc.FileWriter
	flush func() error // after each batch
	rows  int64
}

func newIPCEncoder(w *Writer, schema *arrow.Schema, packing string) (encoder, error) {
	options := []ipc.Option{ipc.WithSchema(schema)}
	switch packing {
	case "zstd":
		options = append(options, ipc.WithZstd())
	case "lz4":
		options = append(options, ipc.WithLZ4())
	}
	fw, err := ipc.NewFileWriter(w.buf, options...)
	if err != nil {
		return nil, fmt.Errorf("as an Arrow file: %w", err)
	}
	if !slices.ContainsFunc(schema.Fields(), func(f arrow.Field) bool { return hasDictionary(f.Type) }) {
		flush := func() error { return nil }
		if w.out != nil && !w.out.Regular {
			flush = w.buf.Flush // someone may read what is there
		}
		return &ipcEncoder{w: fw, flush: flush}, nil
	}
	e := &spoolEncoder{out: fw, schema: schema}
	beside := "" // the folder of temporary files
	if w.out != nil && w.out.Regular {
		beside = filepath.Dir(w.out.Name())
	}
	if e.spool, err = files.Temporary(beside); err != nil {
		return nil, err
	}
	e.w = ipc.NewWriter(e.spool, ipc.WithSchema(schema))
	w.spool = e.spool
	return e, nil
}

func (e *ipcEncoder) write(rec arrow.RecordBatch) error {
	err := e.w.Write(rec)
	if err == nil {
		e.rows += rec.NumRows()
		err = e.flush()
	}
	return err
}

func (e *ipcEncoder) finish() error  { return e.w.Close() }
func (e *ipcEncoder) written() int64 { return e.rows }

func hasDictionary(t arrow.DataType) bool {
	switch t := t.(type) {
	case *arrow.DictionaryType:
		return true
	case arrow.ExtensionType:
		return hasDictionary(t.StorageType())
	case arrow.NestedType:
		return slices.ContainsFunc(t.Fields(), func(f arrow.Field) bool { return hasDictionary(f.Type) })
	}
	return false
}

// spoolEncoder writes an Arrow file with dictionaries. A file has one dictionary for each column, while batches may
// come with several: so they go to a stream beside the file first, which is copied when all dictionaries are known.
type spoolEncoder struct {
	spool  *os.File
	w      *ipc.Writer
	out    *ipc.FileWriter
	schema *arrow.Schema
	rows   int64
}

func (e *spoolEncoder) write(rec arrow.RecordBatch) error { return e.w.Write(rec) }
func (e *spoolEncoder) written() int64                    { return e.rows }

func (e *spoolEncoder) finish() error {
	if err := e.w.Close(); err != nil {
		return err
	}
	husks := make([][]arrow.ArrayData, e.schema.NumFields())
	err := e.read(func(_ int, rec arrow.RecordBatch) error {
		for i := range husks {
			husks[i] = append(husks[i], husk(rec.Column(i).Data()))
		}
		return nil
	})
	if err != nil {
		return err
	}
	takers := make([]*taker, len(husks))
	for i, h := range husks {
		if takers[i], err = newTaker(e.schema.Field(i).Type, slices.Clone(h)); err != nil {
			return fmt.Errorf("column %q: %w", e.schema.Field(i).Name, err)
		}
	}
	err = e.read(func(batch int, rec arrow.RecordBatch) error {
		rows := make([]loc, rec.NumRows())
		for i := range rows {
			rows[i] = loc{batch, i}
		}
		cols := make([]arrow.Array, len(takers))
		for i, t := range takers {
			t.set(batch, rec.Column(i).Data())
			data, err := t.take(rows)
			if err != nil {
				return fmt.Errorf("column %q: %w", e.schema.Field(i).Name, err)
			}
			cols[i] = array.MakeFromData(data)
			data.Release()
			defer cols[i].Release()
			t.set(batch, husks[i][batch])
		}
		out := array.NewRecordBatch(e.schema, cols, rec.NumRows())
		defer out.Release()
		e.rows += out.NumRows()
		return e.out.Write(out)
	})
	if err != nil {
		return err
	}
	return e.out.Close()
}

// read reads the spooled batches back.
func (e *spoolEncoder) read(f func(batch int, rec arrow.RecordBatch) error) error {
	if _, err := e.spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r, err := ipc.NewReader(bufio.NewReaderSize(e.spool, 1<<20), ipc.WithMetadataSizeLimit(0), ipc.WithBodySizeLimit(0))
	if err != nil {
		return err
	}
	defer r.Release()
	for i := 0; r.Next(); i++ {
		if err := f(i, r.RecordBatch()); err != nil {
			return err
		}
	}
	return r.Err()
}

// husk is an array of no rows that keeps the dictionaries of d alone.
func husk(d arrow.ArrayData) arrow.ArrayData {
	children := make([]arrow.ArrayData, len(d.Children()))
	for i, c := range d.Children() {
		children[i] = husk(c)
	}
	var dict *array.Data
	if t, ok := d.Dictionary().(*array.Data); ok {
		dict = t
	}
	h := array.NewData(d.DataType(), 0, make([]*memory.Buffer, len(d.Buffers())), children, 0, 0)
	h.SetDictionary(dict)
	return h
}

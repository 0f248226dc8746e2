package genome

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// InputError is what is wrong with an input, and where.
type InputError struct {
	Input string
	Line  int64 // the first is 1; 0 where it is of the whole input
	Err   error
}

func (e *InputError) Error() string {
	err := e.Err
	if of := (*fs.PathError)(nil); errors.As(err, &of) && of.Path == e.Input {
		err = of.Err
	}
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.Input, err)
	}
	return fmt.Sprintf("%s:%d: %v", e.Input, e.Line, err)
}

func (e *InputError) Unwrap() error { return e.Err }

// suffixes are the endings of the files that are read of a folder, with or without one of packings behind.
var (
	suffixes = []string{".fa", ".fasta", ".fna", ".ffn", ".frn", ".fas", ".fsa", ".fq", ".fastq"}
	packings = []string{".gz", ".gzip", ".bgz", ".zst", ".zstd"}
)

// Expand gives the files that inputs name: each is a file, "-" for standard input, a pattern (with ** for folders within folders), or a folder,
// which stands for the files below it whose names end as those of sequences do (.fa, .fasta, .fna, .fq, .fastq and the like, also with .gz or .zst behind).
// Those of a pattern or folder come in the order of their names. Errors: *InputError for an input that names nothing.
func Expand(inputs []string) (files []string, err error) {
	for _, input := range inputs {
		found, err := expand(input)
		if err != nil {
			return nil, &InputError{Input: input, Err: plainError(err)}
		}
		files = append(files, found...)
	}
	return files, nil
}

// plainError is an error of a file without the file's name, which stands before it.
func plainError(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

func expand(input string) (found []string, err error) {
	if input == "-" {
		return []string{input}, nil
	}
	s, err := os.Stat(input)
	switch {
	case err == nil && !s.IsDir():
		return []string{input}, nil
	case err == nil:
		err = filepath.WalkDir(input, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && ofSequences(path) {
				found = append(found, path)
			}
			return err
		})
		if err == nil && found == nil {
			err = fmt.Errorf("a folder without files whose names end in one of %s: name the files", strings.Join(suffixes, ", "))
		}
		return found, err
	case !strings.ContainsAny(input, "*?[{"):
		return nil, err
	}
	found, err = doublestar.FilepathGlob(input, doublestar.WithFilesOnly())
	if err == nil && found == nil {
		err = errors.New("a pattern that no file matches")
	}
	slices.Sort(found)
	return found, err
}

func ofSequences(path string) bool {
	name := strings.ToLower(filepath.Base(path))
	for _, p := range packings {
		name = strings.TrimSuffix(name, p)
	}
	return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

// open opens an input.
func (s *stream) open(in *input) (f *source, err error) {
	o := s.o
	f = &source{s: s, in: in, want: o.BlockBytes}
	if in.name == "-" && o.Open == nil {
		f.text, f.stop, err = o.unpack(bufio.NewReaderSize(os.Stdin, unpackBytes))
		return f, err
	}
	var from io.ReadCloser
	if o.Open != nil {
		f.want = min(f.want, openedBlockBytes)
		from, err = o.Open(in.name)
	} else {
		from, err = os.Open(in.name)
	}
	if err != nil {
		return nil, err
	}
	if file, is := from.(*os.File); is && o.Open == nil { // else nobody says that it is read from its begin
		if size, ok := sizeOf(file); ok {
			f.file, f.size, f.stop = file, size, func() { file.Close() }
			return f, nil
		}
	}
	b := bufio.NewReaderSize(from, unpackBytes)
	if o.Open == nil && peekMember(b) > 0 { // what others opened may not be read and closed at once
		m, stop, wait := unpackMembers(b, 2*s.ahead, s.unpack)
		f.text, f.stop = packed{m, "gzip"}, func() { stop(); from.Close(); wait() }
		return f, nil
	}
	text, end, err := o.unpack(b)
	if err != nil {
		from.Close()
		return nil, err
	}
	f.text, f.stop = text, func() { end(); from.Close() }
	return f, nil
}

// sizeOf is the size of a plain, regular file, which may be read anywhere; ok is false for others.
func sizeOf(file *os.File) (size int64, ok bool) {
	about, err := file.Stat()
	if err != nil || !about.Mode().IsRegular() {
		return 0, false
	}
	first := make([]byte, packingBytes)
	n, err := file.ReadAt(first, 0)
	return about.Size(), (err == nil || err == io.EOF) && packingOf(first[:n]) == ""
}

// foreign are the first bytes of what users take for sequences, and what they can do.
var foreign = []struct{ first, what string }{
	{"BZh", "bzip2 data: unpack it, as with bzip2 -dc FILE | …"}, {"\xfd7zXZ\x00", "xz data: unpack it, as with xz -dc FILE | …"}, {"PK\x03\x04", "a zip archive: unpack it"},
	{"\xef\xbb\xbf", "a byte order mark stands before the text: take its three bytes away"},
	{"\xff\xfe", "UTF-16 text: make it UTF-8 or ASCII"}, {"\xfe\xff", "UTF-16 text: make it UTF-8 or ASCII"},
}

// neither is the error of a text that is no sequences.
func neither(text []byte) error {
	for _, f := range foreign {
		if bytes.HasPrefix(text, []byte(f.first)) {
			return errors.New(f.what)
		}
	}
	return errNeither
}

// OpenText opens a text file, and unpacks it where its content says that it is packed with gzip or zstd. Errors: the system's.
func OpenText(name string) (io.ReadCloser, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	text, end, err := Options{}.unpack(bufio.NewReaderSize(f, unpackBytes))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &textFile{text, f, end}, nil
}

type textFile struct {
	io.Reader
	file *os.File
	end  func()
}

func (f *textFile) Close() error {
	f.end()
	return f.file.Close()
}

// unpackBytes is how much of a packed input is read at once: more than the longest header of a member.
const unpackBytes = 1 << 18

// packingBytes is how many bytes tell how a file is packed.
const packingBytes = 4

// packingOf is how a text with these first bytes is packed: gzip, zstd, or not at all.
func packingOf(first []byte) string {
	switch {
	case bytes.HasPrefix(first, []byte{0x1f, 0x8b}):
		return "gzip"
	case bytes.Equal(first, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return "zstd"
	}
	return ""
}

// unpack gives the text of what may be packed. The first bytes tell.
func (o Options) unpack(b *bufio.Reader) (text io.Reader, stop func(), err error) {
	first, err := b.Peek(packingBytes)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	switch how := packingOf(first); how {
	case "gzip":
		return packed{&gzipText{from: b}, how}, func() {}, nil
	case "zstd":
		d := []zstd.DOption{zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(mostWindow)}
		if o.MaxLetters > 0 {
			d = append(d, zstd.WithDecoderMaxWindow(windowBytes), zstd.WithDecoderLowmem(true))
		}
		z, err := zstd.NewReader(b, d...)
		if err != nil {
			return nil, nil, packingError(how, err)
		}
		return packed{z, how}, z.Close, nil
	}
	return b, func() {}, nil
}

// gzipText is the text of gzip's members in a row. Zeros behind the last are no more than room that a tape or a disk had, as gzip has it.
type gzipText struct {
	from *bufio.Reader
	z    *gzip.Reader
	in   bool // a member
}

// errBehind is what stands behind gzip data and is none.
var errBehind = errors.New("other data stands behind it: cut that off")

func (g *gzipText) Read(to []byte) (int, error) {
	for {
		if !g.in {
			if err := g.next(); err != nil {
				return 0, err
			}
		}
		n, err := g.z.Read(to)
		if err != io.EOF {
			return n, err
		}
		if g.in = false; n > 0 {
			return n, nil
		}
	}
}

// next begins the next member.
func (g *gzipText) next() error {
	head, err := g.from.Peek(1)
	for ; err == nil && head[0] == 0; head, err = g.from.Peek(1) {
		g.from.Discard(1)
	}
	if err != nil {
		return err
	}
	if more, err := g.from.Peek(2); head[0] != 0x1f || err == nil && packingOf(more) != "gzip" {
		return errBehind
	}
	if g.z == nil {
		g.z = new(gzip.Reader)
	}
	if err := g.z.Reset(g.from); err == io.EOF { // within the header: something is there
		return io.ErrUnexpectedEOF
	} else if err != nil {
		return err
	}
	g.z.Multistream(false)
	g.in = true
	return nil
}

// packed is text that is unpacked while it is read.
type packed struct {
	text io.Reader
	how  string
}

func (p packed) Read(to []byte) (int, error) {
	n, err := p.text.Read(to)
	if err != nil && err != io.EOF {
		err = packingError(p.how, err)
	}
	return n, err
}

func packingError(how string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
		return fmt.Errorf("the %s data ends too early: the file is not whole", how)
	}
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return fmt.Errorf("zstd data that takes more memory than it is given, as of zstd --long: unpack it, as with zstd -d --long=31, or pack it anew: %w", err)
	}
	return fmt.Errorf("%s data that cannot be unpacked: %w", how, err)
}

package files

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"
)

const (
	// unpackBytes is how much of an input is read at once.
	unpackBytes = 1 << 18
	// packingBytes is how many bytes tell how a file is packed.
	packingBytes = 4
	// mostWindow is the window of zstd's data at most, as of the command zstd: a few bytes can ask for gigabytes.
	mostWindow = 128 << 20
	// boundedWindow is that of inputs that nobody vouches for.
	boundedWindow = 8 << 20
)

// Unpacking says how packed text is unpacked. The zero value is good.
type Unpacking struct {
	// Bounded is for inputs that nobody vouches for: windows of zstd have at most 8 MiB, not 128.
	Bounded bool
	Threads int // how many threads unpack a long frame of zstd; 0 for one
	// Work bounds the goroutines that unpack gzip data, and frames of zstd: each takes a place in it. Ahead is how
	// many members of BGZF, 32 at a time, may be ahead of the reader, or how many pieces of other gzip data or frames,
	// which take 10 to 20 MiB each, and up to 50 where text is ten times as long as its data. Without Work, and with
	// few places but for BGZF, the data is unpacked in a row. If the input is closed, a Read of it that waits must
	// end, unless Waits is set.
	Work  chan struct{}
	Ahead int
	// Waits tells that a Read which waits may not end when the input is closed, as of standard input: then Close
	// leaves it waiting.
	Waits bool
	// Frugal leaves out what takes much memory: gzip data but for BGZF, and frames of zstd, are unpacked in a row.
	Frugal bool
}

// closing is what closes a text that goroutines unpack.
func (u Unpacking) closing(stop, wait func(), input func() error) func() error {
	return func() error {
		if !u.Waits {
			defer wait()
		}
		stop()
		return input()
	}
}

// Text is a text that is unpacked while it is read, if it is packed.
type Text struct {
	Packing string // gzip, zstd, or empty
	from    io.Reader
	close   func() error
}

// OpenText opens a text file. Errors: the system's; see NewText.
func OpenText(name string) (*Text, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return NewText(f, Unpacking{})
}

// NewText gives the text of an input that may be packed: the first bytes tell. Close closes the input; NewText closes
// it on an error. Errors, also of Read: those of the input; what is wrong with the packing.
func NewText(from io.ReadCloser, u Unpacking) (*Text, error) {
	b := bufio.NewReaderSize(from, unpackBytes)
	first, err := b.Peek(packingBytes)
	if err != nil && err != io.EOF {
		from.Close()
		return nil, err
	}
	t := &Text{Packing: PackingOf(first), from: b, close: from.Close}
	switch {
	case t.Packing == "zstd":
		d := []zstd.DOption{zstd.WithDecoderConcurrency(max(1, u.Threads)), zstd.WithDecoderMaxWindow(mostWindow)}
		if u.Bounded {
			d = append(d, zstd.WithDecoderMaxWindow(boundedWindow), zstd.WithDecoderLowmem(true))
		} else if cap(u.Work) > fewWorkers && !u.Frugal {
			return t.frames(b, u, d)
		}
		z, err := zstd.NewReader(b, d...)
		if err != nil {
			from.Close()
			return nil, t.broken(err)
		}
		t.from, t.close = z, func() error { z.Close(); return from.Close() }
	case t.Packing == "gzip" && u.Work != nil && peekMember(b) > 0:
		m, stop, wait := unpackMembers(b, u.Ahead, u.Work)
		t.from, t.close = m, u.closing(stop, wait, from.Close)
	case t.Packing == "gzip" && cap(u.Work) > fewWorkers && !u.Frugal && !isSmall(from):
		g, stop, wait := newGunzip(going{b}, pieceBytes, max(2, min(u.Ahead, cap(u.Work)*3/2)), u.Work)
		t.from, t.close = g, u.closing(stop, wait, from.Close)
	case t.Packing == "gzip":
		t.from = newRow(going{b})
	}
	return t, nil
}

// going is an input that gives something, or an error. An input that again and again gives neither has an error here.
type going struct{ b *bufio.Reader }

func (g going) Read(to []byte) (int, error) {
	n, err := g.b.Read(to)
	if n > 0 || err != nil || len(to) == 0 {
		return n, err
	}
	if _, err := g.b.Peek(1); err != nil { // io.ErrNoProgress after a hundred times
		return 0, err
	}
	return g.b.Read(to)
}

// isSmall tells that an input is a file of so few bytes that it is unpacked sooner in a row.
func isSmall(from io.Reader) bool {
	f, ok := from.(*os.File)
	if !ok {
		return false
	}
	about, err := f.Stat()
	return err == nil && about.Mode().IsRegular() && about.Size() <= pieceBytes
}

// frames has t unpack frames of zstd beside one another.
func (t *Text) frames(b *bufio.Reader, u Unpacking, row []zstd.DOption) (*Text, error) {
	f, stop, wait, err := unpackFrames(b, u.Ahead, u.Work, row)
	if err != nil {
		t.close()
		return nil, err
	}
	t.from, t.close = f, u.closing(stop, wait, t.close)
	return t, nil
}

// PackingOf tells how a text with these first bytes is packed: gzip, zstd, or not at all. Four bytes are enough.
func PackingOf(first []byte) string {
	switch {
	case bytes.HasPrefix(first, []byte{0x1f, 0x8b}):
		return "gzip"
	case bytes.HasPrefix(first, []byte{0x28, 0xb5, 0x2f, 0xfd}), isSkipped(first):
		return "zstd"
	}
	return ""
}

// PackingIn tells how a file is packed that may be read at any place: see PackingOf.
func PackingIn(file io.ReaderAt) (string, error) {
	first := make([]byte, packingBytes)
	n, err := file.ReadAt(first, 0)
	if err == io.EOF {
		err = nil
	}
	return PackingOf(first[:n]), err
}

// Read reads text.
func (t *Text) Read(to []byte) (int, error) {
	n, err := t.from.Read(to)
	if err != nil && err != io.EOF && t.Packing != "" {
		err = t.broken(err)
	}
	return n, err
}

// Close ends the reading, and closes what the text comes from.
func (t *Text) Close() error { return t.close() }

// broken is an error of packed data.
func (t *Text) broken(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF:
		return fmt.Errorf("the %s data ends too early: the file is not whole", t.Packing)
	case errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fmt.Errorf("zstd data that takes more memory than it is given, as of zstd --long: "+
			"unpack it, as with zstd -d --long=31, or pack it anew: %w", err)
	}
	return fmt.Errorf("%s data that cannot be unpacked: %w", t.Packing, err)
}

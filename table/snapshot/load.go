package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/table"
)

// Load puts what Save wrote into the table. The table must be empty, and of the same kind and types; its family, device
// and capacity may be others. While one part goes in, the next is read. Memory: two parts of 32 MiB, or of one entry
// (of 64 MiB where keys are text), besides what Insert says; files of older versions of warpmap may have larger blocks.
// Load reads r to its end.
//
// Load believes nothing that it has not checked, and no part goes in before it is checked; Load takes memory only as
// bytes come. Errors: what is wrong with the file; *table.FullError; the context's, which Load looks at once a block.
// After an error the table is empty. But a table that was not empty before, of whatever kind, stays as it was. To see
// that a filter is empty, Load reads it once on its device.
//
// Into a table over members of a job (package shard) each member loads a file of its own, and all call Load: it ends
// when all files are in. Save writes such files, and there may be more or fewer members then. If one member's file
// cannot be loaded, all get an error, and the table is empty.
func (t *Table) Load(ctx context.Context, r io.Reader) error {
	in, err := newReader(r)
	if err != nil {
		return t.told(err)
	}
	return in.Load(ctx, t)
}

// told tells other members of a job what is wrong with this one's file.
func (t *Table) told(wrong error) error {
	if t.members == nil {
		return wrong
	}
	_, err := t.members(0, wrong)
	return err
}

// LoadFile loads the file at path: see Load.
func (t *Table) LoadFile(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return t.told(fmt.Errorf("snapshot: %w", err))
	}
	defer f.Close()
	if err := t.Load(ctx, f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Reader reads a file whose header is already read. It is for programs that make the table by what the header says.
type Reader struct {
	Header Header
	in     reader
	known  bool // the file is as long as the header says
}

// NewReader reads the header. Errors: what is wrong with it. A filter is made as large as the header says. So if the
// length of its file is not known, and the filter has more than 32 MiB, NewReader reads all of the file: its bytes must
// come before anything is made of that size.
func NewReader(r io.Reader) (*Reader, error) {
	x, err := newReader(r)
	if err == nil && x.Header.Form != nil && !x.known && x.Header.Len > believed {
		err = x.readAll()
	}
	if err != nil {
		return nil, err
	}
	return x, nil
}

// readAll reads the rest of a file of a filter into memory, which is taken as bytes come.
func (x *Reader) readAll() error {
	blocks := x.Header.Len + 1 // at most, and the end
	most := 8*x.Header.Len + blocks*(partBytes+2*sumBytes)
	rest, err := io.ReadAll(io.LimitReader(x.in.r, most+1))
	if err != nil {
		return fmt.Errorf("snapshot: reading: %w", err)
	}
	if int64(len(rest))/8 < x.Header.Len {
		return x.tooShort(int64(len(rest)))
	}
	x.in.r, x.known = bytes.NewReader(rest), true
	return nil
}

func (x *Reader) tooShort(size int64) error {
	h := &x.Header
	return fmt.Errorf(
		"snapshot: %d bytes cannot hold %d entries of %d: the file was cut off, or saving it did not end: %w", size,
		h.Len, h.rowBytes(), io.ErrUnexpectedEOF)
}

func newReader(r io.Reader) (*Reader, error) {
	size := int64(-1)
	switch r := r.(type) {
	case *os.File:
		if s, err := r.Stat(); err == nil && s.Mode().IsRegular() {
			size = s.Size()
		}
	case *bytes.Reader:
		size = int64(r.Len())
	case *bytes.Buffer:
		size = int64(r.Len())
	}
	x := &Reader{in: reader{r: bufio.NewReaderSize(r, 1<<16)}}
	h, err := x.in.header()
	if err != nil {
		return nil, err
	}
	x.Header = h
	if size >= 0 {
		if size/h.rowBytes() < h.Len {
			return nil, x.tooShort(size)
		}
		x.known = true
	}
	return x, nil
}

// Where the length of a file is not known, what its header says of it is believed so far: a table is made as large as
// for so many entries, or so many times as many as came.
const (
	believed = 1 << 22
	tenfold  = 8
)

// readPart is how many bytes are read at once.
const readPart = 1 << 20

// loading is a table on its way in. One goroutine reads and checks, and another puts what was read into the table.
type loading struct {
	t    *Table
	rows [2]rows
	room int        // entries that go in together, at most, but for a larger block
	came chan error // of the put that is under way
	busy bool

	put, reserved int64 // entries
	x             *Reader

	// Over several members of a job: all go on while one has entries, and an error of one is everybody's.
	together  bool
	over, all bool // no member has any more; all know of the error
}

// Load puts the rest of the file into the table: see Table.Load.
func (x *Reader) Load(ctx context.Context, t *Table) (err error) {
	together := false
	if err = t.takes(&x.Header); t.members != nil {
		var all []int
		all, err = t.members(0, err)
		together = len(all) > 1
	}
	if err != nil {
		return err
	}
	l := &loading{t: t, x: x, together: together, rows: [2]rows{t.rows(), t.rows()}, came: make(chan error, 1),
		room: int(max(1, min(int64(x.Header.blockRows()), x.Header.Len)))}
	defer func() { // of a panic, too
		if e := l.wait(); err == nil {
			err = e
		}
		if err != nil {
			if l.together && !l.all {
				err = t.told(err)
			}
			if e := t.clear(); e != nil && !errors.Is(e, table.ErrClosed) {
				err = fmt.Errorf("%w; and the table cannot be cleared: %w", err, e)
			}
		}
	}()
	return l.run(ctx)
}

func (l *loading) run(ctx context.Context) error {
	filled, total := 0, int64(0)
	for which := 0; ; {
		if err := crash.Ended(ctx); err != nil {
			return err
		}
		tag, n, err := l.x.in.part()
		switch {
		case err != nil:
			return err
		case tag == tagEnd:
			if n != uint64(total) {
				return fmt.Errorf("snapshot: the file says that it has %d entries, and has %d: it is damaged", n, total)
			}
			if form := l.t.form; form != nil && total != form.Words {
				return fmt.Errorf("snapshot: the file has %d words of %d: it is damaged", total, form.Words)
			}
			if err := l.x.in.over(); err != nil {
				return err
			}
			err := errors.Join(l.begin(which, filled), l.wait())
			for err == nil && l.together && !l.over {
				err = errors.Join(l.begin(which, 0), l.wait())
			}
			return err
		case tag != tagRows || n == 0 || n > mostRows:
			return fmt.Errorf(
				"snapshot: a block %q of %d entries at byte %d (want %q of 1 to %d, or %q): the file is damaged", tag,
				n, l.x.in.at, tagRows, mostRows, tagEnd)
		}
		rows := int(n)
		if n > uint64(l.x.Header.Len-total) {
			return fmt.Errorf("snapshot: the file says that it has %d entries, and has %d or more: it is damaged",
				l.x.Header.Len, uint64(total)+n)
		}
		// Over members nothing goes in if nothing is there yet: a member whose word is 0 has no more.
		if filled > 0 && (filled+rows > l.room || l.rows[which].text != nil && len(*l.rows[which].text) > mostBytes) {
			if err := l.begin(which, filled); err != nil {
				return err
			}
			filled, which = 0, 1-which
		}
		l.room = max(l.room, rows) // files of older versions have larger blocks
		if err := l.read(&l.rows[which], filled, rows); err != nil {
			return err
		}
		filled += rows
		total += int64(rows)
		l.t.tell(total, l.x.Header.Len)
	}
}

// read reads a block of n entries behind those that are there already, and checks it. Memory is taken as bytes come,
// for the file may have fewer entries than it says.
func (l *loading) read(r *rows, filled, n int) error {
	for _, c := range r.columns {
		part := n
		if c.size() > 0 {
			part = max(1, readPart/c.size())
		}
		for from, end := filled, filled+n; from < end; {
			to := min(from+part, end)
			if c.room() < to {
				c.grow(min(max(2*c.room(), to), max(l.room, end)), from)
			}
			if err := l.x.in.read(c.bytes(from, to), "a block"); err != nil {
				return err
			}
			from = to
		}
	}
	if err := l.x.in.seal("a block"); err != nil || r.text == nil {
		return err
	}
	return l.readText(r, filled, n)
}

// readText reads the text of n keys, whose lengths are there: memory is taken as bytes come, for the file may be
// shorter than it says.
func (l *loading) readText(r *rows, filled, n int) error {
	if filled == 0 {
		*r.text = (*r.text)[:0]
	}
	total := uint64(0)
	for b := r.columns[0].bytes(filled, filled+n); len(b) > 0; b = b[8:] {
		length := binary.LittleEndian.Uint64(b)
		if length > mostText || total+length > mostText {
			return fmt.Errorf("snapshot: a key of %d bytes behind %d of others in the block that ends at byte %d: "+
				"the file is none that package snapshot wrote", length, total, l.x.in.at)
		}
		total += length
	}
	for total > 0 {
		part, before := int(min(total, readPart)), len(*r.text)
		*r.text = slices.Grow(*r.text, part)[:before+part]
		if err := l.x.in.read((*r.text)[before:], "the text of a block"); err != nil {
			return err
		}
		total -= uint64(part)
	}
	return l.x.in.seal("the text of a block")
}

// begin begins to put entries into the table, once those before are in.
func (l *loading) begin(which, n int) error {
	if err := l.wait(); err != nil || n == 0 && !l.together {
		return err
	}
	l.busy = true
	first, r := l.put, l.rows[which]
	l.put += int64(n)
	go func() {
		l.came <- crash.Catch(func() error {
			if l.together {
				all, err := l.t.members(n, nil)
				l.all, l.over = err != nil, err == nil && slices.Max(all) == 0
				if err != nil || l.over {
					return err
				}
			} else if err := l.reserve(first + int64(n)); err != nil {
				return err
			}
			return r.put(first, n)
		})
	}()
	return nil
}

func (l *loading) wait() error {
	if !l.busy {
		return nil
	}
	l.busy = false
	if err := <-l.came; err != nil {
		return fmt.Errorf("snapshot: loading: %w", err)
	}
	return nil
}

// reserve makes the table as large as all entries need, as far as it is known how many these are. A table that may not
// be so large tells later what does not fit.
func (l *loading) reserve(n int64) error {
	all := l.x.Header.Len
	if l.t.reserve == nil || l.reserved >= all || l.reserved > 0 && n <= l.reserved {
		return nil
	}
	l.reserved = all
	if !l.x.known {
		l.reserved = min(all, max(believed, tenfold*n))
	}
	err := l.t.reserve(int(l.reserved))
	if errors.Is(err, table.ErrMaxBytes) || device.IsOutOfMemory(err) {
		return nil
	}
	return err
}

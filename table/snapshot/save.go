package snapshot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/warpmap/warpmap/table"
)

// Save writes the table to w: while one part of it is written, the next is brought from the device. Memory: see table.Map's Chunks; what is
// said there of those who change the table meanwhile holds: Save then fails with table.ErrChanged. Cost: the table is read once.
//
// Errors: w's, and the context's too; what was written until then is of no use.
func (t *Table) Save(ctx context.Context, w io.Writer) error {
	h, err := t.header()
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(w)
	out, done := &writer{w: buffered}, int64(0)
	if err := out.header(&h); err != nil {
		return fmt.Errorf("snapshot: writing: %w", err)
	}
	err = t.chunks(ctx, func(n int, columns ...[]byte) error {
		step, text := h.blockRows(), []byte(nil)
		if t.text { // a chunk of strings is a block
			columns, text = columns[:len(columns)-1], columns[len(columns)-1]
			step = n
		}
		for first := 0; first < n; first += step {
			rows := min(n-first, step)
			if err := out.block(first, rows, n, columns, t.text, text); err != nil {
				return fmt.Errorf("snapshot: writing: %w", err)
			}
			done += int64(rows)
			t.tell(done, h.Len)
		}
		return nil
	})
	if err == nil && done != h.Len { // who loads it believes the header
		err = fmt.Errorf("snapshot: %w", table.ErrChanged)
	}
	if err == nil {
		if err = errors.Join(out.part(tagEnd, done), buffered.Flush()); err != nil {
			err = fmt.Errorf("snapshot: writing: %w", err)
		}
	}
	return err
}

// block writes some of n rows, and where keys are text that, too.
func (w *writer) block(first, rows, n int, columns [][]byte, isText bool, text []byte) error {
	err := w.part(tagRows, int64(rows))
	for _, c := range columns {
		size := len(c) / n
		if err == nil {
			err = w.write(c[first*size : (first+rows)*size])
		}
	}
	if err == nil {
		err = w.seal()
	}
	if err == nil && isText {
		err = errors.Join(w.write(text), w.seal())
	}
	return err
}

func (t *Table) tell(done, total int64) {
	if t.Progress != nil {
		t.Progress(done, total)
	}
}

// SaveFile saves the table as a file, in the place of one that may be there. It is written beside it, under another name that ends in ".tmp", and then
// renamed, once all is on the disk: whatever happens meanwhile, the file is the old one or the new, and whole. A program that is killed
// leaves the other behind.
func (t *Table) SaveFile(ctx context.Context, path string) error {
	f, err := temporary(path)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	there := false
	defer func() {
		if !there { // for an error, or a panic
			f.Close()
			os.Remove(f.Name())
		}
	}()
	err = t.Save(ctx, f)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("snapshot: %s is not saved: %w", path, err)
	}
	there = true
	return syncFolder(filepath.Dir(path))
}

// temporary makes a file beside another, with the rights that new files have.
func temporary(path string) (f *os.File, err error) {
	for i := range 10_000 {
		f, err = os.OpenFile(fmt.Sprintf("%s.%d.%d.tmp", path, os.Getpid(), i), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, os.ErrExist) {
			break
		}
	}
	return f, err
}

// syncFolder brings the names in a folder to the disk.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("snapshot: the file is written, but perhaps its name is not on the disk: %w", err)
	}
	return nil
}

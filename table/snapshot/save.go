package snapshot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/warpmap/warpmap/internal/files"
	"github.com/warpmap/warpmap/table"
)

// Save writes the table to w: while one part of it is written, the next is brought from the device. Memory: see
// table.Map's Chunks; what is said there of those who change the table meanwhile holds: Save then fails with
// table.ErrChanged. Cost: the table is read once.
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

// SaveFile saves the table as a file, in the place of one that may be there: where a link leads, and with the mode of
// the old file. It is written beside it, to a hidden file whose name ends in ".tmp", and renamed once all is on the
// disk: whatever happens meanwhile, the file is the old one or the new, and whole. A program that is killed leaves the
// other behind. A pipe or a device is written to as it is.
func (t *Table) SaveFile(ctx context.Context, path string) error {
	if err := files.WriteFile(path, func(f *os.File) error { return t.Save(ctx, f) }); err != nil {
		return fmt.Errorf("snapshot: %s is not saved: %w", path, files.Cause(err))
	}
	return nil
}

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

// Save writes the table to w. While one part of it is written, the next is brought from the device. Memory: see Chunks
// of table.Map. If a call changes the table meanwhile, Save fails with table.ErrChanged, as Chunks does. Cost: the
// table is read once. Of a table over members of a job (package shard), each member saves its own part.
//
// Errors: w's, and the context's; what was written until then is of no use.
func (t *Table) Save(ctx context.Context, w io.Writer) error {
	h, err := t.header()
	if err == nil && t.saving != nil {
		h.Cache, err = t.saving()
	}
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

// SaveFile saves the table as the file at path. If there is a file already, SaveFile replaces it, follows links to it,
// and keeps its mode. It writes a hidden file beside it, whose name ends in ".tmp", and renames that once all is on the
// disk. So whatever happens meanwhile, the file is the old one or the new one, and whole. A program that is killed
// leaves the hidden file behind. SaveFile writes to a pipe or a device directly.
func (t *Table) SaveFile(ctx context.Context, path string) error {
	if err := files.WriteFile(path, func(f *os.File) error { return t.Save(ctx, f) }); err != nil {
		return fmt.Errorf("snapshot: %s is not saved: %w", path, files.Cause(err))
	}
	return nil
}

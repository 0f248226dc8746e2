package flight

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/warpmap/warpmap/internal/columnar"
	"github.com/warpmap/warpmap/internal/journal"
)

// Fsync is when what was done is on the disk.
type Fsync = journal.Sync

// When the log is synced: never by the server, within a second or two, or before a batch is answered. NoLog is without
// a log.
const (
	NoLog            = journal.NoLog
	FsyncNever       = journal.SyncNever
	FsyncEverySecond = journal.SyncEverySecond
	FsyncAlways      = journal.SyncAlways
)

// DamagedLogError says which log of Options.Folder is damaged, and where.
type DamagedLogError = journal.DamagedError

// logs tells whether what is done to tables is logged.
func (t *tables) logs() bool { return t.journal != nil && t.journal.Sync != journal.NoLog }

// writable refuses what the log could not have.
func (t *tables) writable() error {
	if !t.logs() {
		return nil
	}
	if err := t.journal.Err(); err != nil {
		return status.Errorf(codes.Unavailable, "the log cannot be written, so nothing is: %v", err)
	}
	t.journal.Wait()
	return nil
}

// commit returns when all that was done may be acknowledged. Errors: the system's, and then it may be gone after a
// crash.
func (t *tables) commit() error {
	if !t.logs() {
		return nil
	}
	if err := t.journal.Commit(); err != nil {
		return fmt.Errorf("it is done, but the log cannot be written: %w", err)
	}
	return nil
}

// redo is what the log has done to tables so far.
type redo struct {
	t       *tables
	ctx     context.Context
	byID    map[uint64]*entry
	dropped map[uint64]bool
	absent  map[uint64]string // names of tables that the log has changes of, and that are not there
}

// replay does again what the log has behind the tables' snapshots, and begins the next log.
func (t *tables) replay(ctx context.Context) error {
	r := &redo{t, ctx, map[uint64]*entry{}, map[uint64]bool{}, map[uint64]string{}}
	for _, e := range t.list() {
		r.byID[e.ID()] = e
	}
	first := uint64(0)
	if all, err := t.journal.Numbers(journal.LogName); err != nil {
		return err
	} else if len(all) > 0 {
		first = all[0]
	}
	if err := t.journal.Replay(first, t.o.Repair, r.do); err != nil {
		return err
	}
	for _, name := range r.absent {
		if t.all[name] == nil && !t.o.Repair {
			return &DamagedLogError{Name: t.path(name), Why: "it is missing, and the log has changes of this table"}
		}
		t.o.Log.Printf("table %q: what the log has of another one of this name is left out", name)
	}
	if err := t.removeLeft(); err != nil {
		return err
	}
	if !t.logs() {
		return t.endLogs(ctx)
	}
	if err := t.journal.Start(); err != nil {
		return err
	}
	for id, name := range r.absent {
		columnar.LogDropped(t.journal, id, name)
	}
	for _, e := range t.list() {
		e.LogTo(t.journal)
	}
	return nil
}

// endLogs makes snapshots of what logs have, and removes these: what is done now is in none.
func (t *tables) endLogs(ctx context.Context) error {
	if t.journal.Logged() == 0 {
		return nil
	}
	if err := t.save(ctx, ""); err != nil {
		return err
	}
	return t.journal.Remove(journal.LogName, t.journal.Number+1)
}

// do does what a record says.
func (r *redo) do(head, body []byte) error {
	if r.ctx.Err() != nil {
		return journal.Stop(context.Cause(r.ctx))
	}
	t, c := r.t, columnar.ParseChange(head, body)
	e := r.byID[c.ID]
	if e != nil && e.Schema().Name != c.Name {
		return fmt.Errorf("a change of table %q, which is %q", c.Name, e.Schema().Name)
	}
	switch {
	case c.Kind == columnar.Dropped:
		r.dropped[c.ID] = true
		delete(r.absent, c.ID)
		if e != nil {
			delete(r.byID, c.ID)
			delete(t.all, c.Name)
			t.left[c.Name] = true
			return journal.Stop(e.Close())
		}
	case e == nil && c.Kind == columnar.Created && t.all[c.Name] == nil:
		x, err := c.Table(t.o.Devices, columnar.Options{Budget: &t.budget})
		if err != nil {
			return err
		}
		e = &entry{Table: x}
		e.changes.Store(-1)
		r.byID[c.ID], t.all[c.Name] = e, e
	case e == nil && !r.dropped[c.ID]: // it is older than the one of its name that is there, if there is one
		r.absent[c.ID] = c.Name
	case e == nil || c.Kind == columnar.Created:
	default:
		err := e.Redo(c, false)
		if gap := (*columnar.GapError)(nil); errors.As(err, &gap) && t.o.Repair {
			t.o.Log.Printf("the log has lost changes: %v", err)
			err = e.Redo(c, true)
		}
		return err
	}
	return nil
}

// removeLeft removes the files of tables that were dropped, unless there are others of their names, whose snapshots
// replace them.
func (t *tables) removeLeft() error {
	for name := range t.left {
		t.mu.Lock()
		is := t.all[name] != nil
		t.mu.Unlock()
		if !is {
			if err := os.Remove(t.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	if len(t.left) == 0 {
		return nil
	}
	if err := journal.SyncFolder(t.o.Folder); err != nil {
		return err
	}
	clear(t.left)
	return nil
}

func (t *tables) path(name string) string { return filepath.Join(t.o.Folder, name+suffix) }

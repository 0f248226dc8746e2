package flight

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/warpmap/warpmap/internal/columnar"
	"github.com/warpmap/warpmap/internal/files"
	"github.com/warpmap/warpmap/internal/journal"
	"github.com/warpmap/warpmap/table"
)

// Spec says which table to make.
type Spec struct {
	Name     string
	Columns  string       // as in "id:int64,price:float64?"
	Keys     []string     // at least one
	Values   []string     // nil: all columns that are no keys; empty: none, the table is a set
	Family   table.Family // empty: chosen
	Capacity int          // rows to make room for at once
}

// tables are those of a server.
type tables struct {
	o      *Options
	budget columnar.Budget
	saved  atomic.Int64 // when the last snapshot was made, in seconds since 1970
	failed atomic.Bool  // the last was not

	journal *journal.Journal // of Options.Folder; nil: there is none

	saving sync.Mutex      // held by who writes or removes files
	left   map[string]bool // tables that were dropped whose files may be there; guarded by saving
	mu     sync.Mutex
	all    map[string]*entry
	making map[string]bool // those that will be among them; guarded by mu
}

// entry is a table, and what its file has of it.
type entry struct {
	*columnar.Table
	changes atomic.Int64 // of the table when its file was written, -1 without one
	bytes   atomic.Int64 // of the file
}

const suffix = ".table"

// read loads the files of the folder, and does again what the log has.
func (t *tables) read(ctx context.Context) error {
	if t.o.Folder == "" {
		return nil
	}
	var err error
	if t.journal, err = journal.Open(t.o.Folder, t.o.Fsync, columnar.LogFormat, t.o.Log); err != nil {
		return err
	}
	entries, err := os.ReadDir(t.o.Folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), suffix)
		if !is || strings.HasPrefix(name, ".") {
			continue
		}
		x, err := t.load(ctx, name)
		if err != nil {
			return err
		}
		t.all[name] = x
	}
	return t.replay(ctx)
}

// load reads a table's file.
func (t *tables) load(ctx context.Context, name string) (*entry, error) {
	path := t.path(name)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	about, err := f.Stat()
	if err != nil {
		return nil, err
	}
	x, err := columnar.Load(ctx, f, t.o.Devices, columnar.Options{Budget: &t.budget})
	if err == nil && x.Schema().Name != name {
		x.Close()
		err = fmt.Errorf("it is of table %q", x.Schema().Name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	e := &entry{Table: x}
	e.changes.Store(x.Changes())
	e.bytes.Store(about.Size())
	return e, nil
}

// get gives a table.
func (t *tables) get(name string) (*entry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.all[name]; e != nil {
		return e, nil
	}
	return nil, status.Errorf(codes.NotFound, "no table %q", name)
}

// on does what a call wants of a table, and once more where another of the same columns has taken its place, as load
// does. Errors: those of do; the table was dropped.
func (t *tables) on(e **entry, do func(e *entry) error) error {
	for {
		err := do(*e)
		if !errors.Is(err, table.ErrClosed) {
			return err
		}
		was := (*e).Schema()
		next, err := t.get(was.Name)
		if err != nil || next == *e || len(next.Schema().Keys) != len(was.Keys) ||
			columnar.Describe(next.Schema().All()) != columnar.Describe(was.All()) {
			return status.Errorf(codes.NotFound, "table %q was dropped", was.Name)
		}
		*e = next
	}
}

// list gives all tables, by their names.
func (t *tables) list() (all []*entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.all {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *entry) int { return strings.Compare(a.Schema().Name, b.Schema().Name) })
	return all
}

// create makes an empty table.
func (t *tables) create(s Spec) (*entry, error) {
	columns, err := columnar.Parse(s.Columns)
	if err != nil {
		return nil, err
	}
	return t.make(s, columns)
}

func (t *tables) make(s Spec, columns []columnar.Column) (*entry, error) {
	schema, err := columnar.Split(s.Name, columns, s.Keys, s.Values)
	if err != nil {
		return nil, err
	}
	x, err := columnar.New(t.o.Devices, schema, columnar.Options{Family: s.Family, Capacity: s.Capacity,
		Budget: &t.budget})
	if err != nil {
		return nil, err
	}
	return &entry{Table: x}, nil
}

// add lets clients see a table, which is empty. Errors: one of the name is there, or with a log its file, which would
// be taken for the table after a crash; there are too many; those of writable and of commit.
func (t *tables) add(e *entry) error {
	if err := t.writable(); err != nil {
		return err
	}
	if path := t.path(e.Schema().Name); t.logs() {
		if _, err := os.Lstat(path); err == nil {
			return status.Errorf(codes.AlreadyExists, "there is a file %s: load it, or remove it", path)
		}
	}
	e.changes.Store(-1)
	t.mu.Lock()
	err := t.room(e.Schema().Name)
	if err == nil && t.logs() {
		err = e.LogCreated(t.journal)
	}
	if err == nil {
		t.place(e)
	}
	t.mu.Unlock()
	if err != nil {
		return err
	}
	return t.commit()
}

// addFilled is add of a table that has rows: with a log it has a snapshot first, for no log has the rows.
func (t *tables) addFilled(ctx context.Context, e *entry) error {
	name := e.Schema().Name
	t.mu.Lock()
	err := t.room(name)
	if err == nil {
		t.making[name] = true
	}
	t.mu.Unlock()
	if err != nil {
		return err
	}
	e.Renew() // it may be a copy of another
	e.changes.Store(-1)
	if t.logs() {
		t.saving.Lock()
		defer t.saving.Unlock()
		err = t.write(ctx, e)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.making, name)
	if !isWritten(err) {
		return err
	}
	t.place(e)
	if err != nil {
		t.o.Log.Print(err)
	}
	return nil
}

// isWritten tells whether a table's file is the new one, though perhaps not on the disk: then it is the table, for it
// would be after a crash.
func isWritten(err error) bool { return err == nil || errors.As(err, new(*files.NameError)) }

// room tells whether there may be another table, of this name. The caller holds mu.
func (t *tables) room(name string) error {
	if t.all[name] != nil || t.making[name] {
		return status.Errorf(codes.AlreadyExists, "there is a table %q", name)
	}
	if n := len(t.all) + len(t.making); n >= t.o.Tables {
		return status.Errorf(codes.ResourceExhausted, "there are %d tables, as many as may be", n)
	}
	return nil
}

// place puts a table among the others, or in the place of another, and has it logged from then on. The caller holds mu.
func (t *tables) place(e *entry) (old *entry) {
	name := e.Schema().Name
	if old = t.all[name]; t.logs() {
		if e.LogTo(t.journal); old != nil {
			columnar.LogDropped(t.journal, old.ID(), name)
		}
	}
	t.all[name] = e
	return old
}

// drop removes a table and its file.
func (t *tables) drop(name string) error {
	if err := t.writable(); err != nil {
		return err
	}
	t.saving.Lock()
	defer t.saving.Unlock()
	t.mu.Lock()
	e := t.all[name]
	delete(t.all, name)
	if e != nil && t.logs() { // before there may be another of the name
		columnar.LogDropped(t.journal, e.ID(), name)
	}
	t.mu.Unlock()
	if e == nil {
		return status.Errorf(codes.NotFound, "no table %q", name)
	}
	err := e.Close()
	if t.o.Folder == "" {
		return err
	}
	t.left[name] = true
	if failed := t.journal.Flush(); failed != nil { // until then a crash must leave the file
		return errors.Join(err, fmt.Errorf("it is dropped, but the log cannot be written: %w", failed))
	}
	if failed := os.Remove(t.path(name)); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
		return errors.Join(err, failed)
	}
	return errors.Join(err, t.removeLeft())
}

// reload puts what a table's file has in its place. With a log that becomes the file of another table, which no changes
// in the log are of.
func (t *tables) reload(ctx context.Context, name string) error {
	if t.o.Folder == "" {
		return errNoFolder
	}
	if name == "" || strings.ContainsAny(name, `/\`) || strings.HasPrefix(name, ".") {
		return status.Errorf(codes.InvalidArgument, "no table's name: %q", name)
	}
	if err := t.writable(); err != nil {
		return err
	}
	t.saving.Lock()
	defer t.saving.Unlock()
	e, err := t.load(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return status.Errorf(codes.NotFound, "there is no snapshot of a table %q", name)
	} else if err != nil {
		return err
	}
	var unsure error
	if t.logs() {
		e.Renew()
		if unsure = t.write(ctx, e); !isWritten(unsure) {
			return errors.Join(unsure, e.Close())
		}
	}
	t.mu.Lock()
	if t.all[name] == nil {
		err = t.room(name)
	}
	var old *entry
	if err == nil {
		old = t.place(e)
	}
	t.mu.Unlock()
	if err != nil {
		return errors.Join(err, e.Close())
	}
	if err = errors.Join(unsure, t.commit()); old != nil {
		err = errors.Join(err, old.Close())
	}
	return err
}

var errNoFolder = status.Error(codes.FailedPrecondition, "the server has no folder for snapshots")

// save writes the files of tables that have changed since: of that of the name, or of all where it is empty.
func (t *tables) save(ctx context.Context, name string) (err error) {
	if t.o.Folder == "" {
		return errNoFolder
	}
	t.saving.Lock()
	defer t.saving.Unlock()
	ends := name == "" && t.logs() && t.journal.Logged() > int64(len(columnar.LogFormat.Magic))
	if ends {
		if err := t.journal.Begin(); err != nil {
			t.failed.Store(true)
			return fmt.Errorf("no log for what comes behind snapshots: %w", err)
		}
	}
	all := t.list()
	if name != "" {
		e, err := t.get(name)
		if err != nil {
			return err
		}
		all = []*entry{e}
	}
	for _, e := range all {
		if e.changes.Load() == e.Changes() {
			continue
		}
		if failed := t.write(ctx, e); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	if ends {
		err = errors.Join(err, t.end(err == nil))
	}
	if t.failed.Store(err != nil); err == nil {
		t.saved.Store(time.Now().Unix())
	}
	return err
}

// end ends the logs before the newest one, where snapshots of all tables have what is in them.
func (t *tables) end(saved bool) error {
	if saved {
		if err := t.removeLeft(); err != nil {
			return errors.Join(err, t.journal.End(false))
		}
	}
	if err := t.journal.End(saved); err != nil || !saved {
		return err
	}
	return t.journal.Remove(journal.LogName, t.journal.Number)
}

// write writes a table's file.
func (t *tables) write(ctx context.Context, e *entry) error {
	changes, bytes := e.Changes(), int64(0)
	err := files.WriteFile(t.path(e.Schema().Name), func(f *os.File) error {
		if err := e.Save(ctx, f); err != nil {
			return err
		}
		if t.logs() { // else a crash could leave this without what came before, of other tables
			t.journal.Flush() // what cannot be written is in snapshots alone
		}
		about, err := f.Stat()
		if err == nil {
			bytes = about.Size()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("a snapshot of table %q: %w", e.Schema().Name, err)
	}
	e.changes.Store(changes)
	e.bytes.Store(bytes)
	return nil
}

// close closes all. It is idempotent.
func (t *tables) close() error {
	t.saving.Lock()
	defer t.saving.Unlock()
	var err error
	for _, e := range t.list() {
		err = errors.Join(err, e.Close())
	}
	if t.journal != nil {
		err = errors.Join(err, t.journal.Close())
	}
	return err
}

// logged tells how many bytes the log has, and whether that is so much that snapshots should replace it.
func (t *tables) logged() (n int64, much bool) {
	if !t.logs() {
		return 0, false
	}
	n = t.journal.Logged()
	files := int64(0)
	for _, e := range t.list() {
		files += e.bytes.Load()
	}
	return n, n > max(mostLogged, 2*files)
}

// mostLogged is how many bytes a log may have, or twice as many as snapshots have, before it is replaced.
var mostLogged = int64(64 << 20) // tests have fewer

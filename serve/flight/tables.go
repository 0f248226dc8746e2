package flight

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/warpmap/warpmap/internal/columnar"
	"github.com/warpmap/warpmap/internal/files"
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

	saving sync.Mutex // held by who writes or removes files
	mu     sync.Mutex
	all    map[string]*entry
}

// entry is a table, and what its file has of it.
type entry struct {
	*columnar.Table
	changes atomic.Int64 // of the table when its file was written, -1 without one
}

const suffix = ".table"

// read loads the files of the folder.
func (t *tables) read(ctx context.Context) error {
	if t.o.Folder == "" {
		return nil
	}
	if err := os.MkdirAll(t.o.Folder, 0o777); err != nil {
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
	return nil
}

// load reads a table's file.
func (t *tables) load(ctx context.Context, name string) (*entry, error) {
	path := filepath.Join(t.o.Folder, name+suffix)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
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

// add lets clients see a table. Errors: one of the name is there; there are too many.
func (t *tables) add(e *entry) error {
	name := e.Schema().Name
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[name] != nil {
		return status.Errorf(codes.AlreadyExists, "there is a table %q", name)
	}
	if len(t.all) >= t.o.Tables {
		return status.Errorf(codes.ResourceExhausted, "there are %d tables, as many as may be", len(t.all))
	}
	e.changes.Store(-1)
	t.all[name] = e
	return nil
}

// drop removes a table and its file.
func (t *tables) drop(name string) error {
	t.saving.Lock()
	defer t.saving.Unlock()
	t.mu.Lock()
	e := t.all[name]
	delete(t.all, name)
	t.mu.Unlock()
	if e == nil {
		return status.Errorf(codes.NotFound, "no table %q", name)
	}
	var err error
	if t.o.Folder != "" {
		if err = os.Remove(filepath.Join(t.o.Folder, name+suffix)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return errors.Join(err, e.Close())
}

// reload puts what a table's file has in its place.
func (t *tables) reload(ctx context.Context, name string) error {
	if t.o.Folder == "" {
		return errNoFolder
	}
	if name == "" || strings.ContainsAny(name, `/\`) || strings.HasPrefix(name, ".") {
		return status.Errorf(codes.InvalidArgument, "no table's name: %q", name)
	}
	t.saving.Lock()
	defer t.saving.Unlock()
	e, err := t.load(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return status.Errorf(codes.NotFound, "there is no snapshot of a table %q", name)
	} else if err != nil {
		return err
	}
	t.mu.Lock()
	old := t.all[name]
	if full := old == nil && len(t.all) >= t.o.Tables; full {
		t.mu.Unlock()
		e.Close()
		return status.Errorf(codes.ResourceExhausted, "there are %d tables, as many as may be", t.o.Tables)
	}
	t.all[name] = e
	t.mu.Unlock()
	if old != nil {
		return old.Close()
	}
	return nil
}

var errNoFolder = status.Error(codes.FailedPrecondition, "the server has no folder for snapshots")

// save writes the files of tables that have changed since: of that of the name, or of all where it is empty.
func (t *tables) save(ctx context.Context, name string) (err error) {
	if t.o.Folder == "" {
		return errNoFolder
	}
	t.saving.Lock()
	defer t.saving.Unlock()
	all := t.list()
	if name != "" {
		e, err := t.get(name)
		if err != nil {
			return err
		}
		all = []*entry{e}
	}
	for _, e := range all {
		changes := e.Changes()
		if e.changes.Load() == changes {
			continue
		}
		path := filepath.Join(t.o.Folder, e.Schema().Name+suffix)
		failed := files.WriteFile(path, func(f *os.File) error { return e.Save(ctx, f) })
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("a snapshot of table %q: %w", e.Schema().Name, failed))
			continue
		}
		e.changes.Store(changes)
	}
	if t.failed.Store(err != nil); err == nil {
		t.saved.Store(time.Now().Unix())
	}
	return err
}

// close closes all.
func (t *tables) close() (err error) {
	for _, e := range t.list() {
		err = errors.Join(err, e.Close())
	}
	return err
}

package columnar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/journal"
	"github.com/warpmap/warpmap/table"
)

// Mode is what Put does with the rows of a batch.
type Mode string

// The modes. Insert puts or replaces, InsertNew puts rows whose keys are absent, Delete removes keys. Add, Min and Max
// combine values with those that are there, and put rows whose keys are absent.
const (
	Insert    Mode = "insert"
	InsertNew Mode = "insert-new"
	Add       Mode = "add"
	Min       Mode = "min"
	Max       Mode = "max"
	Delete    Mode = "delete"
)

// Modes are all modes.
var Modes = []Mode{Insert, InsertNew, Add, Min, Max, Delete}

// Options are those of a table.
type Options struct {
	Name     string       // of a table that is loaded; empty: its file's
	Family   table.Family // empty: the root package chooses
	Capacity int          // rows to make room for at once
	Budget   *Budget      // of value columns in host memory; nil: no bound
}

// Table is a table of columns. All methods are safe for use by several goroutines. Make one with New.
type Table struct {
	schema  Schema
	options Options
	packing packing
	index   index
	finds   gatherer
	rows    *rows        // nil: the values are in the index
	width   int          // bytes of a value in the index
	changes atomic.Int64 // writes that may have changed something

	writing sync.RWMutex // held by who writes; shared by those that read all rows
	using   sync.RWMutex // held by who changes rows; shared by those that read some
	closed  bool         // guarded by both

	id     uint64           // of the table in logs
	number uint64           // of the last change that was logged; guarded by writing
	log    *journal.Journal // guarded by writing; nil: none
	owed   Batch            // keys of a batch that may be done in part, and is not in the log; guarded by writing
}

// ErrClosed is the error of a table that was closed or dropped.
var ErrClosed = fmt.Errorf("columnar: %w", table.ErrClosed)

// New makes an empty table over devices; one with text keys, or with keys of more than 8 bytes, is on the first alone.
// Errors: a schema that no table has; those of warpmap.New. Cost: that of warpmap.New.
func New(devices []*device.Device, s Schema, o Options) (*Table, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if o.Budget == nil {
		o.Budget = &Budget{}
	}
	t := &Table{schema: s, options: o, packing: newPacking(s.Keys), id: newID()}
	value := arrow.DataType(arrow.PrimitiveTypes.Int64)
	switch {
	case len(s.Values) == 0 && t.packing.width > 0:
		value = nil
	case t.packing.width > 0 && len(s.Values) == 1 && inline(s.Values[0]):
		value = s.Values[0].Type
		t.width = value.(arrow.FixedWidthDataType).BitWidth() / 8
	default:
		t.rows = newRows(s.Values, o.Budget)
		t.width = 8
	}
	var err error
	if t.index, err = newIndex(devices, t.packing.width, value, o); err != nil {
		return nil, fmt.Errorf("table %q: %w", s.Name, err)
	}
	t.finds = gatherer{of: t.index, width: t.width}
	return t, nil
}

// inline tells whether the values of a column go into the index.
func inline(c Column) bool {
	f, _ := formOf(c.Type)
	return !c.Nullable && f.kind == fixed && (f.width == 4 || f.width == 8)
}

// Schema is what the table has. The caller does not change it.
func (t *Table) Schema() *Schema { return &t.schema }

// Changes counts the writes until now.
func (t *Table) Changes() int64 { return t.changes.Load() }

// Find looks up rows of a batch of the key columns, in the schema's order, from the given one on. The frame has the
// columns of Schema.Reply for the rows from..next-1: all that are left, or as many as take no more than most bytes, and
// one at least. A null among the keys is absent. Errors: the table's; ErrClosed.
//
// Cost: one batch of the index for the frame; rows in host memory are copied one by one.
func (t *Table) Find(b Batch, from int, most int64, alloc Alloc) (f Frame, next int, err error) {
	each := int64(t.width + 1)
	if t.rows != nil {
		each = t.rows.rowBytes()
	}
	rows := int(min(int64(b.Rows-from), max(1, most/each))) // no more are looked up than may go into the frame
	k := t.packing.pack(b.Columns, from, from+rows)
	if t.rows != nil {
		t.using.RLock()
		defer t.using.RUnlock()
		if t.closed {
			return f, 0, ErrClosed
		}
		numbers, found := make([]int64, k.n), make([]bool, k.n)
		if err := t.finds.find(k, bytesOf(numbers), found); err != nil {
			return f, 0, err
		}
		absent(b, from, found)
		for i, is := range found {
			if !is {
				numbers[i] = -1
			}
		}
		n := t.rows.within(numbers, most)
		flags := Data{Fixed: bytesOf(found[:n])}
		f = Encode(t.schema.Reply(), Batch{n, append(t.rows.gather(numbers[:n]), flags)}, alloc)
		return f, from + n, nil
	}
	f, err = t.findInline(k, b, from, alloc)
	return f, from + k.n, err
}

// findInline is Find where values are in the index, which writes them where they are sent from.
func (t *Table) findInline(k keys, b Batch, from int, alloc Alloc) (f Frame, err error) {
	var l layout
	bitmap := bitmapBytes(k.n)
	valid, values := 0, 0
	if t.width > 0 {
		l.column(k.n, 0)
		valid, values = l.buffer(bitmap), l.buffer(k.n*t.width)
	}
	l.column(k.n, 0)
	l.buffer(0)
	flags := l.buffer(bitmap)
	body, found := alloc(l.bodySize()), make([]bool, k.n)
	out := body[values : values+k.n*t.width]
	if err := t.finds.find(k, out, found); err != nil {
		return f, err
	}
	absent(b, from, found)
	set := packBits(body[flags:flags+bitmap], found)
	clear(body[flags+bitmap:])
	if t.width > 0 {
		l.nodes[0][1] = int64(k.n - set)
		copy(body[valid:], body[flags:flags+bitmap])
		clear(body[valid+bitmap : values])
		clear(body[values+k.n*t.width : flags])
	}
	return Frame{l.header(k.n), body, k.n}, nil
}

// absent says of rows with a null among their keys that they were not found.
func absent(b Batch, from int, found []bool) {
	for i := range b.Columns {
		if d := &b.Columns[i]; d.Valid != nil {
			for r := range found {
				found[r] = found[r] && !d.null(from+r)
			}
		}
	}
}

// Result says what Put did.
type Result struct {
	Rows    int   `json:"rows"`              // of the batch
	Added   *int  `json:"added,omitempty"`   // how many went in that were absent, where the table tells
	Deleted *int  `json:"deleted,omitempty"` // how many keys were removed
	Refused []int `json:"refused,omitempty"` // rows for which there is no room; all others are done
}

// NullError says that a row has a null where none may be.
type NullError struct {
	Table, Column string
	Row           int
}

func (e *NullError) Error() string {
	return fmt.Sprintf("table %q: row %d has a null in column %q, which has none", e.Table, e.Row, e.Column)
}

// Columns are those that a batch for Put has: of Delete the keys, else keys and values.
func (t *Table) Columns(mode Mode) []Column {
	if mode == Delete {
		return t.schema.Keys
	}
	return t.schema.All()
}

// Put does the rows of a batch, whose columns are those of Columns, in that order. Equal keys of a batch: Insert keeps
// the values of one, InsertNew puts one, Add, Min and Max combine all. Writes of a table happen one after the other.
//
// Errors: *NullError, a mode that the table's columns do not have, or ErrMemory, before anything is changed;
// *table.FullError, which names the rows that are not in (all else is done, and the result says so, too); others of the
// table, after which a part may be done, which the log then has; ErrClosed.
func (t *Table) Put(mode Mode, b Batch) (r Result, err error) {
	r.Rows = b.Rows
	for i, c := range t.Columns(mode) {
		if d := &b.Columns[i]; d.Nulls > 0 && !c.Nullable {
			for row := range b.Rows {
				if d.null(row) {
					return r, &NullError{t.schema.Name, c.Name, row}
				}
			}
		}
	}
	how, err := t.combine(mode)
	if err != nil || b.Rows == 0 {
		return r, err
	}
	k := t.packing.pack(b.Columns[:len(t.schema.Keys)], 0, b.Rows)
	t.writing.Lock()
	defer t.writing.Unlock()
	if t.closed {
		return r, ErrClosed
	}
	if t.rows != nil {
		t.using.Lock()
		defer t.using.Unlock()
	}
	if err := t.settle(); err != nil {
		return r, fmt.Errorf("what a batch before it did cannot be read for the log: %w", err)
	}
	t.changes.Add(1)
	switch {
	case t.rows == nil:
		r, err = t.putInline(mode, k, b, r)
	case mode == Delete:
		r, err = t.deleteRows(k, b, r)
	default:
		r, err = t.putRows(mode, k, b, how, r)
	}
	if t.owed.Rows > 0 {
		t.settle() // or before the next batch
	}
	return r, err
}

// CanPut tells of a mode that the table's columns do not have.
func (t *Table) CanPut(mode Mode) error {
	_, err := t.combine(mode)
	return err
}

// combine gives the combiners of a mode that has such, and tells of columns that have none of the mode.
func (t *Table) combine(mode Mode) ([]combiner, error) {
	switch mode {
	case Insert, InsertNew, Delete:
		return nil, nil
	case Add, Min, Max:
		how, err := combiners(t.schema.Values, mode)
		if err == nil && t.rows == nil {
			err = t.index.updates()
		}
		if err != nil {
			return nil, fmt.Errorf("table %q: %w", t.schema.Name, err)
		}
		return how, nil
	}
	return nil, fmt.Errorf("a mode %q: want one of %v", string(mode), Modes)
}

func (t *Table) putInline(mode Mode, k keys, b Batch, r Result) (Result, error) {
	var values []byte
	if t.width > 0 && mode != Delete {
		values = b.Columns[len(t.schema.Keys)].Fixed
	}
	var flags []bool
	var err error
	switch mode {
	case Insert:
		err = t.index.insert(k, values)
	case InsertNew:
		flags = make([]bool, k.n)
		err = t.index.insertNew(k, values, flags)
		r.Added = countTrue(flags)
	case Delete:
		flags = make([]bool, k.n)
		err = t.index.remove(k, flags)
		r.Deleted = countTrue(flags)
	default:
		err = t.index.update(k, values, combineInline(t.schema.Values[0].Type, mode))
	}
	if r, err = refused(r, err); err != nil && r.Refused == nil {
		t.owe(b)
		return r, err
	}
	if failed := t.noteInline(mode, k, b, r, flags); failed != nil {
		t.owe(b)
		return Result{Rows: r.Rows}, failed
	}
	return r, err
}

// combineInline is what a mode is in the index, whose values are signed integers: others are seen as what they are.
func combineInline(typ arrow.DataType, mode Mode) table.Combine {
	old, value, back := "old", "value", "%s"
	switch typ.ID() {
	case arrow.UINT32:
		old, value = "(unsigned)old", "(unsigned)value"
	case arrow.UINT64:
		old, value = "(unsigned long long)old", "(unsigned long long)value"
	case arrow.FLOAT32:
		old, value, back = "__builtin_bit_cast(float, old)", "__builtin_bit_cast(float, value)",
			"__builtin_bit_cast(int, %s)"
	case arrow.FLOAT64:
		old, value, back = "__builtin_bit_cast(double, old)", "__builtin_bit_cast(double, value)",
			"__builtin_bit_cast(long long, %s)"
	}
	float := typ.ID() == arrow.FLOAT32 || typ.ID() == arrow.FLOAT64
	switch {
	case mode == Add && float:
		return table.Combine(fmt.Sprintf(back, old+" + "+value))
	case mode == Add:
		return table.Add
	case old == "old" && mode == Min:
		return table.Min
	case old == "old":
		return table.Max
	case mode == Min:
		return table.Combine(value + " < " + old + " ? value : old")
	}
	return table.Combine(old + " < " + value + " ? value : old")
}

func countTrue(flags []bool) *int {
	n := 0
	for _, f := range flags {
		if f {
			n++
		}
	}
	return &n
}

// refused completes a result by the rows that a FullError names.
func refused(r Result, err error) (Result, error) {
	if full := (*table.FullError)(nil); errors.As(err, &full) {
		r.Refused = full.Positions
	}
	return r, err
}

// putRows does rows whose values are in host memory. New keys get their rows, with the values in them, before the index
// knows the keys: whatever becomes of the index then, a row that it names has its values.
func (t *Table) putRows(mode Mode, k keys, whole Batch, how []combiner, r Result) (Result, error) {
	b := Batch{whole.Rows, whole.Columns[len(t.schema.Keys):]}
	numbers, found := make([]int64, k.n), make([]bool, k.n)
	if err := t.index.find(k, bytesOf(numbers), found); err != nil {
		return r, err
	}
	if err := t.rows.reserve(b); err != nil {
		return r, err
	}
	var fresh []int // positions whose keys are absent
	for i, is := range found {
		if !is {
			fresh = append(fresh, i)
		}
	}
	taken, err := t.rows.take(len(fresh))
	if err != nil {
		return r, err
	}
	t.rows.write(taken, b, fresh)
	newKeys, added := k.pick(fresh), make([]bool, len(fresh))
	var full *table.FullError
	if len(fresh) > 0 {
		if err := t.index.insertNew(newKeys, bytesOf(taken), added); err != nil && !errors.As(err, &full) {
			t.owe(whole)
			return r, err // nobody knows which rows the index names: they stay
		}
	}
	r.Added = countTrue(added)
	again, spare, err := t.again(k, fresh, taken, added, full, &r)
	if err != nil {
		t.owe(whole)
		return Result{Rows: r.Rows}, err
	}
	for i, is := range found {
		two, late := again[i]
		if late {
			numbers[i], is = two.row, true
		}
		switch {
		case !is || mode == InsertNew:
		case late && how == nil:
			t.rows.swap(two.row, two.spare) // texts are not written twice: there is no room for that
		case how != nil:
			t.rows.combine(numbers[i], b, i, how)
		default:
			t.rows.write(numbers[i:i+1], b, []int{i})
		}
	}
	t.noteRows(mode, whole, how, r, numbers, fresh, taken, added, again)
	t.rows.drop(spare...)
	if full != nil {
		return r, &table.FullError{Positions: r.Refused, Capacity: full.Capacity, Len: full.Len, Why: full.Why}
	}
	return r, nil
}

// lateRow is the row of a key that came before in a batch, and the spare one that has the values.
type lateRow struct{ row, spare int64 }

// again gives the rows of new keys that came twice in a batch, by their positions, and the spare rows of all that are
// no key's.
func (t *Table) again(k keys, fresh []int, taken []int64, added []bool, full *table.FullError, r *Result) (
	late map[int]lateRow, spare []int64, err error) {
	var rest []int
	var own []int64 // the spare rows of these
	for j, i := range fresh {
		if added[j] {
			continue
		}
		spare = append(spare, taken[j])
		if full != nil {
			if _, is := slices.BinarySearch(full.Positions, j); is {
				r.Refused = append(r.Refused, i)
				continue
			}
		}
		rest, own = append(rest, i), append(own, taken[j])
	}
	if len(rest) > 0 {
		keys, rows, found := k.pick(rest), make([]int64, len(rest)), make([]bool, len(rest))
		if err := t.index.find(keys, bytesOf(rows), found); err != nil {
			return nil, nil, err
		}
		late = map[int]lateRow{}
		for j, i := range rest {
			if found[j] {
				late[i] = lateRow{rows[j], own[j]}
			} else {
				r.Refused = append(r.Refused, i)
			}
		}
	}
	slices.Sort(r.Refused)
	return late, spare, nil
}

func (t *Table) deleteRows(k keys, b Batch, r Result) (Result, error) {
	numbers, found, gone := make([]int64, k.n), make([]bool, k.n), make([]bool, k.n)
	if err := t.index.find(k, bytesOf(numbers), found); err != nil {
		return r, err
	}
	if err := t.index.remove(k, gone); err != nil {
		t.owe(b)
		return r, err // the rows that were removed stay taken
	}
	for i, is := range gone {
		if is {
			t.rows.drop(numbers[i])
		}
	}
	r.Deleted = countTrue(gone)
	t.noteBatch(deleted, t.schema.Keys, b, unset(gone))
	return r, nil
}

// Rows is the number of rows.
func (t *Table) Rows() (int64, error) {
	n, err := t.index.Len()
	return int64(n), err
}

// Clear removes all rows.
func (t *Table) Clear() error {
	t.writing.Lock()
	defer t.writing.Unlock()
	t.using.Lock()
	defer t.using.Unlock()
	if t.closed {
		return ErrClosed
	}
	t.changes.Add(1)
	if err := t.index.Clear(); err != nil {
		return err
	}
	if t.rows != nil {
		t.rows.clear()
	}
	t.note(cleared, nil, nil)
	return nil
}

// Close frees the table. It is idempotent. What is under way ends first.
func (t *Table) Close() error {
	t.writing.Lock()
	defer t.writing.Unlock()
	t.using.Lock()
	defer t.using.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	if t.rows != nil {
		t.rows.clear()
	}
	return t.index.Close()
}

// Stats is what a table tells of itself.
type Stats struct {
	Table     string      `json:"table"`
	Keys      string      `json:"keys"`
	Values    string      `json:"values"`
	Rows      int64       `json:"rows"`
	HostBytes int64       `json:"host_bytes"` // of value columns
	Index     table.Stats `json:"index"`
}

// Stats measures the table. Cost: all of the index is read.
func (t *Table) Stats() (s Stats, err error) {
	s = Stats{Table: t.schema.Name, Keys: Describe(t.schema.Keys), Values: Describe(t.schema.Values)}
	if s.Index, err = t.index.stats(); err != nil {
		return s, err
	}
	s.Rows = int64(s.Index.Len)
	t.using.RLock()
	defer t.using.RUnlock()
	if t.rows != nil {
		s.HostBytes = t.rows.taken
	}
	return s, nil
}

// JSON is the stats as text.
func (s Stats) JSON() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return b
}

// Export gives all rows to do, or one of so many parts, in frames of key and value columns of about a MiB. The parts
// share no key. Writes wait until it returns, so that do does not wait for others. Errors: those of do, of ctx and of
// the table. Cost: all of the index is read for each part.
func (t *Table) Export(ctx context.Context, part, parts int, do func(Frame) error) error {
	t.writing.RLock()
	defer t.writing.RUnlock()
	return t.export(ctx, part, parts, do)
}

// export is Export for who holds writing.
func (t *Table) export(ctx context.Context, part, parts int, do func(Frame) error) error {
	if t.closed {
		return ErrClosed
	}
	return t.index.chunks(ctx, func(k keys, values []byte) error {
		if parts > 1 {
			var own []int
			for i := range k.n {
				if k.partOf(i, parts) == part {
					own = append(own, i)
				}
			}
			values = pickBytes(values, t.width, own, k.n)
			k = k.pick(own)
		}
		for from := 0; from < k.n; {
			to := t.exportedRows(k, values, from)
			if err := do(t.exported(k.part(from, to), values[from*t.width:to*t.width])); err != nil {
				return err
			}
			from = to
		}
		return nil
	})
}

const exportBytes, exportRows = 1 << 20, 1 << 16

// exportedRows is where a frame ends that begins at a row.
func (t *Table) exportedRows(k keys, values []byte, from int) (to int) {
	to = min(k.n, from+exportRows)
	if t.rows != nil && len(t.schema.Values) > 0 {
		to = from + t.rows.within(as[int64](values)[from:to], exportBytes)
	}
	if k.width == 0 { // long keys
		sum := 0
		for i := from; i < to; i++ {
			if sum += len(k.row(i)); sum > exportBytes && i > from {
				return i
			}
		}
	}
	return to
}

func (t *Table) exported(k keys, values []byte) Frame {
	columns := t.packing.unpack(k)
	switch {
	case t.rows != nil:
		columns = append(columns, t.rows.gather(as[int64](values))...)
	case t.width > 0:
		columns = append(columns, Data{Fixed: values})
	}
	return Encode(t.schema.All(), Batch{k.n, columns}, Make)
}

// pickBytes copies the values, of 4 or 8 bytes or of none, at some positions of n.
func pickBytes(b []byte, width int, positions []int, n int) []byte {
	if len(positions) == n {
		return b
	}
	out := make([]byte, len(positions)*width)
	switch width {
	case 4:
		from, to := as[uint32](b), as[uint32](out)
		for j, i := range positions {
			to[j] = from[i]
		}
	case 8:
		from, to := as[uint64](b), as[uint64](out)
		for j, i := range positions {
			to[j] = from[i]
		}
	}
	return out
}

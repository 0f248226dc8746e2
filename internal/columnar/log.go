package columnar

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/journal"
	"github.com/warpmap/warpmap/table"
)

// ChangeKind is what a record of a log says.
type ChangeKind byte

// The kinds of changes. What a batch did is logged and not the batch: so to do it again leads to the same, whichever of
// equal keys had stayed, and whichever rows had found no room.
const (
	Created ChangeKind = 'C' // there is this table, empty: header and body are those of a file's first block
	put     ChangeKind = 'P' // the keys have these values: header and body are a record batch
	deleted ChangeKind = 'D' // the keys are gone: a record batch of the key columns
	cleared ChangeKind = 'X' // all keys are gone
	Dropped ChangeKind = 'Z' // there is no such table any more
)

// Change is a record of a log. A table's changes are numbered from 1 on.
type Change struct {
	Kind         ChangeKind
	ID           uint64 // of the table, whatever others have had its name
	Name         string // of the table
	number       uint64
	header, body []byte
}

// mostLogged bounds the body of a record. What is read is bounded by the file, which has all of it.
const mostLogged = 1 << 40

// numberBytes are those of a change's number, behind which stand the table's name, the header and the body.
const numberBytes = 8

// LogFormat is the form of logs of tables: see doc.go.
var LogFormat = &journal.Format{Magic: "warpmap table log 1\n", Holds: "tables", Body: changeBytes}

func changeBytes(head []byte) (int64, error) {
	c, name, header, body := changeHead(head)
	switch c.Kind {
	case Created, put, deleted, cleared, Dropped:
		if head[10]|head[11] == 0 && name > 0 && name <= mostName && header <= mostHeader && body <= mostLogged {
			return int64(numberBytes + name + header + body), nil
		}
	}
	return 0, fmt.Errorf("a record of kind %q with %d, %d and %d bytes", byte(c.Kind), name, header, body)
}

func changeHead(head []byte) (c Change, name, header, body uint64) {
	c = Change{Kind: ChangeKind(head[8]), ID: binary.LittleEndian.Uint64(head[16:])}
	return c, uint64(head[9]), uint64(binary.LittleEndian.Uint32(head[12:])), binary.LittleEndian.Uint64(head[24:])
}

// ParseChange takes a record of LogFormat apart. The change shares its memory.
func ParseChange(head, body []byte) Change {
	c, name, header, _ := changeHead(head)
	c.number = binary.LittleEndian.Uint64(body)
	body = body[numberBytes:]
	c.Name, c.header, c.body = string(body[:name]), body[name:name+header], body[name+header:]
	return c
}

// add adds a change to a log, whose header and body are from then on.
func (c *Change) add(to *journal.Journal) {
	to.Add(c.first(), c.header, c.body)
}

// first is what stands before header and body in a record.
func (c *Change) first() []byte {
	head := make([]byte, journal.HeadBytes, journal.HeadBytes+numberBytes+len(c.Name))
	head[8], head[9] = byte(c.Kind), byte(len(c.Name))
	binary.LittleEndian.PutUint32(head[12:], uint32(len(c.header)))
	binary.LittleEndian.PutUint64(head[16:], c.ID)
	binary.LittleEndian.PutUint64(head[24:], uint64(len(c.body)))
	first := append(binary.LittleEndian.AppendUint64(head, c.number), c.Name...)
	journal.SealParts(first[:journal.HeadBytes], first[journal.HeadBytes:], c.header, c.body)
	return first
}

// newID is a number that no other table has.
func newID() uint64 { return rand.Uint64N(math.MaxUint64) + 1 }

// ID is the table's in logs and files.
func (t *Table) ID() uint64 { return t.id }

// Renew makes the table another one to logs, without changes until now. Nobody else uses it yet.
func (t *Table) Renew() { t.id, t.number = newID(), 0 }

// LogTo has the table's changes added to a log from now on. What is added before a snapshot begins is in it.
func (t *Table) LogTo(j *journal.Journal) {
	t.writing.Lock()
	defer t.writing.Unlock()
	t.log = j
}

// LogCreated adds to a log that there is this table, which is empty and new.
func (t *Table) LogCreated(j *journal.Journal) error {
	header, body, err := t.head()
	if err == nil {
		(&Change{Kind: Created, ID: t.id, Name: t.schema.Name, header: header, body: body}).add(j)
	}
	return err
}

// LogDropped adds to a log that there is a table no more.
func LogDropped(j *journal.Journal, id uint64, name string) {
	(&Change{Kind: Dropped, ID: id, Name: name}).add(j)
}

// note logs a change. The caller holds writing.
func (t *Table) note(kind ChangeKind, header, body []byte) {
	if t.log != nil {
		t.number++
		(&Change{kind, t.id, t.schema.Name, t.number, header, body}).add(t.log)
	}
}

// noteBatch logs the rows of a batch, but for some positions, which are sorted.
func (t *Table) noteBatch(kind ChangeKind, columns []Column, b Batch, without []int) {
	if t.log == nil || len(without) == b.Rows {
		return
	}
	if len(without) > 0 {
		b = b.rows(but(b.Rows, without), columns)
	}
	f := Encode(columns, b, Make)
	t.note(kind, f.Header, f.Body)
}

// noteInline logs what a batch did to a table whose values are in the index: of keys that come once the values that
// were inserted, and of all others those that the keys have now, for nobody knows which of equal keys has stayed, or in
// which order floats were added. flags are of rows that were added, or deleted.
func (t *Table) noteInline(mode Mode, k keys, b Batch, r Result, flags []bool) error {
	switch all := t.schema.All(); {
	case t.log == nil:
	case mode == Delete:
		t.noteBatch(deleted, t.schema.Keys, b, unset(flags))
	case mode == InsertNew:
		t.noteBatch(put, all, b, unset(flags))
	case t.width == 0:
		t.noteBatch(put, all, b, r.Refused)
	case mode == Insert && len(r.Refused) == 0:
		some := k.repeated()
		twice := k.pick(some)
		values, found := make([]byte, twice.n*t.width), make([]bool, twice.n)
		if len(some) > 0 {
			if err := t.index.find(twice, values, found); err != nil {
				return err
			}
		}
		f := Encode(all, b, Make)
		now := f.Body[(len(f.Body)-k.n*t.width)&^7:] // the last buffer
		for j, i := range some {
			copy(now[i*t.width:(i+1)*t.width], values[j*t.width:])
		}
		t.note(put, f.Header, f.Body)
	default:
		values, found := make([]byte, k.n*t.width), make([]bool, k.n)
		if err := t.index.find(k, values, found); err != nil {
			return err
		}
		now := append(slices.Clone(b.Columns[:len(t.schema.Keys)]), Data{Fixed: values})
		t.noteBatch(put, all, Batch{b.Rows, now}, unset(found))
	}
	return nil
}

// noteRows logs what a batch did to a table whose values are in rows: of equal keys the row that has stayed, and where
// values were combined, those that the keys have now. fresh are the positions of keys that were absent, added tells
// which of these got the rows of taken, and numbers has the rows of all others that are not refused.
func (t *Table) noteRows(mode Mode, b Batch, how []combiner, r Result, numbers []int64, fresh []int, taken []int64,
	added []bool, again map[int]lateRow) {
	if t.log == nil {
		return
	}
	without := slices.Clone(r.Refused)
	switch own := len(t.schema.Keys); {
	case mode == InsertNew:
		in := make([]bool, b.Rows)
		for j, i := range fresh {
			in[i] = added[j]
		}
		without = unset(in)
	case how != nil:
		for j, i := range fresh {
			if added[j] {
				numbers[i] = taken[j]
			}
		}
		for _, i := range without {
			numbers[i] = -1
		}
		b.Columns = append(slices.Clone(b.Columns[:own]), t.rows.gather(numbers)...)
	case len(again) > 0:
		last := map[int64]int{} // the last positions of keys that came again, which have stayed
		for i, two := range again {
			last[two.row] = max(last[two.row], i)
		}
		for j, i := range fresh {
			two, late := again[i]
			if _, came := last[taken[j]]; added[j] && came || late && last[two.row] != i {
				without = append(without, i)
			}
		}
		slices.Sort(without)
	}
	t.noteBatch(put, t.schema.All(), b, without)
}

// owe keeps the keys of a batch that failed, of which a part may be done, for settle.
func (t *Table) owe(b Batch) {
	if t.log != nil {
		own := Batch{b.Rows, b.Columns[:len(t.schema.Keys)]}
		t.owed = own.rows(but(b.Rows, nil), t.schema.Keys) // the caller's memory is its own again
	}
}

// settle logs what the keys that are owed have now, and which of them are absent. So a batch that failed is the same
// after the log is read. Errors: those of a look-up; then they stay owed, and nothing may be written before. The caller
// holds writing and, with rows, using.
func (t *Table) settle() error {
	b := t.owed
	if b.Rows == 0 {
		return nil
	}
	k, found := t.packing.pack(b.Columns, 0, b.Rows), make([]bool, b.Rows)
	width := t.width
	if t.rows != nil {
		width = numberBytes
	}
	values := make([]byte, b.Rows*width)
	if err := t.index.find(k, values, found); err != nil {
		return err
	}
	now, absent := b, unset(found)
	if t.rows != nil {
		numbers := as[int64](values)
		for _, i := range absent {
			numbers[i] = -1
		}
		now.Columns = append(slices.Clone(b.Columns), t.rows.gather(numbers)...)
	} else if width > 0 {
		now.Columns = append(slices.Clone(b.Columns), Data{Fixed: values})
	}
	t.noteBatch(deleted, t.schema.Keys, b, but(b.Rows, absent))
	t.noteBatch(put, t.schema.All(), now, absent)
	t.owed = Batch{}
	return nil
}

// unset are the positions of flags that are not set.
func unset(flags []bool) (positions []int) {
	for i, is := range flags {
		if !is {
			positions = append(positions, i)
		}
	}
	return positions
}

// but are the positions below n but some, which are sorted.
func but(n int, some []int) []int {
	positions := make([]int, 0, n-len(some))
	for i := range n {
		if len(some) > 0 && some[0] == i {
			some = some[1:]
		} else {
			positions = append(positions, i)
		}
	}
	return positions
}

// Table makes the table that a change of kind Created says. Errors: those of New, as journal.Stop has them; all others
// are of the change.
func (c *Change) Table(devices []*device.Device, o Options) (*Table, error) {
	s, h, err := decodeHead(blockHead, c.header, c.body)
	if err != nil {
		return nil, err
	}
	if s.Name != c.Name {
		return nil, fmt.Errorf("a table %q in a record of table %q", s.Name, c.Name)
	}
	o.Family = h.Family
	t, err := New(devices, s, o)
	if err != nil {
		return nil, journal.Stop(err)
	}
	t.id = c.ID
	return t, nil
}

// GapError says that changes of a table are missing between its snapshot and its log, or within the log.
type GapError struct {
	Table      string
	Have, Next uint64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("it goes on with change %d of table %q, which has those to %d", e.Next, e.Table, e.Have)
}

// Redo does a change again that the log has of this table, unless the table has it already. With gap it may be one
// that does not follow on those that the table has. Errors: *GapError; those of Put, as journal.Stop has them; all
// others are of the change.
func (t *Table) Redo(c Change, gap bool) (err error) {
	if c.number <= t.number {
		return nil
	}
	if c.number != t.number+1 && !gap {
		return &GapError{t.schema.Name, t.number, c.number}
	}
	switch c.Kind {
	case put:
		err = t.redo(Insert, c)
	case deleted:
		err = t.redo(Delete, c)
	case cleared:
		err = journal.Stop(t.Clear())
	default:
		err = fmt.Errorf("a change of kind %q", byte(c.Kind))
	}
	if err == nil {
		t.number = c.number
	}
	return err
}

func (t *Table) redo(mode Mode, c Change) error {
	b, err := Decode(c.header, c.body, t.Columns(mode), math.MaxInt32)
	if err != nil {
		return err
	}
	_, err = t.Put(mode, b)
	if errors.As(err, new(*NullError)) {
		return err
	}
	if full := (*table.FullError)(nil); errors.As(err, &full) {
		err = fmt.Errorf("table %q: %w", t.schema.Name, err)
	}
	return journal.Stop(err)
}

// head is what the first block of a table's file has.
func (t *Table) head() (header, body []byte, err error) {
	if header, err = EncodeSchema(ArrowSchema(t.schema.All(), nil)); err != nil {
		return nil, nil, err
	}
	body, err = json.Marshal(head{t.schema.Name, len(t.schema.Keys), t.options.Family, t.id, t.number})
	return header, body, err
}

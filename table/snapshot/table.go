package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
)

// Table is a table of some kind, to be saved or loaded. Map and its like make one.
type Table struct {
	// Progress, if it is not nil, is told now and then how many entries are done, of how many. The goroutine that saves
	// or loads calls it.
	Progress func(done, total int64)

	kind       string
	family     table.Family
	key, value reflect.Type // value is nil where there are none
	form       *table.FilterForm

	length  func() (int, error)
	used    func() (bool, error) // of a filter, whose length says nothing: whether it has keys
	reserve func(n int) error    // nil where nobody knows what so many entries need
	clear   func() error
	// members gives what each member of a job says, or what is wrong with one: see shard's Tell. nil: there are none.
	members func(n int, wrong error) ([]int, error)
	chunks  func(ctx context.Context, do func(n int, columns ...[]byte) error) error
	rows    func() rows
	// of a cache: what its file says of it beside its pairs, and what is wrong with what a file says
	saving  func() (json.RawMessage, error)
	loading func(of json.RawMessage) error
	text    bool // the last of what chunks gives is the bytes of all keys, whose lengths are the first
}

// rows is memory for entries that are loaded.
type rows struct {
	columns []column
	// of keys whose lengths are the first column; nil where keys are of one width
	text *[]byte
	put  func(first int64, n int) error // puts n of them into the table, which has had first before
}

// column is a Go slice, as bytes. It grows as entries come.
type column interface {
	size() int // of an entry
	room() int // for so many entries
	// grow makes room for n entries, of which so many are there already.
	grow(n, there int)
	bytes(from, to int) []byte // of entries from … to-1
}

// cells are a column.
type cells[T any] struct{ s []T }

func (c *cells[T]) size() int                 { return int(unsafe.Sizeof(*new(T))) }
func (c *cells[T]) room() int                 { return len(c.s) }
func (c *cells[T]) bytes(from, to int) []byte { return bytesOf(c.s[from:to]) }

func (c *cells[T]) grow(n, there int) {
	more := make([]T, n)
	copy(more, c.s[:there])
	c.s = more
}

// Map gives a map as a Table, to save or load it.
func Map[K, V any](m table.Map[K, V]) *Table {
	t := pairs(m, m.Chunks, m.Insert)
	t.kind, t.reserve = table.KindMap.String(), m.Grow
	return t
}

// MultiMap gives a multimap of any kind as a Table, to save or load it. The values of a key come back in another order.
// The multimap is not made larger before it is loaded, because nobody knows how many keys there are. If every key has
// few values, call Grow first to save the time that growing takes.
func MultiMap[K, V any](m table.MultiMap[K, V]) *Table {
	t := pairs(m, m.Chunks, m.Insert)
	t.kind = table.KindMultiMap.String()
	return t
}

// Counter gives a counter as a Table, to save or load it.
func Counter[K any, C uint32 | uint64](c table.Counter[K, C]) *Table {
	t := pairs(c, c.Chunks, c.AddCounts)
	t.kind, t.reserve = table.KindCounter.String(), c.Grow
	return t
}

// recorder is a cache.Cache with its records. Tests of package cache use this package, so it cannot be imported here.
// S is what a file says of the cache.
type recorder[K, R, S any] interface {
	Family() table.Family
	Len() (int, error)
	Clear() error
	Sweep() (int, error)
	Saved() S
	Records(ctx context.Context, saved S, do func(keys []K, records []R) error) error
	Restore(keys []K, records []R, from S) error
}

// Cache gives a cache.Cache as a Table, to save or load it, with its policy, the scores of its pairs and the time at
// which each ends. It takes what Restore does: a file of a cache with the same policy, or of LFU for Aged and the
// other way round; none of pairs that end for a cache in which none does. If the cache is smaller than the one that
// was saved, the pairs of each bucket that are worth most stay.
func Cache[K, R, S any](c recorder[K, R, S]) *Table {
	t := &Table{kind: string(c.Family()), family: c.Family(), clear: c.Clear}
	var saved S
	t.saving = func() (json.RawMessage, error) { return json.Marshal(saved) }
	t.loading = func(of json.RawMessage) error {
		saved = *new(S)
		if of != nil { // older files say nothing
			if err := json.Unmarshal(of, &saved); err != nil {
				return fmt.Errorf("snapshot: what the file says of its cache: %w", err)
			}
		}
		return c.Restore(nil, nil, saved)
	}
	t.length = func() (int, error) {
		saved = c.Saved() // pairs that end behind this are not swept by Records, so as many are saved as Len says
		if _, err := c.Sweep(); err != nil {
			return 0, err
		}
		return c.Len()
	}
	setPairs(t, func(ctx context.Context, do func(keys []K, records []R) error) error {
		return c.Records(ctx, saved, do)
	}, func(keys []K, records []R) error { return c.Restore(keys, records, saved) })
	return t
}

// Set gives a set as a Table, to save or load it.
func Set[K any](s table.Set[K]) *Table {
	t := newTable(s)
	t.kind, t.reserve, t.key = table.KindSet.String(), s.Grow, reflect.TypeFor[K]()
	t.chunks = func(ctx context.Context, do func(n int, columns ...[]byte) error) error {
		return s.Chunks(ctx, func(keys []K) error { return do(len(keys), bytesOf(keys)) })
	}
	t.rows = func() rows {
		keys := &cells[K]{}
		return rows{columns: []column{keys}, put: func(_ int64, n int) error {
			_, err := s.Insert(keys.s[:n], nil)
			return err
		}}
	}
	return t
}

// Filter gives a filter as a Table, to save or load it. What is loaded must come from a filter of the same Form:
// package warpmap's LoadFilter makes one.
func Filter[K any](f table.Filter[K]) *Table {
	t := ofWords(table.KindFilter.String(), reflect.TypeFor[K](), f)
	t.used = func() (bool, error) { s, err := f.Stats(); return s.BitsSet > 0, err }
	return t
}

// Words is what the sketches of package sketch are for files: some words, which mean something by the Form alone.
type Words interface {
	worded
	// Kind is what the file says that it is of.
	Kind() string
	// Used tells whether there is a word that is not 0.
	Used() (bool, error)
}

type worded interface {
	Family() table.Family
	Form() table.FilterForm
	Words(ctx context.Context, do func(words []uint64) error) error
	SetWords(first int64, words []uint64) error
	Clear() error
}

// Sketch gives a sketch of keys of type K as a Table, to save or load it. What is loaded must come from a sketch of the
// same Form: package sketch has functions that make one by what a file says, such as LoadHyperLogLog.
func Sketch[K any](s Words) *Table {
	t := ofWords(s.Kind(), reflect.TypeFor[K](), s)
	t.used = s.Used
	return t
}

// ofWords has what filters and sketches share.
func ofWords(kind string, key reflect.Type, w worded) *Table {
	form := w.Form()
	t := &Table{kind: kind, family: w.Family(), key: key, form: &form}
	t.length = func() (int, error) { return int(form.Words), nil }
	t.clear = w.Clear
	t.chunks = func(ctx context.Context, do func(n int, columns ...[]byte) error) error {
		return w.Words(ctx, func(words []uint64) error { return do(len(words), bytesOf(words)) })
	}
	t.rows = func() rows {
		words := &cells[uint64]{}
		return rows{columns: []column{words}, put: func(first int64, n int) error {
			return w.SetWords(first, words.s[:n])
		}}
	}
	return t
}

// Strings gives a map of strings as a Table, to save or load it. The map is not made larger before it is loaded,
// because nobody knows how long its keys are.
func Strings[V any](m *text.Map[V]) *Table {
	t := &Table{kind: "strings", family: m.Family(), length: m.Len, clear: m.Clear, text: true}
	t.key, t.value = reflect.TypeFor[int64](), reflect.TypeFor[V]()
	t.chunks = func(ctx context.Context, do func(n int, columns ...[]byte) error) error {
		return m.Chunks(ctx, func(keys text.Keys, values []V) error {
			lengths := make([]int64, keys.Len())
			for i := range lengths {
				lengths[i] = keys.Offsets[i+1] - keys.Offsets[i]
			}
			return do(len(lengths), bytesOf(lengths), bytesOf(values), keys.Bytes)
		})
	}
	t.rows = func() rows {
		lengths, values, bytes := &cells[int64]{}, &cells[V]{}, new([]byte)
		return rows{[]column{lengths, values}, bytes, func(_ int64, n int) error {
			keys := text.Keys{Bytes: *bytes, Offsets: make([]int64, n+1)}
			for i, l := range lengths.s[:n] {
				keys.Offsets[i+1] = keys.Offsets[i] + l
			}
			return m.Insert(keys, values.s[:n])
		}}
	}
	return t
}

// newTable has what all kinds but filters share.
func newTable(of table.Table) *Table {
	t := &Table{family: of.Family(), length: of.Len, clear: of.Clear}
	if part, ok := of.(interface { // over members of a job, whose Chunks give their parts
		OwnLen() (int, error)
		Tell(n int, wrong error) ([]int, error)
	}); ok {
		t.length, t.members = part.OwnLen, part.Tell
	}
	return t
}

// pairs is a table of keys and values.
func pairs[K, V any](of table.Table, chunks func(context.Context, func([]K, []V) error) error,
	insert func([]K, []V) error) *Table {
	t := newTable(of)
	setPairs(t, chunks, insert)
	return t
}

// setPairs makes a table one of keys and values.
func setPairs[K, V any](t *Table, chunks func(context.Context, func([]K, []V) error) error,
	insert func([]K, []V) error) {
	t.key, t.value = reflect.TypeFor[K](), reflect.TypeFor[V]()
	t.chunks = func(ctx context.Context, do func(n int, columns ...[]byte) error) error {
		return chunks(ctx, func(keys []K, values []V) error { return do(len(keys), bytesOf(keys), bytesOf(values)) })
	}
	t.rows = func() rows {
		keys, values := &cells[K]{}, &cells[V]{}
		return rows{columns: []column{keys, values}, put: func(_ int64, n int) error {
			return insert(keys.s[:n], values.s[:n])
		}}
	}
}

func bytesOf[T any](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

// header is what the file says of the table.
func (t *Table) header() (Header, error) {
	n, err := t.length()
	h := Header{Kind: t.kind, Family: t.family, Key: typeName(t.key), KeyBytes: int(t.key.Size()), Len: int64(n),
		Form: t.form}
	if t.text {
		h.Key = "string"
	}
	if t.value != nil {
		h.Value, h.ValueBytes = typeName(t.value), int(t.value.Size())
	}
	return h, err
}

// takes tells why the table cannot take what a file holds.
func (t *Table) takes(h *Header) error {
	own, err := t.header()
	if err != nil {
		return err
	}
	switch {
	case h.Kind != own.Kind:
		return fmt.Errorf("snapshot: the file is of a %s, and the table is a %s: load it into a %s", h.Kind, own.Kind,
			h.Kind)
	case h.Key != own.Key || h.KeyBytes != own.KeyBytes:
		return fmt.Errorf(
			"snapshot: the file has keys of %s, and the table of %s: load it into a table of the same types", h.Key,
			own.Key)
	case h.Value != own.Value || h.ValueBytes != own.ValueBytes:
		return fmt.Errorf(
			"snapshot: the file has values of %q, and the table of %q: load it into a table of the same types", h.Value,
			own.Value)
	case (h.Form == nil) != (own.Form == nil) || h.Form != nil && *h.Form != *own.Form:
		return fmt.Errorf(
			"snapshot: the file is of a %s of form %v, and this has %v: make it by warpmap.LoadFilter, or as package "+
				"sketch says", h.Kind, h.Form, own.Form)
	case h.Cache != nil && t.loading == nil:
		return fmt.Errorf("snapshot: a file of a %s that says something of a cache: it is damaged, or none of ours",
			h.Kind)
	case own.Form == nil && own.Len > 0:
		return fmt.Errorf(
			"snapshot: the table holds %d entries already (want an empty one: Clear it, or make a new one)", own.Len)
	case t.loading != nil:
		return t.loading(h.Cache)
	case own.Form == nil:
		return nil
	}
	if used, err := t.used(); err != nil {
		return err
	} else if used {
		return fmt.Errorf("snapshot: the %s holds keys already (want an empty one: Clear it, or make a new one)",
			own.Kind)
	}
	return nil
}

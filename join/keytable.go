package join

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
)

// Keys that are no numbers of up to 16 bytes together are looked up as bytes: one column of text as it stands, all else with its values one behind the
// other, in a form in which different rows have different bytes. The table (package text) hashes, keeps and compares them on the device.

// textMap is what a join needs of a warpmap.Strings.
type textMap[R uint32 | uint64] interface {
	InsertNew(keys text.Keys, rows []R, added []bool) (int, error)
	Find(keys text.Keys, rows []R, found []bool) error
	Close() error
}

// keyTable is the table of such keys, with a copy on each device. Look-ups take turns at the devices.
type keyTable[R uint32 | uint64] struct {
	plan   *keyPlan
	keys   *packed // of the build side, for a filter of their words
	copies []*keyCopy[R]
	turn   chan *keyCopy[R]
}

// keyCopy is the table on one device, and what may stand before it.
type keyCopy[R uint32 | uint64] struct {
	m     textMap[R]
	front front[uint64]
}

// turns is how many look-ups a device has at a time: while one is at work, others bring their keys. A filter is asked by one.
const turns = 4

func openKeyTable[R uint32 | uint64](by opener, p *keyPlan, keys *packed) (t *keyTable[R], err error) {
	t = &keyTable[R]{plan: p, keys: keys}
	for _, d := range by.each() {
		var m any
		if _, large := any(R(0)).(uint64); large {
			m, err = by.t8(d, by.family, p.textOptions(keys))
		} else {
			m, err = by.t4(d, by.family, p.textOptions(keys))
		}
		if err != nil {
			return nil, errors.Join(full(err), t.close())
		}
		t.copies = append(t.copies, &keyCopy[R]{m.(textMap[R]), front[uint64]{use: by.filter, rows: len(keys.ok), make: by.f8, device: d}})
	}
	each := turns
	if by.filter != FilterOff {
		each = 1
	}
	t.turn = make(chan *keyCopy[R], each*len(t.copies))
	for range each {
		for _, c := range t.copies {
			t.turn <- c
		}
	}
	return t, nil
}

// fill enters the keys of all rows that can match, and finds each row's representative, if not all keys differ.
func (t *keyTable[R]) fill(ctx context.Context, progress func(int)) (unique bool, reps []R, err error) {
	keys := t.keys
	added, all, n := 0, 0, len(keys.ok)
	for from := 0; from < n; from += chunkRows {
		to := min(n, from+chunkRows)
		if ctx.Err() != nil {
			return false, nil, context.Cause(ctx)
		}
		rows := make([]R, 0, to-from)
		for i := from; i < to; i++ {
			if keys.ok[i] {
				rows = append(rows, R(i))
			}
		}
		more, err := t.insertNew(t.plan.textOf(keys.wide, from, to, keys.ok[from:to]), rows)
		if err != nil {
			return false, nil, full(err)
		}
		added, all = added+more, all+len(rows)
		if progress != nil {
			progress(to)
		}
	}
	if added == all {
		return true, nil, nil
	}
	reps = make([]R, n)
	found := make([]bool, n)
	if err := t.find(keys.wide, reps, found); err != nil {
		return false, nil, err
	}
	for i, ok := range keys.ok {
		if ok && !found[i] {
			return false, nil, fmt.Errorf("the table lost the key of build row %d: this is a bug", i)
		}
	}
	return false, reps, nil
}

// insertNew enters keys into all copies, with the same rows: of equal keys the first device says which it is.
func (t *keyTable[R]) insertNew(keys text.Keys, rows []R) (int, error) {
	if len(t.copies) == 1 {
		return t.copies[0].m.InsertNew(keys, rows, nil)
	}
	added := make([]bool, len(rows))
	n, err := t.copies[0].m.InsertNew(keys, rows, added)
	if err != nil {
		return n, err
	}
	var some [][]byte
	var newRows []R
	for i, in := range added {
		if in {
			some, newRows = append(some, keys.At(i)), append(newRows, rows[i])
		}
	}
	newKeys := text.Of(some...)
	var work errgroup.Group
	for _, c := range t.copies[1:] {
		work.Go(func() error {
			_, err := c.m.InsertNew(newKeys, newRows, nil)
			return err
		})
	}
	return n, work.Wait()
}

// find looks rows up. Of a column that is codes into a dictionary the dictionary's values are, where they are fewer.
func (t *keyTable[R]) find(columns []*vec, rows []R, found []bool) error {
	v := columns[0]
	few := len(columns) == 1 && !t.plan.nullsEqual && v.dict != nil && v.dict.n < v.n/2
	var keys text.Keys
	if !few { // before it is this look-up's turn: others make theirs meanwhile
		keys = t.plan.textOf(columns, 0, len(rows), nil)
	}
	c := <-t.turn
	defer func() { t.turn <- c }()
	if few {
		entries, in := make([]R, v.dict.n), make([]bool, v.dict.n)
		if err := c.m.Find(t.plan.textOf([]*vec{v.dict}, 0, v.dict.n, nil), entries, in); err != nil {
			return err
		}
		for i, code := range v.codes { // a null's is 0, which there may be none of
			if found[i] = int(code) < len(in) && in[code]; found[i] {
				rows[i] = entries[code]
			}
		}
		return nil
	}
	ask := false
	if c.front.use != FilterOff {
		var err error
		if ask, err = c.front.ready(t.words); err != nil {
			return err
		}
	}
	var err error
	if ask {
		err = t.findBehind(c, keys, columns, rows, found)
	} else {
		err = c.m.Find(keys, rows, found)
	}
	c.front.note(len(rows), table.Count(found))
	return err
}

// findBehind is find of the rows that the filter lets through.
func (t *keyTable[R]) findBehind(c *keyCopy[R], keys text.Keys, columns []*vec, rows []R, found []bool) error {
	_, at, err := c.front.pass(t.plan.hashes(columns, len(rows)), found)
	if err != nil {
		return err
	}
	pass := make([][]byte, len(at))
	for j, i := range at {
		pass[j] = keys.At(i)
	}
	some, in := make([]R, len(at)), make([]bool, len(at))
	if err := c.m.Find(text.Of(pass...), some, in); err != nil {
		return err
	}
	clear(found)
	for j, i := range at {
		rows[i], found[i] = some[j], in[j]
	}
	return nil
}

// words are those of the build's keys, for a filter.
func (t *keyTable[R]) words() (words []uint64, err error) {
	for i, w := range t.plan.hashes(t.keys.wide, len(t.keys.ok)) {
		if t.keys.ok[i] {
			words = append(words, w)
		}
	}
	return words, nil
}

// hashes gives rows their words, with all threads.
func (p *keyPlan) hashes(columns []*vec, n int) []uint64 {
	words := make([]uint64, n)
	inPieces(n, func(_, from, to int) {
		part := make([]*vec, len(columns))
		for i, v := range columns {
			part[i] = v.slice(from, to)
		}
		p.hash(part, words[from:to])
	})
	return words
}

func (t *keyTable[R]) filtered() (n int64) {
	for _, c := range t.copies {
		n += c.front.kept
	}
	return n
}

func (t *keyTable[R]) close() (err error) {
	for _, c := range t.copies {
		err = errors.Join(err, c.front.close(), c.m.Close())
	}
	return err
}

// textOf is the keys of rows from ... to-1; with only, of those alone that it has true, by their place among these.
func (p *keyPlan) textOf(columns []*vec, from, to int, only []bool) text.Keys {
	all := only == nil || !slices.Contains(only, false)
	if v := columns[0]; len(columns) == 1 && !p.nullsEqual && v.dict == nil && all {
		if v.width == 0 {
			return text.Keys{Bytes: v.text, Offsets: wordsOf(v.ends[from : to+1])}
		}
		k := text.Keys{Bytes: v.fixed[from*v.width : to*v.width], Offsets: make([]int64, to-from+1)}
		for i := range k.Offsets {
			k.Offsets[i] = int64(i * v.width)
		}
		return k
	}
	k := text.Keys{Offsets: make([]int64, 1, to-from+1)}
	for i := from; i < to; i++ {
		if all || only[i-from] {
			k.Bytes = p.appendKey(k.Bytes, columns, i)
			k.Offsets = append(k.Offsets, int64(len(k.Bytes)))
		}
	}
	return k
}

// textOptions are of a table for the keys of all rows.
func (p *keyPlan) textOptions(keys *packed) text.Options {
	n, bytes := max(1, len(keys.ok)), 0
	for _, v := range keys.wide {
		values := v
		if v.dict != nil {
			values = v.dict
		}
		bytes += 2*n + (len(values.text)+len(values.fixed))*n/max(1, values.n)
	}
	return text.Options{Options: table.Options{Capacity: len(keys.ok)}, KeyBytes: bytes/n + 1}
}

// appendKey appends a row's key. The length of a text stands before it, unless it is the last.
func (p *keyPlan) appendKey(b []byte, columns []*vec, row int) []byte {
	for c, v := range columns {
		there := v.valid == nil || v.valid[row]
		if p.nullsEqual {
			if b = append(b, 0); !there {
				continue
			}
			b[len(b)-1] = 1
		}
		values, i := v, row
		if v.dict != nil {
			if values, i = v.dict, int(v.codes[row]); i >= values.n { // a null's, of a dictionary without values
				continue
			}
		}
		if values.width == 0 && c < len(columns)-1 {
			b = binary.AppendUvarint(b, uint64(values.ends[i+1]-values.ends[i]))
		}
		b = append(b, values.entry(i)...)
	}
	return b
}

// wordsOf sees numbers as the 8 bytes that they are; where an int has 4, it copies them.
func wordsOf(ends []int) []int64 {
	if unsafe.Sizeof(int(0)) == 8 {
		return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(ends))), len(ends))
	}
	out := make([]int64, len(ends))
	for i, e := range ends {
		out[i] = int64(e)
	}
	return out
}

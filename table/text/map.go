package text

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Map is a map whose keys are strings, or bytes of any kind and length up to what the device's memory holds, and whose
// values are plain data of 4, 8 or 16 bytes. What table.Map says of batches, streams, the order of calls, growth,
// MaxBytes, errors and goroutines holds here, too. But every method waits for the stream, except Find, Contains and
// Clear.
//
// Two keys are equal if all their bytes are. Each operation has a form for Go's memory, and one with On for the
// device's memory. A slice that may be nil in the first form may be the zero slice in the second.
type Map[V any] struct{ c core }

// made is the map, or one whose operations are errors, if New has not made it.
func (m *Map[V]) made() *core {
	if m.c.index == nil {
		return unmade
	}
	return &m.c
}

// New makes an empty map over the table that index makes. Package warpmap's NewStrings takes a family's name instead.
//
// Errors: a V of another width, or with pointers or padding; options out of range; *device.OutOfMemoryError; index's
// errors. If kernels must be compiled: device.ErrNoCompiler or device.ErrNoNVRTC, or *device.CompileError with the
// compiler's words. Cost: compiling the kernels, a few seconds the first time on a machine.
func New[V any](d *device.Device, o Options, index Index) (*Map[V], error) {
	return open[V](d, o, index, d != nil && d.Info().CUDA())
}

func open[V any](d *device.Device, o Options, index Index, together bool) (*Map[V], error) {
	n, err := frame.ValueBytes[V]()
	if err != nil {
		return nil, err
	}
	m := &Map[V]{core{valueBytes: n}}
	return frame.Made(m, m.c.open(d, o, index, together))
}

// Insert puts or replaces n pairs. If a batch holds a key several times, one of its values stays. The map grows as it
// must; where MaxBytes or the device's memory forbids that, *table.FullError names exactly the positions that are not
// in. Where there is no memory even to ask for a key, *table.FullError names its position, too: if the key was in
// before, it has one of the two values.
//
// Errors of this and of all methods: *device.OutOfMemoryError, before anything is done, if an earlier batch has left
// something to do in the index, and there is still no memory for that.
func (m *Map[V]) Insert(keys Keys, values []V) error {
	return m.insert(keys, values, nil, true)
}

// InsertOn inserts pairs in device memory: see Insert.
func (m *Map[V]) InsertOn(st *device.Stream, keys KeysOn, values device.Slice[V]) error {
	return m.insertOn(st, keys, values, device.Slice[bool]{}, true)
}

// InsertNew puts the pairs whose keys are absent, and leaves the values of the others alone. added[i] tells whether
// position i went in; added may be nil. If a batch holds a new key several times, exactly one position goes in.
// InsertNew returns how many went in.
func (m *Map[V]) InsertNew(keys Keys, values []V, added []bool) (int, error) {
	if added == nil {
		added = make([]bool, keys.Len())
	}
	err := m.insert(keys, values, added, false)
	if full := (*table.FullError)(nil); err != nil && !errors.As(err, &full) {
		return 0, err
	}
	return frame.Count(added), err
}

// InsertNewOn does what InsertNew does, in device memory.
func (m *Map[V]) InsertNewOn(st *device.Stream, keys KeysOn, values device.Slice[V], added device.Slice[bool]) error {
	return m.insertOn(st, keys, values, added, false)
}

func (m *Map[V]) insert(keys Keys, values []V, added []bool, replace bool) error {
	c := m.made()
	if err := c.checkKeys(keys, "values added", len(values), frame.OptionalLen(added)); err != nil {
		return err
	}
	var refused []int
	var why error
	pieces, untried := 0, false
	err := c.batch(keys, columnOf(values), outOf(added), func(st *device.Stream, first int, r rows) error {
		pieces++
		return c.writing(st, func(st *device.Stream) error {
			lost, w, err := c.put(st, r, replace)
			for _, i := range lost {
				refused = append(refused, first+i)
			}
			if w != nil {
				why = w
			}
			return err
		})
	}, func(first, n int, short error) error { // no memory for them
		for i := range n {
			refused = append(refused, first+i)
		}
		clear(added[min(first, len(added)):min(first+n, len(added))])
		why, untried = short, true
		pieces++
		return nil
	})
	if err == nil && len(refused) > 0 && pieces > 1 {
		refused = keys.absentElsewhere(refused)
	}
	if err == nil && untried && !replace { // some may have been in before
		refused, err = m.strikeOff(keys, refused)
	}
	if err != nil || len(refused) == 0 {
		return err
	}
	return c.f.Locked(func() error { return c.full(refused, why) })
}

// strikeOff keeps of refused positions those whose keys are not in, or all where there is no memory to ask.
func (m *Map[V]) strikeOff(keys Keys, refused []int) (out []int, err error) {
	found := make([]bool, len(refused))
	if err := m.Contains(keys.pick(refused), found); device.IsOutOfMemory(err) {
		return refused, nil
	} else if err != nil {
		return nil, err
	}
	for i, p := range refused {
		if !found[i] {
			out = append(out, p)
		}
	}
	return out, nil
}

func (m *Map[V]) insertOn(st *device.Stream, keys KeysOn, values device.Slice[V], added device.Slice[bool], replace bool) error {
	c := m.made()
	if err := c.checkOn(st, keys, "values added", values, frame.Optional(added)); err != nil {
		return err
	}
	return c.writing(st, func(st *device.Stream) error {
		r := c.rowsOn(keys, values.Addr(), added.Addr())
		if err := c.sound(st, r); err != nil {
			return err
		}
		refused, why, err := c.put(st, r, replace)
		if err != nil || len(refused) == 0 {
			return err
		}
		return c.full(refused, why)
	})
}

// Find writes each key's value, or the zero value, and whether it was found; values or found may be nil.
func (m *Map[V]) Find(keys Keys, values []V, found []bool) error {
	c := m.made()
	if err := c.checkKeys(keys, "values found", frame.OptionalLen(values), frame.OptionalLen(found)); err != nil {
		return err
	}
	return c.batch(keys, outOf(values), outOf(found), func(st *device.Stream, _ int, r rows) error {
		return c.reading(st, func(st *device.Stream) error { return c.find(st, r) })
	}, nil)
}

// FindOn looks up keys in device memory: see Find.
func (m *Map[V]) FindOn(st *device.Stream, keys KeysOn, values device.Slice[V], found device.Slice[bool]) error {
	c := m.made()
	if err := c.checkOn(st, keys, "values found", frame.Optional(values), frame.Optional(found)); err != nil {
		return err
	}
	return c.reading(st, func(st *device.Stream) error {
		r := c.rowsOn(keys, values.Addr(), found.Addr())
		if err := c.sound(st, r); err != nil {
			return err
		}
		return c.find(st, r)
	})
}

// Contains tells of each key whether it is in.
func (m *Map[V]) Contains(keys Keys, found []bool) error {
	if len(found) != keys.Len() {
		return family.CheckNamed("found", keys.Len(), len(found))
	}
	return m.Find(keys, nil, found)
}

// ContainsOn does what Contains does, in device memory.
func (m *Map[V]) ContainsOn(st *device.Stream, keys KeysOn, found device.Slice[bool]) error {
	if err := m.made().checkOn(st, keys, "found", found); err != nil {
		return err
	}
	return m.FindOn(st, keys, device.Slice[V]{}, found)
}

// Delete removes keys. deleted[i] tells whether position i removed one; deleted may be nil. If a batch holds a key
// several times, exactly one position removes it. Delete returns how many it removed, also beside an
// *device.OutOfMemoryError, after which some keys are out and others are not.
func (m *Map[V]) Delete(keys Keys, deleted []bool) (int, error) {
	c := m.made()
	if err := c.checkKeys(keys, "deleted", frame.OptionalLen(deleted)); err != nil {
		return 0, err
	}
	if deleted == nil {
		deleted = make([]bool, keys.Len())
	}
	clear(deleted)
	err := c.batch(keys, column{}, outOf(deleted), func(st *device.Stream, _ int, r rows) error {
		return c.writing(st, func(st *device.Stream) error { return c.erase(st, r) })
	}, nil)
	if err != nil && !device.IsOutOfMemory(err) {
		return 0, err
	}
	return frame.Count(deleted), err
}

// DeleteOn deletes keys in device memory: see Delete.
func (m *Map[V]) DeleteOn(st *device.Stream, keys KeysOn, deleted device.Slice[bool]) error {
	c := m.made()
	if err := c.checkOn(st, keys, "deleted", frame.Optional(deleted)); err != nil {
		return err
	}
	return c.writing(st, func(st *device.Stream) error {
		r := c.rowsOn(keys, 0, deleted.Addr())
		if err := c.sound(st, r); err != nil {
			return err
		}
		return c.erase(st, r)
	})
}

// Chunks gives every pair to do, in no order, in chunks of some MiB, or of one key that is longer. The slices are do's
// until it returns. If do returns an error, Chunks ends and returns it. do, and other goroutines meanwhile, may call
// methods that read the map; a call that may change the map ends Chunks with table.ErrChanged. Errors: also the
// context's, and *device.OutOfMemoryError.
func (m *Map[V]) Chunks(ctx context.Context, do func(keys Keys, values []V) error) error {
	return m.made().chunks(ctx, func(keys Keys, values []byte) error {
		return do(keys, valuesOf[V](values, keys.Len()))
	})
}

// All exports every pair, in no order, as the map is at one time. Calls that change the map wait meanwhile.
func (m *Map[V]) All() (keys Keys, values []V, err error) {
	keys.Offsets = []int64{0}
	err = m.made().all(func(k Keys, v []byte) {
		for i := range k.Len() {
			keys.Offsets = append(keys.Offsets, int64(len(keys.Bytes))+k.Offsets[i+1])
		}
		keys.Bytes = append(keys.Bytes, k.Bytes...)
		values = append(values, valuesOf[V](v, k.Len())...)
	})
	if err != nil {
		return Keys{}, nil, err
	}
	return keys, values, nil
}

// errEnough ends chunks early.
var errEnough = errors.New("enough")

// Pairs iterates over the pairs, in no order, by Chunks. When the loop is over, err returns what broke it off, or nil.
// See table.Pairs.
func (m *Map[V]) Pairs(ctx context.Context) (pairs iter.Seq2[string, V], err func() error) {
	var failed error
	pairs = func(yield func(string, V) bool) {
		failed = m.Chunks(ctx, func(keys Keys, values []V) error {
			for i, v := range values {
				if !yield(string(keys.At(i)), v) {
					return errEnough
				}
			}
			return nil
		})
		if errors.Is(failed, errEnough) {
			failed = nil
		}
	}
	return pairs, func() error { return failed }
}

// Family is the family of the index.
func (m *Map[V]) Family() table.Family {
	if m.c.index == nil {
		return family
	}
	return m.c.index.Family()
}

// Len counts the pairs.
func (m *Map[V]) Len() (n int, err error) {
	err = m.made().reading(nil, func(*device.Stream) error { n = int(m.made().counts.Seen.Live); return nil })
	return n, err
}

// Clear empties the map and keeps the capacity.
func (m *Map[V]) Clear() error {
	c := m.made()
	return c.changing(nil, func(st *device.Stream) error {
		return c.breaks(errors.Join(c.forget(), c.index.Clear(), c.arena.starts.Fill(st, 0), c.reset(st)))
	})
}

// Stats is what a Map measures of itself. Capacity is how many keys, as long as the present ones are on average, the
// index or the arena has room for, whichever are fewer. Bytes are those of both. Probes are those of the index; a key
// that stands in a chain behind another counts in the last element.
type Stats struct {
	table.Stats
	ArenaBytes   int64 `json:"arena_bytes"`   // the arena's memory, with its bitmap
	UsedBytes    int64 `json:"used_bytes"`    // the part of the arena that records use
	GarbageBytes int64 `json:"garbage_bytes"` // the part of these that records of deleted keys use
}

// Stats measures the map. Cost: that of the index's Stats.
func (m *Map[V]) Stats() (s Stats, err error) {
	err = m.made().reading(nil, func(*device.Stream) error { s, err = m.made().stats(); return err })
	return s, err
}

// Grow makes room for at least n pairs in all, whose keys are as long as those that are in, or as Options say. It also
// rids the map of what deletions left behind. Errors: n below 0 or over 2⁴⁶; table.ErrMaxBytes and
// *device.OutOfMemoryError, after which the map is as it was, except that the index may be larger.
func (m *Map[V]) Grow(n int) error {
	if n < 0 || n > 1<<46 {
		return fmt.Errorf("%s: grow to %d pairs (want 0 to 2⁴⁶)", family, n)
	}
	return m.made().writing(nil, func(st *device.Stream) error { return m.made().grow(st, int64(n)) })
}

// Check downloads the map and checks its invariants and those of the index: for tests, and when you suspect a defect.
// It is slow.
func (m *Map[V]) Check() error {
	return m.made().reading(nil, m.made().check)
}

// Close frees the map's memory. It is idempotent.
func (m *Map[V]) Close() error { return m.made().f.Close() }

package warpcore

import (
	"context"
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Set is WarpCore's HashSet (paper, §IV). Its slots hold keys alone, of 4, 8 or 16 bytes. Keys of 16 bytes need a
// device that swaps 128 bits: the CPU, and GPUs from sm_90 (H100) on. All methods take whole batches and are safe for
// use by several goroutines.
//
// Set implements table.Set, whose comments are the contract of the methods. Set also has Union, Intersect and Subtract.
type Set[K any] struct{ handle }

func _[K any](s *Set[K]) table.Set[K] { return s }

// NewSet makes an empty set on the device: see New. Options.Layout must be left at its zero value.
func NewSet[K any](d *device.Device, o Options) (*Set[K], error) {
	w := frame.Width{}
	w.Key, w.Err = frame.WidthOf[K]("key", 4, 8, 16)
	c, err := newCore(d, w, o, table.KindSet)
	return frame.Made(&Set[K]{handle{core: c}}, err)
}

// Insert puts in the keys that are absent: see table.Set. For each key, at low load, it reads one window and writes one
// 32-byte sector. The keys go in as they come, to count which are new: then a table larger than the device's L2 cache
// is written to at random.
func (s *Set[K]) Insert(keys []K, added []bool) (int, error) {
	return frame.InsertKeys(&s.made().frame, keys, added, s.made().insertion(s.made().kernel.insertNew))
}

// InsertOn does what Insert does, with slices on the device: see table.Set. Without added, a large batch is first
// brought in the order of the table's regions: see "Large batches" in the package's comment.
func (s *Set[K]) InsertOn(st *device.Stream, keys device.Slice[K], added device.Slice[bool]) error {
	return frame.InsertOn(&s.made().frame, st, keys, frame.NoValues(), added, s.insertion(s.made().kernel.insertNew))
}

// Contains tells for each key whether it is in. At low load, it reads one window for each key.
func (s *Set[K]) Contains(keys []K, found []bool) error {
	return frame.Find[K, byte](&s.made().frame, keys, nil, found, s.made().find)
}

// ContainsOn does what Contains does, with slices on the device.
func (s *Set[K]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return frame.FindOn(&s.made().frame, st, keys, device.Slice[byte]{}, found, s.finding())
}

// Delete removes keys: see table.Set. Their slots become tombstones, which later inserts use again.
func (s *Set[K]) Delete(keys []K, deleted []bool) (int, error) {
	return frame.Delete(&s.made().frame, keys, deleted, s.made().erase)
}

// DeleteOn does what Delete does, with slices on the device.
func (s *Set[K]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return frame.DeleteOn(&s.made().frame, st, keys, deleted, s.erasing())
}

// All exports every key, in no order.
func (s *Set[K]) All() ([]K, error) {
	keys, _, err := frame.All[K, byte](&s.made().frame, true, s.made().exporter)
	return keys, err
}

// Chunks calls do with every key, in chunks: see table.Set.
func (s *Set[K]) Chunks(ctx context.Context, do func(keys []K) error) error {
	return frame.KeyChunks(ctx, &s.made().frame, s.made().exporter, do)
}

// Union puts in all keys of another set. The sets may differ in their options, but not in their device. Union waits.
// Other calls on either set come before or after the whole of it. It takes memory for the keys of 2²⁴ slots while it
// runs. It passes over the other set once, and inserts its keys.
//
// Errors: table.ErrMaxBytes or *device.OutOfMemoryError if not all keys are in. They tell how many are not.
func (s *Set[K]) Union(other *Set[K]) error {
	return s.beside(other, func(x *exchange) error {
		var lost int
		var why error
		err := x.pieces(other.made(), func(b frame.Rows) error {
			refused, w, err := s.made().insert(x.st, s.made().kernel.insertNew, b)
			if lost += len(refused); w != nil {
				why = w
			}
			return err
		})
		if err == nil && lost > 0 {
			err = fmt.Errorf("warpcore: %d keys of the other set are not in: %w", lost, why)
		}
		return err
	})
}

// Intersect removes the keys that another set does not have: see Union. It passes over this set once, looks its keys up
// in the other set, and deletes.
func (s *Set[K]) Intersect(other *Set[K]) error {
	return s.beside(other, func(x *exchange) error {
		return x.pieces(s.made(), func(b frame.Rows) error {
			b.Flags = x.found.Addr()
			if err := other.made().find(x.st, b); err != nil {
				return err
			}
			p := selectParams{Table: s.made().t, Keys: b.Keys, Found: b.Flags, N: uint64(b.N), Out: x.left.Addr()}
			if err := frame.InTurn(
				func() error { return s.made().reset(x.st) },
				func() error { return s.made().kernel.absent.Launch(x.st, s.made().grid(b.N), &p) },
			); err != nil {
				return err
			}
			if _, err := s.made().look(x.st); err != nil || s.made().counters.Seen.Exported == 0 {
				return err
			}
			return s.made().erase(x.st, frame.Rows{Keys: p.Out, N: int64(s.made().counters.Seen.Exported)})
		})
	})
}

// Subtract removes the keys that another set has: see Union. It passes over the other set once, and deletes its keys.
func (s *Set[K]) Subtract(other *Set[K]) error {
	if other != nil && s.made() == other.made() {
		return s.Clear()
	}
	return s.beside(other, func(x *exchange) error {
		return x.pieces(other.made(), func(b frame.Rows) error { return s.made().erase(x.st, b) })
	})
}

// exchange is the memory through which keys of one set come to another.
type exchange struct {
	st         *device.Stream
	keys, left device.Slice[byte] // for the keys of so many slots
	found      device.Slice[byte]
	slots      int64
}

const (
	exchangeSlots = 1 << 24 // at once, or as many as there is memory for
	leastExchange = 1 << 10
)

// beside runs do with both sets held, and memory for the keys of some slots; not for a set and itself, which is its own union and intersection.
func (s *Set[K]) beside(o *Set[K], do func(x *exchange) error) error {
	if o == nil {
		return errors.New("warpcore: a set operation with no set")
	}
	c, other := s.made(), o.made()
	if c == other {
		return c.frame.Usable()
	}
	return c.frame.WritingBoth(&other.frame, nil, func(st *device.Stream) (err error) {
		x := &exchange{st: st}
		defer func() { err = errors.Join(err, c.frame.Free(x.keys, x.left, x.found)) }()
		for x.slots = min(exchangeSlots, max(c.slots(), other.slots())); ; x.slots /= 2 {
			if err = x.make(c); !device.IsOutOfMemory(err) || x.slots <= leastExchange {
				break
			}
		}
		if err != nil {
			return err
		}
		return do(x)
	})
}

func (x *exchange) make(c *core) (err error) {
	for _, m := range []struct {
		mem   *device.Slice[byte]
		bytes int64
	}{{&x.keys, x.slots * int64(c.cfg.keyBytes)}, {&x.left, x.slots * int64(c.cfg.keyBytes)}, {&x.found, x.slots}} {
		if int64(m.mem.Len()) > m.bytes { // of a try before
			if err := c.frame.Free(*m.mem); err != nil {
				return err
			}
			*m.mem = device.Slice[byte]{}
		}
		if m.mem.Len() == 0 {
			if *m.mem, err = device.MakePooled[byte](c.frame.Device, int(m.bytes)); err != nil {
				return err
			}
		}
	}
	return nil
}

// pieces calls do with the keys of some slots of a set after the others. do may remove them.
func (x *exchange) pieces(c *core, do func(b frame.Rows) error) error {
	for first := int64(0); first < c.slots(); first += x.slots {
		if _, err := c.look(x.st); err != nil { // for reset writes what was seen
			return err
		}
		p := slotsParams{Table: c.t, Keys: x.keys.Addr(), First: uint64(first), Slots: uint64(min(x.slots, c.slots()-first)), Limit: uint64(x.slots)}
		if err := frame.InTurn(
			func() error { return c.reset(x.st) },
			func() error { return c.kernel.export.Launch(x.st, c.grid(int64(p.Slots)), &p) },
		); err != nil {
			return err
		}
		if _, err := c.look(x.st); err != nil {
			return err
		}
		if n := int64(c.counters.Seen.Exported); n > 0 {
			if err := do(frame.Rows{Keys: x.keys.Addr(), N: n}); err != nil {
				return err
			}
		}
	}
	return nil
}

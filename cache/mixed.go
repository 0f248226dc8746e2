package cache

import (
	_ "embed"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

//go:embed update.cu
var updateCU string

func _[K, V any](m *Cache[K, V]) table.Mixed[K, V] { return m }

// Mixed runs operations of all kinds beside one another: see table.Mixed. A pair may go out at any moment of the
// batch. An insert that sends another pair out has the outcome Added. In a cache that is Scored, new pairs have the
// score 0, and the outcome of one that is refused is NoRoom, which is no error. Cost an operation: that of Find,
// Insert or Delete, and the fences that keep a look-up from seeing half of a change.
func (m *Cache[K, V]) Mixed(ops []table.Op, keys []K, values, results []V, status []table.Status) error {
	c := m.made()
	if err := c.noScore("Mixed"); err != nil {
		return err
	}
	if c.cfg.valueBytes == 0 {
		return frame.MixKeys(&c.frame, ops, keys, status, c.mix, c.size)
	}
	return frame.Mix(&c.frame, ops, keys, values, results, status, c.mix, c.size)
}

// MixedOn does what Mixed does, with device slices. It queues its work and returns.
func (m *Cache[K, V]) MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K], values,
	results device.Slice[V], status device.Slice[table.Status]) error {
	c := m.made()
	if err := c.noScore("MixedOn"); err != nil {
		return err
	}
	return frame.MixOn(&c.frame, st, ops, keys, m.given(values), frame.Optional(results), status, c.mix, c.size)
}

// FindOrInsert puts the pairs whose keys are absent, and writes to out the value that each key then has: the one that
// was there, or the one that came with it. added[i] tells whether position i went in; added may be nil. What is found
// counts as used. FindOrInsert returns how many pairs went in. In a batch that holds a new key several times, one
// position puts it, and the others find it, unless it went out meanwhile. In a cache that is Scored, new pairs have
// the score 0; one that is refused gives its own value. out and values may be the same slice. Cost: that of Insert.
func (m *Cache[K, V]) FindOrInsert(keys []K, values, out []V, added []bool) (int, error) {
	c := m.made()
	if err := c.noScore("FindOrInsert"); err != nil {
		return 0, err
	}
	return frame.FindOrInsert(&c.frame, keys, values, out, added, c.insertion(c.findOrInsert))
}

// FindOrInsertOn does what FindOrInsert does, with device slices, and returns no count. It queues its work and returns.
func (m *Cache[K, V]) FindOrInsertOn(st *device.Stream, keys device.Slice[K], values, out device.Slice[V],
	added device.Slice[bool]) error {
	c := m.made()
	if err := c.noScore("FindOrInsertOn"); err != nil {
		return err
	}
	return frame.FindOrInsertOn(&c.frame, st, keys, m.given(values), m.given(out), added,
		c.insertion(c.findOrInsert))
}

// Update combines the value of each key that is there with the value that comes, and inserts the pairs whose keys are
// absent: see table.Updater for the operations and the errors. All values of a key in a batch are combined, unless the
// pair goes out meanwhile: then those that come later begin anew. Cost: that of Insert; rows of one key go in one
// after the other.
func (m *Cache[K, V]) Update(keys []K, values []V, with table.Combine) error {
	c := m.made()
	if err := c.noScore("Update"); err != nil {
		return err
	}
	return frame.Updating(&c.frame, keys, values, with, c.updating)
}

// UpdateOn does what Update does, with device slices. It queues its work and returns.
func (m *Cache[K, V]) UpdateOn(st *device.Stream, keys device.Slice[K], values device.Slice[V],
	with table.Combine) error {
	c := m.made()
	if err := c.noScore("UpdateOn"); err != nil {
		return err
	}
	return frame.UpdatingOn(&c.frame, st, keys, values, with, c.updating)
}

// insertion brings batches in by a function. Nothing is refused, so nothing is tried again.
func (c *core) insertion(queue func(st *device.Stream, b frame.Rows) error) frame.Insertion {
	return frame.Insertion{
		Put:  func(st *device.Stream, b frame.Rows) (refused []int, why, err error) { return nil, nil, queue(st, b) },
		Size: c.size,
	}
}

// size is for errors of frame.
func (c *core) size() (capacity, live int64) { return c.slots(), c.counters.Seen.live() }

func (c *core) launchMixed(st *device.Stream, p mixedParams) error {
	if err := c.lower(st); err != nil {
		return err
	}
	p.Table, p.Now, p.Time, p.Life = c.t, c.tick(int64(p.N)), c.time(), uint64(ticksOf(c.opts.TimeToLive))
	return c.kernel.mixed.Launch(st, c.grid(int64(p.N)), &p)
}

func (c *core) mix(st *device.Stream, b frame.MixedRows) (refused []int, why, err error) {
	return nil, nil, c.launchMixed(st, mixedParams{Ops: b.Ops, Keys: b.Keys, Values: b.Values, Results: b.Results,
		Status: b.Status, N: uint64(b.N)})
}

func (c *core) findOrInsert(st *device.Stream, b frame.Rows) error {
	return c.launchMixed(st, mixedParams{Op: uint64(table.OpInsertNew), Keys: b.Keys, Values: b.Values,
		Results: b.Out, Added: b.Flags, N: uint64(b.N), Give: 1})
}

// updating brings a batch in with the operation of a header combine.h.
func (c *core) updating(header device.File) frame.Insertion {
	return c.insertion(func(st *device.Stream, b frame.Rows) error {
		k, err := c.updates.Of(c.frame.Device, header, c.updateProgram, frame.Named[putParams]("update"))
		if err != nil {
			return err
		}
		if err := c.lower(st); err != nil {
			return err
		}
		return k.Launch(st, c.grid(b.N), &putParams{Table: c.t, Keys: b.Keys, Values: b.Values, N: uint64(b.N),
			Now:  c.tick(b.N),
			Time: c.time(), Life: uint64(ticksOf(c.opts.TimeToLive))})
	})
}

func (c *core) updateProgram(header device.File) *device.Program {
	p := c.program("cache_update", updateCU)
	p.Files = append(p.Files, header)
	return p
}

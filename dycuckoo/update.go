package dycuckoo

import (
	_ "embed"
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

//go:embed update.cu
var updateCU string

func _[K, V any](m *Map[K, V]) table.Updater[K, V] { return m }

// Update puts pairs in. If a key is there, it combines its value with the new one: see table.Updater. For each pair
// whose key is there, it makes a look-up and does one atomic operation in the bucket that it has read. If keys of a
// batch are absent, it waits once more, and these keys cost a look-up and an insert more.
func (m *Map[K, V]) Update(keys []K, values []V, with table.Combine) error {
	return frame.Updating(&m.made().frame, keys, values, with, m.made().updating)
}

// UpdateOn does what Update does, with slices on the device. It waits for the stream, as InsertOn does.
func (m *Map[K, V]) UpdateOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], with table.Combine) error {
	return frame.UpdatingOn(&m.made().frame, st, keys, values, with, m.made().updating)
}

// FindOrInsert returns the values of the keys that are there, and puts in the other pairs: see table.Updater.
func (m *Map[K, V]) FindOrInsert(keys []K, values, out []V, added []bool) (int, error) {
	return frame.FindOrInsert(&m.made().frame, keys, values, out, added, m.made().findingOrInserting())
}

// FindOrInsertOn does what FindOrInsert does, with slices on the device. It waits for the stream, as InsertOn does.
func (m *Map[K, V]) FindOrInsertOn(st *device.Stream, keys device.Slice[K], values, out device.Slice[V], added device.Slice[bool]) error {
	return frame.FindOrInsertOn(&m.made().frame, st, keys, values, out, added, m.made().findingOrInserting())
}

// updating takes a batch in with the operation of a header combine.h. It serves one call.
func (c *core) updating(header device.File) frame.Insertion {
	return frame.ExactInsertion(c.size, func() (device.Kernel[insertParams], error) {
		return c.updates.Of(c.frame.Device, header, c.updateProgram, frame.Named[insertParams]("combine"))
	}, c.meet).Loading(c.loadChoosing)
}

func (c *core) findingOrInserting() frame.Insertion {
	return frame.ExactInsertion(c.size, func() (device.Kernel[insertParams], error) { return c.tell, nil }, c.meet).Loading(c.loadChoosing)
}

// meet takes rows in of which a kernel does those whose keys are there, and marks the others. Pairs are moved while others are put, and what was
// combined with one that is just being moved would be lost: so each is a kernel of its own. First rows meet what is there; then those that are marked are
// put, and of equal keys one gets in and the others stay marked; then these meet it.
//
// A key that was refused might find another path of pairs later: so once exact is over, nothing is put.
func (c *core) meet(st *device.Stream, k device.Kernel[insertParams], b frame.Rows, exact *frame.Exactly) (refused []int, why, err error) {
	return c.take(st, b.N, 1, b.Keys, exact, func(part frame.Part) error {
		rows := b.Part(part, c.cfg.keyBytes, c.cfg.valueBytes)
		there := func(attempt uint64) error {
			p := c.insertParams(part)
			p.Rows.Attempt = attempt
			p.Rows = p.Rows.Of(frame.Ordered{Rows: rows})
			return k.Launch(st, c.grid(rows.N), &p)
		}
		if part.Attempt == 0 {
			if err := errors.Join(k.Ahead(), c.aheadOf(&c.keeping)); err != nil {
				return err
			}
			if err := there(0); err != nil || exact.Over() {
				return err
			}
			if _, err := c.look(st); err != nil || c.counters.Seen.Failed == 0 {
				return err
			}
			if err := c.reset(st); err != nil {
				return err
			}
		}
		p := c.insertParams(part)
		p.Rows.Attempt = max(1, part.Attempt)
		return frame.InTurn(
			func() error { return c.launchInsert(st, &c.keeping, p, rows) },
			func() error { return c.refine(st, &c.keeping, p, rows) },
			func() error { return c.reset(st) },
			func() error { return there(1) },
		)
	}, nil)
}

func (c *core) updateProgram(header device.File) *device.Program {
	return c.program("update", updateCU, header, frame.Gathering())
}

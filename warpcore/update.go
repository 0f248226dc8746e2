package warpcore

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
// whose key is there, it reads one window and does one atomic operation in the same sector.
//
// On a GPU, a large batch for a table larger than the L2 cache is brought in order first: in the order of the table's
// regions, or, if keys come three times or more, in that of parts whose keys fit shared memory. In the latter case the
// rows of one key are combined there, unless you combine them by code of your own. To choose, Update looks at one
// batch, and then at none of the next 63 of its size.
func (m *Map[K, V]) Update(keys []K, values []V, with table.Combine) error {
	return frame.Updating(&m.made().frame, keys, values, with, m.made().updating)
}

// UpdateOn does what Update does, with slices on the device. It waits for the stream only if the table may have to grow
// or to refuse pairs, or if it looks at the batch.
func (m *Map[K, V]) UpdateOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], with table.Combine) error {
	return frame.UpdatingOn(&m.made().frame, st, keys, values, with, m.made().updating)
}

// FindOrInsert returns the values of the keys that are there, and puts in the other pairs: see table.Updater.
func (m *Map[K, V]) FindOrInsert(keys []K, values, out []V, added []bool) (int, error) {
	return frame.FindOrInsert(&m.made().frame, keys, values, out, added, m.made().updating(device.File{}))
}

// FindOrInsertOn does what FindOrInsert does, with slices on the device.
func (m *Map[K, V]) FindOrInsertOn(st *device.Stream, keys device.Slice[K], values, out device.Slice[V], added device.Slice[bool]) error {
	return frame.FindOrInsertOn(&m.made().frame, st, keys, values, out, added, m.made().updating(device.File{}))
}

// updating takes a batch in with the operation of a header combine.h; without one, it is FindOrInsert's. It serves one call.
func (c *core) updating(header device.File) frame.Insertion {
	x, exact := c.insertion(inserts{}), new(exactly)
	x.Find = nil
	x.Put = func(st *device.Stream, b frame.Rows) (refused []int, why, err error) {
		k, err := c.update(header)
		if err != nil {
			return nil, nil, err
		}
		return c.insertAs(st, k, b, exact)
	}
	return x
}

// update is the kernels of an operation. The caller holds the lock.
func (c *core) update(header device.File) (inserts, error) {
	return c.updates.Of(c.frame.Device, header, c.updateProgram, func(m *device.Module, k *inserts) error {
		switch {
		case header.Name == "":
			return device.Bind(m, "find_or_insert", &k.rows)
		case !frame.Merges(header):
			return device.Bind(m, "update", &k.rows)
		}
		return errors.Join(device.Bind(m, "update", &k.rows), device.Bind(m, "combine_rows", &k.combine), device.Bind(m, "update_sums", &k.sums))
	})
}

func (c *core) updateProgram(header device.File) *device.Program {
	if header.Name == "" {
		return c.program("find_or_insert", updateCU)
	}
	return defining("WARPCORE_COMBINES", true, c.program("update", updateCU, header))
}

// defining returns a program with another value of one of its defines.
func defining(name string, value any, p *device.Program) *device.Program {
	for i := range p.Defines {
		if p.Defines[i].Name == name {
			p.Defines[i].Value = value
		}
	}
	return p
}

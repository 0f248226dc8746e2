package stadium

import (
	_ "embed"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

//go:embed update.cu
var updateCU string

func _[K, V any](m *Map[K, V]) table.Updater[K, V] { return m }

// Update puts pairs in. If a key is there, it combines its value with the new one: see table.Updater. For each pair it
// costs as much as Insert, and reads one slot more. Rows of one key that are not near one another in the batch go in
// one after the other. If the table is in host memory, it is reached across the bus.
func (m *Map[K, V]) Update(keys []K, values []V, with table.Combine) error {
	return frame.Updating(&m.made().frame, keys, values, with, m.made().updating)
}

// UpdateOn does what Update does, with slices on the device. It waits for the stream only if the table may have to grow
// or to refuse pairs.
func (m *Map[K, V]) UpdateOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], with table.Combine) error {
	return frame.UpdatingOn(&m.made().frame, st, keys, values, with, m.made().updating)
}

// FindOrInsert returns the values of the keys that are there, and puts in the other pairs: see table.Updater. It costs
// as much as Update.
func (m *Map[K, V]) FindOrInsert(keys []K, values, out []V, added []bool) (int, error) {
	return frame.FindOrInsert(&m.made().frame, keys, values, out, added, m.made().findingOrInserting())
}

// FindOrInsertOn does what FindOrInsert does, with slices on the device.
func (m *Map[K, V]) FindOrInsertOn(st *device.Stream, keys device.Slice[K], values, out device.Slice[V], added device.Slice[bool]) error {
	return frame.FindOrInsertOn(&m.made().frame, st, keys, values, out, added, m.made().findingOrInserting())
}

// updating takes a batch in with the operation of a header combine.h. It serves one call.
func (c *core) updating(header device.File) frame.Insertion {
	return frame.ExactInsertion(c.size, func() (device.Kernel[insertParams], error) {
		return c.updates.Of(c.frame.Device, header, c.updateProgram, frame.Named[insertParams]("update"))
	}, c.insertEach)
}

func (c *core) findingOrInserting() frame.Insertion {
	return frame.ExactInsertion(c.size, func() (device.Kernel[insertParams], error) {
		err := c.choose()
		return c.findOrInsert, err
	}, c.insertEach)
}

// insertEach takes rows in one by one, wherever the table lies.
func (c *core) insertEach(st *device.Stream, k device.Kernel[insertParams], b frame.Rows, exact *frame.Exactly) (refused []int, why, err error) {
	return c.insert(st, &insertKernels{insert: k}, b, exact)
}

func (c *core) updateProgram(header device.File) *device.Program {
	return c.program("stadium-update", updateCU, header, frame.Gathering())
}

package gph

import (
	"context"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Map is GPH's perfect hash table (paper, §4). Each key has one value, and every look-up, hit or miss, reads one byte
// of the index and one bucket. Either K and V both have 2 bytes, or K has 4 or 8 bytes and V 4, 8 or 16. Map implements
// table.Map, whose comments are the contract of the methods. All methods are safe for use by several goroutines.
type Map[K, V any] struct{ handle }

func _[K, V any](m *Map[K, V]) table.Map[K, V] { return m }

// New makes an empty map on the device. It has buckets of Bucket slots, and the cells. Stats tells how much memory that
// is.
//
// Errors: K or V of another width, or with pointers or padding; options out of range; *device.OutOfMemoryError. If
// kernels must be compiled: device.ErrNoCompiler (CPU device) or device.ErrNoNVRTC (GPU), if there is nothing to
// compile them with. A compiler's own words, in a *device.CompileError, come from the method that needs the kernel. Cost:
// filling the memory. The first call of a method on a machine compiles its kernels.
func New[K, V any](d *device.Device, o Options) (*Map[K, V], error) {
	c, err := newCore(d, widths[K, V](), o)
	return frame.Made(&Map[K, V]{handle{c}}, err)
}

// widths allows pairs of 2 bytes each beside those that every table has.
func widths[K, V any]() (w frame.Width) {
	if key, err := frame.WidthOf[K]("key", 2); err == nil {
		w.Key = key
		w.Value, w.Err = frame.WidthOf[V]("value beside keys of 2 bytes", 2)
		return w
	}
	return frame.WidthsOf[K, V]()
}

const family table.Family = "gph"

// Insert puts pairs in, and replaces the values of keys that are there: see table.Map. For each pair it reads one cell
// and one bucket, and writes one sector. If the bucket is full, it moves the pairs of the cell (paper, §6).
func (m *Map[K, V]) Insert(keys []K, values []V) error {
	return frame.Insert(&m.made().frame, keys, values, m.made().insertion(&m.made().kernel.replace))
}

// InsertOn does what Insert does, with slices on the device: see table.Map. It waits for the stream, because only the
// end of a batch tells whether each pair found its place.
func (m *Map[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return frame.InsertOn(&m.made().frame, st, keys, values, device.Slice[bool]{}, m.made().insertion(&m.made().kernel.replace))
}

// Build puts the pairs of a known set into an empty map. It is several times faster than Insert and reaches higher load
// factors. It makes the index as small as the set allows, which makes look-ups faster; inserts that come later find
// places less easily. If the batch holds a key several times, one of its values stays. The map grows to hold as many
// keys as there are pairs, even if some keys are equal.
//
// Build passes over the pairs four times at most, and takes up to 2.5 times their memory while it runs. It returns *table.FullError
// in the same cases as Insert. It returns *device.OutOfMemoryError also if the device has no room for the pairs
// themselves; the map is then still empty.
func (m *Map[K, V]) Build(keys []K, values []V) error {
	return frame.Whole(&m.made().frame, keys, values, m.BuildOn)
}

// BuildOn does what Build does, with slices on the device. It waits for the stream.
func (m *Map[K, V]) BuildOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return frame.InsertOn(&m.made().frame, st, keys, values, device.Slice[bool]{}, m.made().buildInsertion())
}

// InsertNew puts in the pairs whose keys are absent: see table.Map.
func (m *Map[K, V]) InsertNew(keys []K, values []V, added []bool) (int, error) {
	return frame.InsertNew(&m.made().frame, keys, values, added, m.made().insertion(&m.made().kernel.fresh))
}

// InsertNewOn does what InsertNew does, with slices on the device: see table.Map. It waits for the stream, as InsertOn
// does.
func (m *Map[K, V]) InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], added device.Slice[bool]) error {
	return frame.InsertOn(&m.made().frame, st, keys, values, added, m.made().insertion(&m.made().kernel.fresh))
}

// Find looks keys up: see table.Map. For each key, hit or miss, it reads one cell and one bucket (paper, §5).
func (m *Map[K, V]) Find(keys []K, values []V, found []bool) error {
	return frame.Find(&m.made().frame, keys, values, found, m.made().find)
}

// FindOn does what Find does, with slices on the device: see table.Map.
func (m *Map[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error {
	return frame.FindOn(&m.made().frame, st, keys, values, found, m.made().find)
}

// Contains tells for each key whether it is in: see table.Map.
func (m *Map[K, V]) Contains(keys []K, found []bool) error { return m.Find(keys, nil, found) }

// ContainsOn does what Contains does, with slices on the device: see table.Map.
func (m *Map[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return m.FindOn(st, keys, device.Slice[V]{}, found)
}

// Delete removes keys: see table.Map. It empties their slots at once.
func (m *Map[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	return frame.Delete(&m.made().frame, keys, deleted, m.made().erase)
}

// DeleteOn does what Delete does, with slices on the device: see table.Map.
func (m *Map[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return frame.DeleteOn(&m.made().frame, st, keys, deleted, m.made().erase)
}

// All exports every pair, in no order.
func (m *Map[K, V]) All() (keys []K, values []V, err error) {
	return frame.All[K, V](&m.made().frame, false, m.made().exporting)
}

// Chunks calls do with every pair, in chunks: see table.Map.
func (m *Map[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return frame.Chunks(ctx, &m.made().frame, m.made().exporting, do)
}

package slab

import (
	_ "embed"
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

//go:embed choose.cu
var chooseCU string

var (
	_ table.Chooser[uint32, uint32] = (*Map[uint32, uint32])(nil)
	_ table.KeyChooser[uint32]      = (*Set[uint32])(nil)
)

// choosing are the kernels of batches with a condition, and of FindOrInsert: compiled when one is first needed.
type choosing struct {
	needed            frame.Needed
	put, findOrInsert device.Kernel[insertParams]
	seek              device.Kernel[findParams]
}

// InsertIf inserts the pairs whose when[i] is true: see table.Chooser. It costs as much as an Insert of those pairs,
// and the whole batch is read. The first call of InsertIf, FindIf or ContainsIf compiles kernels.
func (m *Map[K, V]) InsertIf(keys []K, values []V, when []bool) error {
	return frame.InsertIf(&m.made().frame, keys, values, when, m.made().insertionIf())
}

// InsertIfOn does what InsertIf does, with slices on the device. It waits for the stream, as InsertOn does.
func (m *Map[K, V]) InsertIfOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], when device.Slice[bool]) error {
	return frame.InsertIfOn(&m.made().frame, st, keys, values, when, device.Slice[bool]{}, m.made().insertionIf())
}

// FindIf looks up the keys whose when[i] is true: see table.Chooser.
func (m *Map[K, V]) FindIf(keys []K, when []bool, values []V, found []bool) error {
	return frame.FindIf(&m.made().frame, keys, when, values, found, m.made().findIf)
}

// FindIfOn does what FindIf does, with slices on the device.
func (m *Map[K, V]) FindIfOn(st *device.Stream, keys device.Slice[K], when device.Slice[bool], values device.Slice[V], found device.Slice[bool]) error {
	return frame.FindIfOn(&m.made().frame, st, keys, when, values, found, m.made().findIf)
}

// ContainsIf tells for each key whose when[i] is true whether it is in: see table.Chooser.
func (m *Map[K, V]) ContainsIf(keys []K, when, found []bool) error {
	return m.FindIf(keys, when, nil, found)
}

// ContainsIfOn does what ContainsIf does, with slices on the device.
func (m *Map[K, V]) ContainsIfOn(st *device.Stream, keys device.Slice[K], when, found device.Slice[bool]) error {
	return m.FindIfOn(st, keys, when, device.Slice[V]{}, found)
}

// InsertIf inserts the keys whose when[i] is true: see table.KeyChooser.
func (s *Set[K]) InsertIf(keys []K, when, added []bool) (int, error) {
	return frame.InsertKeysIf(&s.made().frame, keys, when, added, s.made().insertionIf())
}

// InsertIfOn does what InsertIf does, with slices on the device. It waits for the stream, as InsertOn does.
func (s *Set[K]) InsertIfOn(st *device.Stream, keys device.Slice[K], when, added device.Slice[bool]) error {
	return frame.InsertIfOn(&s.made().frame, st, keys, frame.NoValues(), when, added, s.made().insertionIf())
}

// ContainsIf tells for each key whose when[i] is true whether it is in: see table.KeyChooser.
func (s *Set[K]) ContainsIf(keys []K, when, found []bool) error {
	return frame.FindIf[K, byte](&s.made().frame, keys, when, nil, found, s.made().findIf)
}

// ContainsIfOn does what ContainsIf does, with slices on the device.
func (s *Set[K]) ContainsIfOn(st *device.Stream, keys device.Slice[K], when, found device.Slice[bool]) error {
	return frame.FindIfOn(&s.made().frame, st, keys, when, device.Slice[byte]{}, found, s.made().findIf)
}

func (c *core) insertionIf() frame.Insertion {
	x := c.insertion(device.Kernel[insertParams]{})
	x.Put = func(st *device.Stream, b frame.Rows) ([]int, error, error) { return c.insertAs(st, c.put, b, nil) }
	return x.Loading(c.choose)
}

// findIf queues a look-up of the rows that have When.
func (c *core) findIf(st *device.Stream, b frame.Rows) error {
	err := c.choose()
	if err == nil {
		err = c.search(st, c.seek, b)
	}
	return err
}

// choose compiles the kernels, once. The caller holds the lock.
func (c *core) choose() error {
	return c.needed.Load(c.frame.Device, c.chooseProgram, func(m *device.Module) error {
		return errors.Join(device.Bind(m, "insert_if", &c.put), device.Bind(m, "find_if", &c.seek), device.Bind(m, "find_or_insert", &c.findOrInsert))
	})
}

func (c *core) chooseProgram() *device.Program { return c.program("choose", chooseCU) }

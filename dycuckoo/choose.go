package dycuckoo

import (
	_ "embed"
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

//go:embed choose.cu
var chooseCU string

func _[K, V any](m *Map[K, V]) table.Chooser[K, V] { return m }

// choosing are the kernels of batches with a condition, of FindOrInsert, and of the inserts that it and Update make: compiled when one is first needed.
type choosing struct {
	needed     frame.Needed
	keeping    insertKernels // of InsertNew; rows whose key is there stay marked
	tell, mark device.Kernel[insertParams]
	seek       device.Kernel[findParams]
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

// insertionIf marks the rows that are chosen as if they had been refused, and has these tried again.
func (c *core) insertionIf() frame.Insertion {
	x := c.insertion(nil)
	x.Put = func(st *device.Stream, b frame.Rows) ([]int, error, error) {
		return c.take(st, b.N, 1, 0, nil, func(part frame.Part) error {
			rows, p := b.Part(part, c.cfg.keyBytes, c.cfg.valueBytes), c.insertParams(part)
			if part.Attempt == 0 {
				q := p
				q.Rows, q.When = q.Rows.Of(frame.Ordered{Rows: rows}), rows.When
				if err := c.mark.Launch(st, c.grid(rows.N), &q); err != nil {
					return err
				}
				p.Rows.Attempt = 1
			}
			return c.launchInsert(st, &c.kernel.replacing, p, rows)
		}, func(part frame.Part) error {
			return c.refine(st, &c.kernel.replacing, c.insertParams(part), b.Part(part, c.cfg.keyBytes, c.cfg.valueBytes))
		})
	}
	return x.Loading(c.loadChoosing)
}

// findIf queues a look-up of the rows that have When.
func (c *core) findIf(st *device.Stream, b frame.Rows) error {
	if err := c.loadChoosing(); err != nil {
		return err
	}
	return c.search(st, c.seek, b)
}

// loadChoosing compiles the kernels, once. The caller holds the lock.
func (c *core) loadChoosing() error {
	return c.needed.Load(c.frame.Device, c.chooseProgram, func(m *device.Module) error {
		return errors.Join(c.keeping.bind(m, "_new"), device.Bind(m, "tell_values", &c.tell), device.Bind(m, "mark_chosen", &c.mark), device.Bind(m, "find_if", &c.seek))
	})
}

func (c *core) chooseProgram() *device.Program {
	p := c.program("choose", chooseCU)
	for i := range p.Defines {
		if p.Defines[i].Name == "DYCUCKOO_KEEPS" {
			p.Defines[i].Value = true
		}
	}
	return p
}

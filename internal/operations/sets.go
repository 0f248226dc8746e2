package operations

import (
	"bytes"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// setOf is a set whose keys are numbers to the caller.
type setOf[K comparable] struct {
	s   table.Set[K]
	d   *device.Device
	key codec[K]
}

func (m *setOf[K]) do(c *call) (a answer) {
	if a, done := shared(m.s, c); done {
		return a
	}
	keys := m.key.all(c.Keys)
	switch c.Name {
	case "save":
		var file bytes.Buffer
		if a.Err = snapshot.Set(m.s).Save(background, &file); a.Err != nil {
			return a
		}
		other, err := warpmap.LoadSet[K](background, &file, m.d, table.Family(c.Family), table.Options{Seed: c.Seed | 1})
		if a.Err = err; err != nil {
			return a
		}
		a = (&setOf[K]{other, m.d, m.key}).do(&call{Name: "export"})
		if err := other.Close(); a.Err == nil {
			a.Err = err
		}
		return a
	case "foreach":
		c.With = eachKey
		return forEach(m.s, m.d, c, keys)
	case "export":
		keys, a.Err = m.s.All()
		a.Keys = m.key.numbers(keys, &a.Err)
		return a
	case "chunks":
		keys = nil
		a.Err = m.s.Chunks(background, func(k []K) error { keys = append(keys, k...); return nil })
		a.Keys = m.key.numbers(keys, &a.Err)
		return a
	}
	a.Flags = make([]bool, len(keys))
	if c.Device {
		m.onDevice(c, keys, &a)
		return a
	}
	chooser, chooses := m.s.(table.KeyChooser[K])
	switch {
	case c.Name == "insert":
		a.N, a.Err = m.s.Insert(keys, a.Flags)
	case c.Name == "delete":
		a.N, a.Err = m.s.Delete(keys, a.Flags)
	case c.Name == "contains":
		a.Err = m.s.Contains(keys, a.Flags)
	case c.Name == "insertif" && chooses:
		a.N, a.Err = chooser.InsertIf(keys, c.When, a.Flags)
	case c.Name == "containsif" && chooses:
		a.Err = chooser.ContainsIf(keys, c.When, a.Flags)
	case c.Name == "wrong" && c.With == "lengths":
		a.N, a.Err = m.s.Insert(append(keys, m.key.make(1)), a.Flags)
	default:
		a.Lacks = true
	}
	return a
}

func (m *setOf[K]) onDevice(c *call, keys []K, a *answer) {
	s := newSlices(m.d, c.Stream)
	defer s.close(&a.Err)
	k, f, w := lend(s, keys), lend(s, a.Flags), lend(s, c.When)
	if s.lacking(a) {
		return
	}
	chooser, chooses := m.s.(table.KeyChooser[K])
	switch {
	case c.Name == "insert":
		a.Err = m.s.InsertOn(s.st, k, f)
	case c.Name == "delete":
		a.Err = m.s.DeleteOn(s.st, k, f)
	case c.Name == "contains":
		a.Err = m.s.ContainsOn(s.st, k, f)
	case c.Name == "insertif" && chooses:
		a.Err = chooser.InsertIfOn(s.st, k, w, f)
	case c.Name == "containsif" && chooses:
		a.Err = chooser.ContainsIfOn(s.st, k, w, f)
	default:
		a.Lacks = true
	}
	read(s, f, a.Flags, &a.Err)
	a.N = trues(a.Flags)
}

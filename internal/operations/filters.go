package operations

import (
	"bytes"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/cuckoo"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// filterOf is a filter whose keys are numbers to the caller.
type filterOf[K comparable] struct {
	f   table.Filter[K]
	del *cuckoo.Filter[K] // the same, if it deletes keys; or nil
	d   *device.Device
	key codec[K]
}

func (m *filterOf[K]) do(c *call) (a answer) {
	keys := m.key.all(c.Keys)
	a.Flags = make([]bool, len(keys))
	s := newSlices(m.d, c.Stream && c.Device)
	defer s.close(&a.Err)
	var k device.Slice[K]
	var f device.Slice[bool]
	if c.Device {
		k, f = lend(s, keys), lend(s, a.Flags)
	}
	if s.lacking(&a) {
		return a
	}
	switch {
	case c.Name == "insert" && c.Device:
		a.Err = m.f.InsertOn(s.st, k)
	case c.Name == "insert":
		a.Err = m.f.Insert(keys)
	case c.Name == "contains" && c.Device:
		a.Err = m.f.ContainsOn(s.st, k, f)
		read(s, f, a.Flags, &a.Err)
	case c.Name == "contains":
		a.Err = m.f.Contains(keys, a.Flags)
	case c.Name == "delete" && m.del != nil && c.Device:
		a.Err = m.del.DeleteOn(s.st, k, f)
		read(s, f, a.Flags, &a.Err)
	case c.Name == "delete" && m.del != nil:
		a.N, a.Err = m.del.Delete(keys, a.Flags)
	case c.Name == "len" && m.del != nil:
		a.N, a.Err = m.del.Len()
	case c.Name == "clear":
		a.Err = m.f.Clear()
	case c.Name == "check":
		a.Err = m.f.Check()
	case c.Name == "close":
		a.Err = m.f.Close()
	case c.Name == "save":
		var file bytes.Buffer
		if a.Err = snapshot.Filter[K](m.f).Save(background, &file); a.Err != nil {
			return a
		}
		other, err := warpmap.LoadFilter[K](background, &file, m.d, "")
		if a.Err = err; err != nil {
			return a
		}
		a.Err = other.Contains(keys, a.Flags)
		if err := other.Close(); a.Err == nil {
			a.Err = err
		}
	case c.Name == "wrong" && c.With == "lengths":
		a.Err = m.f.Contains(append(keys, m.key.make(1)), a.Flags)
	default:
		a.Lacks = true
	}
	return a
}

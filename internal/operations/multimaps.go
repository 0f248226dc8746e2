package operations

import (
	"bytes"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// multiOf is a multimap whose keys and values are numbers to the caller.
type multiOf[K, V comparable] struct {
	m     table.MultiMap[K, V]
	d     *device.Device
	key   codec[K]
	value codec[V]
}

func (m *multiOf[K, V]) do(c *call) (a answer) {
	if a, done := shared(m.m, c); done {
		return a
	}
	keys, values := m.key.all(c.Keys), m.value.all(c.Values)
	switch c.Name {
	case "save":
		return m.save(c)
	case "foreach":
		c.With = eachPair
		return forEach(m.m, m.d, c, keys)
	case "build":
		builder, ok := m.m.(interface{ Build([]K, []V) error })
		if a.Lacks = !ok; ok {
			a.Err = builder.Build(keys, values)
		}
		return a
	case "export":
		keys, values, a.Err = m.m.All()
		a.Keys, a.Values = m.key.numbers(keys, &a.Err), m.value.numbers(values, &a.Err)
		return a
	case "chunks":
		keys, values = nil, nil
		a.Err = m.m.Chunks(background, func(k []K, v []V) error {
			keys, values = append(keys, k...), append(values, v...)
			return nil
		})
		a.Keys, a.Values = m.key.numbers(keys, &a.Err), m.value.numbers(values, &a.Err)
		return a
	}
	a.Flags, a.Counts = make([]bool, len(keys)), make([]uint32, len(keys))
	if c.Device {
		m.onDevice(c, keys, values, &a)
		return a
	}
	switch c.Name {
	case "insert":
		a.Err = m.m.Insert(keys, values)
	case "delete":
		a.N, a.Err = m.m.Delete(keys, a.Flags)
	case "contains":
		a.Err = m.m.Contains(keys, a.Flags)
	case "count":
		a.Err = m.m.Count(keys, a.Counts)
	case "findall":
		a.Offsets, values, a.Err = m.m.FindAll(keys)
		a.Values = m.value.numbers(values, &a.Err)
	case "wrong":
		if a.Lacks = c.With != "lengths"; !a.Lacks {
			a.Err = m.m.Insert(append(keys, m.key.make(1)), values)
		}
	default:
		a.Lacks = true
	}
	return a
}

func (m *multiOf[K, V]) onDevice(c *call, keys []K, values []V, a *answer) {
	s := newSlices(m.d, c.Stream)
	defer s.close(&a.Err)
	k, v, f, counts := lend(s, keys), lend(s, values), lend(s, a.Flags), lend(s, a.Counts)
	if s.lacking(a) {
		return
	}
	switch c.Name {
	case "insert":
		a.Err = m.m.InsertOn(s.st, k, v)
	case "delete":
		a.Err = m.m.DeleteOn(s.st, k, f)
		a.N = -1 // it does not tell
	case "contains":
		a.Err = m.m.ContainsOn(s.st, k, f)
	case "count":
		a.Err = m.m.CountOn(s.st, k, counts)
	case "findall":
		offsets, found, err := m.m.FindAllOn(s.st, k)
		if a.Err = err; err != nil {
			return
		}
		a.Offsets = make([]uint64, offsets.Len())
		values = make([]V, found.Len())
		read(s, offsets, a.Offsets, &a.Err)
		read(s, found, values, &a.Err)
		s.frees = append(s.frees, offsets.Free, found.Free)
		a.Values = m.value.numbers(values, &a.Err)
	default:
		a.Lacks = true
	}
	read(s, f, a.Flags, &a.Err)
	read(s, counts, a.Counts, &a.Err)
}

// save saves the multimap, and exports what is loaded from that. The kind of the other is behind its family.
func (m *multiOf[K, V]) save(c *call) (a answer) {
	var file bytes.Buffer
	if a.Err = snapshot.MultiMap(m.m).Save(background, &file); a.Err != nil {
		return a
	}
	kind, family := table.KindMultiMap, table.Family(c.Family)
	for _, k := range table.MultiMapKinds() {
		if k.String() == c.Family {
			kind, family = k, warpmap.WarpCore
		}
	}
	other, err := warpmap.LoadMultiMapOf[K, V](background, &file, m.d, kind, family,
		table.MultiMapOptions{Options: table.Options{Seed: c.Seed | 1}})
	if a.Err = err; err != nil {
		return a
	}
	a = (&multiOf[K, V]{other, m.d, m.key, m.value}).do(&call{Name: "export"})
	if err := other.Close(); a.Err == nil {
		a.Err = err
	}
	return a
}

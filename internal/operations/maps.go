package operations

import (
	"bytes"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// mapOf is a map whose keys and values are numbers to the caller.
type mapOf[K, V comparable] struct {
	m     table.Map[K, V]
	d     *device.Device
	key   codec[K]
	value codec[V]
	sums  bool // values are numbers that can be added up
	wide  bool // keys of 16 bytes, which not every family has
}

// combines are what Update is asked for. The last is code as a user writes it.
var combines = map[string]table.Combine{"": table.Add, "min": table.Min, "max": table.Max, "xor": "old ^ value"}

// has tells whether the map has the operation. A map over shards has the methods, whatever its family has.
func (m *mapOf[K, V]) has(name string) (ok bool) {
	family := m.m.Family()
	switch name {
	case "insertif", "findif", "containsif":
		_, ok = m.m.(table.Chooser[K, V])
	case "update", "findorinsert":
		_, ok = m.m.(table.Updater[K, V])
		return ok && m.sums && family != warpmap.GPH
	case "mixed":
		_, ok = m.m.(table.Mixed[K, V])
		return ok && family != warpmap.GPH && family != warpmap.WarpCore
	case "build":
		_, ok = m.m.(interface{ Build([]K, []V) error })
	case "foreach":
		return m.sums
	default:
		ok = true
	}
	return ok
}

func (m *mapOf[K, V]) do(c *call) (a answer) {
	if a, done := shared(m.m, c); done {
		return a
	}
	if !m.has(c.Name) {
		return answer{Lacks: true}
	}
	keys, values := m.key.all(c.Keys), m.value.all(c.Values)
	switch c.Name {
	case "save":
		return m.save(c)
	case "foreach":
		c.With = eachPair
		return forEach(m.m, m.d, c, keys)
	case "build":
		a.Err = m.m.(interface{ Build([]K, []V) error }).Build(keys, values)
		return a
	case "wrong":
		return m.wrong(c, keys, values)
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
	n := len(keys)
	out := make([]V, n)
	a.Flags, a.Status = make([]bool, n), make([]table.Status, n)
	if c.Device {
		m.onDevice(c, keys, values, out, &a)
	} else {
		m.onHost(c, keys, values, out, &a)
	}
	var torn error
	a.Values = m.value.numbers(out, &torn)
	if a.Err == nil {
		a.Err = torn
	}
	return a
}

// onHost calls the methods for Go slices.
func (m *mapOf[K, V]) onHost(c *call, keys []K, values, out []V, a *answer) {
	switch c.Name {
	case "insert":
		a.Err = m.m.Insert(keys, values)
	case "insertnew":
		a.N, a.Err = m.m.InsertNew(keys, values, a.Flags)
	case "insertif":
		a.Err = m.m.(table.Chooser[K, V]).InsertIf(keys, values, c.When)
	case "update":
		a.Err = m.m.(table.Updater[K, V]).Update(keys, values, combines[c.With])
	case "findorinsert":
		a.N, a.Err = m.m.(table.Updater[K, V]).FindOrInsert(keys, values, out, a.Flags)
	case "delete":
		a.N, a.Err = m.m.Delete(keys, a.Flags)
	case "find":
		a.Err = m.m.Find(keys, out, a.Flags)
	case "contains":
		a.Err = m.m.Contains(keys, a.Flags)
	case "findif":
		a.Err = m.m.(table.Chooser[K, V]).FindIf(keys, c.When, out, a.Flags)
	case "containsif":
		a.Err = m.m.(table.Chooser[K, V]).ContainsIf(keys, c.When, a.Flags)
	case "mixed":
		a.Err = m.m.(table.Mixed[K, V]).Mixed(c.Ops, keys, values, out, a.Status)
	default:
		a.Lacks = true
	}
}

// onDevice calls the methods for device slices, and brings the results back.
func (m *mapOf[K, V]) onDevice(c *call, keys []K, values, out []V, a *answer) {
	s := newSlices(m.d, c.Stream)
	defer s.close(&a.Err)
	k, v, o, f := lend(s, keys), lend(s, values), lend(s, out), lend(s, a.Flags)
	w, ops, status := lend(s, c.When), lend(s, c.Ops), lend(s, a.Status)
	if s.lacking(a) {
		return
	}
	switch c.Name {
	case "insert":
		a.Err = m.m.InsertOn(s.st, k, v)
	case "insertnew":
		a.Err = m.m.InsertNewOn(s.st, k, v, f)
	case "insertif":
		a.Err = m.m.(table.Chooser[K, V]).InsertIfOn(s.st, k, v, w)
	case "update":
		a.Err = m.m.(table.Updater[K, V]).UpdateOn(s.st, k, v, combines[c.With])
	case "findorinsert":
		a.Err = m.m.(table.Updater[K, V]).FindOrInsertOn(s.st, k, v, o, f)
	case "delete":
		a.Err = m.m.DeleteOn(s.st, k, f)
	case "find":
		a.Err = m.m.FindOn(s.st, k, o, f)
	case "contains":
		a.Err = m.m.ContainsOn(s.st, k, f)
	case "findif":
		a.Err = m.m.(table.Chooser[K, V]).FindIfOn(s.st, k, w, o, f)
	case "containsif":
		a.Err = m.m.(table.Chooser[K, V]).ContainsIfOn(s.st, k, w, f)
	case "mixed":
		a.Err = m.m.(table.Mixed[K, V]).MixedOn(s.st, ops, k, v, o, status)
	default:
		a.Lacks = true
	}
	read(s, o, out, &a.Err)
	read(s, f, a.Flags, &a.Err)
	read(s, status, a.Status, &a.Err)
	a.N = trues(a.Flags)
}

// wrong calls what must be an error and change nothing.
func (m *mapOf[K, V]) wrong(c *call, keys []K, values []V) (a answer) {
	switch c.With {
	case "lengths":
		a.Err = m.m.Insert(append(keys, m.key.make(1)), values)
	case "freed":
		s := newSlices(m.d, false)
		k, v := lend(s, append(keys, m.key.make(1))), lend(s, append(values, m.value.make(1)))
		if s.lacking(&a) {
			s.close(&a.Err)
			return a
		}
		s.close(&a.Err)
		if a.Err == nil {
			a.Err = m.m.InsertOn(nil, k, v)
		}
	default:
		a.Lacks = true
	}
	return a
}

// save saves the map, and exports what is loaded from that.
func (m *mapOf[K, V]) save(c *call) (a answer) {
	var file bytes.Buffer
	if a.Err = snapshot.Map(m.m).Save(background, &file); a.Err != nil {
		return a
	}
	family := table.Family(c.Family)
	if m.wide && family != warpmap.Stadium {
		family = warpmap.DyCuckoo
	}
	other, err := warpmap.LoadMap[K, V](background, &file, m.d, family, table.Options{Seed: c.Seed | 1})
	if a.Err = err; err != nil {
		return a
	}
	loaded := &mapOf[K, V]{other, m.d, m.key, m.value, m.sums, m.wide}
	a = loaded.do(&call{Name: "export"})
	if err := other.Close(); a.Err == nil {
		a.Err = err
	}
	return a
}

package warpmap

import (
	"context"
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/cuckoo"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
)

// aheadRows is a batch for which families take the kernels of large ones.
const aheadRows = 1 << 22

// CompileAhead compiles the kernels that tables of a kind and a family need for keys and values of these types, on a
// device of device.OpenAhead. It compiles what New compiles, and what the methods compile when they are first called,
// for small batches and large ones, with Update by Add. Options that change kernels, such as the hash function and a
// family's own options, have their defaults. Call it for a table of each kind, family and type that a program has. To
// compile other kernels, such as those of ForEach, call what needs them on such a device.
//
// V is the type of the values of a map or a multimap. For other kinds any type will do, such as struct{}: sets and
// filters have no values, and of counters those with uint32 and those with uint64 counts are compiled. kind is one of
// KindMap to KindCache, of which the LRU caches without times to live are compiled; for a Strings, see CompileAheadStrings. name may be Auto or "".
//
// Memory: some hundred MiB. Cost: that of compiling 10 to 40 kernels, on all cores, several seconds for each table.
//
// Errors: those of New; *device.CompileError. Whatever else tables return there means nothing, because no kernel runs.
func CompileAhead[K, V any](d *device.Device, kind table.Kind, name table.Family) error {
	o := table.Options{Capacity: aheadRows}
	switch kind {
	case table.KindMap:
		m, err := New[K, V](d, name, o)
		return ahead(d, m, err, func(n int) []func() error { return mapCalls(m, n) })
	case table.KindSet:
		s, err := NewSet[K](d, name, o)
		return ahead(d, s, err, func(n int) []func() error { return setCalls(s, n) })
	case table.KindCounter:
		if c, err := NewCounter[K, uint32](d, name, table.CounterOptions{Options: o}); err != nil {
			return err
		} else if err := ahead(d, c, nil, func(n int) []func() error { return counterCalls(c, n) }); err != nil {
			return err
		}
		c, err := NewCounter[K, uint64](d, name, table.CounterOptions{Options: o})
		return ahead(d, c, err, func(n int) []func() error { return counterCalls(c, n) })
	case table.KindFilter:
		f, err := NewFilter[K](d, name, table.FilterOptions{Capacity: 8 * aheadRows})
		return ahead(d, f, err, func(n int) []func() error {
			calls := []func() error{
				func() error { return f.Insert(make([]K, n)) },
				func() error { return f.Contains(make([]K, n), make([]bool, n)) },
				func() error { _, err := f.Stats(); return err },
			}
			if c, ok := f.(*cuckoo.Filter[K]); ok {
				calls = append(calls, func() error { _, err := c.Delete(make([]K, n), nil); return err })
			}
			return calls
		})
	case KindCache:
		if !auto(name) && name != Caches {
			return noFamily(kind, name)
		}
		c, err := NewCache[K, V](d, cache.Options{Capacity: aheadRows})
		return ahead(d, c, err, func(n int) []func() error { return cacheCalls(c, n) })
	}
	m, err := NewMultiMapOf[K, V](d, kind, name, table.MultiMapOptions{Options: o})
	return ahead(d, m, err, func(n int) []func() error { return multiMapCalls(m, n) })
}

// CompileAheadStrings compiles the kernels of a Strings over a family, and of the map below it: see CompileAhead. V is
// the type of the Strings' values.
func CompileAheadStrings[V any](d *device.Device, name table.Family) error {
	m, err := NewStrings[V](d, name, text.Options{}) // which compiles all that is a Strings' own
	if err != nil {
		return err
	}
	if err := m.Close(); err != nil {
		return err
	}
	return CompileAhead[uint64, uint64](d, table.KindMap, m.Family())
}

// ahead makes a table's calls, with few rows and with many. A call that fails, or breaks off, for what kernels did not do has compiled them.
func ahead(d *device.Device, t interface{ Close() error }, made error, calls func(n int) []func() error) error {
	if made != nil {
		return made
	}
	for _, n := range []int{32, aheadRows} {
		for _, call := range calls(n) {
			if err := (*device.CompileError)(nil); errors.As(attempt(call), &err) {
				return errors.Join(err, t.Close())
			}
		}
	}
	return errors.Join(t.Close(), d.Ready())
}

func attempt(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("broke off: %v", p)
		}
	}()
	return call()
}

func mapCalls[K, V any](m table.Map[K, V], n int) (calls []func() error) {
	keys, values, flags := make([]K, n), make([]V, n), make([]bool, n)
	calls = []func() error{
		func() error { return m.Insert(keys, values) },
		func() error { _, err := m.InsertNew(keys, values, flags); return err },
		func() error { return m.Find(keys, values, flags) },
		func() error { _, err := m.Delete(keys, flags); return err },
		func() error { return m.Chunks(context.Background(), func([]K, []V) error { return nil }) },
		func() error { _, err := m.Stats(); return err },
	}
	if u, ok := m.(table.Updater[K, V]); ok {
		calls = append(calls, func() error { return u.Update(keys, values, table.Add) },
			func() error { _, err := u.FindOrInsert(keys, values, values, flags); return err })
	}
	if c, ok := m.(table.Chooser[K, V]); ok {
		calls = append(calls, func() error { return c.InsertIf(keys, values, flags) }, func() error { return c.FindIf(keys, flags, values, flags) })
	}
	if x, ok := m.(table.Mixed[K, V]); ok {
		calls = append(calls, func() error { return x.Mixed(make([]table.Op, n), keys, values, values, make([]table.Status, n)) })
	}
	if b, ok := m.(interface{ Build([]K, []V) error }); ok {
		calls = append(calls, m.Clear, func() error { return b.Build(keys, values) })
	}
	return calls
}

func cacheCalls[K, V any](c *cache.Cache[K, V], n int) []func() error {
	keys, values, flags := make([]K, n), make([]V, n), make([]bool, n)
	return []func() error{
		func() error { return c.Insert(keys, values) },
		func() error { return c.Find(keys, values, flags) },
		func() error { _, err := c.FindOrInsert(keys, values, values, flags); return err },
		func() error { return c.Update(keys, values, table.Add) },
		func() error { _, err := c.Delete(keys, flags); return err },
		func() error { _, err := c.Sweep(); return err },
		func() error { _, _, _, err := c.Export(0); return err },
		func() error { _, err := c.Stats(); return err },
	}
}

func setCalls[K any](s table.Set[K], n int) (calls []func() error) {
	keys, flags := make([]K, n), make([]bool, n)
	calls = []func() error{
		func() error { _, err := s.Insert(keys, flags); return err },
		func() error { return s.Contains(keys, flags) },
		func() error { _, err := s.Delete(keys, flags); return err },
		func() error { _, err := s.Stats(); return err },
	}
	if c, ok := s.(table.KeyChooser[K]); ok {
		calls = append(calls, func() error { _, err := c.InsertIf(keys, make([]bool, n), flags); return err },
			func() error { return c.ContainsIf(keys, flags, flags) })
	}
	return calls
}

func counterCalls[K any, C uint32 | uint64](c table.Counter[K, C], n int) []func() error {
	keys, counts := make([]K, n), make([]C, n)
	return []func() error{
		func() error { return c.Add(keys) },
		func() error { return c.AddCounts(keys, counts) },
		func() error { return c.Find(keys, counts, nil) },
		func() error { _, _, err := c.Top(1); return err },
		func() error { _, err := c.Stats(); return err },
	}
}

func multiMapCalls[K, V any](m table.MultiMap[K, V], n int) (calls []func() error) {
	keys, values, flags := make([]K, n), make([]V, n), make([]bool, n)
	calls = []func() error{
		func() error { return m.Insert(keys, values) },
		func() error { _, _, err := m.FindAll(keys); return err },
		func() error { return m.Count(keys, make([]uint32, n)) },
		func() error { return m.Contains(keys, flags) },
		func() error { _, err := m.Delete(keys, flags); return err },
		func() error { _, err := m.Stats(); return err },
	}
	if b, ok := m.(interface{ Build([]K, []V) error }); ok {
		calls = append(calls, m.Clear, func() error { return b.Build(keys, values) })
	}
	return calls
}

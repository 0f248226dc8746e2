package operations

import (
	"bytes"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// counterOf is a counter whose keys and counts are numbers to the caller.
type counterOf[K comparable, C integer] struct {
	c     table.Counter[K, C]
	d     *device.Device
	key   codec[K]
	count codec[C]
}

func (m *counterOf[K, C]) do(c *call) (a answer) {
	if a, done := shared(m.c, c); done {
		return a
	}
	keys, counts := m.key.all(c.Keys), m.count.all(c.Values)
	switch c.Name {
	case "save":
		var file bytes.Buffer
		if a.Err = snapshot.Counter(m.c).Save(background, &file); a.Err != nil {
			return a
		}
		other, err := warpmap.LoadCounter[K, C](background, &file, m.d, table.Family(c.Family),
			table.CounterOptions{Options: table.Options{Seed: c.Seed | 1}})
		if a.Err = err; err != nil {
			return a
		}
		a = (&counterOf[K, C]{other, m.d, m.key, m.count}).do(&call{Name: "export"})
		if err := other.Close(); a.Err == nil {
			a.Err = err
		}
		return a
	case "foreach":
		c.With = eachPair
		return forEach(m.c, m.d, c, keys)
	case "export", "top":
		if c.Name == "top" {
			keys, counts, a.Err = m.c.Top(c.N)
		} else {
			keys, counts, a.Err = m.c.All()
		}
		a.Keys, a.Values = m.key.numbers(keys, &a.Err), m.count.numbers(counts, &a.Err)
		return a
	case "chunks":
		keys, counts = nil, nil
		a.Err = m.c.Chunks(background, func(k []K, v []C) error {
			keys, counts = append(keys, k...), append(counts, v...)
			return nil
		})
		a.Keys, a.Values = m.key.numbers(keys, &a.Err), m.count.numbers(counts, &a.Err)
		return a
	}
	out := make([]C, len(keys))
	a.Flags = make([]bool, len(keys))
	s := newSlices(m.d, c.Stream && c.Device)
	defer s.close(&a.Err)
	var k device.Slice[K]
	var v, o device.Slice[C]
	var f device.Slice[bool]
	if c.Device {
		k, v, o, f = lend(s, keys), lend(s, counts), lend(s, out), lend(s, a.Flags)
	}
	if s.lacking(&a) {
		return a
	}
	switch {
	case c.Name == "add" && c.Device:
		a.Err = m.c.AddOn(s.st, k)
	case c.Name == "add":
		a.Err = m.c.Add(keys)
	case c.Name == "addcounts" && c.Device:
		a.Err = m.c.AddCountsOn(s.st, k, v)
	case c.Name == "addcounts":
		a.Err = m.c.AddCounts(keys, counts)
	case c.Name == "find" && c.Device:
		a.Err = m.c.FindOn(s.st, k, o, f)
		read(s, o, out, &a.Err)
		read(s, f, a.Flags, &a.Err)
	case c.Name == "find":
		a.Err = m.c.Find(keys, out, a.Flags)
	case c.Name == "wrong" && c.With == "lengths":
		a.Err = m.c.AddCounts(append(keys, m.key.make(1)), counts)
	default:
		a.Lacks = true
	}
	var torn error
	a.Values = m.count.numbers(out, &torn)
	return a
}

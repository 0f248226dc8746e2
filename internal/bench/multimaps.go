package bench

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// manyValues are so many that a warp adds up those of a key.
const manyValues = 64

// MultiMap is a multimap with all pairs inserted. A look-up gives all values of its key. Counting them is measured too, and where the multimap
// has BuildOn, how fast it is made from all pairs at once: after that it must answer as before.
func MultiMap[K, V workload.Wide](w *Work[K, V], m table.MultiMap[K, V]) Subject {
	s := InsertedMultiMap(w, m)
	if b, ok := m.(Builder[K, V]); ok {
		counting := s.More
		s.More = func(row *Row) (err error) {
			if err := counting(row); err != nil {
				return err
			}
			if row.Build, err = w.rate("build", w.Options.N, m.Clear, build(w, b)); err != nil {
				return err
			}
			if err := s.Find(); err != nil {
				return err
			}
			wrong, err := s.Wrong()
			row.Wrong += wrong
			return err
		}
	}
	return s
}

// BuiltMultiMap is MultiMap made by BuildOn, whose rate is Row.Insert.
func BuiltMultiMap[K, V workload.Wide](w *Work[K, V], m table.MultiMap[K, V]) (Subject, error) {
	s := InsertedMultiMap(w, m)
	b, ok := m.(Builder[K, V])
	if !ok {
		return s, ErrNoBuild
	}
	s.Fill = build(w, b)
	return s, nil
}

// InsertedMultiMap is MultiMap without BuildOn.
func InsertedMultiMap[K, V workload.Wide](w *Work[K, V], m table.MultiMap[K, V]) Subject {
	return Subject{
		Table: m,
		Fill:  w.pairs(m),
		Find:  func() error { return findAll(w, m) },
		Wrong: func() (int, error) {
			p := verifyParams{Values: w.all.Addr(), Offsets: w.offsets.Addr(), Each: uint64(max(1, w.Options.Each))}
			if w.kinds.Unique() {
				p.Most = p.Each
			}
			kernel, lanes := "verify_all", 1
			if w.given/manyValues > w.Options.Queries {
				kernel, lanes = "verify_many", 32
			}
			return w.countBy(fmt.Sprintf("%s%d%d", kernel, w.Options.KeyBytes, w.Options.ValueBytes), lanes, p)
		},
		Bytes: w.Options.pairBytes(),
		More: func(row *Row) error {
			n := w.Options.Queries
			row.Asked, row.Values = n, row.Find*float64(w.given)/float64(n)
			counts, err := device.Make[uint32](w.Device, n)
			if err != nil {
				return err
			}
			defer counts.Free()
			if row.Count, err = w.rate("count", n, nil, func() error { return m.CountOn(w.Device.Stream(), w.Queries, counts) }); err != nil {
				return err
			}
			wrong, err := w.count("verify_count", verifyParams{Values: counts.Addr(), Offsets: w.offsets.Addr()})
			row.Wrong += wrong
			return err
		},
	}
}

// finderInto is a multimap that takes memory for what it finds: then a measurement's look-ups do not allocate.
type finderInto[K, V any] interface {
	FindAllInto(st *device.Stream, keys device.Slice[K], offsets device.Slice[uint64], values func(n int) (device.Slice[V], error)) (int, error)
}

func findAll[K, V workload.Wide](w *Work[K, V], m table.MultiMap[K, V]) (err error) {
	into, ok := m.(finderInto[K, V])
	if !ok {
		Free(w.offsets, w.all)
		w.offsets, w.all, err = m.FindAllOn(w.Device.Stream(), w.Queries)
		w.given = w.all.Len()
		return err
	}
	if w.offsets.Addr() == 0 {
		if w.offsets, err = device.Make[uint64](w.Device, w.Options.Queries+1); err != nil {
			return err
		}
	}
	w.given, err = into.FindAllInto(w.Device.Stream(), w.Queries, w.offsets, func(n int) (device.Slice[V], error) {
		if w.all.Len() < n || w.all.Addr() == 0 {
			Free(w.all)
			var err error
			if w.all, err = device.Make[V](w.Device, max(1, n)); err != nil {
				return w.all, err
			}
		}
		return w.all.Slice(0, n), nil
	})
	return err
}

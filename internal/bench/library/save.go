package library

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
	"github.com/warpmap/warpmap/workload"
)

// saved is a table that is saved, and how it comes back.
type saved struct {
	of    io.Closer
	as    *snapshot.Table
	load  func(r io.Reader) (io.Closer, error) // makes a table, too
	wrong func(of io.Closer) (int, error)      // how many entries of that it has not
}

// save measures Save and Load of each kind and family, to and from memory of the host.
func save(d *device.Device, o bench.FigOptions) (fig *bench.Fig, err error) {
	fig = &bench.Fig{
		Title:   fmt.Sprintf("saving and loading %d entries, keys and values of 8 bytes", o.N),
		Columns: []string{"table", "what", "GB/s", "least", "most", "M/s", "MB", "wrong"},
		Notes: []string{"to and from the host's memory, by the wall clock; bytes are the file's; Load makes the table, too, and brings it to its size; " +
			"the median of 5 runs, and the least and the most"},
		Plots: []bench.Plot{{Title: "Save and Load", X: "table", Y: "GB/s", Series: "what"}},
	}
	keys, values := make([]uint64, o.N), make([]uint64, o.N)
	kinds, err := workload.NewKeys("rand", 8, 1)
	if err != nil {
		return nil, err
	}
	workload.Pairs(kinds, keys, values)
	for _, kind := range []table.Kind{table.KindMap, table.KindSet, table.KindMultiMap, table.KindMultiBucket, table.KindBucketList, table.KindCounter, table.KindFilter} {
		for _, family := range warpmap.Families(kind) {
			name := fmt.Sprintf("%s %s", family, kind)
			o.Step(name)
			s, err := filled(d, kind, family, keys, values)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			err = s.measure(d, fig, name, o.N)
			if err := errors.Join(err, s.of.Close()); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return fig, nil
}

// measure adds two rows.
func (s *saved) measure(d *device.Device, fig *bench.Fig, name string, n int) error {
	var file bytes.Buffer
	out, err := bench.Runtimes(d, func() error {
		file.Reset()
		return s.as.Save(context.Background(), &file)
	}, nil)
	if err != nil {
		return err
	}
	var back io.Closer
	wrong := 0
	in, err := bench.Runtimes(d, func() (err error) {
		back, err = s.load(bytes.NewReader(file.Bytes()))
		return err
	}, func() error {
		some, err := s.wrong(back)
		wrong += some
		return errors.Join(err, back.Close())
	})
	if err != nil {
		return err
	}
	for i, t := range [][]time.Duration{out, in} {
		rate := func(t time.Duration) float64 { return bench.Round(bench.Rate(file.Len(), t)) }
		fig.Add(name, []string{"Save", "Load"}[i], rate(t[len(t)/2]), rate(t[len(t)-1]), rate(t[0]), bench.Round(1e3*bench.Rate(n, t[len(t)/2])),
			bench.Round(float64(file.Len())/1e6), wrong*i)
	}
	return nil
}

// filled makes a table of that kind and family of the pairs, or of their keys.
func filled(d *device.Device, kind table.Kind, family table.Family, keys, values []uint64) (*saved, error) {
	ctx, o, n := context.Background(), table.Options{Capacity: len(keys)}, min(len(keys), looked)
	switch kind {
	case table.KindMap:
		m, err := warpmap.New[uint64, uint64](d, family, o)
		return fill(m, err, func() error { return m.Insert(keys, values) }, snapshot.Map[uint64, uint64], func(r io.Reader) (table.Map[uint64, uint64], error) {
			return warpmap.LoadMap[uint64, uint64](ctx, r, d, "", table.Options{})
		}, func(m table.Map[uint64, uint64]) (int, error) {
			got, found := make([]uint64, n), make([]bool, n)
			err := m.Find(keys[:n], got, found)
			return differ(got, values[:n]) + n - frame.Count(found), err
		})
	case table.KindSet:
		m, err := warpmap.NewSet[uint64](d, family, o)
		return fill(m, err, func() error { _, err := m.Insert(keys, nil); return err }, snapshot.Set[uint64], func(r io.Reader) (table.Set[uint64], error) {
			return warpmap.LoadSet[uint64](ctx, r, d, "", table.Options{})
		}, func(m table.Set[uint64]) (int, error) { return missing(m.Contains, keys[:n]) })
	case table.KindCounter:
		m, err := warpmap.NewCounter[uint64, uint64](d, family, table.CounterOptions{Options: o})
		return fill(m, err, func() error { return m.AddCounts(keys, values) }, snapshot.Counter[uint64, uint64], func(r io.Reader) (table.Counter[uint64, uint64], error) {
			return warpmap.LoadCounter[uint64, uint64](ctx, r, d, "", table.CounterOptions{})
		}, func(m table.Counter[uint64, uint64]) (int, error) {
			got := make([]uint64, n)
			err := m.Find(keys[:n], got, nil)
			return differ(got, values[:n]), err
		})
	case table.KindFilter:
		m, err := warpmap.NewFilter[uint64](d, family, table.FilterOptions{Capacity: len(keys)})
		return fill(m, err, func() error { return m.Insert(keys) }, snapshot.Filter[uint64], func(r io.Reader) (table.Filter[uint64], error) {
			return warpmap.LoadFilter[uint64](ctx, r, d, "")
		}, func(m table.Filter[uint64]) (int, error) { return missing(m.Contains, keys[:n]) })
	default:
		m, err := warpmap.NewMultiMapOf[uint64, uint64](d, kind, family, table.MultiMapOptions{Options: o})
		return fill(m, err, func() error { return m.Insert(keys, values) }, snapshot.MultiMap[uint64, uint64], func(r io.Reader) (table.MultiMap[uint64, uint64], error) {
			return warpmap.LoadMultiMapOf[uint64, uint64](ctx, r, d, kind, "", table.MultiMapOptions{Options: o})
		}, func(m table.MultiMap[uint64, uint64]) (int, error) {
			_, got, err := m.FindAll(keys[:n])
			if len(got) != n {
				return n, err
			}
			return differ(got, values[:n]), err
		})
	}
}

// fill is filled of one kind.
func fill[T io.Closer](m T, made error, insert func() error, as func(T) *snapshot.Table, load func(io.Reader) (T, error), wrong func(T) (int, error)) (*saved, error) {
	if made != nil {
		return nil, made
	}
	if err := insert(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &saved{m, as(m), func(r io.Reader) (io.Closer, error) { return load(r) }, func(of io.Closer) (int, error) { return wrong(of.(T)) }}, nil
}

// missing is how many of the keys are not in.
func missing(contains func(keys []uint64, found []bool) error, keys []uint64) (int, error) {
	found := make([]bool, len(keys))
	err := contains(keys, found)
	return len(keys) - frame.Count(found), err
}

// differ is how many elements of two slices of one length differ.
func differ(a, b []uint64) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// looked is how many entries of a loaded table are looked up.
const looked = 1 << 16

package bench

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// Work is the data of a measurement, on the device: pairs to insert, and look-ups with what must come of them.
type Work[K, V workload.Word] struct {
	Device  *device.Device
	Options TableOptions
	Keys    device.Slice[K]
	Values  device.Slice[V]
	Queries device.Slice[K]
	Expect  device.Slice[byte] // of each look-up: see workload.Queries
	Results device.Slice[V]
	Found   device.Slice[bool]
	wrong   device.Slice[uint64]
	kinds   workload.Keys
	verify  device.Kernel[verifyParams]
}

// NewWork makes the data. Whoever calls frees it.
func NewWork[K, V workload.Word](d *device.Device, o TableOptions) (w *Work[K, V], err error) {
	kinds, err := workload.NewKeys(o.Keys, o.KeyBytes, o.Seed)
	if err != nil {
		return nil, err
	}
	w = &Work[K, V]{Device: d, Options: o, kinds: kinds}
	defer func() {
		if err != nil {
			w.Free()
		}
	}()
	m, err := d.Compile(program())
	if err != nil {
		return nil, err
	}
	if w.verify, err = device.KernelOf[verifyParams](m, fmt.Sprintf("verify%d%d", o.KeyBytes, o.ValueBytes)); err != nil {
		return nil, err
	}
	keys, values := make([]K, o.N), make([]V, o.N)
	workload.Pairs(kinds, keys, values)
	var errs [7]error
	w.Keys, errs[0] = device.From(d, keys)
	w.Values, errs[1] = device.From(d, values)
	w.Queries, errs[2] = device.Make[K](d, o.Queries)
	w.Expect, errs[3] = device.Make[byte](d, o.Queries)
	w.Results, errs[4] = device.Make[V](d, o.Queries)
	w.Found, errs[5] = device.Make[bool](d, o.Queries)
	w.wrong, errs[6] = device.Make[uint64](d, 1)
	if err := cmp.Or(errs[:]...); err != nil {
		return w, err
	}
	return w, w.Ask(o.Hits, 0)
}

// Ask makes other look-ups for the same pairs, from look-up number first on.
func (w *Work[K, V]) Ask(hits float64, first int) error {
	w.Options.Hits = hits
	queries, expect := make([]K, w.Options.Queries), make([]byte, w.Options.Queries)
	workload.QueriesFrom(w.kinds, uint64(w.Options.N), hits, uint64(first), queries, expect)
	return errors.Join(w.Queries.Write(w.Device.Stream(), queries), w.Expect.Write(w.Device.Stream(), expect))
}

// Free frees what NewWork took.
func (w *Work[K, V]) Free() { Free(w.Keys, w.Values, w.Queries, w.Expect, w.Results, w.Found, w.wrong) }

// Freer is a device.Slice of any type.
type Freer interface {
	Free() error
	Addr() uint64
}

// Free frees those of the slices that were made.
func Free(slices ...Freer) {
	for _, s := range slices {
		if s.Addr() != 0 {
			s.Free()
		}
	}
}

// Subject is a table of any kind, as a measurement sees it: empty, or filled with a Work's pairs, or asked for its queries.
type Subject struct {
	Table interface {
		Clear() error
		Stats() (table.Stats, error)
		Close() error
	}
	Fill  func() error        // queues the insertion of all pairs into the empty table
	Find  func() error        // queues the look-ups
	Wrong func() (int, error) // counts the wrong answers of the last Find, on the device
}

// Map is a map with all pairs inserted, in batches of Options.Batch.
func (w *Work[K, V]) Map(m table.Map[K, V]) Subject {
	st := w.Device.Stream()
	return Subject{m, w.batches(func(first, end int) error {
		return m.InsertOn(st, w.Keys.Slice(first, end), w.Values.Slice(first, end))
	}), func() error { return m.FindOn(st, w.Queries, w.Results, w.Found) }, w.Count}
}

// batches calls insert for one batch of the pairs after the other.
func (w *Work[K, V]) batches(insert func(first, end int) error) func() error {
	n := w.Options.N
	batch := w.Options.Batch
	if batch == 0 {
		batch = n
	}
	return func() error {
		for first := 0; first < n; first += batch {
			if err := insert(first, min(first+batch, n)); err != nil {
				return err
			}
		}
		return nil
	}
}

// Builder is a map that can be made from all its pairs at once, while it is empty.
type Builder[K, V any] interface {
	BuildOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error
}

// ErrNoBuild is what a map without BuildOn is refused with.
var ErrNoBuild = errors.New("this table has no BuildOn: measure its inserts, without build")

// Built is a map made by BuildOn.
func (w *Work[K, V]) Built(m table.Map[K, V]) (Subject, error) {
	s := w.Map(m)
	b, ok := m.(Builder[K, V])
	if !ok {
		return s, ErrNoBuild
	}
	s.Fill = func() error { return b.BuildOn(w.Device.Stream(), w.Keys, w.Values) }
	return s, nil
}

// Measure times how the table is filled, and look-ups in it, and counts wrong answers. Row's shares and limits are left
// open.
func (w *Work[K, V]) Measure(s Subject) (row Row, err error) {
	t, err := Timed(w.Device, w.Device.Stream(), Runs, s.Table.Clear, s.Fill)
	if err != nil {
		return row, fmt.Errorf("insert: %w", err)
	}
	row.Insert = Rate(w.Options.N, t)
	if w.Options.Build {
		row.Insert, row.Build = 0, row.Insert
	}
	if row.Find, row.Wrong, err = w.Find(s); err != nil {
		return row, err
	}
	stats, err := s.Table.Stats()
	row.Bytes, row.MeanProbes = stats.Bytes, stats.MeanProbes
	return row, err
}

// Find times look-ups, and counts wrong answers.
func (w *Work[K, V]) Find(s Subject) (find float64, wrong int, err error) {
	t, err := Timed(w.Device, w.Device.Stream(), Runs, nil, s.Find)
	if err != nil {
		return 0, 0, fmt.Errorf("find: %w", err)
	}
	wrong, err = s.Wrong()
	return Rate(w.Options.Queries, t), wrong, err
}

// Count counts what is wrong with Results and Found, on the device.
func (w *Work[K, V]) Count() (int, error) {
	st := w.Device.Stream()
	if err := w.wrong.Fill(st, 0); err != nil {
		return 0, err
	}
	p := verifyParams{
		Keys: w.Queries.Addr(), Values: w.Results.Addr(), Found: w.Found.Addr(), Expect: w.Expect.Addr(),
		Wrong: w.wrong.Addr(), N: uint64(w.Options.Queries),
	}
	if err := w.verify.Launch(st, device.GridFor(int64(w.Options.Queries), 256), &p); err != nil {
		return 0, err
	}
	wrong, err := w.wrong.Host(st)
	return int(wrong[0]), err
}

package bench

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// Work is the data of a measurement, on the device: pairs to insert, and look-ups with what must come of them. A pair's value
// is workload.Value of its key; where Options.Each has several pairs to a key, that and the next numbers.
type Work[K, V workload.Wide] struct {
	Device  *device.Device
	Options TableOptions
	Keys    device.Slice[K]
	Values  device.Slice[V]
	Queries device.Slice[K]
	Expect  device.Slice[byte] // of each look-up: see workload.Queries
	Results device.Slice[V]
	Found   device.Slice[bool]
	wrong   device.Slice[uint64]
	offsets device.Slice[uint64] // what FindAll gave last
	all     device.Slice[V]
	given   int // values in all
	kinds   workload.Keys
	keys    int                  // different ones, the first of kinds
	times   []uint32             // how often each of them came, where they were drawn
	came    device.Slice[uint32] // how often the key of each look-up did
	chosen  device.Slice[bool]   // rows of the pairs, where a share of them is
	asks    device.Slice[bool]   // and look-ups
	module  *device.Module
}

// NewWork makes the data. Whoever calls frees it.
func NewWork[K, V workload.Wide](d *device.Device, o TableOptions) (w *Work[K, V], err error) {
	kinds, err := workload.NewKeys(o.Keys, min(o.KeyBytes, 8), o.Seed) // wide keys are made of words
	if err != nil {
		return nil, &OptionError{err}
	}
	if o.Distinct > 0 {
		return newDrawn[K, V](d, o, kinds)
	}
	once := o.Queries == 0
	each := max(1, o.Each)
	o.N -= o.N % each
	keys, values, distinct := make([]K, o.N), make([]V, o.N), o.N/each
	workload.Pairs(kinds, keys[:distinct], values[:distinct])
	for i := distinct; i < o.N; i++ { // those of one key are far from one another
		keys[i] = keys[i-distinct]
		values[i] = workload.Widen[V](workload.Value(kinds.At(uint64(i%distinct))) + uint64(i/distinct))
	}
	if once {
		o.Queries = distinct
	}
	if w, err = NewWorkOf(d, o, kinds, distinct, keys, values); err != nil {
		return w, err
	}
	if once {
		err = errors.Join(w.Queries.CopyFrom(d.Stream(), w.Keys.Slice(0, distinct)), w.Expect.Fill(d.Stream(), workload.Hit))
	} else {
		err = w.Ask(o.Hits, 0)
	}
	if err != nil {
		w.Free()
	}
	return w, err
}

// NewWorkOf is NewWork with these pairs: of the given number of keys, the first of kinds, some may come more than once. Look-ups are
// not made: see Ask.
func NewWorkOf[K, V workload.Wide](d *device.Device, o TableOptions, kinds workload.Keys, distinct int, keys []K, values []V) (w *Work[K, V], err error) {
	w = &Work[K, V]{Device: d, Options: o, kinds: kinds, keys: distinct}
	defer func() {
		if err != nil {
			w.Free()
		}
	}()
	if w.module, err = d.Compile(program()); err != nil {
		return w, err
	}
	var errs [7]error
	w.Keys, errs[0] = device.From(d, keys)
	w.Values, errs[1] = device.From(d, values)
	w.Queries, errs[2] = device.Make[K](d, o.Queries)
	w.Expect, errs[3] = device.Make[byte](d, o.Queries)
	w.Results, errs[4] = device.Make[V](d, o.Queries)
	w.Found, errs[5] = device.Make[bool](d, o.Queries)
	w.wrong, errs[6] = device.Make[uint64](d, 1)
	return w, cmp.Or(errs[:]...)
}

// Different is how many different keys the pairs have, or where hashes may meet, at most.
func (w *Work[K, V]) Different() int { return w.keys }

// Ask makes other look-ups for the same pairs, from look-up number first on.
func (w *Work[K, V]) Ask(hits float64, first int) error {
	w.Options.Hits = hits
	if w.times != nil {
		return w.askDrawn(uint64(first))
	}
	queries, expect := make([]K, w.Options.Queries), make([]byte, w.Options.Queries)
	workload.QueriesFrom(w.kinds, uint64(w.keys), hits, uint64(first), queries, expect)
	return errors.Join(w.Queries.Write(w.Device.Stream(), queries), w.Expect.Write(w.Device.Stream(), expect))
}

// Free frees what NewWork took.
func (w *Work[K, V]) Free() {
	Free(w.Keys, w.Values, w.Queries, w.Expect, w.Results, w.Found, w.wrong, w.offsets, w.all, w.came, w.chosen, w.asks)
}

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
	Ask   func() error        // makes the look-ups, once the pairs are in, where the pairs alone do not say which hit; nil: they do
	Find  func() error        // queues the look-ups
	Wrong func() (int, error) // counts the wrong answers of the last Find, on the device
	Bytes int                 // of a pair, or where there are no values, of a key
	Reads int                 // bytes that a look-up reads at random, of those that Limits have; 0: 64
	// More measures what no other kind of table does, and adds to Wrong. It comes last, and may leave the table as it likes; nil: nothing.
	More func(*Row) error
}

// Store is as much of a map as Map measures: baselines have no more.
type Store[K, V any] interface {
	Clear() error
	Stats() (table.Stats, error)
	Close() error
	InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error
	FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error
}

// Map is a map with all pairs inserted, in batches of Options.Batch.
func (w *Work[K, V]) Map(m Store[K, V]) Subject {
	st := w.Device.Stream()
	return Subject{
		Table: m,
		Fill:  w.pairs(m),
		Find:  func() error { return m.FindOn(st, w.Queries, w.Results, w.Found) },
		Wrong: w.Count,
		Bytes: w.Options.pairBytes(),
	}
}

// pairs inserts all pairs.
func (w *Work[K, V]) pairs(into interface {
	InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error
}) func() error {
	return w.batches(func(first, end int) error {
		return into.InsertOn(w.Device.Stream(), w.Keys.Slice(first, end), w.Values.Slice(first, end))
	})
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

// Builder is a map, or a multimap, that can be made from all its pairs at once, while it is empty.
type Builder[K, V any] interface {
	BuildOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error
}

// build makes it so.
func build[K, V workload.Wide](w *Work[K, V], b Builder[K, V]) func() error {
	return func() error { return b.BuildOn(w.Device.Stream(), w.Keys, w.Values) }
}

// ErrNoBuild is what a map without BuildOn is refused with.
var ErrNoBuild = errors.New("this table has no BuildOn: measure its inserts, without build")

// Built is a map made by BuildOn.
func Built[K, V workload.Wide](w *Work[K, V], m table.Map[K, V]) (Subject, error) {
	s := w.Map(m)
	b, ok := m.(Builder[K, V])
	if !ok {
		return s, ErrNoBuild
	}
	s.Fill = build(w, b)
	return s, nil
}

// Measure times how the table is filled, and look-ups in it, and whatever else its kind does, and counts wrong answers. Row's shares and
// limits are left open.
func (w *Work[K, V]) Measure(s Subject) (row Row, err error) {
	if row.Insert, err = w.rate("insert", w.Options.N, s.Table.Clear, s.Fill); err != nil {
		return row, err
	}
	switch {
	case w.Options.Build:
		row.Insert, row.Build = 0, row.Insert
	case w.Options.Update:
		row.Insert, row.Update = 0, row.Insert
	}
	if row.Find, row.Wrong, err = w.Find(s); err != nil {
		return row, err
	}
	stats, err := s.Table.Stats()
	row.Filled, row.Bytes, row.HostBytes, row.MeanProbes = stats.LoadFactor, stats.Bytes, stats.HostBytes, stats.MeanProbes
	if err == nil && s.More != nil {
		err = s.More(&row)
	}
	return row, err
}

// Find times look-ups, and counts wrong answers.
func (w *Work[K, V]) Find(s Subject) (find float64, wrong int, err error) {
	if s.Ask != nil {
		if err := s.Ask(); err != nil {
			return 0, 0, err
		}
	}
	if find, err = w.rate("find", w.Options.Queries, nil, s.Find); err != nil {
		return 0, 0, err
	}
	wrong, err = s.Wrong()
	return find, wrong, err
}

// rate is that of n operations, which queue puts on the stream: see Timed. Errors name them.
func (w *Work[K, V]) rate(what string, n int, before, queue func() error) (float64, error) {
	t, err := Timed(w.Device, w.Device.Stream(), Runs, before, queue)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	return Rate(n, t), nil
}

// Count counts what is wrong with Results and Found, on the device.
func (w *Work[K, V]) Count() (int, error) {
	return w.count(fmt.Sprintf("verify%d_%d", w.Options.KeyBytes, w.Options.ValueBytes), verifyParams{Values: w.Results.Addr(), Found: w.Found.Addr()})
}

// count runs one of the kernels that count wrong answers to the look-ups; p has what it found.
func (w *Work[K, V]) count(kernel string, p verifyParams) (int, error) {
	return w.countBy(kernel, 1, p)
}

// countBy is count with so many lanes for a look-up.
func (w *Work[K, V]) countBy(kernel string, lanes int, p verifyParams) (int, error) {
	p.Keys, p.Expect, p.Came, p.N = w.Queries.Addr(), w.Expect.Addr(), w.came.Addr(), uint64(w.Options.Queries)
	return w.verify(kernel, lanes, p)
}

// verify runs one of the kernels that count wrong answers.
func (w *Work[K, V]) verify(kernel string, lanes int, p verifyParams) (int, error) {
	st := w.Device.Stream()
	k, err := device.KernelOf[verifyParams](w.module, kernel)
	if err != nil {
		return 0, err
	}
	if err := w.wrong.Fill(st, 0); err != nil {
		return 0, err
	}
	p.Wrong = w.wrong.Addr()
	if err := k.Launch(st, device.GridFor(int64(p.N)*int64(lanes), 256), &p); err != nil {
		return 0, err
	}
	wrong, err := w.wrong.Host(st)
	return int(wrong[0]), err
}

// trues counts the answers that say yes.
func (w *Work[K, V]) trues(of device.Slice[bool]) (int, error) {
	return w.verify("verify_set", 1, verifyParams{Found: of.Addr(), N: uint64(of.Len())})
}

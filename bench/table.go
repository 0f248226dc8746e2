package bench

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// TableOptions say what Table measures.
type TableOptions struct {
	Keys       string    // kind, see workload.NewKeys
	KeyBytes   int       // 4 or 8
	ValueBytes int       // 4 or 8
	N          int       // pairs
	Queries    int       // look-ups
	Hits       float64   // share of them that hit
	Loads      []float64 // load factors
	Seed       uint64
	Batch      int                 `json:",omitempty"` // pairs of an InsertOn; 0: all in one
	Build      bool                `json:",omitempty"` // by BuildOn, where the table has it, in place of InsertOn
	Step       func(done, all int) `json:"-"`          // progress; may be nil
}

// Row is one line of Table: rates are billions a second of device time, medians of Runs.
type Row struct {
	Load        float64 `json:"load"`
	Insert      float64 `json:"insert"`
	Build       float64 `json:"build,omitempty"` // in place of Insert
	InsertShare float64 `json:"insert_share"`    // of random compare-and-swaps of the pair's size; of Build too
	Find        float64 `json:"find"`
	FindShare   float64 `json:"find_share"` // of random look-ups of 64 bytes
	Bytes       int64   `json:"bytes"`      // of the table
	MeanProbes  float64 `json:"mean_probes"`
	Wrong       int     `json:"wrong"` // answers, of Queries
	Limits      Limits  `json:"limits"`
}

// Make makes a table for the given number of pairs and load factor.
type Make[K, V any] func(capacity int, load float64) (table.Map[K, V], error)

// Table measures inserts of N pairs into an empty table of each load factor, and look-ups in it; and the machine's
// limits over memory of the table's size, in the same run.
func Table[K, V workload.Word](d *device.Device, o TableOptions, make Make[K, V]) ([]Row, error) {
	if o.N < 1 || o.Queries < 1 || o.Batch < 0 || o.Hits < 0 || o.Hits > 1 || len(o.Loads) == 0 {
		return nil, fmt.Errorf("bench: %d pairs, %d look-ups, %v of them hits, %d load factors: nothing to measure", o.N, o.Queries, o.Hits, len(o.Loads))
	}
	w, err := newWork[K, V](d, o)
	if err != nil {
		return nil, err
	}
	defer w.free()
	var rows []Row
	for i, load := range o.Loads {
		if o.Step != nil {
			o.Step(i, len(o.Loads))
		}
		m, err := make(o.N, load)
		if err != nil {
			return rows, err
		}
		row, err := w.measure(m)
		err = errors.Join(err, m.Close())
		if err != nil {
			return rows, fmt.Errorf("load factor %v: %w", load, err)
		}
		row.Load = load
		if row.Limits, err = MeasureLimits(d, max(row.Bytes, 1<<20), min(o.N, o.Queries)); err != nil {
			return rows, err
		}
		row.FindShare = row.Find / row.Limits.Lookup64
		row.InsertShare = (row.Insert + row.Build) / row.Limits.Swap64
		if o.KeyBytes+o.ValueBytes > 8 && row.Limits.Swap128 > 0 {
			row.InsertShare = (row.Insert + row.Build) / row.Limits.Swap128
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// work is the data of a measurement, on the device.
type work[K, V workload.Word] struct {
	d       *device.Device
	o       TableOptions
	kinds   workload.Keys
	keys    device.Slice[K]
	values  device.Slice[V]
	queries device.Slice[K]
	expect  device.Slice[byte]
	results device.Slice[V]
	found   device.Slice[bool]
	wrong   device.Slice[uint64]
	verify  device.Kernel[VerifyParams]
}

func newWork[K, V workload.Word](d *device.Device, o TableOptions) (w *work[K, V], err error) {
	kinds, err := workload.NewKeys(o.Keys, o.KeyBytes, o.Seed)
	if err != nil {
		return nil, err
	}
	w = &work[K, V]{d: d, o: o, kinds: kinds}
	defer func() {
		if err != nil {
			w.free()
		}
	}()
	m, err := d.Compile(program())
	if err != nil {
		return nil, err
	}
	if w.verify, err = device.KernelOf[VerifyParams](m, fmt.Sprintf("verify%d%d", o.KeyBytes, o.ValueBytes)); err != nil {
		return nil, err
	}
	keys, values := make([]K, o.N), make([]V, o.N)
	workload.Pairs(kinds, keys, values)
	if w.keys, err = device.From(d, keys); err != nil {
		return w, err
	}
	if w.values, err = device.From(d, values); err != nil {
		return w, err
	}
	if w.queries, err = device.Make[K](d, o.Queries); err != nil {
		return w, err
	}
	if w.expect, err = device.Make[byte](d, o.Queries); err != nil {
		return w, err
	}
	if w.results, err = device.Make[V](d, o.Queries); err != nil {
		return w, err
	}
	if w.found, err = device.Make[bool](d, o.Queries); err != nil {
		return w, err
	}
	if w.wrong, err = device.Make[uint64](d, 1); err != nil {
		return w, err
	}
	return w, w.ask(o.Hits, 0)
}

// ask makes other look-ups for the same pairs, from look-up number first on.
func (w *work[K, V]) ask(hits float64, first int) error {
	w.o.Hits = hits
	queries, expect := make([]K, w.o.Queries), make([]byte, w.o.Queries)
	workload.QueriesFrom(w.kinds, uint64(w.o.N), hits, uint64(first), queries, expect)
	if err := w.queries.Write(w.d.Stream(), queries); err != nil {
		return err
	}
	return w.expect.Write(w.d.Stream(), expect)
}

func (w *work[K, V]) free() {
	for _, s := range []interface {
		Free() error
		Addr() uint64
	}{w.keys, w.values, w.queries, w.expect, w.results, w.found, w.wrong} {
		if s.Addr() != 0 {
			s.Free()
		}
	}
}

// builder is a table that can be made from all its pairs at once, while it is empty.
type builder[K, V any] interface {
	BuildOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error
}

// errNoBuild is what a table without BuildOn is refused with.
var errNoBuild = errors.New("this table has no BuildOn: measure its inserts, without build")

// filler is what puts the pairs into an empty table.
func (w *work[K, V]) filler(m table.Map[K, V], build bool) (func() error, error) {
	st := w.d.Stream()
	if !build {
		batch := w.o.Batch
		if batch == 0 {
			batch = w.o.N
		}
		return func() error {
			for first := 0; first < w.o.N; first += batch {
				end := min(first+batch, w.o.N)
				if err := m.InsertOn(st, w.keys.Slice(first, end), w.values.Slice(first, end)); err != nil {
					return err
				}
			}
			return nil
		}, nil
	}
	b, ok := m.(builder[K, V])
	if !ok {
		return nil, errNoBuild
	}
	return func() error { return b.BuildOn(st, w.keys, w.values) }, nil
}

// measure times inserts and look-ups of one table, and counts wrong answers.
func (w *work[K, V]) measure(m table.Map[K, V]) (row Row, err error) {
	fill, err := w.filler(m, w.o.Build)
	if err != nil {
		return row, err
	}
	t, err := timed(w.d, w.d.Stream(), Runs, m.Clear, fill)
	if err != nil {
		return row, fmt.Errorf("insert: %w", err)
	}
	row.Insert = rate(w.o.N, t)
	if w.o.Build {
		row.Insert, row.Build = 0, row.Insert
	}
	if row.Find, row.Wrong, err = w.find(m); err != nil {
		return row, err
	}
	s, err := m.Stats()
	row.Bytes, row.MeanProbes = s.Bytes, s.MeanProbes
	return row, err
}

// find times look-ups, and counts wrong answers.
func (w *work[K, V]) find(m table.Map[K, V]) (find float64, wrong int, err error) {
	st := w.d.Stream()
	t, err := timed(w.d, st, Runs, nil, func() error { return m.FindOn(st, w.queries, w.results, w.found) })
	if err != nil {
		return 0, 0, fmt.Errorf("find: %w", err)
	}
	wrong, err = w.count(st)
	return rate(w.o.Queries, t), wrong, err
}

// count verifies the look-ups' results on the device.
func (w *work[K, V]) count(st *device.Stream) (int, error) {
	if err := w.wrong.Fill(st, 0); err != nil {
		return 0, err
	}
	p := VerifyParams{
		Keys: w.queries.Addr(), Values: w.results.Addr(), Found: w.found.Addr(), Expect: w.expect.Addr(),
		Wrong: w.wrong.Addr(), N: uint64(w.o.Queries),
	}
	if err := w.verify.Launch(st, device.GridFor(int64(w.o.Queries), 256), &p); err != nil {
		return 0, err
	}
	wrong, err := w.wrong.Host(st)
	return int(wrong[0]), err
}

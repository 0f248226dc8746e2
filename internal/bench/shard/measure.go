package shard

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// Options describe a measurement.
type Options struct {
	Family   table.Family
	Kind     table.Kind // a map, set, counter or multimap
	Update   bool       // add up the values of each key of a map
	Bytes    int        // bytes of a key, and of a value: 4 or 8; 0: 4
	N        int        // rows on each device, as many look-ups
	Distinct int        // keys of all rows of a counter, a multimap or with Update; 0: a tenth of the rows
	Load     float64    // load factor
	Hits     float64    // share of the look-ups that hit
	Runs     int        // a rate is the median of this many runs, after one to warm up; 0: bench.Runs
	Delete   bool       // measure deletions, too, if the kind has them
	Shard    shard.Options
}

// Draws reports whether keys are drawn from Distinct. Otherwise all keys are different.
func (o Options) Draws() bool {
	return o.Update || o.Kind == table.KindCounter || o.Kind == table.KindMultiMap
}

// Row is the result of a measurement. Rates are billions of rows a second over all devices, by the wall clock.
type Row struct {
	Devices     int         `json:"devices"`
	Load        float64     `json:"load"`
	Filled      float64     `json:"filled"`
	Insert      float64     `json:"insert"`             // also additions to counters, and updates
	Find        float64     `json:"find"`               // of a set or multimap: whether it has the key
	FindAll     float64     `json:"find_all,omitempty"` // of a multimap: keys whose values are all found
	Values      float64     `json:"values,omitempty"`   // and their values
	Delete      float64     `json:"delete,omitempty"`
	Wrong       int         `json:"wrong"`
	Bytes       int64       `json:"bytes"`        // of the table, on all devices
	Scratch     int64       `json:"scratch"`      // other memory
	InsertSteps shard.Steps `json:"insert_steps"` // with Shard.Apart, the average of the runs
	FindSteps   shard.Steps `json:"find_steps"`
}

// work is a table and the batches of the devices of this process.
type work[K word] struct {
	spread[K]
	devices    []*device.Device
	pairs, ask []shard.Part[K, K]
	drawn      []drawn
	lists      []list[K]
	total      int // rows of all parts
	keys       int // different keys of them
	runs       int
	free       []func() error
}

// drawn makes one part of the batches on its device and counts wrong answers there.
type drawn struct {
	d                        *device.Device
	params                   drawParams // of all kernels
	draw, rows, wrong, lists device.Kernel[drawParams]
	count                    device.Slice[uint64]
}

// newWork makes a table, and n rows and n look-ups for each of the devices. Of that many parts in all, the devices have
// those from first on. Look-ups that hit are spread over the rows of all parts.
func newWork[K word, O shard.Over](over O, devices []*device.Device, first, parts int, o Options) (w *work[K],
	err error) {
	total := o.N * parts
	if o.N < 1 || total > 1<<31 || !(o.Hits >= 0 && o.Hits <= 1) {
		return nil, bench.WrongOption("bench: %d pairs on each of %d devices, %v of the look-ups hit: want 1 to 2³¹ pairs "+
			"in all, and 0 to 1", o.N, parts, o.Hits)
	}
	if !o.Draws() {
		o.Distinct = total
	} else if o.Distinct = cmp.Or(o.Distinct, max(1, total/10)); o.Distinct < 1 || o.Distinct > total {
		return nil, bench.WrongOption("bench: %d distinct keys of %d rows: want 1 to the number of rows", o.Distinct, total)
	}
	w = &work[K]{devices: devices, total: total, keys: total, runs: cmp.Or(o.Runs, bench.Runs)}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	o.Family = cmp.Or(o.Family, warpmap.WarpCore)
	o.Shard.Capacity, o.Shard.LoadFactor, o.Shard.Seed = o.Distinct, o.Load, 1
	if o.Kind == table.KindMultiMap {
		o.Shard.Capacity = total
	}
	if w.spread, err = newSpread[K](over, o); err != nil {
		return w, err
	}
	for i := range devices {
		if err := w.drawPart(i, first+i, o); err != nil {
			return w, err
		}
	}
	return w, nil
}

// drawPart makes the rows and look-ups of one part on a device.
func (w *work[K]) drawPart(at, part int, o Options) error {
	d, n := w.devices[at], o.N
	x := drawn{d: d, params: drawParams{First: uint64(part * n), N: uint64(n), Total: uint64(w.total),
		Distinct: uint64(o.Distinct), Hits: uint64(o.Hits * (1 << 24))}}
	if o.Kind == table.KindCounter {
		x.params.Counted = 1
	}
	module, err := d.Compile(program(int(unsafe.Sizeof(*new(K)))))
	if err != nil {
		return err
	}
	var pairs, ask shard.Part[K, K]
	err = errors.Join(device.Bind(module, "draw", &x.draw), device.Bind(module, "count_rows", &x.rows),
		device.Bind(module, "count_wrong", &x.wrong), device.Bind(module, "count_wrong_lists", &x.lists),
		room(w, d, n, &pairs.Keys), room(w, d, n, &pairs.Values),
		room(w, d, n, &ask.Keys), room(w, d, n, &ask.Values), room(w, d, n, &ask.Flags), room(w, d, 1, &x.count))
	if err != nil {
		return frame.OneLine(err)
	}
	p, q := x.params, x.params
	p.Keys, p.Values, q.Keys, q.Asks = pairs.Keys.Addr(), pairs.Values.Addr(), ask.Keys.Addr(), 1
	err = errors.Join(x.draw.Launch(nil, x.grid(n), &p), x.draw.Launch(nil, x.grid(n), &q), d.Stream().Sync())
	if err == nil && o.Draws() {
		var counts device.Slice[uint32]
		if err := room(w, d, o.Distinct, &counts); err != nil {
			return err
		}
		x.params.Counts = counts.Addr()
		if err := counts.Fill(nil, 0); err != nil {
			return err
		}
		w.keys, err = x.counted(&x.rows, w.total, x.params)
	}
	w.pairs, w.ask, w.drawn = append(w.pairs, pairs), append(w.ask, ask), append(w.drawn, x)
	return err
}

func (x *drawn) grid(n int) device.Grid {
	g := device.GridFor(int64(n), 256)
	if info := x.d.Info(); info.CUDA() {
		g.Blocks = min(g.Blocks, 16*int64(info.Multiprocessors))
	}
	return g
}

// counted runs a kernel that counts.
func (x *drawn) counted(kernel *device.Kernel[drawParams], n int, p drawParams) (int, error) {
	p.Wrong = x.count.Addr()
	if err := errors.Join(x.count.Fill(nil, 0), kernel.Launch(nil, x.grid(n), &p)); err != nil {
		return 0, err
	}
	count, err := x.count.Host(nil)
	if err != nil {
		return 0, err
	}
	return int(count[0]), nil
}

// room makes a column of n rows.
func room[K word, T any](w *work[K], d *device.Device, n int, to *device.Slice[T]) error {
	s, err := device.Make[T](d, n)
	if err == nil {
		*to = s
		w.free = append(w.free, s.Free)
	}
	return err
}

func (w *work[K]) close() error {
	err := w.freeLists()
	for _, free := range w.free {
		err = errors.Join(err, free())
	}
	if w.table != nil {
		err = errors.Join(err, w.table.Close())
	}
	return err
}

// clocked returns the median of the runs' times by the wall clock, after one run to warm up. It waits for all devices
// before and after each run.
func (w *work[K]) clocked(runs int, before, f func() error) (time.Duration, error) {
	var times []time.Duration
	for run := range runs + 1 {
		if err := before(); err != nil {
			return 0, err
		}
		if err := w.sync(); err != nil {
			return 0, err
		}
		if run == 1 {
			w.table.Steps() // of the warm-up
		}
		start := time.Now()
		if err := errors.Join(f(), w.sync()); err != nil {
			return 0, err
		}
		if run > 0 {
			times = append(times, time.Since(start))
		}
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// sync waits for the devices' own streams, which the batches are on.
func (w *work[K]) sync() error {
	for _, d := range w.devices {
		if err := d.Stream().Sync(); err != nil {
			return err
		}
	}
	return nil
}

// ready waits for the table. Over members it is collective, so all members go on at the same time.
func (w *work[K]) ready() error {
	_, err := w.table.Len()
	return err
}

// clear empties the table and waits.
func (w *work[K]) clear() error { return errors.Join(w.table.Clear(), w.ready()) }

// wrong counts the wrong answers of parts, which are look-ups or, if asks is 0, deletions of the rows.
func (w *work[K]) wrong(parts []shard.Part[K, K], asks uint64) (n int, err error) {
	for i, part := range parts {
		x := &w.drawn[i]
		p := x.params
		p.Keys, p.Values, p.Found = part.Keys.Addr(), part.Values.Addr(), part.Flags.Addr()
		p.N, p.Asks = uint64(part.Keys.Len()), asks
		here, err := x.counted(&x.wrong, part.Keys.Len(), p)
		if err != nil {
			return n, err
		}
		n += here
	}
	return n, nil
}

// wrongLists counts the wrong answers of findLists.
func (w *work[K]) wrongLists(parts []shard.Part[K, K]) (n int, err error) {
	for i, part := range parts {
		x, l := &w.drawn[i], w.lists[i]
		p := x.params
		p.Keys, p.Offsets, p.Values = part.Keys.Addr(), l.offsets.Addr(), l.values.Addr()
		p.N, p.Asks = uint64(part.Keys.Len()), 1
		here, err := x.counted(&x.lists, part.Keys.Len(), p)
		if err != nil {
			return n, err
		}
		n += here
	}
	return n, nil
}

// firstOf returns the first n rows of each part, with their results.
func firstOf[K word](parts []shard.Part[K, K], n int) []shard.Part[K, K] {
	out := slices.Clone(parts)
	for i, p := range out {
		out[i].Keys, out[i].Values = p.Keys.Slice(0, n), p.Values.Slice(0, n)
		if p.Flags.Len() > 0 {
			out[i].Flags = p.Flags.Slice(0, n)
		}
	}
	return out
}

// Measure inserts n rows of each device into an empty table over all of them, and looks up as many.
func Measure(devices []*device.Device, o Options) (Row, error) {
	return measureOf(devices, devices, 0, len(devices), o)
}

// MeasureJoined is Measure over the members of a job, each with a batch of its own: a collective call. Wrong counts the
// wrong answers of this member. Rates are those of all members together by this member's clock.
func MeasureJoined(m *shard.Member, o Options) (Row, error) {
	return measureOf(m, []*device.Device{m.Device()}, m.Rank(), m.Size(), o)
}

func measureOf[O shard.Over](over O, devices []*device.Device, first, parts int, o Options) (Row, error) {
	switch o.Bytes {
	case 0, 4:
		return measure[uint32](over, devices, first, parts, o)
	case 8:
		return measure[uint64](over, devices, first, parts, o)
	}
	return Row{}, bench.WrongOption("bench: keys of %d bytes over several devices: want 4 or 8", o.Bytes)
}

func measure[K word, O shard.Over](over O, devices []*device.Device, first, parts int, o Options) (row Row, err error) {
	w, err := newWork[K](over, devices, first, parts, o)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	row.Devices, row.Load = parts, o.Load
	fill := func() error { return w.insert(w.pairs) }
	t, err := w.clocked(w.runs, w.clear, fill)
	if err != nil {
		return row, fmt.Errorf("insert: %w", err)
	}
	row.Insert, row.InsertSteps = bench.Rate(w.total, t), averaged(w.table.Steps(), w.runs)
	ask := w.ask
	if o.Kind == table.KindSet || o.Kind == table.KindMultiMap {
		ask = slices.Clone(ask)
		for i := range ask {
			ask[i].Values = device.Slice[K]{}
		}
	}
	if t, err = w.clocked(w.runs, w.ready, func() error { return w.find(ask) }); err != nil {
		return row, fmt.Errorf("find: %w", err)
	}
	row.Find, row.FindSteps = bench.Rate(w.total, t), averaged(w.table.Steps(), w.runs)
	if row.Wrong, err = w.wrong(ask, 1); err != nil {
		return row, err
	}
	s, err := w.table.Stats()
	if err != nil {
		return row, err
	}
	row.Filled, row.Bytes, row.Scratch = s.LoadFactor, s.Bytes, s.ScratchBytes
	want := w.keys
	if o.Kind == table.KindMultiMap {
		want = w.total
	}
	// Independent counters count a key once for each device that has it.
	if s.Len != want && !(o.Kind == table.KindCounter && o.Shard.Mode == shard.Independent) {
		row.Wrong++
	}
	if w.findAll != nil {
		err = w.measureLists(&row, parts)
	} else if w.remove != nil && o.Delete && !o.Update {
		err = w.measureDelete(&row, fill)
	}
	return row, err
}

// measureLists measures finding all values of keys, which have about as many values as there are rows.
func (w *work[K]) measureLists(row *Row, parts int) error {
	each := max(1, w.ask[0].Keys.Len()*int(w.drawn[0].params.Distinct)/w.total)
	ask := firstOf(w.ask, each)
	t, err := w.clocked(w.runs, func() error { return errors.Join(w.freeLists(), w.ready()) },
		func() error { return w.findLists(ask) })
	if err != nil {
		return fmt.Errorf("find all: %w", err)
	}
	values := 0
	for _, l := range w.lists {
		values += l.values.Len()
	}
	row.FindAll = bench.Rate(each*parts, t)
	row.Values = bench.Rate(values*parts/len(w.lists), t) // those of other members are about as many
	wrong, err := w.wrongLists(ask)
	row.Wrong += wrong
	return err
}

// measureDelete measures deleting all rows of a full table.
func (w *work[K]) measureDelete(row *Row, fill func() error) error {
	parts := slices.Clone(w.pairs)
	for i := range parts {
		parts[i].Values, parts[i].Flags = device.Slice[K]{}, w.ask[i].Flags
	}
	full := func() error { return errors.Join(w.clear(), fill(), w.ready()) }
	t, err := w.clocked(w.runs, full, func() error { return w.remove(parts) })
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	row.Delete = bench.Rate(w.total, t)
	wrong, err := w.wrong(parts, 0)
	if err != nil {
		return err
	}
	left, err := w.table.Len()
	row.Wrong += wrong + left
	return err
}

func averaged(s shard.Steps, runs int) shard.Steps {
	n := time.Duration(runs)
	return shard.Steps{Count: s.Count / n, Split: s.Split / n, Send: s.Send / n, Work: s.Work / n, Fetch: s.Fetch / n}
}

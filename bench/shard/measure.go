package shard

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/bench"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// Options say what Measure measures: a table of pairs of 4+4 bytes.
type Options struct {
	Family table.Family
	N      int     // pairs that each device brings
	Load   float64 // load factor
	Hits   float64 // share of the look-ups, as many as pairs, that hit
	Shard  shard.Options
}

// Row is what came of it. Rates are billions a second over all devices, by the wall clock, medians of bench.Runs.
type Row struct {
	Devices     int         `json:"devices"`
	Load        float64     `json:"load"`
	Filled      float64     `json:"filled"`
	Insert      float64     `json:"insert"`
	Find        float64     `json:"find"`
	Wrong       int         `json:"wrong"`
	Bytes       int64       `json:"bytes"`        // of the table, on all devices
	Scratch     int64       `json:"scratch"`      // beside it
	InsertSteps shard.Steps `json:"insert_steps"` // with Shard.Apart, of one run of an insert, on average
	FindSteps   shard.Steps `json:"find_steps"`
}

// work is a table and the batches that devices bring.
type work struct {
	m          *shard.Map[uint32, uint32]
	devices    []*device.Device
	pairs, ask []shard.Part[uint32, uint32]
	expected   [][]bool
	free       []func() error
}

// keyOf gives each index a key of its own, and no two the same; valueOf is the value that comes with a key.
func keyOf(index int) uint32    { return kernel.Fmix32(uint32(index)) }
func valueOf(key uint32) uint32 { return key*3 + 1 }

// newWork brings n pairs and as many look-ups to each device: those that hit are spread over the pairs of all devices, for independent tables too.
func newWork(devices []*device.Device, o Options) (w *work, err error) {
	total := o.N * len(devices)
	if o.N < 1 || total > 1<<31 || o.Hits < 0 || o.Hits > 1 {
		return nil, fmt.Errorf("bench: %d pairs on each of %d devices, %v of the look-ups hits: want 1 to 2³¹ pairs in all, and 0 to 1", o.N, len(devices), o.Hits)
	}
	w = &work{devices: devices}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	all := o.Shard
	all.Capacity, all.LoadFactor, all.Seed = total, o.Load, 1
	w.m, err = shard.NewMap(devices, all, func(d *device.Device, o2 table.Options) (table.Map[uint32, uint32], error) {
		return bench.NewMap(d, o.Family, o2)
	})
	if err != nil {
		return w, err
	}
	for i := range devices {
		if err := w.bringPart(i, i, o.N, total, o.Hits); err != nil {
			return w, err
		}
	}
	return w, nil
}

// bringPart brings the pairs and look-ups of one of several parts, n of a total each, to a device.
func (w *work) bringPart(at, part, n, total int, hits float64) error {
	d := w.devices[at]
	var pairs, ask shard.Part[uint32, uint32]
	keys, values, expected := make([]uint32, n), make([]uint32, n), make([]bool, n)
	for k := range keys {
		keys[k] = keyOf(part*n + k)
		values[k] = valueOf(keys[k])
	}
	if err := errors.Join(bring(w, d, keys, &pairs.Keys), bring(w, d, values, &pairs.Values)); err != nil {
		return err
	}
	for k := range keys {
		draw := kernel.Fmix64(uint64(part*n+k) + 1<<40) // both at random: whether it hits, and what
		expected[k] = float64(draw>>40)/(1<<24) < hits
		index := int(kernel.Reduce(draw<<24, uint64(total)))
		if !expected[k] {
			index = total + index%min(total, 1<<32-total) // never inserted
		}
		keys[k] = keyOf(index)
	}
	clear(values)
	err := errors.Join(bring(w, d, keys, &ask.Keys), bring(w, d, values, &ask.Values), bring(w, d, make([]bool, n), &ask.Flags))
	w.pairs, w.ask, w.expected = append(w.pairs, pairs), append(w.ask, ask), append(w.expected, expected)
	return err
}

func bring[T any](w *work, d *device.Device, x []T, to *device.Slice[T]) error {
	s, err := device.From(d, x)
	if err == nil {
		*to = s
		w.free = append(w.free, s.Free)
	}
	return err
}

func (w *work) close() (err error) {
	for _, free := range w.free {
		err = errors.Join(err, free())
	}
	if w.m != nil {
		err = errors.Join(err, w.m.Close())
	}
	return err
}

// clocked is the median of so many runs by the wall clock, after one to warm up, all devices being done before and after.
func (w *work) clocked(runs int, before, f func() error) (time.Duration, error) {
	var times []time.Duration
	for run := range runs + 1 {
		if before != nil {
			if err := before(); err != nil {
				return 0, err
			}
		}
		if err := w.sync(); err != nil {
			return 0, err
		}
		if run == 1 && w.m != nil {
			w.m.Steps() // of the warm-up
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
func (w *work) sync() error {
	for _, d := range w.devices {
		if err := d.Stream().Sync(); err != nil {
			return err
		}
	}
	return nil
}

// wrong counts wrong answers to the look-ups.
func (w *work) wrong() (n int, err error) {
	for i, p := range w.ask {
		keys, err := p.Keys.Host(nil)
		if err != nil {
			return n, err
		}
		values, err := p.Values.Host(nil)
		if err != nil {
			return n, err
		}
		found, err := p.Flags.Host(nil)
		if err != nil {
			return n, err
		}
		for k, key := range keys {
			if found[k] != w.expected[i][k] || found[k] && values[k] != valueOf(key) || !found[k] && values[k] != 0 {
				n++
			}
		}
	}
	return n, nil
}

// Measure inserts what each device brings into an empty table over all of them, and looks up as much.
func Measure(devices []*device.Device, o Options) (row Row, err error) {
	o.Family = cmp.Or(o.Family, warpmap.WarpCore)
	w, err := newWork(devices, o)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	row.Devices, row.Load = len(devices), o.Load
	total := o.N * len(devices)
	clear := func() error {
		if err := w.m.Clear(); err != nil {
			return err
		}
		_, err := w.m.Len() // waits
		return err
	}
	t, err := w.clocked(bench.Runs, clear, func() error { return w.m.InsertEach(w.pairs) })
	if err != nil {
		return row, fmt.Errorf("insert: %w", err)
	}
	row.Insert, row.InsertSteps = bench.Rate(total, t), averaged(w.m.Steps())
	if t, err = w.clocked(bench.Runs, nil, func() error { return w.m.FindEach(w.ask) }); err != nil {
		return row, fmt.Errorf("find: %w", err)
	}
	row.Find, row.FindSteps = bench.Rate(total, t), averaged(w.m.Steps())
	if row.Wrong, err = w.wrong(); err != nil {
		return row, err
	}
	s, err := w.m.Stats()
	row.Filled, row.Bytes, row.Scratch = s.LoadFactor, s.Bytes, s.ScratchBytes
	if s.Len != total {
		row.Wrong++
	}
	return row, err
}

func averaged(s shard.Steps) shard.Steps {
	return shard.Steps{Count: s.Count / bench.Runs, Split: s.Split / bench.Runs, Send: s.Send / bench.Runs, Work: s.Work / bench.Runs, Fetch: s.Fetch / bench.Runs}
}

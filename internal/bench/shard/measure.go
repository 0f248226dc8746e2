package shard

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// Options say what Measure measures: a table of pairs of 4+4 bytes.
type Options struct {
	Family table.Family
	N      int     // pairs that each device brings
	Load   float64 // load factor
	Hits   float64 // share of the look-ups, as many as pairs, that hit
	Runs   int     // of which the median counts, after one to warm up; 0: bench.Runs
	Shard  shard.Options
}

// Row is what came of it. Rates are billions a second over all devices, by the wall clock, medians of Options.Runs.
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
	drawn      []drawn
	runs       int
	free       []func() error
}

// drawn makes a device's part of the batches, and counts what is wrong with the answers.
type drawn struct {
	d                  *device.Device
	params             drawParams // what all kernels share
	pairs, asks, wrong device.Kernel[drawParams]
	count              device.Slice[uint64]
}

// newWork brings n pairs and as many look-ups to each device: those that hit are spread over the pairs of all devices, for independent tables too.
func newWork(devices []*device.Device, o Options) (w *work, err error) {
	total := o.N * len(devices)
	if o.N < 1 || total > 1<<31 || o.Hits < 0 || o.Hits > 1 {
		return nil, fmt.Errorf("bench: %d pairs on each of %d devices, %v of the look-ups hits: want 1 to 2³¹ pairs in all, and 0 to 1", o.N, len(devices), o.Hits)
	}
	w = &work{devices: devices, runs: cmp.Or(o.Runs, bench.Runs)}
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

// bringPart makes the pairs and look-ups of one of several parts, n of a total each, on a device.
func (w *work) bringPart(at, part, n, total int, hits float64) error {
	d := w.devices[at]
	x := drawn{d: d, params: drawParams{First: uint64(part * n), N: uint64(n), Total: uint64(total), Misses: uint64(min(total, 1<<32-total)), Hits: uint64(hits * (1 << 24))}}
	module, err := d.Compile(program())
	if err != nil {
		return err
	}
	var pairs, ask shard.Part[uint32, uint32]
	err = errors.Join(device.Bind(module, "draw_pairs", &x.pairs), device.Bind(module, "draw_look_ups", &x.asks), device.Bind(module, "count_wrong", &x.wrong),
		room(w, d, n, &pairs.Keys), room(w, d, n, &pairs.Values), room(w, d, n, &ask.Keys), room(w, d, n, &ask.Values), room(w, d, n, &ask.Flags), room(w, d, 1, &x.count))
	if err != nil {
		return frame.OneLine(err)
	}
	p, q := x.params, x.params
	p.Keys, p.Values, q.Keys = pairs.Keys.Addr(), pairs.Values.Addr(), ask.Keys.Addr()
	w.pairs, w.ask, w.drawn = append(w.pairs, pairs), append(w.ask, ask), append(w.drawn, x)
	return errors.Join(x.pairs.Launch(nil, x.grid(n), &p), x.asks.Launch(nil, x.grid(n), &q), d.Stream().Sync())
}

func (x *drawn) grid(n int) device.Grid {
	g := device.GridFor(int64(n), 256)
	if info := x.d.Info(); info.CUDA() {
		g.Blocks = min(g.Blocks, 16*int64(info.Multiprocessors))
	}
	return g
}

// room makes a column of n rows.
func room[T any](w *work, d *device.Device, n int, to *device.Slice[T]) error {
	s, err := device.Make[T](d, n)
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
		here, err := w.drawn[i].check(p)
		if err != nil {
			return n, err
		}
		n += here
	}
	return n, nil
}

// check counts wrong answers to the first look-ups of a device.
func (x *drawn) check(ask shard.Part[uint32, uint32]) (int, error) {
	p := x.params
	p.Keys, p.Values, p.Found, p.Wrong, p.N = ask.Keys.Addr(), ask.Values.Addr(), ask.Flags.Addr(), x.count.Addr(), uint64(ask.Keys.Len())
	if err := errors.Join(x.count.Fill(nil, 0), x.wrong.Launch(nil, x.grid(ask.Keys.Len()), &p)); err != nil {
		return 0, err
	}
	n, err := x.count.Host(nil)
	if err != nil {
		return 0, err
	}
	return int(n[0]), nil
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
	t, err := w.clocked(w.runs, clear, func() error { return w.m.InsertEach(w.pairs) })
	if err != nil {
		return row, fmt.Errorf("insert: %w", err)
	}
	row.Insert, row.InsertSteps = bench.Rate(total, t), averaged(w.m.Steps(), w.runs)
	if t, err = w.clocked(w.runs, nil, func() error { return w.m.FindEach(w.ask) }); err != nil {
		return row, fmt.Errorf("find: %w", err)
	}
	row.Find, row.FindSteps = bench.Rate(total, t), averaged(w.m.Steps(), w.runs)
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

func averaged(s shard.Steps, runs int) shard.Steps {
	n := time.Duration(runs)
	return shard.Steps{Count: s.Count / n, Split: s.Split / n, Send: s.Send / n, Work: s.Work / n, Fetch: s.Fetch / n}
}

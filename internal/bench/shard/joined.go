package shard

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// MeasureJoined is Measure over the members of a job, each of which brings its batch: a collective call. Wrong counts this member's answers, and rates are those of
// all members together by this one's clock, which begins when all are there.
func MeasureJoined(m *shard.Member, o Options) (row Row, err error) {
	total := o.N * m.Size()
	if o.N < 1 || total > 1<<31 {
		return row, fmt.Errorf("bench: %d pairs on each of %d members: want 1 to 2³¹ pairs in all", o.N, m.Size())
	}
	w := &work{devices: []*device.Device{m.Device()}, runs: cmp.Or(o.Runs, bench.Runs)}
	defer func() { err = errors.Join(err, w.close()) }()
	all := o.Shard
	all.Capacity, all.LoadFactor, all.Seed = total, o.Load, 1
	x, err := shard.NewMap(m, all, func(d *device.Device, each table.Options) (table.Map[uint32, uint32], error) {
		return bench.NewMap(d, cmp.Or(o.Family, warpmap.WarpCore), each)
	})
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	if err := w.bringPart(0, m.Rank(), o.N, total, o.Hits); err != nil {
		return row, err
	}
	ready := func() error { _, err := x.Len(); return err } // all are there
	timed := func(before, f func() error) (time.Duration, error) {
		return w.clocked(w.runs, func() error { return errors.Join(before(), ready()) }, f)
	}
	pairs, ask := w.pairs[0], w.ask[0]
	t, err := timed(x.Clear, func() error { return x.InsertOn(nil, pairs.Keys, pairs.Values) })
	if err != nil {
		return row, fmt.Errorf("insert: %w", err)
	}
	row.Devices, row.Load, row.Insert = m.Size(), o.Load, bench.Rate(total, t)
	if t, err = timed(func() error { return nil }, func() error { return x.FindOn(nil, ask.Keys, ask.Values, ask.Flags) }); err != nil {
		return row, fmt.Errorf("find: %w", err)
	}
	row.Find = bench.Rate(total, t)
	if row.Wrong, err = w.wrong(); err != nil {
		return row, err
	}
	s, err := x.Stats()
	row.Filled, row.Bytes, row.Scratch = s.LoadFactor, s.Bytes, s.ScratchBytes
	if s.Len != total {
		row.Wrong++
	}
	return row, err
}

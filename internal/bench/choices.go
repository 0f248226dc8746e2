package bench

import (
	"cmp"
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// ErrNoChoice is what a map is refused with that has no batches with a condition.
var ErrNoChoice = errors.New("this table has no InsertIf: measure its inserts, without chosen")

// chooser is as much of table.Chooser as is measured: each method of an interface costs the compiler time for each pair of
// types.
type chooser[K, V any] interface {
	InsertIfOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], when device.Slice[bool]) error
	FindIfOn(st *device.Stream, keys device.Slice[K], when device.Slice[bool], values device.Slice[V],
		found device.Slice[bool]) error
}

// Choosing is a map with a share of the pairs, Options.Chosen, inserted by InsertIfOn: those whose keys are chosen. Look-ups are by FindIfOn, of
// which as many are chosen, by their positions; all others must come out as not found. Rates are of rows, chosen or not.
func Choosing[K, V workload.Wide](w *Work[K, V], m table.Map[K, V]) (Subject, error) {
	s := w.Map(m)
	c, ok := m.(chooser[K, V])
	if !ok {
		return s, ErrNoChoice
	}
	if err := choose(w); err != nil {
		return s, err
	}
	st := w.Device.Stream()
	s.Fill = w.batches(func(first, end int) error {
		return c.InsertIfOn(st, w.Keys.Slice(first, end), w.Values.Slice(first, end), w.chosen.Slice(first, end))
	})
	s.Find = func() error { return c.FindIfOn(st, w.Queries, w.asks, w.Results, w.Found) }
	return s, nil
}

// choose makes the conditions, once, and has Expect say what must come of them.
func choose[K, V workload.Wide](w *Work[K, V]) error {
	if w.chosen.Addr() != 0 {
		return nil
	}
	const ofKeys, ofPositions = 11, 12 // seeds
	limit := uint64(w.Options.Chosen * (1 << 53))
	lucky := func(x, seed uint64) bool { return kernel.Seeded64(x, w.Options.Seed+seed)>>11 < limit }
	st := w.Device.Stream()
	keys, e1 := w.Keys.Host(st)
	queries, e2 := w.Queries.Host(st)
	expect, e3 := w.Expect.Host(st)
	if err := cmp.Or(e1, e2, e3); err != nil {
		return err
	}
	chosen, asks := make([]bool, len(keys)), make([]bool, len(queries))
	for i, k := range keys {
		chosen[i] = lucky(workload.Number(k), ofKeys)
	}
	for i, k := range queries {
		asks[i] = lucky(uint64(i), ofPositions)
		if !asks[i] || expect[i] == workload.Hit && !lucky(workload.Number(k), ofKeys) {
			expect[i] = workload.Miss
		}
	}
	var err error
	if w.asks, err = device.From(w.Device, asks); err != nil {
		return err
	}
	if err := w.Expect.Write(st, expect); err != nil {
		return err
	}
	w.chosen, err = device.From(w.Device, chosen)
	return err
}

package dycuckoo

import (
	"errors"
	"fmt"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/dycuckoo"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/workload"
)

// figure8 is Figure 8 and Table 4.
func figure8(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title:   "DyCuckoo, Figure 8 and Table 4: resizing one subtable beside rehashing all, pairs of 4+4 bytes",
		Columns: []string{"data", "resize", "way", "filled before", "filled after", "moved", "ms", "moved G/s", "buckets, thousands", "wrong", "note"},
		Notes: append(scaleNotes(o.N), "up: from a filled factor of 0.85, down: from 0.30, by one step: one of four subtables doubles or halves",
			"one subtable: Grow and Shrink; moved are the pairs of that subtable. rehash: all pairs are inserted into a new table of the same size as after the step; they lie ready, as an export would leave them",
			"buckets: those of the subtable before and after, and one for each pair that goes to another subtable; of a rehash, those that look-ups of all pairs read; of MegaKV, all that are read, old and new. Evictions come on top where they are not MegaKV's",
			"wrong: look-ups of all pairs, after the last run", megakvNote),
		Plots: []bench.Plot{{Title: "DyCuckoo, Figure 8: resizing", X: "data", Y: "moved G/s", Series: "way", Facet: "resize"}},
	}
	sets, err := sets(o.N)
	if err != nil {
		return nil, err
	}
	for _, set := range sets {
		for _, up := range []bool{true, false} {
			r, err := newResize(d, set, up)
			if err != nil {
				return nil, err
			}
			for _, way := range []struct {
				name string
				run  func() ([]any, error)
			}{{"one subtable", r.one}, {"rehash", r.rehash}, {"MegaKV", r.mega}} {
				o.Step(fmt.Sprintf("%s, %s: %s", set.Name, r.name, way.name))
				row, err := way.run()
				if err != nil {
					note, err := bench.Refusal(err)
					if err != nil {
						r.w.Free()
						return nil, err
					}
					row = []any{nil, nil, nil, nil, nil, nil, nil, note}
				}
				fig.Add(append([]any{set.Name, r.name, way.name}, row...)...)
			}
			r.w.Free()
		}
	}
	return fig, nil
}

// resize is a table's pairs, and how it is made and resized.
type resize struct {
	name  string
	up    bool
	w     *bench.Work[uint32, uint32] // its look-ups are all keys
	keys  int
	s     settings // of the table before
	after int      // slots of dycuckoo's table, as one found
}

// shrinkable is the β of a table that is to be halved once from the filled factor low: halving one of the four subtables leaves 0.34
// to 0.375, and another 0.4 to 0.45, which it does not allow.
const shrinkable = 0.385

func newResize(d *device.Device, set workload.DataSet, up bool) (r *resize, err error) {
	r = &resize{name: "up", up: up}
	factor, limit := high, high
	if !up {
		r.name, factor, limit = "down", low, shrinkable
	}
	if set, err = filling(d, set, factor, subtables); err != nil {
		return nil, err
	}
	set.Pairs = set.Distinct // each key once
	r.keys = set.Distinct
	if r.w, err = fill(d, set, set.Pairs); err != nil {
		return nil, err
	}
	// Of the size that the factor gives, whatever the limit.
	r.s = settings{int(float64(set.Pairs) / factor * limit), 0, limit, subtables}
	return r, r.w.Ask(1, 0)
}

// own is a filled table.
func (r *resize) own(slots int) (m *dycuckoo.Map[uint32, uint32], err error) {
	s := r.s
	if slots > 0 {
		s.pairs = int(float64(slots) * s.high)
	}
	if m, err = newOwn(r.w.Device, s); err != nil {
		return nil, err
	}
	if slots == 0 {
		if err = m.InsertOn(r.w.Device.Stream(), r.w.Keys, r.w.Values); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	return m, nil
}

// wrong counts wrong answers to look-ups of all pairs.
func (r *resize) wrong(t store) (int, error) {
	if err := t.FindOn(r.w.Device.Stream(), r.w.Queries, r.w.Results, r.w.Found); err != nil {
		return 0, err
	}
	return r.w.Count()
}

func (r *resize) row(filled, after float64, moved int, took time.Duration, buckets float64, wrong int) []any {
	return []any{bench.Round(filled), bench.Round(after), moved, bench.Round(took.Seconds() * 1e3), bench.Round(bench.Rate(moved, took)), bench.Round(buckets / 1e3), wrong, ""}
}

// one resizes one subtable.
func (r *resize) one() (row []any, err error) {
	var m *dycuckoo.Map[uint32, uint32]
	defer func() {
		if m != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	var before []dycuckoo.SubtableStats
	took, err := bench.Timed(r.w.Device, r.w.Device.Stream(), bench.Runs, func() (err error) {
		if m != nil {
			err = m.Close()
			m = nil
		}
		if err == nil {
			m, err = r.own(0)
		}
		if err == nil {
			before, err = m.Subtables()
		}
		return err
	}, func() error {
		if r.up {
			return m.Grow(int(r.s.high*float64(slotsOf(before))) + 1)
		}
		return m.Shrink()
	})
	if err != nil {
		return nil, err
	}
	after, err := m.Subtables()
	if err != nil {
		return nil, err
	}
	moved, buckets, changed := 0, 0, 0
	for i := range after {
		if after[i].Buckets != before[i].Buckets {
			moved, buckets, changed = before[i].Len, buckets+before[i].Buckets+after[i].Buckets, changed+1
			buckets += max(0, before[i].Len-after[i].Len)
		}
	}
	if changed != 1 {
		return nil, fmt.Errorf("%d subtables changed, not one: a table of %d slots is too small, or its subtables are", changed, slotsOf(before))
	}
	r.after = slotsOf(after)
	wrong, err := r.wrong(m)
	return r.row(float64(r.keys)/float64(slotsOf(before)), float64(r.keys)/float64(r.after), moved, took, float64(buckets), wrong), err
}

func slotsOf(list []dycuckoo.SubtableStats) (n int) {
	for _, s := range list {
		n += s.Slots
	}
	return n
}

// rehash fills another table of the size that one came to.
func (r *resize) rehash() (row []any, err error) {
	if r.after == 0 {
		return nil, errors.New("there is no size to rehash to")
	}
	m, err := r.own(r.after)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	st := r.w.Device.Stream()
	took, err := bench.Timed(r.w.Device, st, bench.Runs, m.Clear, func() error { return m.InsertOn(st, r.w.Keys, r.w.Values) })
	if err != nil {
		return nil, err
	}
	stats, err := m.Stats()
	if err != nil {
		return nil, err
	}
	wrong, err := r.wrong(m)
	return r.row(0, stats.LoadFactor, r.keys, took, float64(r.keys)*stats.MeanProbes, wrong), err
}

// mega doubles or halves a table like MegaKV's.
func (r *resize) mega() (row []any, err error) {
	factor := low
	if r.up {
		factor = high
	}
	var m *megakv
	defer func() {
		if m != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	st := r.w.Device.Stream()
	old, reads := 0, uint64(0)
	took, err := bench.Timed(r.w.Device, st, bench.Runs, func() (err error) {
		if m != nil {
			err = m.Close()
			m = nil
		}
		if err == nil {
			m, err = newMegaKV(r.w.Device, r.keys, 0, factor)
		}
		if err != nil {
			return err
		}
		m.high = 1
		err = m.InsertOn(st, r.w.Keys, r.w.Values)
		old, reads = m.buckets(), m.seen.Reads
		return err
	}, func() error {
		if r.up {
			return m.resize(st, 2*old)
		}
		return m.resize(st, old/2)
	})
	if err != nil {
		return nil, err
	}
	stats, err := m.Stats()
	if err != nil {
		return nil, err
	}
	wrong, err := r.wrong(m)
	return r.row(float64(r.keys)/float64(old*megakvSlots), stats.LoadFactor, r.keys, took, float64(m.seen.Reads-reads)+float64(old), wrong), err
}

package bench

import (
	"errors"
	"fmt"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/table"
)

// The ways of Figure 13: BR is GPH's Bucket Requester, which has several vectors of a bucket under way; PH, perfect hashing.
const (
	brOnPhOn   = "BR-ON PH-ON"
	brOffPhOn  = "BR-OFF PH-ON"
	brOffPhOff = "BR-OFF PH-OFF"
)

// gphLookups is Figure 13: what the parts of GPH's look-up give, by the lanes of a group and by the slots of a bucket.
func gphLookups(d *device.Device, o FigOptions) (*Fig, error) {
	const gb = 1.5
	load := gphLoad(gphRandom, gb)
	fig := &Fig{
		Title:   fmt.Sprintf("GPH, Figure 13: %d look-ups of Random, 50%% hits, load factor %.3f, by what the look-up is made of", 2*o.N, load),
		Columns: []string{"M", "|g|", "way", "find G/s", "wrong", "note"},
		Notes: append(scaleNote(o.N), "BR-OFF reads a slot a lane, one bucket at a time; PH-OFF has two buckets a key, the second read for what the first has not, "+
			"in a table of as many slots"),
		Plots: []Plot{
			{Name: "group", Title: "Look-ups by the lanes of a group, M = 16", X: "|g|", Y: "find G/s", Series: "way", Only: map[string]any{"M": 16}, LogX: true},
			{Name: "bucket", Title: "Look-ups by the slots of a bucket, |g| = 4", X: "M", Y: "find G/s", Series: "way", Only: map[string]any{"|g|": 4}, LogX: true},
		},
	}
	settings := []gph.Setting{}
	groups, buckets := []int{1, 2, 4, 8}, []int{4, 8, 32}
	if !d.Info().CUDA() { // each setting is compiled for itself
		groups, buckets = []int{1, 4}, []int{8}
	}
	for _, g := range groups {
		settings = append(settings, gph.Setting{Bucket: 16, FindGroup: g})
	}
	for _, m := range buckets {
		settings = append(settings, gph.Setting{Bucket: m, FindGroup: 4})
	}
	o.Step(fmt.Sprintf("making %d pairs and %d look-ups", o.N, 2*o.N))
	w, err := newWork[uint32, uint32](d, TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: o.N, Queries: 2 * o.N, Hits: 0.5, Seed: 1})
	if err != nil {
		return nil, err
	}
	defer w.free()
	for _, s := range settings {
		o.Step(fmt.Sprintf("M = %d, |g| = %d", s.Bucket, s.FindGroup))
		err := lookupWays(w, s, load, func(way string, t tried, err error) error {
			if err != nil {
				if t.note, err = refusal(err); err != nil {
					return err
				}
			}
			fig.add(s.Bucket, s.FindGroup, way, t.rate, t.wrong, t.note)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return fig, nil
}

// lookupWays measures the three ways with one setting, and hands each to done.
func lookupWays(w *work[uint32, uint32], s gph.Setting, load float64, done func(way string, t tried, err error) error) (err error) {
	st := w.d.Stream()
	m, err := gph.New[uint32, uint32](w.d, s.Options(table.Options{Capacity: w.o.N, LoadFactor: load}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := m.InsertOn(st, w.keys, w.values); err != nil {
		return done(brOnPhOn, tried{}, err)
	}
	program := m.Program("gph_lookup", gphLookupCU)
	program.Defines = append(program.Defines, device.Define{Name: "BENCH_GROUP", Value: s.FindGroup})
	program.Layouts = append(program.Layouts, LookupParams{})
	module, err := w.d.Compile(program)
	if err != nil {
		return err
	}
	measure := func(way, note string, queue func() error) error {
		t := tried{note: note}
		took, err := timed(w.d, st, Runs, nil, queue)
		if err == nil {
			t.rate = round(rate(w.o.Queries, took))
			t.wrong, err = w.count(st)
		}
		return done(way, t, err)
	}
	if err := measure(brOnPhOn, "", func() error { return m.FindOn(st, w.queries, w.results, w.found) }); err != nil {
		return err
	}
	perfect, err := device.KernelOf[LookupParams](module, "find_perfect")
	if err != nil {
		return err
	}
	p := LookupParams{Keys: w.queries.Addr(), Values: w.results.Addr(), Found: w.found.Addr(), N: uint64(w.o.Queries)}
	grid := strides(w.d, w.o.Queries)
	err = measure(brOffPhOn, "", func() error {
		return m.Use(st, func(t gph.Table) error {
			p.Table = t
			return perfect.Launch(st, grid, &p)
		})
	})
	if err != nil {
		return err
	}
	two, err := device.KernelOf[LookupParams](module, "find_two")
	if err != nil {
		return err
	}
	free, note, err := w.twoChoices(module, &p, s.Bucket, load)
	if err != nil {
		return done(brOffPhOff, tried{}, err)
	}
	defer free()
	return measure(brOffPhOff, note, func() error { return two.Launch(st, grid, &p) })
}

// strides is the grid of GPH's own look-up: a GPU's threads go on in strides.
func strides(d *device.Device, n int) device.Grid {
	g := device.GridFor(int64(n), 256)
	if i := d.Info(); i.CUDA() {
		g.Blocks = min(g.Blocks, int64(i.Multiprocessors)*128)
	}
	return g
}

// twoChoices fills a table with two buckets a key, of as many slots as the load factor says, and puts its place into p.
// Whoever calls frees it.
func (w *work[K, V]) twoChoices(module *device.Module, p *LookupParams, bucket int, load float64) (free func(), note string, err error) {
	insert, err := device.KernelOf[LookupParams](module, "insert_two")
	if err != nil {
		return nil, "", err
	}
	st := w.d.Stream()
	buckets := int(math.Ceil(float64(w.o.N) / load / float64(bucket)))
	slots, err := device.Make[uint64](w.d, buckets*bucket)
	if err != nil {
		return nil, "", err
	}
	free = func() { slots.Free() }
	p.Slots, p.Buckets, p.Failed = slots.Addr(), uint64(buckets), w.wrong.Addr()
	q := *p
	q.Keys, q.Values, q.N = w.keys.Addr(), w.values.Addr(), uint64(w.o.N)
	if err = errors.Join(slots.Fill(st, 0xff), w.wrong.Fill(st, 0)); err == nil {
		err = insert.Launch(st, strides(w.d, w.o.N), &q)
	}
	var failed []uint64
	if err == nil {
		failed, err = w.wrong.Host(st)
	}
	if err != nil {
		free()
		return nil, "", err
	}
	if failed[0] > 0 {
		note = fmt.Sprintf("%d pairs found no place", failed[0])
	}
	return free, note, nil
}

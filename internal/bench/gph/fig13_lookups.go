package gph

import (
	_ "embed"
	"errors"
	"fmt"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
)

// lookupParams are the parameters of fig13_lookups.cu.
type lookupParams struct {
	Table               gph.Table
	Keys, Values, Found uint64
	N                   uint64
	Slots               uint64 // the table with two buckets a key: Buckets of them
	Buckets             uint64
	Failed              uint64 // u64 counter: pairs that found no place there
}

//go:embed fig13_lookups.cu
var lookupsCU string

// lookups are the kernels of the other ways, for tables like m with groups of so many lanes.
func lookups(m *gph.Map[uint32, uint32], group int) *device.Program {
	p := m.Program("gph_lookups", lookupsCU)
	p.Defines = append(p.Defines, device.Define{Name: "BENCH_GROUP", Value: group})
	p.Layouts = append(p.Layouts, lookupParams{})
	return p
}

// The ways of Figure 13: BR is GPH's Bucket Requester, which has several vectors of a bucket under way; PH, perfect hashing.
const (
	brOnPhOn   = "BR-ON PH-ON"
	brOffPhOn  = "BR-OFF PH-ON"
	brOffPhOff = "BR-OFF PH-OFF"
)

// figure13 is Figure 13: what the parts of GPH's look-up give, by the lanes of a group and by the slots of a bucket.
func figure13(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
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
	return ways(d, o, settings)
}

func ways(d *device.Device, o bench.FigOptions, settings []gph.Setting) (*bench.Fig, error) {
	const gb = 1.5
	load := loadOf(random, gb)
	fig := &bench.Fig{
		Title:   fmt.Sprintf("GPH, Figure 13: %d look-ups of Random, 50%% hits, load factor %.3f, by what the look-up is made of", 2*o.N, load),
		Columns: []string{"M", "|g|", "way", "find G/s", "wrong", "note"},
		Notes: append(scaleNote(o.N), "BR-OFF reads a slot a lane, one bucket at a time; PH-OFF has two buckets a key, the second read for what the first has not, "+
			"in a table of as many slots"),
		Plots: []bench.Plot{
			{Name: "group", Title: "Look-ups by the lanes of a group, M = 16", X: "|g|", Y: "find G/s", Series: "way", Only: map[string]any{"M": 16}, LogX: true},
			{Name: "bucket", Title: "Look-ups by the slots of a bucket, |g| = 4", X: "M", Y: "find G/s", Series: "way", Only: map[string]any{"|g|": 4}, LogX: true},
		},
	}
	o.Step(fmt.Sprintf("making %d pairs and %d look-ups", o.N, 2*o.N))
	w, err := bench.NewWork[uint32, uint32](d, bench.TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: o.N, Queries: 2 * o.N, Hits: 0.5, Seed: 1})
	if err != nil {
		return nil, err
	}
	defer w.Free()
	for _, s := range settings {
		o.Step(fmt.Sprintf("M = %d, |g| = %d", s.Bucket, s.FindGroup))
		err := lookupWays(w, s, load, func(way string, t tried, err error) error {
			if err != nil {
				if t.note, err = bench.Refusal(err); err != nil {
					return err
				}
			}
			fig.Add(s.Bucket, s.FindGroup, way, t.rate, t.wrong, t.note)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return fig, nil
}

// lookupWays measures the three ways with one setting, and hands each to done.
func lookupWays(w *bench.Work[uint32, uint32], s gph.Setting, load float64, done func(way string, t tried, err error) error) (err error) {
	st := w.Device.Stream()
	m, err := gph.New[uint32, uint32](w.Device, s.Options(table.Options{Capacity: w.Options.N, LoadFactor: load}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := m.InsertOn(st, w.Keys, w.Values); err != nil {
		return done(brOnPhOn, tried{}, err)
	}
	module, err := w.Device.Compile(lookups(m, s.FindGroup))
	if err != nil {
		return err
	}
	measure := func(way, note string, queue func() error) error {
		t := tried{note: note}
		took, err := bench.Timed(w.Device, st, bench.Runs, nil, queue)
		if err == nil {
			t.rate = bench.Round(bench.Rate(w.Options.Queries, took))
			t.wrong, err = w.Count()
		}
		return done(way, t, err)
	}
	if err := measure(brOnPhOn, "", func() error { return m.FindOn(st, w.Queries, w.Results, w.Found) }); err != nil {
		return err
	}
	perfect, err := device.KernelOf[lookupParams](module, "find_perfect")
	if err != nil {
		return err
	}
	p := lookupParams{Keys: w.Queries.Addr(), Values: w.Results.Addr(), Found: w.Found.Addr(), N: uint64(w.Options.Queries)}
	grid := strides(w.Device, w.Options.Queries)
	err = measure(brOffPhOn, "", func() error {
		return m.Use(st, func(t gph.Table) error {
			p.Table = t
			return perfect.Launch(st, grid, &p)
		})
	})
	if err != nil {
		return err
	}
	two, err := device.KernelOf[lookupParams](module, "find_two")
	if err != nil {
		return err
	}
	free, note, err := twoChoices(w, module, &p, s.Bucket, load)
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
func twoChoices(w *bench.Work[uint32, uint32], module *device.Module, p *lookupParams, bucket int, load float64) (free func(), note string, err error) {
	insert, err := device.KernelOf[lookupParams](module, "insert_two")
	if err != nil {
		return nil, "", err
	}
	st := w.Device.Stream()
	buckets := int(math.Ceil(float64(w.Options.N) / load / float64(bucket)))
	slots, err := device.Make[uint64](w.Device, buckets*bucket)
	if err != nil {
		return nil, "", err
	}
	free = func() { slots.Free() }
	failed, err := device.Make[uint64](w.Device, 1)
	if err != nil {
		free()
		return nil, "", err
	}
	defer failed.Free()
	p.Slots, p.Buckets, p.Failed = slots.Addr(), uint64(buckets), failed.Addr()
	q := *p
	q.Keys, q.Values, q.N = w.Keys.Addr(), w.Values.Addr(), uint64(w.Options.N)
	if err = errors.Join(slots.Fill(st, 0xff), failed.Fill(st, 0)); err == nil {
		err = insert.Launch(st, strides(w.Device, w.Options.N), &q)
	}
	var count []uint64
	if err == nil {
		count, err = failed.Host(st)
	}
	if err != nil {
		free()
		return nil, "", err
	}
	if count[0] > 0 {
		note = fmt.Sprintf("%d pairs found no place", count[0])
	}
	return free, note, nil
}

package gph

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// Objectives are what a setting is chosen for: look-ups, inserts into an empty table, or the time of both together.
var Objectives = []string{"find", "insert", "mixed"}

// TuneOptions say for which workload TuneGPH looks for a setting.
type TuneOptions struct {
	Objective  string  `json:"objective"` // one of Objectives
	Keys       string  `json:"keys"`      // kind, see workload.NewKeys
	KeyBytes   int     `json:"key_bytes"` // 4 or 8
	ValueBytes int     `json:"value_bytes"`
	N          int     `json:"n"` // pairs
	Queries    int     `json:"queries"`
	Load       float64 `json:"load"`
	Hits       float64 `json:"hits"`
	Trials     int     `json:"trials"` // settings to measure, the defaults among them
	Seed       uint64  `json:"seed"`   // of the workload and of the search
	// Step hears of every trial, and of every round of the final, where trial is nil; it may be nil.
	Step func(done, all int, trial *Trial) `json:"-"`
}

// Trial is a setting and what it came to. Rates are billions a second of device time.
type Trial struct {
	gph.Setting
	Default    bool    `json:"default,omitempty"`
	Insert     float64 `json:"insert"`
	Find       float64 `json:"find"`
	Score      float64 `json:"score"` // by the objective; 0: it lost
	LoadFactor float64 `json:"load_factor"`
	Bytes      int64   `json:"bytes"`
	Wrong      int     `json:"wrong"`
	Note       string  `json:"note,omitempty"` // why it lost
}

// Final is how a trial did when the best and the defaults were measured again, in turns.
type Final struct {
	Trial
	Scores []float64 `json:"scores"` // by round
	Median float64   `json:"median"`
}

// Tuning is the result of TuneGPH.
type Tuning struct {
	Where   bench.Where `json:"where"`
	Options TuneOptions `json:"options"`
	Trials  []Trial     `json:"trials"` // as they were made; the first is the defaults
	Finals  []Final     `json:"finals"` // the best first
	// Best is the setting to take: Finals[0], or the defaults, unless it is faster than they are and was in all rounds but one.
	Best     gph.Setting `json:"best"`
	Improved bool        `json:"improved"`
}

const (
	tuneRuns = 3 // of a trial
	// finalists beside the defaults: the best of many noisy trials is often not the best.
	finalists = 3
	rounds    = 7
)

// TuneGPH looks for the setting of a GPH table that does best on this device, for one workload: trials drawn at random, as
// the paper tunes (§7.1), then steps from the best so far. A table that refuses pairs, grows past the load factor or
// gives a wrong answer loses. Cost: a compilation and a few batches a trial.
func TuneGPH(ctx context.Context, d *device.Device, o TuneOptions) (*Tuning, error) {
	if o.N < 1 || o.Queries < 1 || o.Trials < 1 || !(o.Load > 0 && o.Load <= 1) || !(o.Hits >= 0 && o.Hits <= 1) {
		return nil, bench.WrongOption("tune: %d pairs, %d look-ups, load factor %v, %v of them hits, %d trials: want 1 or more of each, and shares from 0 to 1",
			o.N, o.Queries, o.Load, o.Hits, o.Trials)
	}
	if !slices.Contains(Objectives, o.Objective) {
		return nil, bench.WrongOption("tune: objective %q (want one of %v)", o.Objective, Objectives)
	}
	if o.Step == nil {
		o.Step = func(int, int, *Trial) {}
	}
	switch [2]int{o.KeyBytes, o.ValueBytes} {
	case [2]int{4, 4}:
		return tune[uint32, uint32](ctx, d, o)
	case [2]int{4, 8}:
		return tune[uint32, uint64](ctx, d, o)
	case [2]int{8, 4}:
		return tune[uint64, uint32](ctx, d, o)
	case [2]int{8, 8}:
		return tune[uint64, uint64](ctx, d, o)
	}
	return nil, bench.WrongOption("tune: keys of %d bytes and values of %d (want 4 or 8)", o.KeyBytes, o.ValueBytes)
}

func tune[K, V workload.Word](ctx context.Context, d *device.Device, o TuneOptions) (*Tuning, error) {
	defaults, err := gph.Setting{}.Complete(d.Info(), o.KeyBytes, o.ValueBytes, o.Load)
	if err != nil {
		return nil, err
	}
	w, err := bench.NewWork[K, V](d, bench.TableOptions{Keys: o.Keys, KeyBytes: o.KeyBytes, ValueBytes: o.ValueBytes, N: o.N, Queries: o.Queries, Hits: o.Hits, Seed: o.Seed})
	if err != nil {
		return nil, err
	}
	defer w.Free()
	t := &Tuning{Where: bench.Here(d), Options: o, Best: defaults}
	s, err := newSearch(d.Info(), defaults, o)
	if err != nil {
		return nil, err
	}
	for len(t.Trials) < o.Trials {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		setting, ok := s.next(t.Trials, o.Trials)
		if !ok {
			break // all have been tried
		}
		trial, err := tryOut(w, setting, o)
		if err != nil {
			return nil, err
		}
		trial.Default = setting == defaults
		t.Trials = append(t.Trials, trial)
		o.Step(len(t.Trials), o.Trials, &trial)
	}
	if err := playFinal(w, ctx, t, o); err != nil {
		return nil, err
	}
	return t, nil
}

// search gives settings to try, none twice. Each has a place on the list of each knob.
type search struct {
	random *rand.Rand
	seen   map[gph.Setting]bool
	// Values of the knobs, ascending.
	buckets, virtuals, cells, inserts, finds []int
	keys                                     []float64
	first                                    gph.Setting
	most                                     map[int]float64 // keys a cell, by bucket
	load                                     float64
}

func newSearch(info device.Info, defaults gph.Setting, o TuneOptions) (*search, error) {
	s := &search{
		random:  rand.New(rand.NewPCG(o.Seed, 0x9e3779b97f4a7c15)),
		seen:    map[gph.Setting]bool{},
		buckets: []int{4, 8, 16, 32}, virtuals: []int{2, 4, 8, 16, 32}, cells: []int{1, 2},
		inserts: []int{1, 2, 4, 8, 16, 32}, finds: []int{1, 2, 4, 8, 16, 32},
		keys:  []float64{1, 1.5, 2, 3, 4, 6, 8, 10, 12, 16, 20, 25, 32, 40, 50, 64},
		first: defaults, most: map[int]float64{}, load: o.Load,
	}
	if !info.CUDA() { // lanes are fibers, which mostly wait for one another
		s.inserts, s.finds = []int{1}, []int{1, 2, 4}
	}
	for _, m := range s.buckets {
		x, err := gph.Setting{Bucket: m}.Complete(info, o.KeyBytes, o.ValueBytes, o.Load)
		if err != nil {
			return nil, err
		}
		s.most[m] = 2 * x.KeysPerCell
	}
	if !slices.Contains(s.keys, defaults.KeysPerCell) {
		s.keys = append(s.keys, defaults.KeysPerCell)
		slices.Sort(s.keys)
	}
	return s, nil
}

// valid leaves out groups of more lanes than a bucket has slots, for the others would idle; and tables that cannot be filled
// to the load factor, which takes long to find out: by section 6.2 of the paper, where one insert in 33 or more fails, and
// by twice the keys a cell that suffice.
func (s *search) valid(x gph.Setting) bool {
	const slots = 1 << 24
	return x.FindGroup <= x.Bucket && x.InsertGroup <= x.Bucket && x.KeysPerCell <= s.most[x.Bucket] &&
		failure(int(slots*s.load), slots, x.Bucket, x.VirtualBuckets) < 0.03
}

// next is the defaults first, then settings drawn at random until half of the trials are made, then neighbours of the best.
func (s *search) next(done []Trial, trials int) (gph.Setting, bool) {
	if len(done) == 0 {
		s.seen[s.first] = true
		return s.first, true
	}
	if best := winners(done, 1); len(best) > 0 && 2*len(done) >= trials {
		near := slices.DeleteFunc(s.neighbours(best[0].Setting), func(x gph.Setting) bool { return s.seen[x] })
		if len(near) > 0 {
			x := near[s.random.IntN(len(near))]
			s.seen[x] = true
			return x, true
		}
	}
	pick := func(list []int) int { return list[s.random.IntN(len(list))] }
	for range 10_000 {
		x := gph.Setting{Bucket: pick(s.buckets), VirtualBuckets: pick(s.virtuals), CellBytes: pick(s.cells),
			KeysPerCell: s.keys[s.random.IntN(len(s.keys))], InsertGroup: pick(s.inserts), FindGroup: pick(s.finds)}
		if s.valid(x) && !s.seen[x] {
			s.seen[x] = true
			return x, true
		}
	}
	return gph.Setting{}, false
}

// neighbours differ by one step of one knob.
func (s *search) neighbours(x gph.Setting) (near []gph.Setting) {
	add := func(y gph.Setting) {
		if s.valid(y) {
			near = append(near, y)
		}
	}
	for _, k := range []struct {
		values []int
		of     func(*gph.Setting) *int
	}{
		{s.buckets, func(y *gph.Setting) *int { return &y.Bucket }},
		{s.virtuals, func(y *gph.Setting) *int { return &y.VirtualBuckets }},
		{s.cells, func(y *gph.Setting) *int { return &y.CellBytes }},
		{s.inserts, func(y *gph.Setting) *int { return &y.InsertGroup }},
		{s.finds, func(y *gph.Setting) *int { return &y.FindGroup }},
	} {
		at := slices.Index(k.values, *k.of(&x))
		for _, i := range []int{at - 1, at + 1} {
			if at >= 0 && i >= 0 && i < len(k.values) {
				y := x
				*k.of(&y) = k.values[i]
				add(y)
			}
		}
	}
	at := slices.Index(s.keys, x.KeysPerCell)
	for _, i := range []int{at - 1, at + 1} {
		if at >= 0 && i >= 0 && i < len(s.keys) {
			y := x
			y.KeysPerCell = s.keys[i]
			add(y)
		}
	}
	return near
}

// winners are the n best trials that did not lose.
func winners(trials []Trial, n int) []Trial {
	out := slices.DeleteFunc(slices.Clone(trials), func(t Trial) bool { return t.Score == 0 })
	slices.SortStableFunc(out, func(a, b Trial) int { return cmp.Compare(b.Score, a.Score) })
	return out[:min(n, len(out))]
}

// contender is a table in the search.
type contender[K, V workload.Word] struct {
	m    *gph.Map[K, V]
	fill func() error
}

// tryOut measures one setting. What keeps a table from working is its note; only a lost device is an error.
func tryOut[K, V workload.Word](w *bench.Work[K, V], s gph.Setting, o TuneOptions) (t Trial, err error) {
	t.Setting = s
	lose := func(err error) (Trial, error) {
		note, err := bench.Refusal(err)
		t.Note, t.Score = note, 0
		return t, err
	}
	if n := o.N / 32; n >= 1<<16 { // a setting for which inserts hardly end is found out in a small table
		if note, err := pilot(w, s, o, n); err != nil || note != "" {
			if err == nil {
				err = errors.New(note)
			}
			return lose(err)
		}
	}
	c, slots, err := contend(w, s, o.N, o.Load)
	if err != nil {
		return lose(err)
	}
	defer func() { err = errors.Join(err, c.m.Close()) }()
	runs := 1
	if o.Objective != "find" {
		runs = tuneRuns
	}
	insert, err := bench.Timed(w.Device, w.Device.Stream(), runs, c.m.Clear, c.fill)
	if err != nil {
		return lose(err)
	}
	st := w.Device.Stream()
	find, err := bench.Timed(w.Device, st, tuneRuns, nil, func() error { return c.m.FindOn(st, w.Queries, w.Results, w.Found) })
	if err != nil {
		return lose(err)
	}
	if t.Wrong, err = w.Count(); err != nil {
		return lose(err)
	}
	x, err := c.m.Stats()
	if err != nil {
		return lose(err)
	}
	t.Insert, t.Find, t.LoadFactor, t.Bytes = bench.Rate(w.Options.N, insert), bench.Rate(w.Options.Queries, find), x.LoadFactor, x.Bytes
	t.Score = score(w, o, insert, find)
	switch {
	case t.Wrong > 0:
		t.Note = fmt.Sprintf("%d wrong answers: this is a defect of warpmap", t.Wrong)
	case x.Capacity > slots:
		t.Note = fmt.Sprintf("grew from %d slots to %d", slots, x.Capacity)
	}
	if t.Note != "" {
		t.Score = 0
	}
	return t, nil
}

// pilot fills a table with the first n pairs, and says why the setting loses, if it does.
func pilot[K, V workload.Word](w *bench.Work[K, V], s gph.Setting, o TuneOptions, n int) (note string, err error) {
	const rings = 8 // a pair
	c, slots, err := contend(w, s, n, o.Load)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.m.Close()) }()
	if err := c.m.InsertOn(w.Device.Stream(), w.Keys.Slice(0, n), w.Values.Slice(0, n)); err != nil {
		return "", err
	}
	x, err := c.m.IndexStats()
	switch {
	case err != nil:
	case x.Capacity > slots:
		note = fmt.Sprintf("with %d pairs, grew from %d slots to %d", n, slots, x.Capacity)
	case x.Rings > rings*n:
		note = fmt.Sprintf("with %d pairs, inserts examined %d rings", n, x.Rings)
	}
	return note, err
}

// contend makes the table of a setting, and says how many slots it has.
func contend[K, V workload.Word](w *bench.Work[K, V], s gph.Setting, n int, load float64) (c contender[K, V], slots int, err error) {
	c.m, err = gph.New[K, V](w.Device, s.Options(table.Options{Capacity: n, LoadFactor: load}))
	if err != nil {
		return c, 0, err
	}
	c.fill = func() error { return c.m.InsertOn(w.Device.Stream(), w.Keys, w.Values) }
	x, err := c.m.Stats()
	if err != nil {
		c.m.Close()
	}
	return c, x.Capacity, err
}

// score is billions a second of what the objective asks for.
func score[K, V workload.Word](w *bench.Work[K, V], o TuneOptions, insert, find time.Duration) float64 {
	switch o.Objective {
	case "insert":
		return bench.Rate(w.Options.N, insert)
	case "mixed":
		return bench.Rate(w.Options.N+w.Options.Queries, insert+find)
	}
	return bench.Rate(w.Options.Queries, find)
}

// playFinal measures the best trials and the defaults again, in turns, so that a machine that slows down slows all of them; and
// decides.
func playFinal[K, V workload.Word](w *bench.Work[K, V], ctx context.Context, t *Tuning, o TuneOptions) error {
	best := winners(slices.DeleteFunc(slices.Clone(t.Trials), func(x Trial) bool { return x.Default }), finalists)
	if t.Trials[0].Score > 0 {
		best = append(best, t.Trials[0])
	}
	var tables []contender[K, V]
	defer func() {
		for _, c := range tables {
			c.m.Close()
		}
	}()
	for _, x := range best {
		c, _, err := contend(w, x.Setting, o.N, o.Load)
		if err == nil {
			if err = c.fill(); err != nil {
				c.m.Close()
			}
		}
		if err != nil { // of memory for all at once, say
			if _, err = bench.Refusal(err); err != nil {
				return err
			}
			continue
		}
		tables = append(tables, c)
		t.Finals = append(t.Finals, Final{Trial: x})
	}
	st := w.Device.Stream()
	for round := range rounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		for i := range tables {
			i = (i + round) % len(tables) // nobody always comes first
			var insert, find time.Duration
			var err error
			if o.Objective != "find" {
				if insert, err = bench.Timed(w.Device, st, 1, tables[i].m.Clear, tables[i].fill); err != nil {
					return err
				}
			}
			if o.Objective != "insert" {
				if find, err = bench.Timed(w.Device, st, 1, nil, func() error { return tables[i].m.FindOn(st, w.Queries, w.Results, w.Found) }); err != nil {
					return err
				}
			}
			t.Finals[i].Scores = append(t.Finals[i].Scores, score(w, o, insert, find))
		}
		o.Step(round+1, rounds, nil)
	}
	t.decide()
	return nil
}

// decide orders the finals, and takes the best if it beats the defaults: over all, and in all rounds but one.
func (t *Tuning) decide() {
	for i := range t.Finals {
		s := slices.Clone(t.Finals[i].Scores)
		slices.Sort(s)
		t.Finals[i].Median = s[len(s)/2]
	}
	slices.SortStableFunc(t.Finals, func(a, b Final) int { return cmp.Compare(b.Median, a.Median) })
	if len(t.Finals) == 0 || t.Finals[0].Default {
		return
	}
	best := t.Finals[0]
	at := slices.IndexFunc(t.Finals, func(f Final) bool { return f.Default })
	if at >= 0 { // otherwise they lost already
		won := 0
		for i, x := range best.Scores {
			if x > t.Finals[at].Scores[i] {
				won++
			}
		}
		if won < len(best.Scores)-1 {
			return
		}
	}
	t.Best, t.Improved = best.Setting, true
}

// Tuned is the entry of a profile, for a tuning that found something better than the defaults.
func (t *Tuning) Tuned() gph.Tuned {
	out := gph.Tuned{KeyBytes: t.Options.KeyBytes, ValueBytes: t.Options.ValueBytes, LoadFactor: t.Options.Load, Setting: t.Best,
		Objective: t.Options.Objective, Commit: t.Where.Commit, Date: t.Where.Date}
	for _, f := range t.Finals {
		if f.Default {
			out.Default = f.Median
		} else if f.Setting == t.Best {
			out.Rate = f.Median
		}
	}
	return out
}

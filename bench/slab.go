package bench

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/slab"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// The SlabHash paper's study, section VI: pairs of 4+4 bytes, over slab.Map.

const (
	slabSlots = 15  // pairs of 8 bytes in a slab
	slabBytes = 128 // of which a link takes 8
	slabBeta  = 0.7 // the paper's average slab count: a utilization of about 60%
)

// slabsFor is the average length of a chain at an average slab count of beta, if each pair goes to any bucket: pairs of a
// bucket are then distributed by Poisson's law.
func slabsFor(beta float64, slots int) float64 {
	mean := beta * float64(slots)
	sum, p, log := 0.0, 0.0, 0.0
	for x := 0; x < 40 || p > 1e-12 || float64(x) < mean; x++ {
		if x > 0 {
			log += math.Log(float64(x))
		}
		p = math.Exp(float64(x)*math.Log(mean) - mean - log)
		sum += p * float64(max(1, (x+slots-1)/slots))
	}
	return sum
}

// slabUtilization is the paper's memory utilization (§III-C) that beta gives.
func slabUtilization(beta float64) float64 {
	return beta * slabSlots * 8 / (slabBytes * slabsFor(beta, slabSlots))
}

// longestChain is how long, on average, the chains get that fixedSlab can make: a map halves its buckets while one slab in
// sixteen is a base slab.
const longestChain = 11

// betaFor is the beta that gives a utilization, or the largest that fixedSlab can make.
func betaFor(utilization float64) float64 {
	lo, hi := 0.01, longestChain-0.5
	for range 50 {
		if mid := (lo + hi) / 2; slabUtilization(mid) < utilization {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// fixedSlab makes an empty map for n pairs at any beta, which a load factor cannot say over 1, that neither grows nor shrinks.
func fixedSlab(d *device.Device, n int, beta float64) (*slab.Map[uint32, uint32], error) {
	f := fix(max(1, int(float64(n)/(beta*slabSlots)+0.5)), n, slabSlots)
	m, err := slab.New[uint32, uint32](d, f.options())
	if err != nil {
		return nil, err
	}
	if err := f.shrink(m.SlabStats, func(keys []uint32) error { return m.Insert(keys, keys) }, m.Clear); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// fixed is a table whose number of buckets stays: MaxBytes forbids that it grows, and it lets chains get longer by halving its
// buckets, until there are as few as are wanted.
type fixed struct{ buckets, slabs, slots int }

// fix has room for n pairs.
func fix(buckets, n, slots int) fixed {
	first := buckets
	beta := float64(n) / float64(buckets*slots)
	for need := 1.08*slabsFor(beta, slots) + 0.05; 1.5*float64(first) < need*float64(buckets); {
		first *= 2
	}
	return fixed{buckets, (3*first + 1) / 2, slots}
}

func (f fixed) options() slab.Options {
	return slab.Options{Options: table.Options{Capacity: f.slots * f.slabs, LoadFactor: 0.01, MaxBytes: int64(f.slabs+1) * slabBytes}}
}

// shrink fills the table until it has halved its buckets often enough, and clears it.
func (f fixed) shrink(stats func() (slab.Stats, error), insert func(keys []uint32) error, clear func() error) error {
	all := f.slots * f.slabs
	keys := make([]uint32, max(1, all/64))
	for next := 0; next < all; next += len(keys) {
		s, err := stats()
		if err != nil {
			return err
		}
		if s.Buckets <= f.buckets {
			break
		}
		for i := range keys {
			keys[i] = uint32(next + i)
		}
		if err := insert(keys); err != nil {
			var full *table.FullError
			if !errors.As(err, &full) {
				return err
			}
			break
		}
	}
	return clear()
}

// slabRow is one map's rates: build, all hits, no hits.
type slabRow struct {
	build, hits, none float64
	wrong             int
	stats             slab.Stats
}

func measureSlab(w *work[uint32, uint32], m *slab.Map[uint32, uint32]) (r slabRow, err error) {
	if err = w.ask(1, 0); err != nil {
		return r, err
	}
	row, err := w.measure(m)
	if err != nil {
		return r, err
	}
	r.build, r.hits, r.wrong = row.Insert, row.Find, row.Wrong
	if err = w.ask(0, 0); err != nil {
		return r, err
	}
	none, wrong, err := w.find(m)
	if err != nil {
		return r, err
	}
	r.none, r.wrong = none, r.wrong+wrong
	r.stats, err = m.SlabStats()
	return r, err
}

func slabWork(d *device.Device, n int) (*work[uint32, uint32], error) {
	return newWork[uint32, uint32](d, TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: n, Queries: n, Hits: 1, Seed: 1})
}

// slabLoads is Figure 4.
func slabLoads(d *device.Device, o FigOptions) (*Fig, error) {
	slabs := map[string]any{"table": "slab"}
	fig := &Fig{
		Title:   fmt.Sprintf("SlabHash, Figure 4: %d pairs of 4+4 bytes by the average slab count", o.N),
		Columns: []string{"table", "β", "buckets", "slabs a bucket", "utilization", "insert G/s", "find G/s, all hits", "find G/s, no hits", "wrong", "note"},
		Notes: []string{"β: pairs over the slots of the base slabs, as measured; beyond 1 the table has come to MaxBytes, and neither grows nor shrinks",
			cuckooNote + ". Its utilization is its load factor: that of each of slab's rows, and 0.9"},
		Plots: []Plot{
			{Name: "insert", Title: "SlabHash, Figure 4a: inserts into an empty table", X: "utilization", Y: "insert G/s", Series: "table"},
			{Name: "hits", Title: "SlabHash, Figure 4b: look-ups, all hits", X: "utilization", Y: "find G/s, all hits", Series: "table"},
			{Name: "none", Title: "SlabHash, Figure 4b: look-ups, no hits", X: "utilization", Y: "find G/s, no hits", Series: "table"},
			{Name: "utilization", Title: "SlabHash, Figure 4c: memory utilization", X: "β", Y: "utilization", Only: slabs},
		},
	}
	w, err := slabWork(d, o.N)
	if err != nil {
		return nil, err
	}
	defer w.free()
	cuckoo := func(load float64) (r slabRow, err error) {
		o.Step(fmt.Sprintf("cuckoo at a load factor of %v", load))
		r, note, err := measureCuckoo(w, load)
		if err != nil {
			note, err := refusal(err)
			fig.add("cuckoo", nil, nil, nil, load, nil, nil, nil, nil, note)
			return slabRow{}, err
		}
		fig.add("cuckoo", nil, nil, nil, load, round(r.build), round(r.hits), round(r.none), r.wrong, note)
		return r, nil
	}
	var faster against
	for _, beta := range []float64{0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3} {
		o.Step(fmt.Sprintf("β = %v", beta))
		r, err := slabAt(w, beta)
		if err != nil {
			note, err := refusal(err)
			if err != nil {
				return nil, err
			}
			fig.add("slab", beta, nil, nil, nil, nil, nil, nil, nil, note)
			continue
		}
		u := round(r.stats.Utilization)
		fig.add("slab", round(r.stats.AverageSlabCount), r.stats.Buckets, round(r.stats.SlabsPerBucket), u,
			round(r.build), round(r.hits), round(r.none), r.wrong, "")
		other, err := cuckoo(u)
		if err != nil {
			return nil, err
		}
		if other.build > 0 {
			faster.add(other, r)
		}
	}
	if _, err := cuckoo(0.9); err != nil {
		return nil, err
	}
	fig.Notes = append(fig.Notes, faster.String())
	return fig, nil
}

func slabAt(w *work[uint32, uint32], beta float64) (r slabRow, err error) {
	var m *slab.Map[uint32, uint32]
	if beta <= 1 {
		m, err = slab.New[uint32, uint32](w.d, slab.Options{Options: table.Options{Capacity: w.o.N, LoadFactor: beta}})
	} else {
		m, err = fixedSlab(w.d, w.o.N, beta)
	}
	if err != nil {
		return r, err
	}
	r, err = measureSlab(w, m)
	return r, errors.Join(err, m.Close())
}

// slabSizes is Figure 5: o.N is the largest of the sizes.
func slabSizes(d *device.Device, o FigOptions) (*Fig, error) {
	load := slabUtilization(slabBeta)
	fig := &Fig{
		Title:   fmt.Sprintf("SlabHash, Figure 5: up to %d pairs of 4+4 bytes, β = %v", o.N, slabBeta),
		Columns: []string{"pairs", "table", "utilization", "insert G/s", "find G/s, all hits", "find G/s, no hits", "wrong", "note"},
		Notes:   []string{cuckooNote},
		Plots: []Plot{
			{Name: "insert", Title: "SlabHash, Figure 5a: inserts into an empty table", X: "pairs", Y: "insert G/s", Series: "table", LogX: true},
			{Name: "hits", Title: "SlabHash, Figure 5b: look-ups, all hits", X: "pairs", Y: "find G/s, all hits", Series: "table", LogX: true},
			{Name: "none", Title: "SlabHash, Figure 5b: look-ups, no hits", X: "pairs", Y: "find G/s, no hits", Series: "table", LogX: true},
		},
	}
	var faster against
	for half := 11; half >= 0; half-- { // 2^16 to 2^27
		n := o.N >> half
		if n == 0 {
			continue
		}
		o.Step(fmt.Sprintf("%d pairs", n))
		var both [2]slabRow
		err := slabOf(d, n, func(i int, r slabRow, note string, err error) error {
			kind := []string{"slab", "cuckoo"}[i]
			if err != nil {
				note, err := refusal(err)
				fig.add(n, kind, nil, nil, nil, nil, nil, note)
				return err
			}
			u := r.stats.Utilization
			if kind == "cuckoo" {
				u = load
			}
			both[i] = r
			fig.add(n, kind, round(u), round(r.build), round(r.hits), round(r.none), r.wrong, note)
			return nil
		})
		if err != nil {
			return nil, err
		}
		if both[0].build > 0 && both[1].build > 0 {
			faster.add(both[1], both[0])
		}
	}
	fig.Notes = append(fig.Notes, faster.String())
	return fig, nil
}

// slabOf measures slab and cuckoo with n pairs, and hands both to done.
func slabOf(d *device.Device, n int, done func(i int, r slabRow, note string, err error) error) error {
	w, err := slabWork(d, n)
	if err != nil {
		return errors.Join(done(0, slabRow{}, "", err), done(1, slabRow{}, "", err))
	}
	defer w.free()
	r, err := slabAt(w, slabBeta)
	if err := done(0, r, "", err); err != nil {
		return err
	}
	r, note, err := measureCuckoo(w, slabUtilization(slabBeta))
	return done(1, r, note, err)
}

// slabIncremental is Figure 6: batches of 1/64, 1/32 and 1/16 of o.N pairs (of 2 million: 32k, 64k, 128k).
func slabIncremental(d *device.Device, o FigOptions) (*Fig, error) {
	const final = 0.65 // utilization, and load factor
	fig := &Fig{
		Title:   fmt.Sprintf("SlabHash, Figure 6: %d pairs of 4+4 bytes in batches, inserted or rebuilt from scratch", o.N),
		Columns: []string{"batch", "table", "pairs", "total ms", "slab is faster", "wrong", "note"},
		Notes: []string{fmt.Sprintf("slab: batches inserted into one table that ends at a utilization of %v; others: tables of a load factor of %v "+
			"at the end, cleared for each batch and filled with all pairs so far; cuckoo has that load factor each time", final, final), cuckooNote},
		Plots: []Plot{{Title: "SlabHash, Figure 6: time for all batches", X: "pairs", Y: "total ms", Series: "table", Facet: "batch", LogY: true}},
	}
	w, err := slabWork(d, o.N)
	if err != nil {
		return nil, err
	}
	defer w.free()
	for _, part := range []int{64, 32, 16} {
		batch := max(1, (o.N+part-1)/part)
		var slabTimes []time.Duration
		for _, kind := range []string{"slab", "warpcore", "gph", "cuckoo"} {
			o.Step(fmt.Sprintf("batches of %d: %s", batch, kind))
			load := final
			if kind == "slab" {
				load = min(1, betaFor(final))
			}
			ends, times, wrong, err := incremental(w, kind, load, batch)
			if err != nil {
				note, err := refusal(err)
				if err != nil {
					return nil, err
				}
				fig.add(batch, kind, nil, nil, nil, nil, note)
				continue
			}
			if kind == "slab" {
				slabTimes = times
			}
			every := max(1, len(ends)/16)
			for i := range ends {
				if (i+1)%every != 0 && i+1 != len(ends) {
					continue
				}
				var faster any
				if kind != "slab" && slabTimes != nil {
					faster = round(float64(times[i]) / max(1, float64(slabTimes[i])))
				}
				fig.add(batch, kind, ends[i], round(float64(times[i])/1e6), faster, wrong, "")
			}
		}
	}
	return fig, nil
}

// batched is a table that batches are inserted into.
type batched interface {
	Clear() error
	InsertOn(st *device.Stream, keys, values device.Slice[uint32]) error
	FindOn(st *device.Stream, keys, values device.Slice[uint32], found device.Slice[bool]) error
	Close() error
}

func newBatched(d *device.Device, kind string, n int, load float64) (batched, error) {
	if kind == "cuckoo" {
		return newCuckoo(d, n, load)
	}
	return warpmap.New[uint32, uint32](d, table.Family(kind), table.Options{Capacity: n, LoadFactor: load})
}

// incremental times all batches, of the run of median time: the time until each was in. slab gets each batch; other
// tables are rebuilt.
func incremental(w *work[uint32, uint32], kind string, load float64, batch int) (ends []int, times []time.Duration, wrong int, err error) {
	st, n := w.d.Stream(), w.o.N
	m, err := newBatched(w.d, kind, n, load)
	if err != nil {
		return nil, nil, 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	for end := batch; end-batch < n; end += batch {
		ends = append(ends, min(end, n))
	}
	events := make([]*device.Event, len(ends)+1)
	for i := range events {
		if events[i], err = w.d.NewEvent(); err != nil {
			return nil, nil, 0, err
		}
		defer events[i].Close()
	}
	var all [][]time.Duration
	for run := range Runs + 1 {
		if err := errors.Join(m.Clear(), st.Sync(), events[0].Record(st)); err != nil {
			return nil, nil, 0, err
		}
		first := 0
		for i, end := range ends {
			if kind != "slab" {
				if err := m.Clear(); err != nil {
					return nil, nil, 0, err
				}
				first = 0
			}
			if err := m.InsertOn(st, w.keys.Slice(first, end), w.values.Slice(first, end)); err != nil {
				return nil, nil, 0, err
			}
			if err := events[i+1].Record(st); err != nil {
				return nil, nil, 0, err
			}
			first = end
		}
		if err := st.Sync(); err != nil {
			return nil, nil, 0, err
		}
		one := make([]time.Duration, len(ends))
		for i := range ends {
			if one[i], err = events[i+1].Since(events[0]); err != nil {
				return nil, nil, 0, err
			}
		}
		if run > 0 {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b []time.Duration) int { return int(a[len(a)-1] - b[len(b)-1]) })
	if err := m.FindOn(st, w.queries, w.results, w.found); err != nil {
		return nil, nil, 0, err
	}
	wrong, err = w.count(st)
	return ends, all[len(all)/2], wrong, err
}

// Shares of inserts of new keys, deletes of present keys, searches of present, and of absent keys.
var slabGammas = []struct {
	name   string
	shares [4]float64
}{
	{"Γ0", [4]float64{0.5, 0.5, 0, 0}},
	{"Γ1", [4]float64{0.2, 0.2, 0.3, 0.3}},
	{"Γ2", [4]float64{0.1, 0.1, 0.4, 0.4}},
}

const gammaNote = "Γ: shares of inserts of new keys, deletes of keys that are there, searches of keys that are there, and of keys that are not: Γ0 (0.5, 0.5, 0, 0), Γ1 (0.2, 0.2, 0.3, 0.3), Γ2 (0.1, 0.1, 0.4, 0.4)"

// slabMixed is Figure 7a: o.N pairs to begin with, and batches of as many operations.
func slabMixed(d *device.Device, o FigOptions) (*Fig, error) {
	fig := &Fig{
		Title:   fmt.Sprintf("SlabHash, Figure 7a: mixed batches of %d operations on as many pairs of 4+4 bytes", o.N),
		Columns: []string{"Γ", "utilization", "β", "slabs a bucket", "mixed G/s", "utilization after", "wrong", "note"},
		Notes: []string{gammaNote,
			"utilization: before the first batch; wrong: operations with another status or value than must come of them, and pairs too many or too few in the end",
			"maps neither grow nor shrink; flushes of deleted pairs, which the default policy makes at the end of a batch, are part of the time"},
		Plots: []Plot{{Title: "SlabHash, Figure 7a: mixed batches", X: "utilization", Y: "mixed G/s", Series: "Γ"}},
	}
	batches := make([]*mixing, Runs+1)
	for i := range batches {
		x, err := newMixing(d, o.N)
		if err != nil {
			return nil, err
		}
		defer x.free()
		batches[i] = x
	}
	for _, g := range slabGammas {
		for _, u := range []float64{0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9} {
			o.Step(fmt.Sprintf("%s at a utilization of %v", g.name, u))
			row, err := measureMixed(d, batches, betaFor(u), g.shares)
			if err != nil {
				note, err := refusal(err)
				if err != nil {
					return nil, err
				}
				row = []any{u, nil, nil, nil, nil, nil, note}
			}
			fig.add(append([]any{g.name}, row...)...)
		}
	}
	return fig, nil
}

// mixing is the data of mixed batches, here and on the device.
type mixing struct {
	d       *device.Device
	n       int
	kinds   workload.Keys
	host    mixingHost
	ops     device.Slice[table.Op]
	keys    device.Slice[uint32]
	values  device.Slice[uint32]
	results device.Slice[uint32]
	status  device.Slice[table.Status]
}

type mixingHost struct {
	ops          []table.Op
	keys, values []uint32
	kinds        []uint8 // 0 to 3, as the shares
	present      []uint32
	deleted      []uint32
}

func newMixing(d *device.Device, n int) (x *mixing, err error) {
	x = &mixing{d: d, n: n}
	if x.kinds, err = workload.NewKeys("rand", 4, 1); err != nil {
		return nil, err
	}
	x.host = mixingHost{ops: make([]table.Op, n), keys: make([]uint32, n), values: make([]uint32, n), kinds: make([]uint8, n)}
	var errs [5]error
	x.ops, errs[0] = device.Make[table.Op](d, n)
	x.keys, errs[1] = device.Make[uint32](d, n)
	x.values, errs[2] = device.Make[uint32](d, n)
	x.results, errs[3] = device.Make[uint32](d, n)
	x.status, errs[4] = device.Make[table.Status](d, n)
	if err := errors.Join(errs[:]...); err != nil {
		x.free()
		return nil, err
	}
	return x, nil
}

func (x *mixing) free() {
	for _, s := range []interface {
		Free() error
		Addr() uint64
	}{x.ops, x.keys, x.values, x.results, x.status} {
		if s.Addr() != 0 {
			s.Free()
		}
	}
}

func valueOf(key uint32) uint32 { return uint32(workload.Value(uint64(key))) }

// next makes a batch: new keys from index fresh on. It returns how many are new; present is what is there afterwards.
func (h *mixingHost) next(kinds workload.Keys, rng *rand.Rand, shares [4]float64, fresh int) (inserts int) {
	var left [4]int
	n := len(h.ops)
	rest := n
	for i, s := range shares[:3] {
		left[i] = min(rest, int(s*float64(n)+0.5))
		rest -= left[i]
	}
	left[3] = rest
	if shares[3] == 0 { // what rounding left
		left[0], left[3] = left[0]+left[3], 0
	}
	left[1] = min(left[1], len(h.present))
	inserts = n - left[1] - left[2] - left[3]
	left[0] = inserts
	h.deleted = h.deleted[:0]
	for range left[1] { // first: no search asks for them
		j, last := rng.IntN(len(h.present)), len(h.present)-1
		h.deleted = append(h.deleted, h.present[j])
		h.present[j] = h.present[last]
		h.present = h.present[:last]
	}
	there := h.present
	for i := range n {
		kind, draw := 0, rng.IntN(n-i)
		for draw >= left[kind] {
			draw -= left[kind]
			kind++
		}
		left[kind]--
		h.kinds[i] = uint8(kind)
		switch {
		case kind == 0:
			h.ops[i], h.keys[i] = table.OpInsert, uint32(kinds.At(uint64(fresh)))
			fresh++
			h.present = append(h.present, h.keys[i])
		case kind == 1:
			h.ops[i], h.keys[i] = table.OpDelete, h.deleted[left[1]]
		case kind == 2 && len(there) > 0:
			h.ops[i], h.keys[i] = table.OpFind, there[rng.IntN(len(there))]
		default: // of the upper half of the indices nothing is ever inserted
			h.kinds[i] = 3
			h.ops[i], h.keys[i] = table.OpFind, uint32(kinds.At(1<<31+rng.Uint64N(1<<31)))
		}
		h.values[i] = valueOf(h.keys[i])
	}
	return inserts
}

// mixedStatus is what must come of each kind of operation.
var mixedStatus = [4]table.Status{table.Added, table.Present, table.Present, table.Absent}

// wrong counts the operations of the last batch of which something else came.
func (x *mixing) wrong(st *device.Stream) (wrong int, err error) {
	status, err := x.status.Host(st)
	if err != nil {
		return 0, err
	}
	results, err := x.results.Host(st)
	if err != nil {
		return 0, err
	}
	return x.host.unexpected(status, results), nil
}

func (h *mixingHost) unexpected(status []table.Status, results []uint32) (n int) {
	for i, kind := range h.kinds {
		value := uint32(0)
		if kind == 2 {
			value = h.values[i]
		}
		if status[i] != mixedStatus[kind] || results[i] != value {
			n++
		}
	}
	return n
}

// measureMixed fills a map, makes batches, and runs them in it one after the other: the first to warm up, and of the others
// the median counts.
func measureMixed(d *device.Device, batches []*mixing, beta float64, shares [4]float64) (row []any, err error) {
	m, err := fixedSlab(d, batches[0].n, beta)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	st, x := d.Stream(), batches[0]
	workload.Pairs(x.kinds, x.host.keys, x.host.values)
	present := append(x.host.present[:0], x.host.keys...)
	if err := errors.Join(x.keys.Write(st, x.host.keys), x.values.Write(st, x.host.values), m.InsertOn(st, x.keys, x.values)); err != nil {
		return nil, err
	}
	before, err := m.SlabStats()
	if err != nil {
		return nil, err
	}
	rng, fresh := rand.New(rand.NewPCG(1, uint64(x.n))), x.n
	for _, x := range batches {
		h := &x.host
		h.present = present
		fresh += h.next(x.kinds, rng, shares, fresh)
		present = h.present
		if err := errors.Join(x.ops.Write(st, h.ops), x.keys.Write(st, h.keys), x.values.Write(st, h.values)); err != nil {
			return nil, err
		}
	}
	run := 0
	t, err := timed(d, st, len(batches)-1, nil, func() error {
		x := batches[run]
		run++
		return m.MixedOn(st, x.ops, x.keys, x.values, x.results, x.status)
	})
	if err != nil {
		return nil, err
	}
	after, err := m.SlabStats()
	if err != nil {
		return nil, err
	}
	wrong := max(after.Len-len(present), len(present)-after.Len)
	for _, x := range batches {
		bad, err := x.wrong(st)
		if err != nil {
			return nil, err
		}
		wrong += bad
	}
	return []any{round(before.Utilization), round(before.AverageSlabCount), round(before.SlabsPerBucket), round(rate(x.n, t)),
		round(after.Utilization), wrong, ""}, nil
}

// AllocateParams are the parameters of allocateCU.
type AllocateParams struct {
	Alloc slab.Alloc
	Names uint64 // u32, one for each of N
	N     uint64
}

// allocateCU takes one slab for each thread, and gives them back.
const allocateCU = `
#include "alloc.cuh"
using namespace slab;
typedef SlabAlloc<SLAB_LIGHT> Memory;

WARPMAP_KERNEL(allocate_all, bench::AllocateParams) {
    Resident r;
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) at<u32>(p.names)[i] = Memory::allocate(p.alloc, r);
}
WARPMAP_KERNEL(release_all, bench::AllocateParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads())
        if (at<u32>(p.names)[i] != NONE) Memory::release(p.alloc, at<u32>(p.names)[i]);
}
`

// slabAlloc measures SlabAlloc on its own (§V): o.N slabs, one a thread, from pools of several sizes.
func slabAlloc(d *device.Device, o FigOptions) (*Fig, error) {
	fig := &Fig{
		Title:   fmt.Sprintf("SlabAlloc: %d slabs of 128 bytes, one a thread", o.N),
		Columns: []string{"allocator", "pool, times as many", "slabs", "allocate G/s", "release G/s", "wrong", "note"},
		Notes: []string{"wrong: threads that got no slab, or another's",
			fmt.Sprintf("malloc: as many blocks of %d bytes; of CUDA's, the pool is the context's heap", slabBytes)},
		Plots: []Plot{
			{Name: "allocate", Title: "SlabAlloc: one slab a thread", X: "pool, times as many", Y: "allocate G/s", Series: "allocator", LogX: true},
			{Name: "release", Title: "SlabAlloc: slabs given back", X: "pool, times as many", Y: "release G/s", Series: "allocator", LogX: true},
		},
	}
	for _, light := range []bool{false, true} {
		name := "SlabAlloc"
		if light {
			name = "SlabAlloc-light"
		}
		for _, times := range []float64{1.25, 2, 4, 8} {
			o.Step(fmt.Sprintf("%s, %v times as many slabs", name, times))
			row, err := allocate(d, o.N, int(times*float64(o.N))+1, light)
			if err != nil {
				note, err := refusal(err)
				if err != nil {
					return nil, err
				}
				row = []any{nil, nil, nil, nil, note}
			}
			fig.add(append([]any{name, times}, row...)...)
		}
	}
	o.Step("malloc")
	row, err := mallocRow(d, o.N)
	note := ""
	if err != nil {
		if note, err = refusal(err); err != nil {
			return nil, err
		}
	}
	fig.add(append(row, note)...)
	return fig, nil
}

func allocate(d *device.Device, n, slabs int, light bool) (row []any, err error) {
	a, err := slab.NewAllocator(d, slab.AllocatorOptions{Slabs: slabs, Light: light})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	m, err := d.Compile(a.Program("allocate", allocateCU, AllocateParams{}))
	if err != nil {
		return nil, err
	}
	take, err := device.KernelOf[AllocateParams](m, "allocate_all")
	if err != nil {
		return nil, err
	}
	give, err := device.KernelOf[AllocateParams](m, "release_all")
	if err != nil {
		return nil, err
	}
	list, err := device.Make[uint32](d, n)
	if err != nil {
		return nil, err
	}
	defer list.Free()
	st, grid := d.Stream(), device.GridFor(int64(n), 256)
	p := AllocateParams{Alloc: a.Use(), Names: list.Addr(), N: uint64(n)}
	allocate := func() error { return take.Launch(st, grid, &p) }
	in, err := timed(d, st, Runs, a.Reset, allocate)
	if err != nil {
		return nil, err
	}
	names, err := list.Host(st)
	if err != nil {
		return nil, err
	}
	wrong := 0
	slices.Sort(names)
	for i, name := range names {
		if name == math.MaxUint32 || i > 0 && name == names[i-1] {
			wrong++
		}
	}
	out, err := timed(d, st, Runs, func() error { return errors.Join(a.Reset(), allocate()) }, func() error { return give.Launch(st, grid, &p) })
	if err != nil {
		return nil, err
	}
	return []any{a.Slabs(), round(rate(n, in)), round(rate(n, out)), wrong, ""}, nil
}

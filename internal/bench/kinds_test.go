package bench_test

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// goCounter counts in Go, and every lose-th addition not; 0: none is lost.
type goCounter[C uint32 | uint64] struct {
	table.Counter[uint32, C]
	counts map[uint32]C
	added  int
	lose   int
}

func (c *goCounter[C]) AddOn(st *device.Stream, keys device.Slice[uint32]) error {
	k, err := keys.Host(st)
	for _, x := range k {
		if c.added++; c.lose == 0 || c.added%c.lose != 0 {
			c.counts[x]++
		}
	}
	return err
}

func (c *goCounter[C]) FindOn(st *device.Stream, keys device.Slice[uint32], counts device.Slice[C], found device.Slice[bool]) error {
	k, err := keys.Host(st)
	n, in := make([]C, len(k)), make([]bool, len(k))
	for i, x := range k {
		n[i], in[i] = c.counts[x], c.counts[x] > 0
	}
	return errors.Join(err, counts.Write(st, n), found.Write(st, in))
}

func (c *goCounter[C]) Clear() error { clear(c.counts); return nil }
func (c *goCounter[C]) Close() error { return nil }
func (c *goCounter[C]) Stats() (table.Stats, error) {
	return table.Stats{Len: len(c.counts), Bytes: 1 << 16}, nil
}

// measured is the only row of a table of the CPU device.
func measured[V uint32 | uint64](t *testing.T, o bench.TableOptions, make bench.Make[uint32, V]) bench.Row {
	t.Helper()
	o.KeyBytes, o.Seed, o.Loads = 4, 1, []float64{0.8}
	rows, err := bench.Table(benchtest.CPU(t), o, make)
	if err != nil {
		t.Fatal(err)
	}
	return rows[0]
}

func TestCounterCountsAreVerified(t *testing.T) {
	for _, o := range []bench.TableOptions{
		{Keys: "rand", Distinct: 300, Queries: 2000, Hits: 0.5}, {Keys: "zipf:1", Distinct: 3000, Queries: 2000, Hits: 0.9},
		{Keys: "rand", Distinct: 1}, {Keys: "rand", Distinct: 3000, Batch: 70},
	} {
		o.N = 3000
		countTest[uint32](t, o)
		countTest[uint64](t, o)
	}
	_, err := bench.Table(benchtest.CPU(t), bench.TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: 9, Queries: 9, Loads: []float64{1}},
		func(w *bench.Work[uint32, uint32], _ float64) (bench.Subject, error) {
			return bench.Counter(w, &goCounter[uint32]{})
		})
	if !errors.Is(err, bench.ErrNotDrawn) {
		t.Errorf("keys that come once each: %v", err)
	}
}

func countTest[C uint32 | uint64](t *testing.T, o bench.TableOptions) {
	t.Helper()
	o.ValueBytes = 4
	if uint64(^C(0)) > math.MaxUint32 {
		o.ValueBytes = 8
	}
	for _, lose := range []int{0, 500} {
		c := &goCounter[C]{counts: map[uint32]C{}, lose: lose}
		row := measured(t, o, func(w *bench.Work[uint32, C], _ float64) (bench.Subject, error) { return bench.Counter(w, c) })
		if (row.Wrong > 0) != (lose > 0) || row.Insert <= 0 || row.Find <= 0 || row.InsertShare <= 0 {
			t.Errorf("%+v, every %dth addition lost: %+v", o, lose, row)
		}
		sum := C(0)
		for n := range maps.Values(c.counts) {
			sum += n
		}
		if lose == 0 && int(sum) != o.N || len(c.counts) > o.Distinct {
			t.Errorf("%+v: %d keys came %d times", o, len(c.counts), sum)
		}
	}
}

// Zipf's first key comes most often; keys that are drawn, each as likely, about as often as others.
func TestKeysAreDrawn(t *testing.T) {
	for keys, most := range map[string][2]int{"rand": {60, 160}, "zipf:1": {1200, 2300}} {
		c := &goCounter[uint32]{counts: map[uint32]uint32{}}
		measured(t, bench.TableOptions{Keys: keys, ValueBytes: 4, N: 10_000, Distinct: 100}, func(w *bench.Work[uint32, uint32], _ float64) (bench.Subject, error) {
			if w.Options.Queries != 100 {
				t.Errorf("%s: %d keys of 100 came", keys, w.Options.Queries)
			}
			return bench.Counter(w, c)
		})
		if n := c.counts[kernel.Fmix32(0x9e3779b9)]; int(n) < most[0] || int(n) > most[1] {
			t.Errorf("%s: the first key came %d times, want %v", keys, n, most)
		}
	}
}

// goFilter holds the lower bits of keys' hashes, and loses every lose-th key; 0: none.
type goFilter struct {
	table.Filter[uint32]
	bits []bool
	n    int
	lose int
}

func (f *goFilter) at(key uint32) *bool { return &f.bits[kernel.Fmix32(key+1)%uint32(len(f.bits))] }

func (f *goFilter) InsertOn(st *device.Stream, keys device.Slice[uint32]) error {
	k, err := keys.Host(st)
	for _, x := range k {
		if f.n++; f.lose == 0 || f.n%f.lose != 0 {
			*f.at(x) = true
		}
	}
	return err
}

func (f *goFilter) ContainsOn(st *device.Stream, keys device.Slice[uint32], found device.Slice[bool]) error {
	k, err := keys.Host(st)
	in := make([]bool, len(k))
	for i, x := range k {
		in[i] = *f.at(x)
	}
	return errors.Join(err, found.Write(st, in))
}

func (f *goFilter) Clear() error { clear(f.bits); return nil }
func (f *goFilter) Close() error { return nil }
func (f *goFilter) Stats() (table.FilterStats, error) {
	set := int64(frame.Count(f.bits))
	return table.FilterStats{Bits: int64(len(f.bits)), BitsSet: set, Bytes: int64(len(f.bits)) / 8, Rate: float64(set) / float64(len(f.bits))}, nil
}

func TestFilterIsVerified(t *testing.T) {
	const n = 3000
	for _, lose := range []int{0, 500} {
		f := &goFilter{bits: make([]bool, 8*n), lose: lose}
		row := measured(t, bench.TableOptions{Keys: "rand", ValueBytes: 4, N: n, Queries: 4 * n, Hits: 1},
			func(w *bench.Work[uint32, uint32], _ float64) (bench.Subject, error) { return bench.Filter(w, f) })
		x := row.Filter
		if (row.Wrong > 0) != (lose > 0) || row.Insert <= 0 || row.Find <= 0 || row.FindShare <= 0 || x == nil || x.Absent <= 0 {
			t.Fatalf("every %dth key lost: %+v", lose, row)
		}
		if math.Abs(x.FalsePositives-x.Estimate) > 0.02 || x.BitsPerKey != 8 || math.Abs(x.Ideal-0.0214) > 0.0001 || math.Abs(row.Filled-x.Estimate) > 1e-9 {
			t.Errorf("rates: %+v, filled %v", x, row.Filled)
		}
	}
	_, err := bench.Table(benchtest.CPU(t), bench.TableOptions{Keys: "line", KeyBytes: 4, ValueBytes: 4, N: 9, Queries: 9, Loads: []float64{1}},
		func(w *bench.Work[uint32, uint32], _ float64) (bench.Subject, error) {
			return bench.Filter(w, &goFilter{})
		})
	if err == nil {
		t.Error("keys that may be there by chance are taken for absent ones")
	}
}

// What sets and multimaps alone do is measured and verified, whichever way keys come.
func TestSetsAndMultiMaps(t *testing.T) {
	for _, o := range []bench.TableOptions{
		{Keys: "rand", Queries: 3000, Hits: 0.5}, {Keys: "line", Queries: 3000, Hits: 0.5, Batch: 300},
		{Keys: "sequential", Distinct: 250}, {Keys: "zipf:0.9", Distinct: 2000, Queries: 3000, Hits: 0.5}, {Keys: "rand", Distinct: 25},
		{Keys: "rand"}, {Keys: "line", Each: 4},
	} {
		o.N, o.ValueBytes = 2000, 4
		for _, family := range warpmap.Families(table.KindSet) {
			row := measured(t, o, func(w *bench.Work[uint32, uint32], load float64) (bench.Subject, error) {
				s, err := warpmap.NewSet[uint32](w.Device, family, table.Options{Capacity: o.N, LoadFactor: load})
				return bench.Set(w, s), err
			})
			if row.Wrong != 0 || row.Insert <= 0 || row.InsertAdded <= 0 || row.Find <= 0 || row.Delete <= 0 {
				t.Errorf("set of %s, %+v: %+v", family, o, row)
			}
		}
		for _, kind := range table.MultiMapKinds() {
			for _, family := range warpmap.Families(kind) {
				row := measured(t, o, func(w *bench.Work[uint32, uint32], load float64) (bench.Subject, error) {
					base := table.Options{Capacity: o.N, LoadFactor: load}
					m, err := warpmap.NewMultiMapOf[uint32, uint32](w.Device, kind, family, table.MultiMapOptions{Options: base, Keys: w.Different()})
					return bench.MultiMap(w, m), err
				})
				if row.Wrong != 0 || row.Insert <= 0 || row.Find <= 0 || row.Count <= 0 || o.Distinct > 0 && o.Queries == 0 && row.Asked > o.Distinct {
					t.Errorf("%v of %s, %+v: %+v", kind, family, o, row)
				}
				if (row.Build > 0) != (kind == table.KindBucketList) {
					t.Errorf("%v of %s is built at %v G/s", kind, family, row.Build)
				}
				if each := row.Values / row.Find; o.Queries == 0 && o.Keys != "line" && math.Abs(each-2000/float64(row.Asked)) > 1e-6 {
					t.Errorf("%v of %s, %+v: %v values a key", kind, family, o, each)
				}
			}
		}
	}
}

// slack is a cache that leaves keys out, or is wrong about values.
type slack struct {
	*cache.Cache[uint32, uint32]
	about string
}

func (m slack) InsertOutOn(st *device.Stream, keys, values, scores device.Slice[uint32],
	out cache.Out[uint32, uint32]) error {
	if m.about == "an insert" {
		keys, values = keys.Slice(1, keys.Len()), values.Slice(1, keys.Len())
	}
	return m.Cache.InsertOutOn(st, keys, values, scores, out)
}

func (m slack) FindQuietOn(st *device.Stream, keys, values device.Slice[uint32], found device.Slice[bool]) error {
	if err := m.Cache.FindQuietOn(st, keys, values, found); err != nil || m.about != "a quiet look-up" {
		return err
	}
	return found.Slice(0, 1).Write(st, []bool{false})
}

func (m slack) FindOn(st *device.Stream, keys, values device.Slice[uint32], found device.Slice[bool]) error {
	if err := m.Cache.FindOn(st, keys, values, found); err != nil || m.about != "a look-up" {
		return err
	}
	return values.Slice(0, 1).Fill(st, 1)
}

// Inserts into a full cache send others out, and what a cache answers is verified.
func TestCachesAreVerified(t *testing.T) {
	for _, o := range []bench.TableOptions{{Batch: 200, Hits: 0.5}, {Batch: 3000, Hits: 1}} {
		o.Keys, o.N, o.ValueBytes, o.Queries = "rand", 3000, 4, 2000
		for _, about := range []string{"", "an insert", "a look-up", "a quiet look-up"} {
			row := measured(t, o, func(w *bench.Work[uint32, uint32], _ float64) (bench.Subject, error) {
				c, err := warpmap.NewCache[uint32, uint32](w.Device, cache.Options{Capacity: 600, Seed: 1})
				if err != nil {
					return bench.Subject{}, err
				}
				return bench.Cache(w, slack{c, about})
			})
			x := row.Cache
			if (row.Wrong > 0) != (about != "") || x == nil || x.Quiet <= 0 || x.Absent <= 0 || x.Told <= 0 ||
				x.Overwrite <= 0 || row.Insert <= 0 || row.Find <= 0 {
				t.Fatalf("wrong about %q, %+v: %+v, %+v", about, o, row, x)
			}
			if about == "" && (x.Evicted < 0.9 || row.Filled < 0.98) {
				t.Errorf("%v of the inserts sent a pair out, of a cache filled to %v", x.Evicted, row.Filled)
			}
		}
	}
}

// forgetful is a bucket list that, made from all its pairs at once, lacks one.
type forgetful struct {
	*warpcore.BucketList[uint32, uint32]
}

func (f forgetful) BuildOn(st *device.Stream, keys, values device.Slice[uint32]) error {
	return f.BucketList.BuildOn(st, keys.Slice(1, keys.Len()), values.Slice(1, keys.Len()))
}

func TestBuiltMultiMapsAreVerified(t *testing.T) {
	o := bench.TableOptions{Keys: "rand", ValueBytes: 4, N: 500, Distinct: 50}
	list := func(w *bench.Work[uint32, uint32]) forgetful {
		m, err := warpcore.NewBucketList[uint32, uint32](w.Device, warpcore.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return forgetful{m}
	}
	for what, make := range map[string]bench.Make[uint32, uint32]{
		"built beside": func(w *bench.Work[uint32, uint32], _ float64) (bench.Subject, error) {
			return bench.MultiMap(w, list(w)), nil
		},
		"built in place": func(w *bench.Work[uint32, uint32], _ float64) (bench.Subject, error) {
			return bench.BuiltMultiMap(w, list(w))
		},
	} {
		if row := measured(t, o, make); row.Wrong != 1 || row.Insert <= 0 {
			t.Errorf("%s: %d wrong answers of one", what, row.Wrong)
		}
	}
}

// Where keys are drawn, any value that came with a key is right, and no other.
func TestMapsOfDrawnKeys(t *testing.T) {
	for _, o := range []bench.TableOptions{{Distinct: 1}, {Distinct: 300, Batch: 200}, {Distinct: 2000, Keys: "zipf:1"}} {
		o.N, o.Queries, o.Hits, o.ValueBytes, o.Keys = 2000, 2000, 0.5, 4, cmp.Or(o.Keys, "rand")
		for _, family := range warpmap.Families(table.KindMap) {
			for off := range uint32(2) {
				row := measured(t, o, func(w *bench.Work[uint32, uint32], load float64) (bench.Subject, error) {
					m, err := bench.NewMap(w.Device, family, table.Options{Capacity: w.Options.Room(), LoadFactor: load})
					return w.Map(inexact{m, off * 2000}), err
				})
				if (row.Wrong > 0) != (off > 0) || row.Insert <= 0 {
					t.Errorf("%s, %+v, values off by %d: %+v", family, o, off*2000, row)
				}
			}
		}
	}
}

// inexact is a map whose values are off by something.
type inexact struct {
	table.Map[uint32, uint32]
	by uint32
}

func (m inexact) FindOn(st *device.Stream, keys, values device.Slice[uint32], found device.Slice[bool]) error {
	if err := m.Map.FindOn(st, keys, values, found); err != nil || m.by == 0 {
		return err
	}
	v, e1 := values.Host(st)
	f, e2 := found.Host(st)
	for i := range v {
		if f[i] {
			v[i] += m.by
		}
	}
	return errors.Join(e1, e2, values.Write(st, v))
}

// careless is a map that forgets the first value it is to add, or does not look at conditions.
type careless struct {
	*warpcore.Map[uint32, uint32]
	about string
}

func (m careless) UpdateOn(st *device.Stream, keys, values device.Slice[uint32], with table.Combine) error {
	if m.about == "a sum" {
		keys, values = keys.Slice(1, keys.Len()), values.Slice(1, keys.Len())
	}
	return m.Map.UpdateOn(st, keys, values, with)
}

func (m careless) InsertIfOn(st *device.Stream, keys, values device.Slice[uint32], when device.Slice[bool]) error {
	if m.about == "an insert" {
		return m.InsertOn(st, keys, values)
	}
	return m.Map.InsertIfOn(st, keys, values, when)
}

func (m careless) FindIfOn(st *device.Stream, keys device.Slice[uint32], when device.Slice[bool], values device.Slice[uint32], found device.Slice[bool]) error {
	if m.about == "a look-up" {
		return m.FindOn(st, keys, values, found)
	}
	return m.Map.FindIfOn(st, keys, when, values, found)
}

func TestUpdatesAndChoicesAreVerified(t *testing.T) {
	for _, c := range []struct {
		about   string
		update  bool
		options []bench.TableOptions
	}{
		{"a sum", true, []bench.TableOptions{{Distinct: 1}, {Distinct: 300}, {Distinct: 300, Batch: 70, Keys: "zipf:1.5"}, {Queries: 20_000}}},
		{"an insert", false, []bench.TableOptions{{}, {Distinct: 300}, {Keys: "line"}}},
		{"a look-up", false, []bench.TableOptions{{}, {Distinct: 300}, {Keys: "line"}}},
	} {
		for _, o := range c.options {
			o.N, o.Queries, o.Hits, o.ValueBytes, o.Keys = 2000, cmp.Or(o.Queries, 3000), 0.7, 4, cmp.Or(o.Keys, "rand")
			if o.Update = c.update; !c.update {
				o.Chosen = 0.5
			}
			for _, about := range []string{"", c.about} {
				row := measured(t, o, func(w *bench.Work[uint32, uint32], load float64) (bench.Subject, error) {
					m, err := warpcore.New[uint32, uint32](w.Device, warpcore.Options{Options: table.Options{Capacity: o.N, LoadFactor: load}})
					if err != nil {
						return bench.Subject{}, err
					}
					if c.update {
						return bench.Updated(w, careless{m, about})
					}
					return bench.Choosing(w, careless{m, about})
				})
				if (row.Wrong > 0) != (about != "") || (row.Update > 0) != c.update || row.Filling() <= 0 || row.InsertShare <= 0 || row.Find <= 0 {
					t.Errorf("%+v, careless about %q: %+v", o, about, row)
				}
			}
		}
	}
	for want, o := range map[error]bench.TableOptions{bench.ErrNoUpdate: {Update: true}, bench.ErrNoChoice: {Chosen: 0.5}} {
		o.Keys, o.KeyBytes, o.ValueBytes, o.N, o.Queries, o.Loads = "rand", 4, 4, 9, 9, []float64{1}
		_, err := bench.Table(benchtest.CPU(t), o, func(w *bench.Work[uint32, uint32], _ float64) (s bench.Subject, err error) {
			m, err := bench.NewMap(w.Device, warpmap.GPH, table.Options{})
			if err != nil {
				return s, err
			}
			defer m.Close()
			if o.Update {
				return bench.Updated(w, m)
			}
			return bench.Choosing(w, m)
		})
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

// liar is a set that tells one thing wrong.
type liar struct {
	table.Set[uint32]
	about string
}

func (l liar) InsertOn(st *device.Stream, keys device.Slice[uint32], added device.Slice[bool]) error {
	return l.lie("added", st, added, l.Set.InsertOn(st, keys, added))
}

func (l liar) DeleteOn(st *device.Stream, keys device.Slice[uint32], deleted device.Slice[bool]) error {
	if l.about == "what is deleted" {
		keys, deleted = keys.Slice(1, keys.Len()), deleted.Slice(1, deleted.Len())
	}
	return l.lie("deleted", st, deleted, l.Set.DeleteOn(st, keys, deleted))
}

func (l liar) lie(about string, st *device.Stream, told device.Slice[bool], err error) error {
	if l.about == about && told.Addr() != 0 {
		err = errors.Join(err, told.Slice(0, 1).Fill(st, 0))
	}
	return err
}

// miscounter is a multimap with a count that is wrong.
type miscounter struct{ table.MultiMap[uint32, uint32] }

func (m miscounter) CountOn(st *device.Stream, keys device.Slice[uint32], counts device.Slice[uint32]) error {
	return errors.Join(m.MultiMap.CountOn(st, keys, counts), counts.Slice(7, 8).Fill(st, 9))
}

func TestWrongTellingIsCounted(t *testing.T) {
	o := bench.TableOptions{Keys: "rand", ValueBytes: 4, N: 500, Queries: 500, Hits: 0.5}
	for _, about := range []string{"added", "deleted", "what is deleted"} {
		row := measured(t, o, func(w *bench.Work[uint32, uint32], load float64) (bench.Subject, error) {
			s, err := warpmap.NewSet[uint32](w.Device, warpmap.Slab, table.Options{})
			return bench.Set(w, liar{s, about}), err
		})
		if row.Wrong == 0 {
			t.Errorf("%s is wrong, and no answer", about)
		}
	}
	row := measured(t, o, func(w *bench.Work[uint32, uint32], load float64) (bench.Subject, error) {
		m, err := warpmap.NewMultiMap[uint32, uint32](w.Device, warpmap.Slab, table.Options{})
		return bench.MultiMap(w, miscounter{m}), err
	})
	if row.Wrong != 1 {
		t.Errorf("%d wrong answers of one", row.Wrong)
	}
}

// Of keys with many values, a value more is seen, a key less, and a value that is another.
func TestWrongAmongManyValues(t *testing.T) {
	d := benchtest.CPU(t)
	for name, spoil := range map[string]func(m table.MultiMap[uint32, uint32], key uint32, values []uint32) error{
		"a value more": func(m table.MultiMap[uint32, uint32], key uint32, _ []uint32) error {
			return m.Insert([]uint32{key}, []uint32{0})
		},
		"a key less": func(m table.MultiMap[uint32, uint32], key uint32, _ []uint32) error {
			_, err := m.Delete([]uint32{key}, nil)
			return err
		},
		"another value": func(m table.MultiMap[uint32, uint32], key uint32, values []uint32) error {
			_, err := m.Delete([]uint32{key}, nil)
			values[0]++
			return errors.Join(err, m.Insert(slices.Repeat([]uint32{key}, len(values)), values))
		},
	} {
		w, err := bench.NewWork[uint32, uint32](d, bench.TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: 1000, Distinct: 5, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Free()
		m, err := warpmap.NewMultiMap[uint32, uint32](d, warpmap.Slab, table.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		s := bench.MultiMap(w, m)
		for _, want := range []int{0, 1} {
			if want == 0 {
				err = s.Fill()
			} else {
				keys, _ := w.Keys.Host(d.Stream())
				_, values, _ := m.FindAll(keys[:1])
				err = spoil(m, keys[0], values)
			}
			if err := errors.Join(err, s.Find()); err != nil {
				t.Fatal(err)
			}
			if n, err := s.Wrong(); n != want || err != nil {
				t.Errorf("%s: %d wrong answers, want %d, %v", name, n, want, err)
			}
		}
	}
}

func TestDrawnKeysAreRefused(t *testing.T) {
	for _, o := range []bench.TableOptions{{N: 9, Distinct: 10}, {N: 9, Distinct: -1}, {N: 9, Distinct: 3, Each: 3}, {N: 1 << 32, Distinct: 1}} {
		o.Keys, o.KeyBytes, o.ValueBytes, o.Loads = "rand", 4, 4, []float64{1}
		if _, err := bench.Table[uint32, uint32](benchtest.CPU(t), o, nil); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

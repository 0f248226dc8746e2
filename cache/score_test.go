package cache

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// asPolicy does the same to a cache with a policy and to one whose expression says the same: they hold the same.
func asPolicy[K any, V comparable](t *testing.T, p Policy, expression string) {
	t.Helper()
	d := open(t, "cpu")
	one, err := newRig[K, V](d, Options{Capacity: 60, Policy: p}, 5)
	must(t, err)
	defer one.m.Close()
	two, err := New[K, V](d, Options{Capacity: 60, Policy: Scored, Score: expression, Seed: one.m.core.opts.Seed})
	must(t, err)
	defer two.Close()
	went := 0
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 150 {
		var keys []uint64 // one of a bucket, for rows of a batch have the scores from before it
		buckets := map[uint64]bool{}
		for range 40 {
			k := rng.Uint64N(100) * 0x9e3779b97f4a7c15 & one.mask
			if b, _ := one.m.core.cfg.where(k, &one.m.core.t); !buckets[b] {
				keys, buckets[b] = append(keys, k), true
			}
		}
		k, v := tabletest.KeysOf[K](keys), one.values(one.numbers(len(keys)))
		found := [2][]bool{make([]bool, len(k)), make([]bool, len(k))}
		switch round % 5 {
		case 0, 1:
			must(t, errors.Join(one.m.Insert(k, v), two.Insert(k, v)))
		case 2:
			o1, _, s1, e1 := one.m.InsertOut(k, v, nil)
			o2, _, s2, e2 := two.InsertOut(k, v, nil)
			must(t, errors.Join(e1, e2))
			went += len(o1)
			if !slices.Equal(tabletest.BitsOf(o1), tabletest.BitsOf(o2)) || !slices.Equal(s1, s2) {
				t.Fatalf("%v went out with %d, and by %q %v with %d", o1, s1, expression, o2, s2)
			}
		case 3:
			must(t, errors.Join(one.m.Find(k, nil, found[0]), two.Find(k, nil, found[1])))
		case 4:
			must(t, errors.Join(one.m.FindQuiet(k, nil, found[0]), two.FindQuiet(k, nil, found[1])))
		}
		rows := func(m *Cache[K, V]) []row {
			must(t, m.Check())
			k, v, s, err := m.Export(0)
			must(t, err)
			all, err := one.rows(k, v, s)
			must(t, err)
			return all
		}
		if a, b := rows(one.m), rows(two); !slices.Equal(a, b) || !slices.Equal(found[0], found[1]) {
			t.Fatalf("round %d: %v has\n%+v\nand by %q it is\n%+v", round, p, a, expression, b)
		}
	}
	if went == 0 {
		t.Error("no pair went out")
	}
}

// counted counts look-ups of few keys by lanes that change places at random: none is lost.
func counted(seed uint64) error {
	d, err := device.Open("cpu", device.WithStress(seed))
	if err != nil {
		return err
	}
	m, err := New[uint32, uint32](d, Options{Capacity: 12, Policy: Scored, Score: "old + 1", Seed: 1})
	if err != nil {
		return err
	}
	keys := make([]uint32, 200)
	for i := range keys {
		keys[i] = uint32(i % 4)
	}
	if err := errors.Join(m.Insert(keys[:4], keys[:4]), m.Find(keys, nil, nil)); err != nil {
		return err
	}
	_, _, scores, err := m.Export(0)
	if want := []uint32{51, 51, 51, 51}; err == nil && !slices.Equal(scores, want) {
		err = fmt.Errorf("scores are %d, want %d", scores, want)
	}
	return errors.Join(err, m.Check(), m.Close(), d.Close())
}

// Scores are what an expression makes of what it may name; as policies do, where it says what these do.
func TestScores(t *testing.T) {
	asPolicy[uint64, uint64](t, LRU, "time")
	asPolicy[uint64, [16]uint32](t, LRU, "hit && old > time ? 0 : time + key * 0")
	for seed := range uint64(testenv.Seeds(64)) {
		if err := counted(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	d := open(t, "cpu")
	m, err := New[int32, float32](d, Options{Capacity: 12, Policy: Scored,
		Score: "value < 0 ? value : value > 100 ? 1e300 : 1000 * key + value * 2.5 + (hit ? old : 0.75)"})
	must(t, err)
	defer m.Close()
	must(t, m.Insert([]int32{1, 2, -1, 3}, []float32{1, -7, 1, 101}))
	must(t, m.Insert([]int32{1}, []float32{3}))
	must(t, errors.Join(m.Find([]int32{1, 4}, nil, nil), m.FindQuiet([]int32{1}, nil, nil)))
	keys, _, scores, err := m.Export(0)
	must(t, err)
	// of key 1: 1003.25 cut off; then 1007.5 + 1003; then 1007.5 + 2010
	want := map[int32]uint32{1: 3017, 2: 0, -1: 0, 3: 1<<32 - 1}
	for i, k := range keys {
		if scores[i] != want[k] {
			t.Errorf("key %d has the score %d, want %d", k, scores[i], want[k])
		}
	}
	if len(keys) != len(want) {
		t.Errorf("%d pairs", len(keys))
	}
	_, e1 := m.FindOrInsert([]int32{1}, []float32{1}, make([]float32, 1), nil)
	for i, err := range []error{e1, m.Mixed([]table.Op{table.OpFind}, []int32{1}, []float32{1}, nil, nil),
		m.Update([]int32{1}, []float32{1}, table.Add)} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("operation %d: %v", i, err)
		}
	}
	if err := m.InsertScored([]int32{1}, []float32{1}, []uint32{1}); err == nil {
		t.Error("scores are taken beside an expression")
	}
}

// An expression that is none is told when the cache is made, and what it says goes into files, but never out of them.
func TestScoreErrors(t *testing.T) {
	d := open(t, "cpu")
	compile := (*device.CompileError)(nil)
	_, e1 := New[uint64, uint64](d, Options{Capacity: 12, Policy: Scored, Score: "old +"})
	_, e2 := New[uint64, [4]uint64](d, Options{Capacity: 12, Policy: Scored, Score: "value"})
	_, e3 := New[uint64, uint64](d, Options{Capacity: 12, Score: "time"})
	if !errors.As(e1, &compile) || !strings.Contains(e1.Error(), "score") || !errors.As(e2, &compile) || e3 == nil {
		t.Errorf("%v\n%v\n%v", e1, e2, e3)
	}
	o := Options{Capacity: 12, Policy: Scored, Score: "time"}
	m, err := New[uint64, uint64](d, o)
	must(t, err)
	defer m.Close()
	plain, err := New[uint64, uint64](d, Options{Capacity: 12, Policy: Scored})
	must(t, err)
	defer plain.Close()
	record := []Record[uint64]{{Value: 1, Score: 77}}
	must(t, m.Restore([]uint64{1}, record, m.Saved()))
	if _, _, scores, err := m.Export(0); err != nil || !slices.Equal(scores, []uint32{77}) {
		t.Errorf("scores %d, %v", scores, err)
	}
	if m.Restore([]uint64{1}, record, plain.Saved()) == nil || plain.Restore([]uint64{1}, record, m.Saved()) == nil {
		t.Error("scores of an expression are taken for others")
	}
	_, e1 = o.For(m.Saved())
	_, e2 = Options{Capacity: 12}.For(m.Saved())
	_, e3 = o.For(plain.Saved())
	if e1 != nil || e2 == nil || e3 == nil {
		t.Errorf("%v, %v, %v", e1, e2, e3)
	}
}

// Look-ups that write scores beside one another without looking again lose some.
func TestScoresFindDefect(t *testing.T) {
	testenv.ByTurns(t)
	kernel := scoreCU
	defer func() { scoreCU = kernel }()
	const old, now = "cas(score_at(h.bucket, slot), old, now);", "old; store_relaxed(score_at(h.bucket, slot), now);"
	if strings.Count(scoreCU, old) != 1 {
		t.Fatal("the kernel is another")
	}
	scoreCU = strings.Replace(scoreCU, old, now, 1)
	for seed := range uint64(50) {
		if err := counted(seed); err != nil {
			t.Logf("seed %d: %v", seed, err)
			return
		}
	}
	t.Fatal("none of 50 seeds finds the defect")
}

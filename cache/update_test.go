package cache

import (
	"errors"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// sums adds up values of few keys, each of which comes often in a batch, by lanes that change places at random.
func sums(seed uint64) error {
	d, err := device.Open("cpu", device.WithStress(seed))
	if err != nil {
		return err
	}
	m, err := New[uint32, uint64](d, Options{Capacity: 200, Seed: 1, Policy: LFU})
	if err != nil {
		return err
	}
	want := map[uint32]uint64{}
	for batch := range uint64(3) {
		keys, values := make([]uint32, 150), make([]uint64, 150)
		for i := range keys {
			keys[i], values[i] = uint32(i*i%20), uint64(i)<<33+batch
			want[keys[i]] += values[i]
		}
		if err := m.Update(keys, values, table.Add); err != nil {
			return err
		}
	}
	keys, values, err := m.All()
	if err != nil {
		return err
	}
	for i, k := range keys {
		if values[i] != want[k] {
			err = errors.Join(err, errors.New("a sum is wrong"))
		}
	}
	if len(keys) != len(want) {
		err = errors.Join(err, errors.New("sums are missing"))
	}
	return errors.Join(err, m.Check(), m.Close(), d.Close())
}

func TestUpdate(t *testing.T) {
	for seed := range uint64(testenv.Seeds(64)) {
		if err := sums(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	d := open(t, "cpu")
	m, err := New[uint64, float32](d, Options{Capacity: 12, Policy: Scored})
	must(t, err)
	defer m.Close()
	must(t, m.InsertScored([]uint64{1, 2}, []float32{1, 2}, []uint32{7, 8}))
	must(t, m.Update([]uint64{2, 2, 3}, []float32{0.5, 1, 9}, table.Max))
	must(t, m.Update([]uint64{1, 3}, []float32{3, 1}, "old * 2 + value"))
	must(t, m.Insert([]uint64{1}, []float32{6}))
	keys, values, scores, err := m.Export(0)
	must(t, err)
	want := map[uint64]struct {
		v float32
		s uint32
	}{1: {6, 7}, 2: {2, 8}, 3: {19, 0}} // who is there keeps its score
	for i, k := range keys {
		if w := want[k]; values[i] != w.v || scores[i] != w.s {
			t.Errorf("key %d has %v and the score %d, want %v", k, values[i], scores[i], w)
		}
	}
	if len(keys) != 3 {
		t.Errorf("%d pairs", len(keys))
	}
	wide, err := New[uint64, [16]uint32](d, Options{Capacity: 12})
	must(t, err)
	defer wide.Close()
	for i, err := range []error{m.Update([]uint64{1}, []float32{1}, table.And), m.Update([]uint64{1}, []float32{1},
		""), wide.Update([]uint64{1}, make([][16]uint32, 1), table.Add)} {
		if err == nil {
			t.Errorf("operation %d is taken", i)
		}
	}
	if err := m.Update([]uint64{1}, []float32{1}, "old +"); err == nil || !strings.Contains(err.Error(), "combine") {
		t.Errorf("half an expression: %v", err)
	}
}

// Updates of lanes without a lock lose some.
func TestUpdateFindsDefect(t *testing.T) {
	testenv.ByTurns(t)
	kernel := updateCU
	defer func() { updateCU = kernel }()
	const old = "            unlock(h.bucket, version);\n            added"
	if strings.Count(updateCU, old) != 1 || strings.Count(updateCU, "            settle<C, false>") != 1 {
		t.Fatal("the kernel is another")
	}
	updateCU = strings.Replace(strings.Replace(updateCU, old, "            added", 1), "            settle<C, false>",
		"            unlock(h.bucket, version);\n            settle<C, false>", 1)
	for seed := range uint64(50) {
		if err := sums(seed); err != nil {
			t.Logf("seed %d: %v", seed, err)
			return
		}
	}
	t.Fatal("none of 50 seeds finds the defect")
}

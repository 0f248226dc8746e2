package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/warpmap/warpmap/device"
)

// All caches answer, with the values that were put and the hits that such a size must have: fewer where a batch has more
// keys than the cache. A cache that is full holds what it was made for, but bigcache, which has a MB at least.
func TestWays(t *testing.T) {
	d, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const keys, requests = 20_000, 100_000
	trace, err := zipf(keys, 2*requests)
	if err != nil {
		t.Fatal(err)
	}
	o := options{percent: []int{10}, threads: []int{1, 3}}
	for _, w := range o.ways(d) {
		r, pairs, err := w.measure(keys, trace)
		if err != nil {
			t.Fatalf("%v: %v", w, err)
		}
		if r.hits < 0.3 || r.hits > 0.8 && w.cache != "bigcache" || r.wall <= 0 || r.cpu <= 0 {
			t.Errorf("%v: %+v", w, r)
		}
		if least := keys / 10 * 8 / 10; pairs < least || pairs > keys/10*105/100 && w.cache != "bigcache" {
			t.Errorf("%v holds %d pairs", w, pairs)
		}
	}
}

// A value that is not the one that was put is told, and so is an error of a cache.
func TestWrongValue(t *testing.T) {
	wrong := oneByOne(func(k uint64) (uint64, bool) { return k, true }, nil)()
	if _, err := wrong([]uint64{1}); err == nil {
		t.Error("a wrong value is not told")
	}
	batches := inBatches(func(keys, values []uint64, found []bool) error { found[0] = true; return nil }, nil)()
	if _, err := batches([]uint64{1}); err == nil {
		t.Error("a wrong value of a batch is not told")
	}
	failed := errors.New("failed")
	c := opened{ask: func() func([]uint64) (int, error) { return func([]uint64) (int, error) { return 0, failed } }}
	if _, err := (way{}).ask(c, []uint64{1, 2}, 1, 2); !errors.Is(err, failed) {
		t.Error(fmt.Sprint("an error is not told: ", err))
	}
}

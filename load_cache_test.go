package warpmap_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table/snapshot"
)

// older is a cache that saves files as they were before they had a seed.
type older struct {
	*cache.Cache[uint32, uint32]
}

func (o older) Saved() cache.Saved {
	s := o.Cache.Saved()
	s.Seed = 0
	return s
}

// TestFullCacheKeepsItsPairs saves a full cache and loads it with the same options: every pair is there again, because
// the file has the seed that chose its buckets. Another seed in the options is taken.
func TestFullCacheKeepsItsPairs(t *testing.T) {
	d, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	o := cache.Options{Capacity: 20_000}
	c, err := warpmap.NewCache[uint32, uint32](d, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	keys := make([]uint32, 80_000)
	for i := range keys {
		keys[i] = uint32(i) * 7
	}
	if err := c.Insert(keys, keys); err != nil {
		t.Fatal(err)
	}
	before, _, err := c.All()
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := snapshot.Cache(c).Save(context.Background(), &file); err != nil {
		t.Fatal(err)
	}
	for _, o.Seed = range []uint64{0, 7} {
		back, err := warpmap.LoadCache[uint32, uint32](context.Background(), bytes.NewReader(file.Bytes()), d, o)
		if err != nil {
			t.Fatal(err)
		}
		defer back.Close()
		found := make([]bool, len(before))
		if err := back.Find(before, make([]uint32, len(before)), found); err != nil {
			t.Fatal(err)
		}
		lost := 0
		for _, there := range found {
			if !there {
				lost++
			}
		}
		if len(before) < 15_000 || lost > 0 != (o.Seed != 0) {
			t.Errorf("with seed %d the loaded cache lacks %d of %d pairs", o.Seed, lost, len(before))
		}
	}
	file.Reset()
	if err := snapshot.Cache(older{c}).Save(context.Background(), &file); err != nil || bytes.Contains(file.Bytes(), []byte(`"seed"`)) {
		t.Fatalf("a file without a seed: %v", err)
	}
	back, err := warpmap.LoadCache[uint32, uint32](context.Background(), &file, d, cache.Options{Capacity: 40_000})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	if n, err := back.Len(); err != nil || int(n) < len(before)*99/100 {
		t.Errorf("of an older file with %d pairs a larger cache has %d, %v", len(before), n, err)
	}
}

package slabhash

import (
	"math/rand/v2"
	"testing"

	"github.com/warpmap/warpmap/bench"
	"github.com/warpmap/warpmap/bench/benchtest"
)

// A full table needs its stash, and a fuller one is not built.
func TestCuckoo(t *testing.T) {
	d := benchtest.CPU(t)
	w, err := newWork(d, 20000)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Free()
	stashed := 0
	for i, load := range []float64{0.5, 0.9, 0.94, 0.94, 0.94, 0.94, 0.94} {
		c, err := newCuckoo(d, w.Options.N, load)
		if err != nil {
			t.Fatal(err)
		}
		c.rng = rand.New(rand.NewPCG(2, uint64(i)))
		defer c.Close()
		if err := c.InsertOn(d.Stream(), w.Keys, w.Values); err != nil {
			t.Fatalf("load factor %v: %v", load, err)
		}
		stashed += int(c.p.Stashed)
		for _, hits := range []float64{1, 0.5} {
			if err := w.Ask(hits, 0); err != nil {
				t.Fatal(err)
			}
			if err := c.FindOn(d.Stream(), w.Queries, w.Results, w.Found); err != nil {
				t.Fatal(err)
			}
			if wrong, err := w.Count(); err != nil || wrong > 0 {
				t.Errorf("load factor %v, hits %v: %d wrong, %v", load, hits, wrong, err)
			}
		}
	}
	if stashed == 0 {
		t.Error("no pair came to the stash")
	}
	if _, note, err := measureCuckoo(w, 1); err == nil {
		t.Errorf("a load factor of 1 is reached: %s", note)
	} else if note, err := bench.Refusal(err); err != nil || note == "" {
		t.Errorf("a table that cannot be built ends the figure: %v", err)
	}
}

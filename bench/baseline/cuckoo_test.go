package baseline

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/warpmap/warpmap/bench"
	"github.com/warpmap/warpmap/bench/benchtest"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// A full table needs its stash, and a fuller one is not built.
func TestCuckoo(t *testing.T) {
	d := benchtest.CPU(t)
	w, err := bench.NewWork[uint32, uint32](d, bench.TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: 20000, Queries: 20000, Hits: 1, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Free()
	stashed := 0
	for i, load := range []float64{0.5, 0.9, 0.94, 0.94, 0.94, 0.94, 0.94} {
		c, err := NewCuckoo(d, w.Options.N, load)
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
	full, err := NewCuckoo(d, w.Options.N, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if err := full.InsertOn(d.Stream(), w.Keys, w.Values); err == nil {
		t.Error("a load factor of 1 is reached")
	} else if note, err := bench.Refusal(err); err != nil || note == "" {
		t.Errorf("a table that cannot be built ends a figure: %v", err)
	}
	if s, err := full.Stats(); err != nil || s.Capacity != w.Options.N || s.Bytes < int64(8*w.Options.N) {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestKernelsCompileForGPUs(t *testing.T) {
	_, err := device.CompileFor("sm_90", cuckooProgram())
	if errors.Is(err, device.ErrNoNVRTC) {
		testenv.RequireNVRTC(t, err)
	}
	if err != nil {
		t.Error(err)
	}
}

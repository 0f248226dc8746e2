package baseline

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
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

// Slots in host memory, and batch after batch of inserts beside look-ups of the keys of the batch before.
func TestMixedInHostMemory(t *testing.T) {
	const n, batch = 6000, 1000
	d := benchtest.CPU(t)
	c, err := NewHostCuckoo(d, n, 0.9)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	st := d.Stream()
	if err := c.Begin(st, n); err != nil {
		t.Fatal(err)
	}
	for first := uint32(0); first < n; first += batch {
		ops, keys := make([]table.Op, 0, 2*batch), make([]uint32, 0, 2*batch)
		for k := first; k < first+batch; k++ {
			ops, keys = append(ops, table.OpInsert, table.OpFind), append(keys, k+1, k+1-batch)
		}
		dops, err1 := device.From(d, ops)
		dkeys, err2 := device.From(d, keys)
		results, err3 := device.Make[uint32](d, len(keys))
		status, err4 := device.Make[table.Status](d, len(keys))
		if err := errors.Join(err1, err2, err3, err4, c.MixedOn(st, dops, dkeys, dkeys, results, status)); err != nil {
			t.Fatal(err)
		}
		got, err5 := results.Host(st)
		found, err6 := status.Host(st)
		if err := errors.Join(err5, err6); err != nil {
			t.Fatal(err)
		}
		for i := 1; i < len(ops); i += 2 {
			if want := first > 0; (found[i] == table.Present) != want || want && got[i] != keys[i] {
				t.Fatalf("key %d, of the batch before: %v, value %d", keys[i], found[i], got[i])
			}
		}
	}
	if homeless, err := c.Homeless(st); err != nil || homeless > 0 {
		t.Errorf("%d pairs without a place, %v", homeless, err)
	}
	if s, err := c.Stats(); err != nil || s.HostBytes != s.Bytes || s.Bytes < 8*n {
		t.Errorf("%+v, %v", s, err)
	}
}

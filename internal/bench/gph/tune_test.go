package gph

import (
	"context"
	"errors"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
)

func tuneOptions() TuneOptions {
	return TuneOptions{Objective: "mixed", Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: 2000, Queries: 2000, Load: 0.6, Hits: 0.5, Trials: 3, Seed: 1}
}

func TestTune(t *testing.T) {
	d := benchtest.CPU(t)
	o := tuneOptions()
	steps := 0
	o.Step = func(int, int, *Trial) { steps++ }
	got, err := TuneGPH(t.Context(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Trials) != 3 || !got.Trials[0].Default || got.Trials[0].Score <= 0 || steps != 3+rounds || len(got.Finals) < 1 {
		t.Errorf("%d steps, %+v", steps, got)
	}
	for _, x := range got.Trials {
		if x.Wrong != 0 {
			t.Errorf("%+v", x)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := TuneGPH(ctx, d, o); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	for _, bad := range []func(*TuneOptions){
		func(o *TuneOptions) { o.N = 0 }, func(o *TuneOptions) { o.Load = 1.5 }, func(o *TuneOptions) { o.Objective = "x" },
		func(o *TuneOptions) { o.KeyBytes = 3 }, func(o *TuneOptions) { o.Keys = "x" }, func(o *TuneOptions) { o.Trials = 0 },
	} {
		o := tuneOptions()
		bad(&o)
		if _, err := TuneGPH(t.Context(), d, o); err == nil {
			t.Errorf("%+v is tuned", o)
		}
	}
}

// No setting comes twice, all are valid, and neighbours differ by one knob.
func TestSearch(t *testing.T) {
	info := device.Info{Name: "cuda:0", CAS128: true}
	first, err := gph.Setting{}.Complete(info, 4, 4, 0.8)
	if err != nil {
		t.Fatal(err)
	}
	o := tuneOptions()
	o.Load = 0.8
	s, err := newSearch(info, first, o)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[gph.Setting]bool{}
	var done []Trial
	for i := range 300 {
		x, ok := s.next(done, 300)
		if !ok || seen[x] || i > 0 && !s.valid(x) {
			t.Fatalf("trial %d: %+v, %t", i, x, ok)
		}
		if i == 0 && x != first {
			t.Errorf("the defaults come first, not %+v", x)
		}
		seen[x] = true
		done = append(done, Trial{Setting: x, Score: float64(x.Bucket) / float64(x.FindGroup)})
	}
	if near := s.neighbours(first); len(near) < 6 {
		t.Errorf("neighbours: %+v", near)
	}
}

// Only what beats the defaults in all rounds but one is taken.
func TestDecide(t *testing.T) {
	defaults := Final{Trial: Trial{Default: true}, Scores: []float64{1, 1, 1, 1, 1}}
	for want, scores := range map[bool][]float64{true: {2, 2, 0.5, 2, 2}, false: {2, 2, 0.5, 0.5, 2}} {
		x := &Tuning{Finals: []Final{defaults, {Trial: Trial{Setting: gph.Setting{Bucket: 8}}, Scores: scores}}}
		if x.decide(); x.Improved != want || want != (x.Best.Bucket == 8) {
			t.Errorf("%v: %+v", scores, x)
		}
	}
}

package library_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
	"github.com/warpmap/warpmap/internal/bench/library"
	"github.com/warpmap/warpmap/internal/planted"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// tablesThatAge is how many kinds and families have a row in both studies.
const tablesThatAge = 5 + 2 + 2 + 1 + 1

// ages are both studies, on the CPU as small as they can be.
func ages(d *device.Device) map[string]bench.FigOptions {
	switch {
	case d.Info().CUDA():
		o := bench.FigOptions{N: 1 << 20, Batches: 1000, Operations: 200 << 20}
		return map[string]bench.FigOptions{"library/aging": o, "library/churn": o}
	case testenv.Long():
		return map[string]bench.FigOptions{"library/aging": {N: 20_000}, "library/churn": {N: 20_000, Operations: 1_000_000}}
	}
	return map[string]bench.FigOptions{"library/aging": {N: 2000}, "library/churn": {N: 1000, Operations: 40_000}}
}

// agedFig measures one of the studies, and returns what is wrong with the rows: an answer, or an end that is not as the
// beginning was.
func agedFig(t *testing.T, d *device.Device, name string, o bench.FigOptions) (wrong []string) {
	t.Helper()
	was := library.AgingSeed
	library.AgingSeed = 1 + testenv.FirstSeed()
	defer func() { library.AgingSeed = was }()
	fig, err := benchtest.Study(t, library.Studies, name).Measure(d, o)
	if err != nil {
		t.Fatal(err)
	}
	ends, all := 0, 0
	for _, r := range fig.Rows {
		at := benchtest.At(fig, r)
		if at("wrong") != 0 || at("note") != "" {
			wrong = append(wrong, fmt.Sprintf("%v: %v wrong, %v", r[0], at("wrong"), at("note")))
		}
		if at("pairs ×") == nil {
			continue
		}
		ends++
		all += at("slices").(int)
		within := func(what string, least, most float64) {
			if x, ok := bench.Number(at(what + " ×")); !ok || x < least || x > most {
				wrong = append(wrong, fmt.Sprintf("%v: %s at the end are %v times those at the beginning, want %v to %v: %v", r[0],
					what, x, least, most, r))
			}
		}
		within("pairs", 0.9, 1.1)
		most := 1.1
		if strings.HasPrefix(r[0].(string), "slab ") { // whose pool grows by a half twice: TestPoolPlateaus of package slab
			most = 1.3
		}
		within("MB", 0.5, most)
		within("mean probes", 0, map[string]float64{"library/aging": 1.25, "library/churn": 2}[name]) // in full tables it varies
		within("max probes", 0, 4)                                                                    // of one key of thousands
	}
	if ends != tablesThatAge {
		t.Errorf("%s has %d tables, want %d", name, ends, tablesThatAge)
	}
	testenv.Tried(t, all, "slices")
	return wrong
}

// What tables take, and how far look-ups go, is at the end as at the beginning, and no answer is wrong.
func TestAging(t *testing.T) {
	testenv.ByTurns(t)
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			testenv.Require(t, "cuda", err)
			defer d.Close()
			for study, o := range ages(d) {
				t.Run(strings.TrimPrefix(study, "library/"), func(t *testing.T) {
					for _, what := range agedFig(t, d, study, o) {
						t.Error(what)
					}
				})
			}
		})
	}
}

// The studies find a table that ages: slab, whose inserts take no tombstones, and which is never rid of them.
func TestAgingFindsTombstones(t *testing.T) {
	testenv.ByTurns(t)
	planted.Text = func(_, _, text string) string {
		return strings.NewReplacer("if (REUSE && t.tombstones) {", "if (false && REUSE && t.tombstones) {",
			"u32 behind = NONE; // the slab that follows it", "u32 behind = NONE; on = false;").Replace(text)
	}
	defer func() { planted.Text = nil }()
	d := benchtest.CPU(t)
	for study, o := range ages(d) {
		t.Run(study, func(t *testing.T) {
			found := agedFig(t, d, study, o)
			for _, x := range found {
				t.Log(x)
			}
			for _, name := range []string{"slab map: ", "slab set: "} {
				if !slices.ContainsFunc(found, func(x string) bool { return strings.HasPrefix(x, name) }) {
					t.Errorf("%s does not age: %q", name, found)
				}
			}
		})
	}
}

// A table that lost or changed a pair gives wrong answers.
func TestAgingSeesWrongAnswers(t *testing.T) {
	d := benchtest.CPU(t)
	a, err := library.NewAged(d, table.KindMap, warpmap.Slab, table.Options{Capacity: 1000, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	l, err := library.NewLife(d, a, 1000, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Free()
	wrong := func(does string, want bool, do func() error) {
		t.Helper()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		n, err := l.Counter.Host(d.Stream())
		if err != nil || n[0] > 0 != want {
			t.Errorf("%s: %d answers are wrong, %v", does, n[0], err)
		}
		if err := l.Counter.Fill(d.Stream(), 0); err != nil {
			t.Fatal(err)
		}
	}
	m := a.Table.(table.Map[uint32, uint32])
	for range 5 {
		wrong("an insert", false, func() error { return l.Put(100) })
	}
	wrong("a slice", false, l.Slice)
	wrong("a value that is another", true, func() error {
		keys, values, err := m.All()
		for i := range values {
			values[i]++
		}
		return errors.Join(err, m.Insert(keys, values), l.Look())
	})
	if err := m.Clear(); err != nil {
		t.Fatal(err)
	}
	wrong("look-ups in a table that was emptied", true, l.Look)
	wrong("deletions in it", true, func() error { return l.Take(100) })
}

// The kernels of the studies are compiled for GPUs.
func TestAgingCompilesForGPUs(t *testing.T) {
	for _, arch := range testenv.Some([]string{"sm_90", "sm_70"}, 1) {
		_, err := device.CompileFor(arch, library.AgingProgram())
		if errors.Is(err, device.ErrNoNVRTC) {
			testenv.RequireNVRTC(t, err)
		}
		if err != nil {
			t.Errorf("%s: %v", arch, err)
		}
	}
}

// More keys than there are of 31 bits are an error.
func TestAgingTooLong(t *testing.T) {
	d := benchtest.CPU(t)
	for study, o := range map[string]bench.FigOptions{"library/aging": {N: 1 << 30, Batches: 1000},
		"library/churn": {N: 1 << 24, Operations: 1 << 40}} {
		if _, err := benchtest.Study(t, library.Studies, study).Measure(d, o); err == nil {
			t.Errorf("%s of %+v: no error", study, o)
		}
	}
}

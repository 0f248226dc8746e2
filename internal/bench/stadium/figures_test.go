package stadium

import (
	"errors"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
)

// few tables are measured in tests: each is a program to compile. The command's tests measure all in long runs.
var few = tickets{[]int{4}, []int{8}}

// study is a figure that is measured in a smaller way.
func study(name string, run func(d *device.Device, o bench.FigOptions) (*bench.Fig, error)) []bench.Study {
	return []bench.Study{{Name: name, Run: run}}
}

func TestFigure13(t *testing.T) {
	fig := benchtest.Rows(t, study("stadium/13", func(d *device.Device, o bench.FigOptions) (*bench.Fig, error) { return threshold(d, o, few.published) }),
		"stadium/13", 20_000, samples, func(at func(string) any) { benchtest.AtLeast(t, "time", at("clStash ms"), 1e-9) })
	benchtest.Draw(t, fig)
	for want, c := range map[string][3]float64{"0.800": {-0.16, 0.2 - 0.4, 1 - 0.5 + 0}, "0.900": {0.36, -1.3, 1}, "clStash": {1, 0, 0}, "Stash is": {-1, -1, 0}} {
		if want == "0.800" { // roots -0.4 and 0.8
			c = [3]float64{-0.32, -0.4, 1}
		}
		if got := crossing(c, 0.01, 0.95); !strings.Contains(got, want) {
			t.Errorf("%v: %s, want %s", c, got, want)
		}
	}
}

func TestFigures14And16(t *testing.T) {
	for _, host := range []bool{false, true} {
		tables := map[any]int{}
		fig := benchtest.Rows(t, study("stadium/14", func(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
			return inSlices(d, o, "14", host, few, []int{o.N / 4, o.N})
		}), "stadium/14", 6000, 2*2*3, func(at func(string) any) {
			tables[at("table")]++
			benchtest.AtLeast(t, "rate", at("G/s"), 1e-9)
			benchtest.AtLeast(t, "factor", at("times as fast as cuckoo"), 1e-9)
		})
		if len(tables) != 3 || tables["cuckoo"] != 4 || tables["hybrid 4"] != 4 || tables["stadium 8"] != 4 {
			t.Errorf("tables %v", tables)
		}
		benchtest.Draw(t, fig)
	}
}

func TestFigure15(t *testing.T) {
	fig := benchtest.Rows(t, study("stadium/15", func(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
		return concurrency(d, o, few, []int{o.N})
	}), "stadium/15", 6000, 3, func(at func(string) any) {
		benchtest.AtLeast(t, "efficiency", at("efficiency"), 1e-9)
		benchtest.AtLeast(t, "efficiency", at("efficiency, at once"), 1e-9)
	})
	benchtest.Draw(t, fig)
}

// rated wants a rate of each kind; what cannot delete has none for that.
func rated(t *testing.T, at func(string) any, columns ...string) {
	for _, c := range columns {
		if at("table") != "cuckoo" || c != "delete G/s" {
			benchtest.AtLeast(t, c, at(c), 1e-9)
		}
	}
}

func TestFigure17(t *testing.T) {
	fig := benchtest.Rows(t, study("stadium/17", func(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
		return exclusive(d, o, few, []int{o.N / 2, o.N})
	}), "stadium/17", 6000, 2*3, func(at func(string) any) { rated(t, at, rateColumns[:4]...) })
	benchtest.Draw(t, fig)
}

func TestFigure18(t *testing.T) {
	for _, host := range []bool{false, true} {
		fig := benchtest.Rows(t, study("stadium/18", func(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
			return breakdown(d, o, "18", host, farPairs, few)
		}), "stadium/18", 6000, 4, func(at func(string) any) { rated(t, at, rateColumns[:3]...) })
		benchtest.Draw(t, fig)
	}
}

func TestFigure19(t *testing.T) {
	for _, host := range []bool{false, true} {
		fig := benchtest.Rows(t, study("stadium/19", func(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
			return byWidth(d, o, "19", host, widths[1:2], few)
		}), "stadium/19", 4000, 4, func(at func(string) any) {
			columns := rateColumns[:1]
			if name := at("table"); name == "hybrid 4" || name == "stadium 8" {
				columns = rateColumns[:4]
			}
			rated(t, at, columns...)
		})
		benchtest.Draw(t, fig)
	}
}

// Table I of made-up counters: without a GPU there are no others.
func TestTable1(t *testing.T) {
	o := bench.FigOptions{N: 1000, Step: func(string) {}}
	fig, err := laneFig(o, func(b Batch) (bench.Lanes, error) {
		if b.Table == "cuckoo" {
			return bench.Lanes{}, errors.New("not seen")
		}
		return bench.Lanes{Kernels: "insert", Instructions: 2e9, Active: 50 * b.Load, Milliseconds: 1}, nil
	})
	must(t, err)
	if len(fig.Rows) != len(laneLoads)*len(laneRows) || fig.Rows[0][fig.Column("note")] != "not seen" || fig.Rows[1][fig.Column("efficiency %")] != 40.0 ||
		fig.Rows[1][fig.Column("paper %")] != 49.45 {
		t.Errorf("%v", fig.Rows)
	}
	benchtest.Draw(t, fig)
	if _, err := laneFig(o, func(b Batch) (bench.Lanes, error) { return bench.Lanes{}, errors.New("none") }); err == nil {
		t.Error("a figure of nothing")
	}
	d := benchtest.CPU(t)
	if _, err := table1(d, o); err == nil {
		t.Error("the CPU has counters")
	}
	for _, r := range laneRows {
		b := r.Batch
		b.N, b.Load = 3000, 0.9
		if b.Table != "stadium" || b.Ticket == 8 {
			must(t, InsertOnce(d, b))
		}
	}
	if err := InsertOnce(d, Batch{Table: "other", N: 10, Load: 0.5}); err == nil {
		t.Error("an unknown table")
	}
}

// A wrong answer is an error.
func TestRight(t *testing.T) {
	fig := &bench.Fig{Columns: []string{"wrong"}}
	fig.Add(0)
	fig.Add(nil)
	if _, err := right(fig); err != nil {
		t.Error(err)
	}
	fig.Add(1)
	if _, err := right(fig); err == nil {
		t.Error("a wrong answer is none")
	}
}

// Slices look up what the slice before inserted, in rows of one kind.
func TestInterleaved(t *testing.T) {
	x, err := newInterleaved(benchtest.CPU(t), 1000, 0.5)
	must(t, err)
	defer x.free()
	ops, keys := host(t, x.ops), host(t, x.keys)
	if x.pairs != 992 || len(ops) != 2*992 || len(x.finds) != 992 || len(x.slices) < fewSlices {
		t.Fatalf("%d pairs, %d operations, %d look-ups, %d slices", x.pairs, len(ops), len(x.finds), len(x.slices))
	}
	for i := range ops {
		if ops[i] != ops[i/rowOps*rowOps] {
			t.Fatalf("operation %d is of another kind than its row's first", i)
		}
	}
	before, hits, look := map[uint32]bool{}, 0, 0
	for _, s := range x.slices {
		now := map[uint32]bool{}
		for i := s.ops[0]; i < s.ops[1]; i++ {
			if ops[i] == 1 {
				now[keys[i]] = true
				continue
			}
			if before[keys[i]] != x.hit[look] {
				t.Fatalf("look-up %d hits: %v, want %v", look, before[keys[i]], x.hit[look])
			}
			if x.hit[look] {
				hits++
			}
			look++
		}
		before = now
	}
	if hits < 400 || hits > 600 {
		t.Errorf("%d of 992 look-ups hit, want half", hits)
	}
}

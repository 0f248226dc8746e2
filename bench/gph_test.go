package bench

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

func cpu(t *testing.T) *device.Device {
	t.Helper()
	d, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// buildable is a table with BuildOn.
type buildable struct {
	table.Map[uint32, uint32]
	builds int
}

func (b *buildable) BuildOn(st *device.Stream, keys, values device.Slice[uint32]) error {
	b.builds++
	return b.InsertOn(st, keys, values)
}

func TestTableBuild(t *testing.T) {
	d := cpu(t)
	o := TableOptions{Keys: "lineitem", KeyBytes: 4, ValueBytes: 4, N: 1000, Queries: 1000, Hits: 0.5, Loads: []float64{0.5}, Build: true}
	var b *buildable
	rows, err := Table(d, o, func(n int, load float64) (table.Map[uint32, uint32], error) {
		m, err := warpmap.New[uint32, uint32](d, warpmap.WarpCore, table.Options{Capacity: n, LoadFactor: load})
		b = &buildable{Map: m}
		return b, err
	})
	if err != nil || b.builds != Runs+1 || rows[0].Build <= 0 || rows[0].Insert != 0 || rows[0].InsertShare <= 0 || rows[0].Wrong != 0 {
		t.Errorf("%d builds, %+v, %v", b.builds, rows, err)
	}
	_, err = Table(d, o, func(n int, load float64) (table.Map[uint32, uint32], error) {
		return warpmap.New[uint32, uint32](d, warpmap.WarpCore, table.Options{Capacity: n, LoadFactor: load})
	})
	if !errors.Is(err, errNoBuild) {
		t.Errorf("build of a table that cannot: %v", err)
	}
}

// TaoBenchmark does not fit into 1.25 GB: an empty cell, with the reason beside it. All else is measured, and right.
func TestSweeps(t *testing.T) {
	d := cpu(t)
	for _, name := range []string{"gph/9", "gph/10", "gph/14"} {
		steps := 0
		fig, err := Figure(d, name, FigOptions{N: 2000, Step: func(string) { steps++ }})
		if err != nil {
			t.Fatal(err)
		}
		if steps < len(gphSets) || len(fig.Rows) < 16*len(warpmap.Families(table.KindMap)) {
			t.Errorf("%s: %d steps, %d rows", name, steps, len(fig.Rows))
		}
		sets := map[any]bool{}
		for _, r := range fig.Rows {
			at := func(c string) any { return r[fig.column(c)] }
			sets[at("data")] = true
			if at("data") == "TaoBenchmark" && at("table GB") == 1.25 {
				if r[6] != nil || at("note") == "" {
					t.Errorf("%s: a load factor over 1 is measured: %v", name, r)
				}
				continue
			}
			if at("table") == "warpcore" && (r[6] == nil || at("wrong") != 0 || at("note") != "") {
				t.Errorf("%s: %v", name, r)
			}
		}
		if len(sets) != 4 {
			t.Errorf("%s: data sets %v", name, sets)
		}
	}
}

func TestJoin(t *testing.T) {
	fig, err := Figure(cpu(t), "gph/12", FigOptions{N: 500})
	if err != nil {
		t.Fatal(err)
	}
	before := 0.0
	for _, r := range fig.Rows {
		at := func(c string) any { return r[fig.column(c)] }
		if at("table") != "warpcore" {
			continue
		}
		probe, _ := number(at("probe ms"))
		if at("note") != "" || at("wrong") != 0 || probe <= 0 {
			t.Errorf("join: %v", r)
		}
		if size := at("|S| / |R|").(int); size > joinPiece && probe <= before {
			t.Errorf("%d · |R| takes %v ms, and half of it %v", size, probe, before)
		}
		before = probe
	}
	if before == 0 {
		t.Errorf("no join: %v", fig.Rows)
	}
}

func TestFindOnce(t *testing.T) {
	d := cpu(t)
	for _, family := range warpmap.Families(table.KindMap) {
		kind := string(family)
		if err := FindOnce(d, Batches{kind, 1000, 2000, []float64{0.5, 0.5, 0.6}, []float64{0.5, 1, 0}}); err != nil {
			t.Error(err)
		}
	}
	if err := FindOnce(d, Batches{"warpcore", 1000, 0, nil, nil}); err == nil {
		t.Error("nothing to do, and done")
	}
}

func TestFigureRefuses(t *testing.T) {
	d := cpu(t)
	for want, f := range map[string]func() (*Fig, error){
		"CUDA":      func() (*Fig, error) { return Figure(d, "gph/2", FigOptions{}) },
		"no figure": func() (*Fig, error) { return Figure(d, "gph/3", FigOptions{}) },
		"pairs":     func() (*Fig, error) { return Figure(d, "gph/9", FigOptions{N: -1}) },
	} {
		if _, err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A table that says no leaves a note; a device that is lost ends the figure.
func TestRefusal(t *testing.T) {
	if note, err := refusal(fmt.Errorf("insert: %w", &table.FullError{Why: errors.New("no room")})); err != nil || !strings.Contains(note, "no room") {
		t.Errorf("%q, %v", note, err)
	}
	if _, err := refusal(fmt.Errorf("insert: %w", &device.FaultError{})); err == nil {
		t.Error("a lost device is passed over")
	}
}

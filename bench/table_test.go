package bench_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/bench"
	"github.com/warpmap/warpmap/bench/benchtest"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

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
	d := benchtest.CPU(t)
	o := bench.TableOptions{Keys: "lineitem", KeyBytes: 4, ValueBytes: 4, N: 1000, Queries: 1000, Hits: 0.5, Loads: []float64{0.5}, Build: true}
	var b *buildable
	rows, err := bench.Table(d, o, func(w *bench.Work[uint32, uint32], load float64) (bench.Subject, error) {
		m, err := warpmap.New[uint32, uint32](d, warpmap.WarpCore, table.Options{Capacity: o.N, LoadFactor: load})
		if err != nil {
			return bench.Subject{}, err
		}
		b = &buildable{Map: m}
		return w.Built(b)
	})
	if err != nil || b.builds != bench.Runs+1 || rows[0].Build <= 0 || rows[0].Insert != 0 || rows[0].InsertShare <= 0 || rows[0].Wrong != 0 {
		t.Errorf("%d builds, %+v, %v", b.builds, rows, err)
	}
	_, err = bench.Table(d, o, func(w *bench.Work[uint32, uint32], load float64) (bench.Subject, error) { return w.Built(b.Map) })
	if !errors.Is(err, bench.ErrNoBuild) {
		t.Errorf("build of a table that cannot: %v", err)
	}
}

// A table that says no leaves a note; a device that is lost ends the figure.
func TestRefusal(t *testing.T) {
	if note, err := bench.Refusal(fmt.Errorf("insert: %w", &table.FullError{Why: errors.New("no room")})); err != nil || !strings.Contains(note, "no room") {
		t.Errorf("%q, %v", note, err)
	}
	if _, err := bench.Refusal(fmt.Errorf("insert: %w", &device.FaultError{})); err == nil {
		t.Error("a lost device is passed over")
	}
}

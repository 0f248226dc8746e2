package join

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// TestSeveralDevices joins over one, two and three devices, with buffers of pinned memory that a row group does not fit
// into and without, by columns and by batches: the same bytes come out, and the rows are those of the definition.
func TestSeveralDevices(t *testing.T) {
	lists := []string{"cpu:0", "cpu:0,cpu:1", "cpu:0,cpu:1,cpu:2"}
	if gpus, err := device.OpenAll("all"); err == nil {
		for _, d := range gpus {
			d.Close()
		}
		lists = append(lists, "all")
	}
	seeds := 12
	if testenv.Long() {
		seeds = 60
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 77))
		dir := t.TempDir()
		keys := 1 + r.IntN(300)
		build, probe := side(t, r, "b", r.IntN(300), keys, 2), side(t, r, "p", r.IntN(900), keys, 2)
		suffix := []string{".parquet", ".arrow"}[seed%2]
		bf, pf := filepath.Join(dir, "b"+suffix), filepath.Join(dir, "p"+suffix)
		if suffix == ".parquet" {
			writeAnyhow(t, r, bf, build, 100)
			writeAnyhow(t, r, pf, probe, int64(1+r.IntN(400)))
		} else {
			for path, rec := range map[string]arrow.RecordBatch{bf: build, pf: probe} {
				rr, err := array.NewRecordReader(rec.Schema(), []arrow.RecordBatch{rec})
				if err != nil {
					t.Fatal(err)
				}
				write(t, path, rr)
			}
		}
		how := How(seed / 2 % len(hows))
		want := expected(t, build, probe, how)
		var first []byte
		for i, list := range lists {
			o := tuned{Options{Build: bf, Probe: pf, Out: filepath.Join(dir, "o"+suffix), On: []Pair{{"bk", "pk"}},
				How: how, Table: DefaultTable,
				Filter: Filter(seed % 3), Threads: 4, Device: list},
				tuning{batch: 100, pinned: []int{0, 64, 5}[(seed/3+i)%3], part: -1}}
			o.Open = func(name, _ string) ([]*device.Device, error) { return device.OpenAll(name) }
			var own *device.Device
			if seed%4 == 0 { // devices that are open
				devices, err := device.OpenAll(list)
				if err != nil {
					t.Fatal(err)
				}
				own, o.Beside, o.Open = devices[0], devices[1:], nil
				for _, d := range devices {
					defer d.Close()
				}
			}
			what := fmt.Sprintf("seed %d, %v on %s, %d pinned, filter %v", seed, how, list, o.pinned, o.Filter)
			s, err := runWith(t.Context(), own, o)
			if err != nil {
				t.Fatal(what, err)
			}
			if n := strings.Count(s.Device, ":"); list != "all" && n != i+1 || !strings.HasSuffix(s.Device, ")") {
				t.Errorf("%s: the devices are %s", what, s.Device)
			}
			_, got := read(t, o.Out)
			sameRows(t, what, got, want)
			b, err := os.ReadFile(o.Out)
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = b
			} else if !bytes.Equal(first, b) {
				t.Fatalf("%s: other bytes", what)
			}
		}
	}
}

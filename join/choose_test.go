package join

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// Which device a join has by itself: the CPU for keys that lie close together and for few, else the first that works.
func TestChoice(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	compiler := d.Info().Compiler
	d.Close()
	dir := t.TempDir()
	number := func(by int64) (out []any) {
		for i := range int64(1000) {
			out = append(out, i*by)
		}
		return out
	}
	i64 := arrow.PrimitiveTypes.Int64
	for name, by := range map[string]int64{"close": 16, "closer": 2, "far": 1000} {
		write(t, filepath.Join(dir, name+".parquet"), reader(t, []column{{"k", i64, number(by)}}))
	}
	write(t, filepath.Join(dir, "close.csv"), reader(t, []column{{"k", i64, number(1)}}))
	for _, c := range []struct {
		build   string
		o       Options
		threads int
		want    string
		why     string
	}{
		{"closer.parquet", Options{}, 0, "cpu", "close together"},
		{"closer.parquet", Options{Table: "slab"}, 0, "auto", ""},
		{"closer.parquet", Options{Filter: FilterOn}, 0, "auto", ""},
		{"closer.parquet", Options{NullsEqual: true}, 0, "auto", ""},
		{"far.parquet", Options{}, 0, "auto", ""},
		{"far.parquet", Options{How: Semi}, 0, "auto", ""},
		{"close.parquet", Options{How: Semi}, 0, "cpu", "close together"},
		{"close.csv", Options{}, 0, "auto", ""},
		{"far.parquet", Options{}, 1, "cpu", "2000 keys"},
		{"close.csv", Options{}, 1, "cpu", "2000 keys"},
	} {
		build, err := Open(filepath.Join(dir, c.build))
		if err != nil {
			t.Fatal(err)
		}
		probe, err := Open(filepath.Join(dir, "close.parquet"))
		if err != nil {
			t.Fatal(err)
		}
		c.o.On = []Pair{{"k", "k"}}
		want, why := c.want, c.why
		if c.threads > 0 && compiler == "" {
			want, why = "auto", ""
		}
		got, because := newJoiner(nil, c.o, tuning{}).suits(build, probe, c.threads)
		if got != want || !strings.Contains(because, why) || why == "" && because != "" {
			t.Errorf("%s with %+v: %s, %q; want %s, %q", c.build, c.o, got, because, want, why)
		}
		build.Close()
		probe.Close()
	}
	o := Options{Build: filepath.Join(dir, "far.parquet"), Probe: filepath.Join(dir, "close.csv"),
		Out: filepath.Join(dir, "o.csv"), On: []Pair{{"k", "k"}}, Device: "cuda:7"}
	no := errors.New("no such device")
	asked := ""
	o.Open = func(name, _ string) ([]*device.Device, error) { asked = name; return nil, no }
	if _, err := Run(t.Context(), nil, o); !errors.Is(err, no) || asked != "cuda:7" {
		t.Errorf("asked for %q: %v", asked, err)
	}
	o.Device = ""
	var opened *device.Device
	o.Open = func(name, _ string) ([]*device.Device, error) {
		d, err := device.Open("cpu")
		opened = d
		return []*device.Device{d}, err
	}
	s, err := Run(t.Context(), nil, o)
	if err != nil || s.OutRows != 1 || !strings.HasPrefix(s.Device, "cpu (") {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := device.Make[byte](opened, 8); !errors.Is(err, device.ErrClosed) {
		t.Errorf("the device is still open: %v", err)
	}
	o.Open = func(string, string) ([]*device.Device, error) { panic("broken") }
	if _, err := Run(t.Context(), nil, o); err == nil ||
		!strings.Contains(err.Error(), "opening the device broke off") {
		t.Error(err)
	}
	leftBehind(t, dir, "close.parquet", "closer.parquet", "far.parquet", "close.csv", "o.csv")
}

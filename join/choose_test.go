package join

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/warpmap/warpmap/device"
)

// Which device a join has by itself: the CPU for keys that lie close together and for few, else the first that works.
func TestChoice(t *testing.T) {
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

// A machine without a compiler, and a system without devices, join on their cores; a table of a family needs a device.
func TestJoinsWithoutADevice(t *testing.T) {
	dir := t.TempDir()
	build, probe := put(t, dir+"/b.csv", "k,a\n70000,x\n5,y\nabc,z\n"), put(t, dir+"/p.csv", "k,b\n5,1\nabc,2\n6,3\n")
	for _, c := range []struct {
		o    Options
		err  error
		want bool
	}{
		{Options{}, device.ErrNoCompiler, true},
		{Options{Device: "cpu"}, device.ErrNoCompiler, true},
		{Options{Device: "auto"}, device.ErrNoDevices, true},
		{Options{Device: "cuda:0"}, device.ErrNoDevices, false},
		{Options{Table: "slab"}, device.ErrNoCompiler, false},
		{Options{Filter: FilterOn}, device.ErrNoCompiler, false},
		{Options{}, errors.New("lost"), false},
	} {
		o := c.o
		o.Build, o.Probe, o.Out, o.On = build, probe, dir+"/out.csv", []Pair{{"k", "k"}}
		o.Open = func(string, string) ([]*device.Device, error) { return nil, fmt.Errorf("opening: %w", c.err) }
		s, err := Run(t.Context(), nil, o)
		if (err == nil) != c.want || err != nil && !errors.Is(err, c.err) {
			t.Errorf("%+v: %v", c.o, err)
		}
		if c.want && (s.OutRows != 2 || s.Device != "cpu" || s.Table != "") {
			t.Errorf("%+v: %+v", c.o, s)
		}
	}
}

// Parts of a join that is larger than memory do without a device, too, and name no table.
func TestPartsWithoutADevice(t *testing.T) {
	dir := t.TempDir()
	var b, p strings.Builder
	b.WriteString("k,a\n")
	p.WriteString("k,b\n")
	const rows = 50_000
	for i := range rows {
		fmt.Fprintf(&b, "%d,a long text for row number %d\n", i*7919%1_000_003*1000, i)
		fmt.Fprintf(&p, "%d,%d\n", i*7919%1_000_003*2000, i)
	}
	build, probe := put(t, dir+"/b.csv", b.String()), put(t, dir+"/p.csv", p.String())
	run := func(memory int64, count bool) Summary {
		o := Options{Build: build, Probe: probe, On: []Pair{{"k", "k"}}, Memory: memory, Count: count}
		if !count {
			o.Out = dir + "/out.csv"
		}
		o.Open = func(string, string) ([]*device.Device, error) { return nil, device.ErrNoCompiler }
		s, err := Run(t.Context(), nil, o)
		if err != nil {
			t.Fatal(memory, count, err)
		}
		return s
	}
	for _, count := range []bool{false, true} {
		whole, parts := run(0, count), run(1<<20, count)
		if parts.OutRows != whole.OutRows || parts.OutRows == 0 || parts.Table != "" || parts.Device != "cpu" {
			t.Errorf("count %v: %+v, want %+v", count, parts, whole)
		}
	}
}

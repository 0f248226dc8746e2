package bench

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Made by hand after the manual of Nsight Compute: --csv --page raw, one row a launch.
const ncuWide = `==PROF== Connected to process 4711 (warpmap)
==PROF== Profiling "find" - 0: 0%....50%....100% - 3 passes
==PROF== Disconnected from process 4711
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","gpu__time_duration.sum","sm__warps_active.avg.pct_of_peak_sustained_active","smsp__average_warp_latency_per_inst_issued.ratio","smsp__average_warps_active_per_inst_executed.ratio","smsp__inst_executed.sum"
"","","","","","","","","","","","nsecond","%","cycle","cycle","inst"
"0","4711","warpmap","127.0.0.1","find(FindParams)","1","7","(512, 1, 1)","(390625, 1, 1)","0","9.0","45,310,000","70.89","22.50","22.58","9,360,000,000"
"1","4711","warpmap","127.0.0.1","find(FindParams)","1","7","(512, 1, 1)","(390625, 1, 1)","0","9.0","22930000","98.24","23.10","23.16","6430000000"
==WARNING== something that comes last
`

// The same first launch, one row a counter.
const ncuLong = `==PROF== Connected to process 4711 (warpmap)
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Section Name","Metric Name","Metric Unit","Metric Value"
"0","4711","warpmap","127.0.0.1","find(FindParams)","1","7","Command line profiler metrics","gpu__time_duration.sum","msecond","45.31"
"0","4711","warpmap","127.0.0.1","find(FindParams)","1","7","Command line profiler metrics","sm__warps_active.avg.pct_of_peak_sustained_active","%","70.89"
"0","4711","warpmap","127.0.0.1","find(FindParams)","1","7","Command line profiler metrics","smsp__average_warp_latency_per_inst_issued.ratio","","22.58"
"0","4711","warpmap","127.0.0.1","find(FindParams)","1","7","Command line profiler metrics","smsp__average_warps_active_per_inst_executed.ratio","","n/a"
"0","4711","warpmap","127.0.0.1","find(FindParams)","1","7","Command line profiler metrics","smsp__inst_executed.sum","inst","9,360,000,000"
`

func TestParseNCU(t *testing.T) {
	want := []Counters{{"find", 70.89, 9.36e9, 22.58, 45.31}, {"find", 98.24, 6.43e9, 23.16, 22.93}}
	for name, x := range map[string]struct {
		text string
		want []Counters
	}{"wide": {ncuWide, want}, "long": {ncuLong, want[:1]}} {
		got, err := parseNCU(x.text)
		if err != nil || len(got) != len(x.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		for i, g := range got {
			w := x.want[i]
			if math.Abs(g.Milliseconds-w.Milliseconds) > 1e-9 {
				t.Errorf("%s: %v ms, want %v", name, g.Milliseconds, w.Milliseconds)
			}
			if g.Milliseconds = w.Milliseconds; g != w {
				t.Errorf("%s: %+v, want %+v", name, g, w)
			}
		}
	}
	for text, want := range map[string]string{
		"==WARNING== No kernels were profiled.\n":                                       "no launch",
		strings.ReplaceAll(ncuWide, "smsp__inst_executed.sum", "other"):                 "smsp__inst_executed.sum",
		strings.ReplaceAll(ncuWide, `"nsecond"`, `"fortnight"`):                         "fortnight",
		strings.ReplaceAll(ncuWide, `"Kernel Name"`, `"Name"`):                          "Kernel Name",
		`"ID","Kernel Name"` + "\n" + `"0","find","three"` + "\n":                       "wrong number of fields",
		strings.ReplaceAll(strings.ReplaceAll(ncuLong, "n/a", ""), `"22.58"`, `"bad "`): "smsp__average_warps_active_per_inst_executed",
	} {
		if got, err := parseNCU(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %+v, %v", want, got, err)
		}
	}
}

// Two launches of 32 and 8 lanes of 32, the second of three times as many instructions.
func TestLanesNCU(t *testing.T) {
	text := strings.NewReplacer("sm__warps_active.avg.pct_of_peak_sustained_active", "smsp__thread_inst_executed.sum", "9,360,000,000", "1,000,000", "6430000000", "3000000",
		`"70.89"`, `"32,000,000"`, `"98.24"`, `"24000000"`).Replace(ncuWide)
	got, err := lanesNCU(text)
	if err != nil || math.Abs(got.Active-100*56.0/128) > 1e-9 || got.Kernels != "find" || got.Instructions != 4e6 || math.Abs(got.Milliseconds-68.24) > 1e-9 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := lanesNCU(ncuWide); err == nil || !strings.Contains(err.Error(), "thread_inst") {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := ProfileLanes(fakeNCU(t, `echo "==WARNING== No kernels were profiled." > "$log"`), []string{"true"}, "^insert"); err == nil || !strings.Contains(err.Error(), "No kernels") {
		t.Error(err)
	}
}

func TestPerBatch(t *testing.T) {
	l := []Counters{{Kernels: "find", Milliseconds: 3}, {Kernels: "find_rest", Milliseconds: 1}, {Kernels: "find", Milliseconds: 2}, {Kernels: "find_rest", Milliseconds: 4}}
	got, err := perBatch(l, 2)
	if err != nil || len(got) != 2 || got[0].Milliseconds != 3 || got[1].Milliseconds != 4 || got[0].Kernels != "find, find_rest" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, batches := range []int{3, 5} {
		if got, err := perBatch(l, batches); err == nil {
			t.Errorf("4 launches for %d batches: %+v", batches, got)
		}
	}
}

// A stand-in for ncu that writes to its --log-file.
func fakeNCU(t *testing.T, then string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "table"), []byte(ncuWide), 0o644); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nwhile [ \"$1\" != --log-file ]; do shift; done\nlog=$2\nshift 2\n" + strings.ReplaceAll(then, "TABLE", filepath.Join(dir, "table"))
	name := filepath.Join(dir, "ncu")
	if err := os.WriteFile(name, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestProfile(t *testing.T) {
	got, err := ProfileNCU(fakeNCU(t, `"$@" && cp TABLE "$log"`), []string{"true"}, 2)
	if err != nil || len(got) != 2 || got[1].CPI != 23.16 {
		t.Errorf("%+v, %v", got, err)
	}
	for want, then := range map[string]string{
		"ERR_NVGPUCTRPERM":      `echo "==ERROR== ERR_NVGPUCTRPERM - no permission" > "$log"; exit 1`,
		"No kernels":            `echo "==WARNING== No kernels were profiled." > "$log"`,
		"warpmap: out of thing": `echo "warpmap: out of things" >&2; exit 3`,
		"for 5 batches":         `cp TABLE "$log"`,
	} {
		batches := 2
		if strings.Contains(want, "5") {
			batches = 5
		}
		if _, err := ProfileNCU(fakeNCU(t, then), []string{"true"}, batches); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestFindNCU(t *testing.T) {
	name := fakeNCU(t, "")
	t.Setenv("PATH", filepath.Dir(name))
	if got, err := FindNCU(); err != nil || got != name {
		t.Errorf("%q, %v", got, err)
	}
}

// The paper's Table 2 has Pearson's r = 0.9993.
func TestModelOfThePaper(t *testing.T) {
	var x, y []float64
	for _, r := range [][4]float64{{70.89, 9.36, 22.58, 45.31}, {86.87, 18.69, 24.78, 88.10}, {92.37, 0.73, 445.38, 55.18}, {98.24, 6.43, 23.16, 22.93}} {
		x, y = append(x, r[1]*r[2]), append(y, r[3]*r[0]/100)
	}
	f, err := FitLine(x, y)
	if err != nil || math.Abs(f.R-0.9993) > 0.0002 || math.Abs(f.Slope-0.161) > 0.003 || f.N != 4 {
		t.Errorf("%+v, %v", f, err)
	}
	for _, x := range [][]float64{nil, {1}, {2, 2}} {
		if _, err := FitLine(x, []float64{1, 2}[:len(x)]); err == nil {
			t.Errorf("%v makes a line", x)
		}
	}
}

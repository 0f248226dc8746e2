package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/join"
	tables "github.com/warpmap/warpmap/table"
)

// run runs the command in this process, on the CPU device.
func run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := root()
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(append(args, "--device", "cpu"))
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, err := run(t, args...)
	if err != nil {
		t.Fatalf("warpmap %s: %v\n%s%s", strings.Join(args, " "), err, out, errs)
	}
	return out
}

func TestDemo(t *testing.T) {
	if out := must(t, "demo", "--sf", "0.002"); !strings.Contains(out, "All answers are right") {
		t.Errorf("demo says:\n%s", out)
	}
}

func TestDevicesJSON(t *testing.T) {
	var got struct{ Devices []struct{ Name string } }
	if err := json.Unmarshal([]byte(must(t, "devices", "--json")), &got); err != nil {
		t.Fatal(err)
	}
	if n := len(got.Devices); n == 0 || got.Devices[n-1].Name != "cpu" {
		t.Errorf("devices: %+v", got)
	}
}

func TestGenAndJoin(t *testing.T) {
	dir := t.TempDir()
	for _, format := range join.Formats() {
		must(t, "gen", "tpch", "--sf", "0.002", "--out", dir, "--format", format)
		orders, lines := filepath.Join(dir, "orders."+format), filepath.Join(dir, "lineitem."+format)
		for how, want := range map[string]string{"inner": "out_rows", "anti": `"out_rows": 0`} {
			out := must(t, "join", orders, lines, "--on", "o_orderkey=l_orderkey", "--how", how, "--out",
				filepath.Join(dir, "j."+format), "--json")
			if !strings.Contains(out, want) {
				t.Errorf("join --how %s of %s: %s, want %s", how, format, out, want)
			}
			var s struct {
				Probe int `json:"probe_rows"`
				Out   int `json:"out_rows"`
			}
			if err := json.Unmarshal([]byte(out), &s); err != nil || how == "inner" &&
				(s.Out != s.Probe || s.Out == 0) {
				t.Errorf("join of %s: %+v, %v", format, s, err)
			}
		}
	}
}

// The files of a seed are the same whatever the number of threads.
func TestGenIsTheSameOnAnyMachine(t *testing.T) {
	sf := "0.02"
	if testenv.Long() {
		sf = "0.05"
	}
	for _, format := range join.Formats() {
		var first map[string][]byte
		for _, threads := range []int{1, 7} {
			before := runtime.GOMAXPROCS(threads)
			dir := t.TempDir()
			must(t, "gen", "tpch", "--sf", sf, "--seed", "9", "--comments", "--out", dir, "--format", format)
			runtime.GOMAXPROCS(before)
			files := map[string][]byte{}
			for _, name := range []string{"orders", "lineitem"} {
				data, err := os.ReadFile(filepath.Join(dir, name+"."+format))
				if err != nil {
					t.Fatal(err)
				}
				files[name] = data
				if first != nil && !bytes.Equal(data, first[name]) {
					t.Errorf("%s as %s differs with %d threads", name, format, threads)
				}
			}
			first = files
		}
		if format == "csv" && !bytes.Contains(first["lineitem"], []byte(",l_comment\n")) {
			t.Errorf("no comments: %.300s", first["lineitem"])
		}
	}
}

func TestBench(t *testing.T) {
	keep := filepath.Join(t.TempDir(), "kept", "r.json")
	for _, args := range [][]string{
		{"--keys", "rand"}, {"--keys", "zipf:0.99", "--key-bytes", "8"}, {"--keys", "line", "--value-bytes", "8"},
		{"--keys", "sequential", "--key-bytes", "8", "--value-bytes", "8"},
	} {
		out := must(t, append([]string{"bench", "--n", "3000", "--load", "0.5,0.9", "--json", "--keep", keep},
			args...)...)
		var got benchResult
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Rows) != 2 {
			t.Fatalf("%v: %d rows", args, len(got.Rows))
		}
		for _, r := range got.Rows {
			if r.Wrong != 0 || r.Find <= 0 || r.Insert <= 0 || r.Bytes < 3000*8 || r.Limits.Lookup64 <= 0 ||
				r.Filled < 0.9*r.Load || r.Filled > 1.01*r.Load {
				t.Errorf("%v: %+v", args, r)
			}
		}
		kept, err := os.ReadFile(keep)
		if err != nil || string(kept) != out {
			t.Errorf("%v: kept %d bytes of %d, %v", args, len(kept), len(out), err)
		}
	}
	must(t, "bench", "limits", "--bytes", "65536", "--n", "4096")
}

// Wide keys and values are measured where a table has them.
func TestBenchWide(t *testing.T) {
	testenv.ByTurns(t)
	for _, widths := range [][2]string{{"16", "8"}, {"32", "32"}, {"8", "16"}} {
		var got benchResult
		out := must(t, "bench", "--table", "dycuckoo", "--key-bytes", widths[0], "--value-bytes", widths[1], "--n",
			"3000", "--load", "0.85", "--json")
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if r := got.Rows[0]; r.Wrong != 0 || r.Find <= 0 || r.Insert <= 0 || r.Bytes < 3000*24 {
			t.Errorf("%v: %+v", widths, r)
		}
	}
}

// All kinds of every family are measured, beside the same limits.
func TestBenchKinds(t *testing.T) {
	for _, kind := range kinds[1:] {
		for _, family := range familiesOf(kind) {
			for _, own := range testenv.Some(map[tables.Kind][][]string{
				tables.KindSet: {{"--load", "0.7"}, {"--keys", "lineitem", "--batch", "700", "--load", "0.7"},
					{"--distinct", "1", "--load", "0.7"}},
				tables.KindMultiMap: {{"--each", "4", "--load", "0.7"}, {"--values-per-key", "8", "--load", "0.7"},
					{"--distinct", "25", "--key-bytes", "8"}, {"--keys", "lineitem"},
					{"--distinct", "100", "--hits", "0.5", "--keys", "zipf:1", "--value-bytes", "8"}, {"--distinct", "1", "--load", "0.7"}},
				tables.KindBucketList: {{"--each", "4", "--load", "0.7"}, {"--values-per-key", "64", "--load", "0.7"},
					{"--distinct", "1", "--load", "0.7"}},
				tables.KindCounter: {{"--load", "0.7"}, {"--distinct", "1", "--value-bytes", "8"},
					{"--keys", "zipf:1", "--key-bytes", "8"}},
				tables.KindFilter: {{"--false-positives", "0.05"}, {"--bytes", "4KiB", "--key-bytes", "8"},
					{"--distinct", "1"}},
				warpmap.KindCache: {{}, {"--policy", "lfu", "--key-bytes", "8", "--value-bytes", "64"},
					{"--host-values", "--value-bytes", "64"},
					{"--policy", "scored", "--hits", "0.5", "--batch", "70", "--value-bytes", "8"}},
			}[kind], 1) {
				if kind == tables.KindFilter && family == "cuckoo" && own[0] == "--distinct" {
					continue // it has room for a key 20 times
				}
				args := slices.Concat([]string{"bench", "--table", family, "--kind", kind.String(), "--n", "3000",
					"--json"}, own)
				var got benchResult
				if err := json.Unmarshal([]byte(must(t, args...)), &got); err != nil {
					t.Fatal(err)
				}
				if r := got.Rows[0]; got.Kind != kind.String() || got.Table != family || r.Wrong != 0 || r.Find <= 0 ||
					r.Insert <= 0 || r.InsertShare <= 0 {
					t.Errorf("%v: %+v", args, got)
				}
			}
		}
	}
	if out := must(t, "bench", "--kind", "set", "--table", "slab", "--n", "100", "--load",
		"0.7"); !strings.Contains(out, "100 keys (4 bytes") {
		t.Errorf("as a table:\n%s", out)
	}
	out := must(t, "bench", "--kind", "multimap", "--n", "1000", "--values-per-key", "10", "--load", "0.7")
	for _, want := range []string{"1000 pairs (4+4 bytes, rand) drawn from 100, each key looked up once", "values G/s",
		"count G/s"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// A map is measured with one key alone, with sums, and with conditions.
func TestBenchMaps(t *testing.T) {
	var all [][]string
	for _, family := range families() {
		all = append(all, []string{"--table", family, "--distinct", "1"})
	}
	for _, args := range append(all, []string{"--update", "--distinct", "1"},
		[]string{"--update", "--keys", "zipf:1", "--key-bytes", "8", "--value-bytes", "8"},
		[]string{"--chosen", "0.5"}, []string{"--chosen", "0.1", "--distinct", "50"}) {
		args := slices.Concat([]string{"bench", "--n", "3000", "--load", "0.7", "--json"}, args)
		var got benchResult
		if err := json.Unmarshal([]byte(must(t, args...)), &got); err != nil {
			t.Fatal(err)
		}
		if r := got.Rows[0]; r.Wrong != 0 || r.Find <= 0 || r.Filling() <= 0 || (r.Update > 0) != got.Options.Update ||
			r.InsertShare <= 0 {
			t.Errorf("%v: %+v", args, got)
		}
	}
	for want, args := range map[string][]string{
		"update G/s": {"--update"}, "drawn from 100,": {"--update"}, "50% of the rows chosen": {"--chosen", "0.5"},
	} {
		if out := must(t, append([]string{"bench", "--n", "1000", "--load", "0.7"}, args...)...); !strings.Contains(out,
			want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// Each kind of table has its own columns, beside the map's, and an example.
func TestBenchColumns(t *testing.T) {
	r := bench.Row{Filter: &bench.FilterRow{BitsPerKey: 8}, Cache: &bench.CacheRow{}}
	for kind, want := range map[tables.Kind]string{
		tables.KindMap: "find G/s", tables.KindSet: "with added G/s", tables.KindMultiMap: "values G/s",
		tables.KindBucketList: "build G/s", tables.KindCounter: "find G/s",
		tables.KindFilter: "false positives", warpmap.KindCache: "told G/s",
	} {
		var names []string
		for _, c := range columns(kind, bench.TableOptions{}) {
			names = append(names, c.name)
			if c.of(r) == nil {
				t.Errorf("%v: %s is empty", kind, c.name)
			}
		}
		if !slices.Contains(names, want) || !slices.Contains(names, "insert G/s") || names[len(names)-1] != "wrong" {
			t.Errorf("%v: columns %q, want %q", kind, names, want)
		}
		if help := must(t, "bench", "--help"); kind != tables.KindMap &&
			!strings.Contains(help, fmt.Sprintf("--kind %v --", kind)) {
			t.Errorf("no example of %v in\n%s", kind, help)
		}
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	for want, args := range map[string][]string{
		"no map":       {"bench", "--table", "nosuch", "--n", "10"},
		"want rand":    {"bench", "--keys", "nosuch", "--n", "10"},
		"want 4 or 8":  {"bench", "--kind", "multimap", "--value-bytes", "16", "--n", "10"},
		"keys of 5":    {"bench", "--key-bytes", "5", "--n", "10"},
		"values of 12": {"bench", "--value-bytes", "12", "--n", "10"},
		"cannot be a":  {"bench", "--key-bytes", "16", "--table", "gph", "--n", "10"},
		"scale factor": {"gen", "tpch", "--sf", "-1", "--out", dir},
		"nothing":      {"bench", "--n", "0"},
		"no set":       {"bench", "--kind", "set", "--table", "gph", "--n", "10"},
		"want map (":   {"bench", "--kind", "nosuch", "--n", "10"},
		"--each is not for a map: want --kind multimap, bucketlist":               {"bench", "--each", "2", "--n", "10"},
		"--build is not for a set: want --kind map":                               {"bench", "--build", "--kind", "set", "--n", "10"},
		"--value-bytes is not for a set: want --kind map, multimap, bucketlist":   {"bench", "--value-bytes", "8", "--kind", "set", "--table", "slab"},
		"--distinct 11: want 1 to the number of pairs":                            {"bench", "--distinct", "11", "--kind", "set", "--table", "slab", "--n", "10"},
		"--update is not for a set: want --kind map":                              {"bench", "--update", "--kind", "set"},
		"--chosen 1.5: want over 0, to 1":                                         {"bench", "--chosen", "1.5", "--n", "10"},
		"if any flags in the group [build update chosen] are set":                 {"bench", "--chosen", "0.5", "--update", "--n", "10"},
		"no Update for values":                                                    {"bench", "--update", "--table", "gph", "--n", "10"},
		"no InsertIf":                                                             {"bench", "--chosen", "0.5", "--table", "gph", "--n", "10"},
		"--values-per-key is not for a counter: want --kind multimap, bucketlist": {"bench", "--values-per-key", "8", "--kind", "counter"},
		"--load is not for a filter: want --kind map, set, multimap, bucketlist":  {"bench", "--load", "0.5", "--kind", "filter"},
		"--bytes is not for a map: want --kind filter":                            {"bench", "--bytes", "1MB"},
		"--false-positives is not for a counter: want --kind filter":              {"bench", "--false-positives", "0.1", "--kind", "counter"},
		"--distinct 11: want 1 to the number of pairs, 10":                        {"bench", "--kind", "multimap", "--distinct", "11", "--n", "10"},
		"--values-per-key 0: want":                                                {"bench", "--kind", "multimap", "--values-per-key", "0", "--n", "10"},
		"if any flags in the group [each values-per-key distinct] are set":        {"bench", "--kind", "multimap", "--values-per-key", "2", "--each", "2"},
		"if any flags in the group [false-positives bytes] are set none of the o": {"bench", "--kind", "filter", "--bytes", "2", "--false-positives", "2"},
		`no counter "dycuckoo" (want one of: `: {"bench", "--kind", "counter",
			"--table", "dycuckoo", "--n", "10"},
		`no filter "dycuckoo" (want one of: `: {"bench", "--kind", "filter",
			"--table", "dycuckoo", "--n", "10"},
		"hashes that meet":   {"bench", "--kind", "multimap", "--distinct", "2", "--keys", "line", "--n", "10"},
		"counts of 16 bytes": {"bench", "--kind", "counter", "--value-bytes", "16", "--n", "10"},
		"with one key":       {"bench", "--each", "11", "--kind", "multimap", "--n", "10"},
		"no such file":       {"join", filepath.Join(dir, "a.csv"), filepath.Join(dir, "b.csv"), "--on", "x=y"},
		"invalid argum":      {"bench", "fig", "nosuch"},
	} {
		if _, _, err := run(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("warpmap %s: %v, want %q", strings.Join(args, " "), err, want)
		}
	}
}

// TestHelpBeginsWithExamples reads the help of every command: a summary, the usage and examples come before any detail.
func TestHelpBeginsWithExamples(t *testing.T) {
	everyCommand(root(), func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		if cmd.Hidden || len(path) > 0 && slices.Contains([]string{"completion", "help"}, path[0]) {
			return
		}
		help, _, err := run(t, append(path, "--help")...)
		if err != nil || cmd.Example == "" || !strings.HasPrefix(help, cmd.Short+"\n\nUsage:\n  "+cmd.CommandPath()) {
			t.Errorf("%s --help begins with %.200q, %v", cmd.CommandPath(), help, err)
		}
		examples, details, flags := strings.Index(help, "\nExamples:\n"), strings.Index(help, cmd.Long), strings.Index(help, "\nFlags:\n")
		if cmd.Long == "" {
			details = flags
		}
		if examples < 0 || details < examples || flags < details {
			t.Errorf("%s --help has its examples at %d, its details at %d and its flags at %d", cmd.CommandPath(), examples,
				details, flags)
		}
	})
}

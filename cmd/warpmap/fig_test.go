package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/testenv"
)

// Every figure can be drawn: its CSV and a pair of pictures for each plot are there, and nothing else.
func TestFigOut(t *testing.T) {
	t.Setenv("WARPMAP_TEST_COMMAND", "1") // for figures that run this program
	for _, fig := range figureNames() {
		switch fig {
		case "gph/2", "stadium/1": // need a GPU
			continue
		case "slab/4", "shard/6", "genome/rates", "dycuckoo/15":
		default: // short runs have a figure of each kind, the next test gph/9; most have tests beside their studies, too
			if !testenv.Long() {
				continue
			}
		}
		dir := filepath.Join(t.TempDir(), "plots")
		listed := strings.Fields(must(t, "bench", "fig", fig, "--n", "300", "--out", dir))
		entries, err := os.ReadDir(dir)
		// that is a table alone
		if err != nil || len(entries) != len(listed) || len(listed) < 3 && fig != "genome/rates" || len(listed)%2 != 1 {
			t.Errorf("%s: %q listed, %v there, %v", fig, listed, entries, err)
		}
		for _, name := range listed {
			info, err := os.Stat(name)
			if err != nil || info.Size() == 0 ||
				!strings.HasPrefix(filepath.Base(name), strings.ReplaceAll(fig, "/", "-")) {
				t.Errorf("%s: file %s: %v, %v", fig, name, info, err)
			}
		}
	}
}

func TestFigTableAndJSON(t *testing.T) {
	dir := t.TempDir()
	keep := filepath.Join(dir, "kept.json")
	out := must(t, "bench", "fig", "gph/9", "--n", "500", "--json", "--keep", keep, "--out", dir)
	var got bench.Fig
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Name != "gph/9" || len(got.Rows) < 16 {
		t.Errorf("%+v, %v", got, err)
	}
	if kept, err := os.ReadFile(keep); err != nil || string(kept) != out {
		t.Errorf("kept %d bytes of %d, %v", len(kept), len(out), err)
	}
	if _, err := os.Stat(filepath.Join(dir, "gph-9.csv")); err != nil {
		t.Error(err)
	}
	out = must(t, "bench", "fig", "gph/9", "--n", "500")
	if !strings.Contains(out, "TaoBenchmark") || !strings.Contains(out, "times as many") ||
		strings.Contains(out, "nil") {
		t.Errorf("as a table:\n%s", out)
	}
}

// The study of genomes runs the commands, and what they say of their phases is less than the whole.
func TestGenomeRatesRunsCommands(t *testing.T) {
	t.Setenv("WARPMAP_TEST_COMMAND", "1")
	var fig bench.Fig
	if err := json.Unmarshal([]byte(must(t, "bench", "fig", "genome/rates", "--n", "300", "--json")), &fig); err != nil {
		t.Fatal(err)
	}
	rows, whole := 0, 0.0
	for _, r := range fig.Rows {
		at := func(column string) any { return r[fig.Column(column)] }
		what, setting := at("what").(string), at("setting")
		if !strings.HasPrefix(what, "warpmap ") {
			continue
		}
		rows++
		if wrong, _ := bench.Number(at("wrong")); wrong != 0 || at("note") != "" {
			t.Errorf("%v", r)
		}
		seconds, _ := bench.Number(at("seconds"))
		if !strings.HasPrefix(setting.(string), "of that") {
			whole = seconds
		} else if seconds > whole {
			t.Errorf("%s: %v takes %v s of %v", what, setting, seconds, whole)
		}
	}
	if rows != 9 {
		t.Errorf("%d rows of commands, want 9", rows)
	}
}

func TestBenchKeysOfGPH(t *testing.T) {
	for _, keys := range []string{"lineitem", "tao", "reddit"} {
		for _, bytes := range []string{"4", "8"} {
			var got benchResult
			if err := json.Unmarshal([]byte(must(t, "bench", "--n", "3000", "--load", "0.8", "--keys", keys,
				"--key-bytes", bytes, "--json")), &got); err != nil {
				t.Fatal(err)
			}
			if r := got.Rows[0]; r.Wrong != 0 || r.Find <= 0 {
				t.Errorf("%s %s: %+v", keys, bytes, r)
			}
		}
	}
}

func TestFindOnceCommand(t *testing.T) {
	must(t, "bench", "find-once", `{"Table":"warpcore","N":1000,"Queries":500,"Loads":[0.5],"Hits":[0.5]}`)
	must(t, "bench", "insert-once", `{"Table":"Stash","Ticket":4,"N":1000,"Load":0.9}`)
	if help := must(t, "bench", "--help"); strings.Contains(help, "-once") {
		t.Errorf("find-once and insert-once are for profilers, not for help:\n%s", help)
	}
}

func TestFigErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"CUDA":                 {"bench", "fig", "gph/2"},
		"counters of a GPU":    {"bench", "fig", "stadium/1"},
		"BuildOn":              {"bench", "--table", "warpcore", "--build", "--n", "100", "--load", "0.5"},
		"not a directory":      {"bench", "fig", "gph/9", "--n", "100", "--out", file},
		"nothing to do":        {"bench", "find-once", `{"N":1}`},
		"invalid character":    {"bench", "find-once", "x"},
		"nothing to insert":    {"bench", "insert-once", `{"N":0}`},
		"no map":               {"bench", "find-once", `{"Table":"nosuch","N":1,"Queries":1,"Loads":[1],"Hits":[1]}`},
		"want 1 to 2³², or 0 ": {"bench", "fig", "gph/14", "--n", "-5"},
	} {
		if _, _, err := run(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("warpmap %s: %v, want %q", strings.Join(args, " "), err, want)
		}
	}
}

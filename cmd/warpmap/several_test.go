package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/bench"
)

func TestBenchOverSeveral(t *testing.T) {
	for _, mode := range []string{"distributed", "independent"} {
		var got severalResult
		out := must(t, "bench", "--devices", "cpu:0,cpu:1,cpu:2", "--n", "3000", "--load", "0.5,0.8", "--mode", mode,
			"--json")
		if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Rows) != 2 || got.Mode != mode ||
			len(got.Devices) != 3 {
			t.Fatalf("%+v, %v", got, err)
		}
		for _, r := range got.Rows {
			if r.Wrong != 0 || r.Devices != 3 || r.Insert <= 0 || r.Find <= 0 || r.Filled < 0.4 {
				t.Errorf("%+v", r)
			}
		}
	}
	if out := must(t, "bench", "--devices", "cpu:0,cpu:1", "--n", "1000", "--load", "0.7"); !strings.Contains(out,
		"insert G/s") {
		t.Error(out)
	}
	var fig bench.Fig
	if err := json.Unmarshal([]byte(must(t, "bench", "fig", "shard/ask", "--devices", "cpu:0,cpu:1,cpu:2", "--n", "300",
		"--json")), &fig); err != nil || fig.Rows[len(fig.Rows)-1][0] != 3.0 {
		t.Errorf("%+v, %v", fig, err)
	}
	for want, args := range map[string][]string{
		"listed twice":                     {"bench", "--devices", "cpu:1,cpu:1", "--n", "10"},
		"want distributed or independent":  {"bench", "--devices", "cpu:0,cpu:1", "--mode", "other", "--n", "10"},
		"want map, set, counter":           {"bench", "--devices", "cpu:0,cpu:1", "--kind", "filter", "--n", "10"},
		"want 4 and 4, or 8 and 8":         {"bench", "--devices", "cpu:0,cpu:1", "--key-bytes", "16", "--n", "10"},
		"--value-bytes 4 with --devices":   {"bench", "--devices", "cpu:0", "--key-bytes", "8", "--value-bytes", "4"},
		"a set has no values":              {"bench", "--devices", "cpu:0", "--kind", "set", "--value-bytes", "4"},
		"--update with --kind counter":     {"bench", "--devices", "cpu:0", "--kind", "counter", "--update"},
		"want --kind counter or multimap":  {"bench", "--devices", "cpu:0", "--distinct", "5", "--n", "10"},
		"11 distinct keys of 10 rows":      {"bench", "--devices", "cpu:0", "--update", "--distinct", "11", "--n=10"},
		"--chosen with --devices":          {"bench", "--devices", "cpu:0", "--chosen", "0.5", "--n", "10"},
		"--mode without --devices":         {"bench", "--mode", "independent", "--n", "10"},
		"one of: dycuckoo":                 {"bench", "--devices", "cpu:0", "--table", "nosuch", "--n", "10"},
		"want 1 to 2³¹ pairs":              {"bench", "--devices", "cpu:0", "--n", "0"},
		"want auto, cpu, cpu:N, or cuda:N": {"bench", "fig", "shard/6", "--devices", "gpu"},
	} {
		if _, _, err := run(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

// Each kind is measured over several devices, in one line for each load factor.
func TestBenchKindsOverSeveral(t *testing.T) {
	for args, want := range map[string]string{
		"":               "delete G/s",
		"--kind set":     "warpcore set, 8-byte keys",
		"--kind counter": "counter", "--kind multimap --distinct 500": "values G/s",
		"--update --distinct 700": "map with updates",
	} {
		all := append(strings.Fields("bench --devices cpu:0,cpu:1 --n 3000 --load 0.6 --key-bytes 8"),
			strings.Fields(args)...)
		if out := must(t, all...); !strings.Contains(out, want) {
			t.Errorf("%s prints %s, want %q", args, out, want)
		}
		var got severalResult
		if err := json.Unmarshal([]byte(must(t, append(all, "--json")...)), &got); err != nil ||
			len(got.Rows) != 1 || got.Bytes != 8 || got.Rows[0].Wrong != 0 || got.Rows[0].Find <= 0 {
			t.Errorf("%s: %+v, %v", args, got, err)
		}
	}
}

func TestJoinOverSeveral(t *testing.T) {
	dir := t.TempDir()
	must(t, "gen", "tpch", "--sf", "0.002", "--out", dir)
	var first []byte
	path := filepath.Join(dir, "joined.csv")
	for _, devices := range []string{"cpu:0", "cpu:0,cpu:1", "cpu:0,cpu:1,cpu:2"} {
		must(t, "join", filepath.Join(dir, "orders.parquet"), filepath.Join(dir, "lineitem.parquet"), "--on",
			"o_orderkey=l_orderkey",
			"--out", path, "--table", "warpcore", "--devices", devices)
		out, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = out
		}
		if n := bytes.Count(out, []byte("\n")); !bytes.Equal(out, first) || n < 10_000 {
			t.Errorf("over %s other rows, %d of them", devices, n)
		}
	}
}

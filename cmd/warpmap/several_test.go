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
		"--kind beside --devices":          {"bench", "--devices", "cpu:0,cpu:1", "--kind", "set", "--n", "10"},
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

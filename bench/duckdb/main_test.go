package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain is the process that runs SQL where a test below has started it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == sqlMode {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Every join that the command knows runs, and gives the rows that DuckDB gives.
func TestJoins(t *testing.T) {
	dir, command := t.TempDir(), buildCommand(t)
	if out, err := exec.Command(command, "gen", "tpch", "--sf", "0.01", "--out", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	o := options{warpmap: command, device: "cpu", orders: filepath.Join(dir, "orders.parquet"), lineitem: filepath.Join(dir, "lineitem.parquet"),
		work: dir, threads: 2, runs: 1}
	for _, j := range joins {
		r := measure(o, j)
		if r.Error != "" || r.Speed <= 0 || r.DuckDB.CPU <= 0 || r.Warpmap.CPU <= 0 || r.Warpmap.Peak < 1<<20 {
			t.Errorf("%+v", r)
		}
	}
	// Rows that differ are told.
	j := joins[0]
	j.args = []string{"--how", "left"}
	j.build = half
	if r := measure(o, j); !strings.Contains(r.Error, "DuckDB's rows") || r.Speed != 0 {
		t.Errorf("an inner join is taken for a left one: %+v", r)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "out-*")); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// Distinct and top of every format and column say what DuckDB says, and what is not the same is told.
func TestColumns(t *testing.T) {
	dir, command := t.TempDir(), buildCommand(t)
	if out, err := exec.Command(command, "gen", "tpch", "--sf", "0.01", "--out", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	o := options{warpmap: command, device: "cpu", lineitem: filepath.Join(dir, "lineitem.parquet"), work: dir, threads: 2,
		runs: 1}
	n := 0
	if err := measureColumns(o, func(r result) error {
		if n++; r.Error != "" || r.Speed <= 0 || r.DuckDB.CPU <= 0 || r.Warpmap.CPU <= 0 {
			t.Errorf("%+v", r)
		}
		return nil
	}); err != nil || n != 3*len(columnsOf)*len(columnWorks) {
		t.Errorf("%d results, %v", n, err)
	}
	distinct, approx, top := columnWorks[0], columnWorks[1], columnWorks[2]
	for what, err := range map[string]error{
		"numbers":   distinct.compare("7", "8"),
		"estimates": approx.compare("700", "1000"),
		"values":    top.compare("k,count\n1,5\n2,4\n", "1,5;3,4"),
		"counts":    top.compare("k,count\n1,5\n", "1,6"),
	} {
		if err == nil {
			t.Errorf("%s that differ are not told", what)
		}
	}
	if err := top.compare("k,count\n1,5\n2,4\n", "1,5;2,4"); err != nil {
		t.Error(err)
	}
}

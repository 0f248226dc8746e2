package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/internal/bench"
	gphbench "github.com/warpmap/warpmap/internal/bench/gph"
)

func TestTune(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sub", "p.json")
	args := []string{"tune", "gph", "--n", "1500", "--trials", "3", "--load", "0.6", "--out", file}
	var got struct {
		Profile string
		Where   bench.Where
		Trials  []gphbench.Trial
	}
	if err := json.Unmarshal([]byte(must(t, append(args, "--json")...)), &got); err != nil || got.Profile != file ||
		len(got.Trials) != 3 || got.Trials[0].Bucket == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := gph.ReadProfile(file, got.Where.Model); err != nil {
		t.Error(err)
	}
	// What is there for other tables stays; a file that is no profile is written anew, and that is said.
	p := &gph.Profile{}
	p.Set(gph.Tuned{KeyBytes: 8, ValueBytes: 8, LoadFactor: 0.8, Setting: gph.Setting{Bucket: 8, VirtualBuckets: 8,
		CellBytes: 1, KeysPerCell: 4, InsertGroup: 1, FindGroup: 1}})
	if err := p.Save(file, got.Where.Model); err != nil {
		t.Fatal(err)
	}
	if out := must(t, args...); !strings.Contains(out, "the defaults") || !strings.Contains(out, file) {
		t.Errorf("as a table:\n%s", out)
	}
	if p, err := gph.ReadProfile(file, got.Where.Model); err != nil || p.Tuned[0].KeyBytes != 8 {
		t.Errorf("%+v, %v", p, err)
	}
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, err := run(t, args...); err != nil || !strings.Contains(errs, "written anew") {
		t.Errorf("%s, %v", errs, err)
	}
}

// Without --out a profile goes to WARPMAP_PROFILES, and where that is off, nowhere.
func TestTuneFile(t *testing.T) {
	t.Setenv("WARPMAP_PROFILES", "off")
	if _, _, err := run(t, "tune", "gph", "--n", "1500", "--trials", "1"); err == nil ||
		!strings.Contains(err.Error(), "--out") {
		t.Errorf("kept somewhere: %v", err)
	}
	dir := t.TempDir()
	t.Setenv("WARPMAP_PROFILES", dir)
	must(t, "tune", "gph", "--n", "1500", "--trials", "1", "--load", "0.5")
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || !strings.HasPrefix(left[0].Name(), "gph-") {
		t.Errorf("%v, %v", left, err)
	}
	if _, _, err := run(t, "tune", "gph", "--objective", "nosuch"); err == nil ||
		!strings.Contains(err.Error(), "want one of") {
		t.Errorf("objective: %v", err)
	}
}

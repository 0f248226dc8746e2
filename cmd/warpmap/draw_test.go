package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// What fig has kept is drawn as fig draws it.
func TestDraw(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept.json")
	first := strings.Fields(must(t, "bench", "fig", "gph/15c", "--n", "300", "--keep", kept, "--out",
		filepath.Join(dir, "first")))
	again := strings.Fields(must(t, "bench", "draw", kept, "--out", filepath.Join(dir, "again")))
	if len(first) != len(again) || len(first) < 3 {
		t.Fatalf("%q, and then %q", first, again)
	}
	for i := range first {
		one, err := os.ReadFile(first[i])
		two, err2 := os.ReadFile(again[i])
		if err != nil || err2 != nil || filepath.Base(first[i]) != filepath.Base(again[i]) ||
			filepath.Ext(first[i]) != ".svg" && string(one) != string(two) {
			t.Errorf("%s and %s differ: %v, %v", first[i], again[i], err, err2)
		}
	}
	if err := os.WriteFile(kept, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := run(t, "bench", "draw", kept, "--out", dir); err == nil ||
		!strings.Contains(err.Error(), "no figure") {
		t.Errorf("an empty file: %v", err)
	}
}

// The figures of bench/results can be drawn.
func TestDrawKept(t *testing.T) {
	testenv.ByTurns(t)
	if testing.Short() {
		t.Skip("one goroutine draws: slow for the race detector, and nothing for it to find")
	}
	files, err := filepath.Glob("../../bench/results/*/fig-*.json")
	if err != nil || len(files) == 0 {
		t.Skip("the sources are not here")
	}
	if written := strings.Fields(must(t, append([]string{"bench", "draw", "--out", t.TempDir()}, files...)...)); len(written) < 3*len(files) {
		t.Errorf("%d files of %d figures", len(written), len(files))
	}
}

// TestDrawTwice draws a figure that was kept twice: the second does not replace the first.
func TestDrawTwice(t *testing.T) {
	dir := t.TempDir()
	kept := []string{filepath.Join(dir, "one.json"), filepath.Join(dir, "two.json")}
	must(t, "bench", "fig", "gph/15c", "--n", "300", "--keep", kept[0])
	text, err := os.ReadFile(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept[1], text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err = run(t, "bench", "draw", kept[0], kept[1], "--out", filepath.Join(dir, "plots"))
	if err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), "two.json: its figure gph/15c is drawn from ") {
		t.Errorf("the same figure twice: %v", err)
	}
}

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/internal/witness"
)

func TestCompile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kernels")
	for want, args := range map[string][]string{
		"no kind of table":              {"--arch", "sm_90", "--kind", "heap"},
		"want one of slab, warpcore":    {"--arch", "sm_90", "--table", "gph", "--kind", "set"},
		"or strings, over a map":        {"--arch", "sm_90", "--kind", "string"},
		"none over several GPUs":        {"--arch", "sm_90", "--kind", "filter", "--shard"},
		"--value-bytes 2":               {"--arch", "sm_90", "--kind", "strings", "--value-bytes", "2"},
		"want keys of 4 or 8 bytes":     {"--arch", "sm_90", "--key-bytes", "5"},
		"required flag(s) \"arch\" not": {"--out", dir},
	} {
		if _, _, err := run(t, append([]string{"compile", "--out", dir}, args...)...); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
	_, err := device.InfoFor("sm_90")
	testenv.Require(t, "nvrtc", err)
	witness.Nothing = !testenv.Long() // other tests have NVRTC compile slab's kernels, and those that spread a set
	out, progress, err := run(t, "compile", "--arch", "sm_90", "--table", "slab", "--kind", "set", "--key-bytes", "4",
		"--shard", "--out", dir)
	witness.Nothing = false
	if err != nil || !strings.Contains(out, "programs, ") || strings.Contains(out, " 0 programs") ||
		!strings.Contains(progress,
			"sm_90: set of slab, keys of 4 bytes\nsm_90: spreading set over several GPUs, keys of 4 bytes\n") {
		t.Errorf("%q, %q, %v", out, progress, err)
	}
	if _, _, err := run(t, "compile", "--arch", "sm_9", "--out", dir); err == nil ||
		!strings.Contains(err.Error(), "sm_9") {
		t.Errorf("no such architecture: %v", err)
	}
	if !testenv.Long() {
		return // TestCompileAheadStrings has it
	}
	out, progress, err = run(t, "compile", "--arch", "sm_90", "--table", "gph", "--kind", "strings", "--value-bytes",
		"4", "--out", filepath.Join(dir, "strings"))
	if err != nil || !strings.Contains(out, "programs, ") || strings.Contains(out, " 0 programs") ||
		progress != "sm_90: strings of gph, values of 4\n" {
		t.Errorf("%q, %q, %v", out, progress, err)
	}
}

// TestCompileForOthersLast names an architecture that this machine cannot compile for after one that it can: nothing is
// compiled for the first.
func TestCompileForOthersLast(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	own, other := "amd64", "arm64"
	if runtime.GOARCH == other {
		own, other = other, own
	}
	dir := filepath.Join(t.TempDir(), "kernels")
	_, progress, err := run(t, "compile", "--arch", own+","+other, "--table", "warpcore", "--kind", "filter", "--key-bytes",
		"4", "--out", dir)
	if err == nil || exitCode(err) != exitDevice || progress != "" {
		t.Errorf("for %s and %s: %v, %s", own, other, err, progress)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder of half of the kernels: %v", err)
	}
}

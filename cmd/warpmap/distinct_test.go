package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/join"
)

// The command counts exactly without a device, and estimates with one; it says with JSON what it found, and ends with
// the code of what is wrong.
func TestDistinct(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.csv")
	var text strings.Builder
	text.WriteString("user;name\n")
	for i := range 3000 {
		fmt.Fprintf(&text, "%d;n%d\n", i%1000, i%7)
	}
	if err := os.WriteFile(path, []byte(text.String()+"NA;n0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--delimiter", ";", "--null", "NA"}
	distinct := func(args ...string) string {
		t.Helper()
		return must(t, append(append([]string{"distinct", path}, flags...), args...)...)
	}
	if out := distinct("--column", "user"); out != "1000\n" {
		t.Errorf("%q", out)
	}
	if out := distinct("-c", "name", "--threads", "1", "--quiet"); out != "7\n" {
		t.Errorf("%q", out)
	}
	for _, approx := range []bool{false, true} {
		args := []string{"-c", "user", "--json"}
		if approx {
			args = append(args, "--approx", "--device", "cpu")
		}
		var s join.DistinctSummary
		if err := json.Unmarshal([]byte(distinct(args...)), &s); err != nil {
			t.Fatal(err)
		}
		if s.Rows != 3001 || s.Nulls != 1 || s.Type != "int64" || s.Total <= 0 || (s.StandardError != 0) != approx ||
			(s.Device == "cpu") != approx || s.Distinct < 950 || s.Distinct > 1050 || s.Distinct != 1000 && !approx {
			t.Errorf("--approx %t: %+v", approx, s)
		}
	}
	for args, want := range map[string]int{
		"":                                   exitUsage,
		path:                                 exitUsage,
		path + " -c other":                   exitUsage,
		path + " -c a --format":              exitUsage,
		path + " -c a --format xml":          exitUsage,
		path + " -c user --memory -1":        exitUsage,
		path + " -c user --threads -1":       exitUsage,
		path + " -c user --delimiter ;;":     exitUsage,
		path + ".csv -c user":                exitInput,
		path + " -c user;name --memory 1000": exitMemory,
		path + " -c user;name --approx --device cpu --device-memory 10kB": exitMemory,
	} {
		_, _, err := run(t, append([]string{"distinct"}, strings.Fields(args)...)...)
		if got := exitCode(err); err == nil || got != want {
			t.Errorf("distinct %s: %v ends with %d, want %d", args, err, got, want)
		}
	}
}

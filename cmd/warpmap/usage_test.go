package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFlagsOutOfRange gives flags values that no command can use: each is wrong usage, and the message names the flag.
func TestFlagsOutOfRange(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"a.csv": "k,v\n1,a\n", "g.fa": ">g\nACGTACGT\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		"bench --n 10 --load NaN":                                           "--load NaN: want 0.001 to 1",
		"bench --n 10 --load 0":                                             "--load 0: want 0.001 to 1",
		"bench --n 10 --load 0.5,1e30":                                      "--load 1e+30: want 0.001 to 1",
		"bench --n 10 --hits NaN --load 0.5":                                "NaN of them hits",
		"bench --n 10 --hits 2 --load 0.5":                                  "2 of them hits",
		"bench --n -5":                                                      "-5 pairs",
		"bench --n 10 --queries -1":                                         "-1 look-ups",
		"bench --n 10 --batch -1":                                           "batches of -1",
		"bench --n 10 --key-bytes 3":                                        "keys of 3 bytes",
		"bench --n 10 --value-bytes 3":                                      "values of 3 bytes",
		"bench --n 10 --key-bytes 16 --table gph":                           "cannot be a",
		"bench --n 10 --kind counter --value-bytes 16":                      "counts of 16 bytes",
		"bench --n 10 --kind multimap --value-bytes 16":                     "multimaps of 4+16 bytes",
		"bench --n 10 --kind cache --key-bytes 16":                          "keys of 16 bytes",
		"bench --n 10 --kind nosuch":                                        `--kind: no kind of table "nosuch"`,
		"bench --n 10 --table nosuch":                                       `--table: no map "nosuch"`,
		"bench --n 10 --kind cache --table gph":                             `--table: no cache "gph"`,
		"bench --n 10 --kind filter --false-positives NaN":                  "--false-positives NaN: want over 0, below 1",
		"bench --n 10 --kind filter --false-positives 0":                    "--false-positives 0: want over 0, below 1",
		"bench --n 10 --kind filter --bytes -1":                             "--bytes -1: want a size",
		"bench --n 10 --keys nosuch":                                        `keys "nosuch"`,
		"bench --devices cpu:0,cpu:1 --n 10 --regions -5":                   "--regions -5: want -1 or more",
		"bench --devices cpu:0,cpu:1 --n 10 --piece -5":                     "--piece -5: want 0 or more",
		"bench --devices cpu:0,cpu:1 --n 10 --hits NaN":                     "NaN of the look-ups hit",
		"bench --devices cpu:0,cpu:1 --n 0":                                 "0 pairs on each",
		"bench --devices cpu:0,cpu:1 --n 10 --update --distinct 99":         "99 distinct keys of 20 rows",
		"bench --devices cpu:0,cpu:1 --n 10 --load 2":                       "--load 2: want 0.001 to 1",
		"bench --devices cpu:0,,cpu:1":                                      "a name is missing between commas",
		"bench --devices cpu:0,cpu:0":                                       "cpu:0 is listed twice",
		"bench --devices 0,cuda:0":                                          "cuda:0 is listed twice",
		"join a.csv a.csv --on k --devices abacus":                          "want auto, cpu, cpu:N, or cuda:N",
		"bench limits --bytes 1":                                            "--bytes 1: want 1024 or more",
		"bench limits --n 0":                                                "--n 0: want 1 or more",
		"bench limits --bytes 900000TB":                                     "--bytes 900000000000000000: there is",
		"bench limits --n 9000000000000000000":                              "--n 9000000000000000000: ",
		"bench fig gph/9 --n -1":                                            "-1 pairs",
		"bench fig slab/churn --batches -1":                                 "-1 batches",
		"bench fig library/churn --operations -1":                           "-1 operations",
		"bench fig gph/15c --n 300 --batches 7":                             "--batches with figure gph/15c: only dycuckoo/11, ",
		"bench fig gph/15c --n 300 --operations 7":                          "--operations with figure gph/15c: only library/churn take it",
		"bench fig gph/15c --n 300 --devices cpu:0,cpu:1":                   "--devices with figure gph/15c: only shard/6, shard/batch, shard/ask take it",
		"tune gph --n 10 --load NaN --out p.json":                           "load factor NaN",
		"tune gph --n 10 --trials -1 --out p.json":                          "-1 trials",
		"tune gph --n 10 --key-bytes 3 --out p.json":                        "keys of 3 bytes",
		"tune gph --n 10 --objective nosuch --out p.json":                   `objective "nosuch"`,
		"tune gph --n 10 --keys nosuch --out p.json":                        `keys "nosuch"`,
		"launch -n 0 -- true":                                               "--processes 0: want 1 to 1024",
		"launch -n 1025 -- true":                                            "--processes 1025: want 1 to 1024",
		"distinct a.csv -c k --memory 0.3":                                  "want a size",
		"compile --arch sm_90 --out o --table warpcore,nosuch":              `--table nosuch: want some of `,
		"compile --arch sm_90 --out o --table gph --kind map,filter":        "--kind filter with --table gph: want one of cuckoo, warpcore",
		"compile --arch sm_90 --out o --table cuckoo --kind filter,strings": "--kind strings with --table cuckoo: want one of dycuckoo",
		"join a.csv a.csv --on k --count --select v":                        "--count and --select: a count has no columns",
		"join a.csv a.csv --on k --count --out-format csv":                  "--count and --out-format: ",
		"join a.csv a.csv --on k --count --compression gzip":                "--count and --compression: ",
		"join a.csv a.csv --on k --count --rows-per-file 3":                 "--count and --rows-per-file: ",
		"classify serve absent.db --max-request -1":                         "--max-request -1, ",
		"classify serve absent.db --grace -1s":                              "--grace -1s: want 0 or more",
		"classify serve absent.db --max-time -1s":                           "--max-time -1s, ",
	} {
		out, _, err := run(t, strings.Fields(args)...)
		if err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("warpmap %s: %v, want wrong usage: %s%s", args, err, want, out)
		}
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) != 2 {
		t.Errorf("files are left: %v, %v", entries, err)
	}
}

// TestEmptyFlags gives flags an empty value, as a variable of the shell that is not set does. Only those whose help says
// that ” means none take it.
func TestEmptyFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("a.csv", []byte("k,v\n1,a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, flag := range map[string]string{
		"join a.csv a.csv --on k": "out format build-format out-format table compression devices delimiter", "bench --n 10": "table keep",
		"bench limits": "keep", "kmers count a.csv -k 3": "devices out", "tune gph --n 10": "out",
		"classify query a b": "report abundances", "distinct a.csv": "column",
	} {
		for _, flag := range strings.Fields(flag) {
			out, _, err := run(t, append(strings.Fields(args), "--"+flag, "")...)
			if err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), `"--`+flag+`" flag: it is empty`) &&
				!strings.Contains(err.Error(), `--`+flag+`" flag: it is empty`) || out != "" {
				t.Errorf("%s --%s '': %v, %s", args, flag, err, out)
			}
		}
	}
	if got := must(t, "join", "a.csv", "a.csv", "--on", "k", "--count", "--quote", ""); got != "1\n" {
		t.Errorf("no quotes: %s", got)
	}
}

// TestKeepIsCheckedFirst names files that cannot be written: nothing is measured for them.
func TestKeepIsCheckedFirst(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"bench --n 100 --load 0.5 --keep", "bench --devices cpu:0,cpu:1 --n 100 --load 0.5 --keep",
		"bench limits --bytes 4KB --n 10 --keep", "bench fig gph/15c --n 100 --keep", "tune gph --n 100 --trials 1 --out"} {
		for name, want := range map[string]string{sub: "a folder", "-": "want the name of a file"} {
			_, _, err := run(t, append(strings.Fields(args), name)...)
			if err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: %v, want wrong usage: %s", args, name, err, want)
			}
		}
	}
	if _, _, err := run(t, "bench", "--n", "100", "--load", "7", "--keep", filepath.Join(dir, "new", "x.json")); err == nil {
		t.Error("a load factor of 7")
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder for a file that was not written: %v", err)
	}
	if _, _, err := run(t, "bench", "limits", "--keep", "a.json", "--keep", "b.json"); err == nil ||
		!strings.Contains(err.Error(), "already: want one") {
		t.Errorf("two files to keep: %v", err)
	}
}

// TestLimitsOverASize gives bench limits a size as all other commands take one.
func TestLimitsOverASize(t *testing.T) {
	if out := must(t, "bench", "limits", "--bytes", "64KB", "--n", "100"); !strings.Contains(out, "64-bit compare-and-swap") {
		t.Error(out)
	}
}

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/join"
	"github.com/warpmap/warpmap/table"
)

// Each kind of failure has its exit code, and a message of one line.
func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.csv": "k,v\n1,a\n", "words.csv": "k\nx\n", "bad.csv": "k\n\"1\n",
		"bad.parquet": "PAR1", "bad.jsonl": "[1]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		code int
		args string
	}{
		{0, "join a.csv a.csv --on k --device cpu"},
		{0, "version"},
		{0, "--help"},
		{0, "help join"},
		{exitUsage, "jion"},
		{exitUsage, "help nosuch"},
		{exitUsage, "help join nosuch"},
		{exitUsage, "completion nosuch"},
		{exitUsage, "gen orders"},
		{exitUsage, "tune warpcore"},
		{exitUsage, "join a.csv --on k"},
		{exitUsage, "join a.csv a.csv"},
		{exitUsage, "join a.csv a.csv --build a.csv"},
		{exitUsage, "join a.csv a.csv --on k --how sideways"},
		{exitUsage, "join a.csv a.csv --on k --format xml"},
		{exitUsage, "join a.csv a.csv --on k --nosuch"},
		{exitUsage, "distinct EMPTY -c k"},
		{exitUsage, "kmers count a.fa EMPTY -k 3"},
		{exitUsage, "gen tpch --sf -1 --out x"},
		{exitUsage, "gen tpch --out EMPTY"},
		{exitUsage, "gen tpch --out a.csv/x"},
		{exitUsage, "compile --arch EMPTY --out x"},
		{exitUsage, "compile --arch nosuch --out x"},
		{exitUsage, "compile --arch amd64,sm_9 --out x"},
		{exitUsage, "bench --n 99999999999999 --device cpu"},
		{exitUsage, "tune gph --n 99999999999999 --device cpu"},
		{exitUsage, "serve --flight 127.0.0.1:0 --table t=a.csv --key k --family nosuch"},
		{exitUsage, "serve --flight 127.0.0.1:0 --device cpu --quiet --table t=a.csv --key nosuch"},
		{exitUsage, "serve --flight 127.0.0.1:0 --device cpu --quiet --table t=a.csv --key k --value nosuch"},
		{exitUsage, "demo --sf -1"},
		{exitInput, "bench draw absent.json"},
		{exitInput, "bench draw a.csv"},
		{exitInput, "join absent.csv a.csv --on k --device cpu"},
		{exitInput, "join a.csv bad.csv --on k --device cpu"},
		{exitInput, "join a.csv bad.parquet --on k --device cpu"},
		{exitInput, "join a.csv bad.jsonl --on k --device cpu"},
		{exitInput, "join a.csv *.nothing --on k --device cpu"},
		{exitInput, "join a.csv words.csv --on k --device cpu"},
		{exitUsage, "join a.csv a.csv --on nosuch --device cpu"},
		{exitUsage, "join a.csv a.csv --on k --select nosuch --device cpu"},
		{exitUsage, "join a.csv a.csv --on k --select k,k --device cpu"},
		{exitUsage, "join a.csv a.csv --on k --out x.csv.gz --compression zstd --device cpu"},
		{exitUsage, "join a.csv a.csv --on k --out x.csv --compression brotli --device cpu"},
		{exitUsage, "join a.csv a.csv --on k --out x.xml --device cpu"},
		{exitUsage, "join a.csv a.csv --on k --types k=number"},
		{exitUsage, "join a.csv a.csv --on k --types k=text --types k=date"},
		{exitUsage, "join a.csv a.csv --on k --types nosuch=text --device cpu"},
		{exitUsage, "join a.csv a.csv --on k --delimiter ;; --device cpu"},
		{exitUsage, "join a.csv a.csv --on k --delimiter \" --device cpu"},
		{exitInput, "join a.csv a.csv --on k --types v=date --device cpu"},
		{exitUsage, "join a.csv a.csv --on k --table nosuch --device cpu"},
		{exitUsage, "join - - --on k --format csv --device cpu"},
		{exitUsage, "join a.csv a.csv --on k --rows-per-file 3 --device cpu"},
		{exitDevice, "join a.csv a.csv --on k --device cuda:99"},
		{exitUsage, "join a.csv a.csv --on k --device abacus"},
		{exitUsage, "devices --device cpu:x"},
		{exitUsage, "join a.csv a.csv --on k --devices cpu:0,cpu:0"},
		{exitUsage, "join a.csv a.csv --on k --devices joined"},
		{exitOther, "join a.csv a.csv --on k --device cpu --out no/where.csv"},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			args[i] = strings.TrimPrefix(args[i], "EMPTY")
		}
		cmd := exec.Command(os.Args[0], args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "WARPMAP_TEST_COMMAND=1")
		var said, out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &said
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != c.code || got != 0 && !strings.HasPrefix(said.String(),
			"warpmap: ") || got != 0 && out.Len() > 0 || got > exitUsage && strings.Count(said.String(), "\n") != 1 {
			t.Errorf("warpmap %s ends with %d, want %d: %s%s", c.args, got, c.code, &said, &out)
		}
	}
	for err, want := range map[error]string{
		errors.New("unknown flag: --x"):  "unknown flag: --x\nusage: warpmap gen tpch --sf SCALE --out DIR [flags]; warpmap gen tpch --help says more",
		&ranError{errors.New("no room")}: "no room",
	} {
		cmd, _, _ := root().Find([]string{"gen", "tpch"})
		if got := withUsage(cmd, err); got.Error() != want || exitCode(got) != exitCode(err) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	_, absent := join.Open(filepath.Join(dir, "absent.csv"))
	for code, err := range map[int]error{
		exitMemory: &ranError{&table.FullError{}},
		exitDevice: &ranError{&device.FaultError{}},
		exitInput:  &ranError{errors.Join(errors.New("x"), absent)},
		exitOther:  &ranError{errors.New("x")},
		exitUsage:  errors.New("unknown command"),
	} {
		if got := exitCode(err); got != code {
			t.Errorf("%T: %d, want %d", err, got, code)
		}
	}
	if got := exitCode(&ranError{fmt.Errorf("%w: none", device.ErrNoCompiler)}); got != exitDevice {
		t.Errorf("no compiler: %d", got)
	}
	if got := exitCode(&ranError{&deviceError{&device.OutOfMemoryError{}}}); got != exitMemory {
		t.Errorf("a device without memory: %d", got)
	}
	if help := must(t, "join", "--help"); !strings.Contains(help, exitCodes) ||
		!strings.Contains(root().Long, exitCodes) {
		t.Errorf("no exit codes in\n%s", help)
	}
}

// Lines of JSON are all that comes where a join writes it beside its rows.
func TestJSONBesideRows(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("a.csv", []byte("k,v\n1,a\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "join", "a.csv", "a.csv", "--on", "k", "--json") // --device auto tells which it is
	cmd.Env = append(os.Environ(), "WARPMAP_TEST_COMMAND=1")
	var said bytes.Buffer
	cmd.Stderr = &said
	var s join.Summary
	rows, err := cmd.Output()
	if err != nil || string(rows) != "k,v,v_build\n1,a,a\n" || json.Unmarshal(said.Bytes(), &s) != nil || s.OutRows != 1 {
		t.Errorf("%v: %q %s", err, rows, &said)
	}
}

// Messages say what is wanted, in the words of the command line.
func TestMessages(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"a.csv": "k,v\n1,a\n", "s.csv": "k;v\n1;a\n", "tab.csv": "k\tv\n", "e.parquet": "",
		"t.parquet": "k,v\n1,2\n", "half.parquet": "PAR1 and no end", "p.csv": "PAR1\x15\xff\n"} {
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := run(t, "kmers", "count", "a.fa", "-k", "3", "--min", "-1"); err == nil ||
		!strings.Contains(err.Error(), "want a whole number, 0 or more") {
		t.Error(err)
	}
	for args, want := range map[string]string{
		"a.csv a.csv --limit -1":                        "--limit -1: want a number that is not negative",
		"a.csv a.csv --limit x":                         `invalid argument "x" for "--limit" flag: want a whole number`,
		"a.csv a.csv --limit 9999999999999999999":       `"--limit" flag: want a number that is not so large`,
		"a.csv a.csv --nulls-equal=maybe":               `invalid argument "maybe" for "--nulls-equal" flag: want true or false`,
		"a.csv a.csv --device gpu":                      `invalid argument "gpu" for "--device" flag: want auto, cpu, cpu:N, or cuda:N`,
		"a.csv a.csv --table nosuch":                    `--table: a family "nosuch": want one of dycuckoo, gph`,
		"a.csv a.csv --null ,":                          `--null ",": want words, separated by commas`,
		"a.csv a.csv --quote ab":                        `--quote: "ab": want one character of ASCII`,
		"a.csv a.csv --compression brotli":              "standard output: csv compressed with brotli: want one of none, gzip, zstd",
		"a.csv a.csv --rows-per-file 3":                 "3 rows a file, on standard output: want the name of a folder",
		"a.csv a.csv --rows-per-file -3 --out o/":       "-3 rows a file: want a number above 0",
		"a.csv a.csv --out o.csv.gz --compression zstd": "o.csv.gz: the name says gzip, and the compression is zstd: want another name, or gzip",
		"a.csv s.csv":                                   "its columns: k;v; if fields have ; between them, say so (--delimiter ';')",
		"tab.csv a.csv":                                 `if fields have \t between them, say so (--delimiter '\t')`,
		"a.csv s.csv --delimiter ;":                     "if fields have , between them, say so (--delimiter ',')",
		"a.csv e.parquet":                               "e.parquet: not a Parquet file: it is empty",
		"a.csv t.parquet":                               "t.parquet: not a Parquet file: it does not begin with PAR1",
		"a.csv half.parquet":                            "half.parquet: not a whole Parquet file: its end",
		"a.csv p.csv":                                   "p.csv: no text: it begins as parquet does",
		"a.csv a.csv --types w=text":                    `a type for column "w", which no input has; their columns: k, v; k, v`,
	} {
		out, _, err := run(t, append([]string{"join", "--on", "k"}, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%s: %v, want %q%s", args, err, want, out)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Setenv("WARPMAP_COMMIT", "0123abc and changes") // builds of tests note none
	var v version
	if err := json.Unmarshal([]byte(must(t, "version", "--json")), &v); err != nil {
		t.Fatal(err)
	}
	if v.Version == "" || !strings.HasPrefix(v.Go, "go1.") || !strings.Contains(v.Platform, "linux/") ||
		len(v.Devices) == 0 || !strings.HasPrefix(v.Devices[len(v.Devices)-1], "cpu (") {
		t.Errorf("%+v", v)
	}
	if v.Commit != "0123abc" || !v.Modified {
		t.Errorf("%+v", v)
	}
	for _, commit := range []string{"0123abc and changes", ""} {
		t.Setenv("WARPMAP_COMMIT", commit)
		want := "\ncommit: " + cmp.Or(commit, "unknown") + "\n"
		if out := must(t, "version"); !strings.HasPrefix(out, "warpmap ") || !strings.Contains(out, "\ndevice: cpu (") || !strings.Contains(out, want) {
			t.Errorf("%s\nwant %s", out, want)
		}
	}
}

// Inputs and outputs as the command's help says.
func TestJoinInputsAndOutputs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"users.jsonl": `{"user":1,"name":"Ann"}` + "\n" + `{"user":2,"name":"Bo"}` + "\n", "more.txt": "user,name\n3,Cy\n",
		"events/day=2024-01-01/a.csv": "user,what\n1,x\n2,y\n", "events/day=2024-01-02/b.tsv": "user\twhat\n1\tz\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	must(t, "join", "users.jsonl", "events", "--on", "user", "--out", "o.csv")
	must(t, "join", "users.jsonl", "events/*/*", "--on", "user", "--out", "o.tsv", "--select", "name,day")
	must(t, "join", "--build", "users.jsonl", "--probe", "events/day=2024-01-01", "--probe", "events/day=2024-01-02",
		"--on", "user", "--out", "o.jsonl")
	must(t, "join", "users.jsonl", "more.txt", "--probe-format", "csv", "--on", "user", "--how", "anti", "--out",
		"o.txt", "--out-format", "csv")
	must(t, "join", "users.jsonl", "events", "--on", "user", "--out", "o", "--rows-per-file", "2", "--out-format",
		"csv", "--compression", "gzip")
	must(t, "join", "users.jsonl", "o", "--on", "user", "--how", "semi", "--out", "again.csv")
	for name, want := range map[string]string{
		"o.csv":     "user,what,day,name\n1,x,2024-01-01,Ann\n2,y,2024-01-01,Bo\n1,z,2024-01-02,Ann\n",
		"o.tsv":     "name\tday\nAnn\t2024-01-01\nBo\t2024-01-01\nAnn\t2024-01-02\n",
		"o.jsonl":   `{"user":1,"what":"x","name":"Ann"}` + "\n" + `{"user":2,"what":"y","name":"Bo"}` + "\n" + `{"user":1,"what":"z","name":"Ann"}` + "\n",
		"o.txt":     "user,name\n3,Cy\n",
		"again.csv": "user,what,day,name\n1,x,2024-01-01,Ann\n2,y,2024-01-01,Bo\n1,z,2024-01-02,Ann\n",
	} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	if names, _ := filepath.Glob("o/*"); len(names) != 2 || names[1] != "o/part-00001.csv.gz" {
		t.Errorf("%s", names)
	}
}

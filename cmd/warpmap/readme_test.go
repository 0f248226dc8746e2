package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// README's commands that make data and join it do as they stand there, one after the other.
func TestReadmeJoinsRun(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if os.IsNotExist(err) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	d, err := device.Open("auto")
	testenv.Require(t, "cpu", err)
	d.Close()
	tools, dir, found := commandFolder(t), t.TempDir(), 0
	for _, block := range regexp.MustCompile("(?ms)^```\\w*\n(.*?)^```").FindAllStringSubmatch(string(readme), -1) {
		for line := range strings.Lines(block[1]) {
			if !regexp.MustCompile(`warpmap (gen|join|devices|version)\b`).MatchString(line) {
				continue
			}
			found++
			cmd := exec.Command("sh", "-ec", line)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("README.md's %s: %v: %s", line, err, out)
			}
		}
	}
	if found < 6 {
		t.Errorf("README.md has %d commands that make or join data", found)
	}
}

// The commands in README's fences exist, with the flags that they are given there.
func TestReadmeCommandsExist(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if os.IsNotExist(err) { // a test binary that runs far from the sources
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	word, found := regexp.MustCompile(`^[a-z]+$`), 0
	for _, block := range regexp.MustCompile("(?ms)^```\\w*\n(.*?)^```").FindAllStringSubmatch(string(readme), -1) {
		for _, command := range regexp.MustCompile(`&&|[|;\n]`).Split(block[1], -1) {
			args := strings.Fields(strings.TrimPrefix(strings.TrimSpace(command), "go run ./cmd/"))
			if len(args) == 0 || args[0] != "warpmap" {
				continue
			}
			found++
			args = args[1:]
			sub := args
			if i := slices.IndexFunc(args, func(a string) bool { return !word.MatchString(a) }); i >= 0 {
				sub = args[:i]
			}
			help, errs, err := run(t, append(slices.Clone(sub), "--help")...)
			if err != nil || !strings.Contains(help, "\n  warpmap "+strings.Join(sub, " ")) {
				t.Errorf("README.md has %q, but there is no command %q: %v\n%s%s", command, strings.Join(sub, " "), err, help, errs)
				continue
			}
			for _, a := range args {
				flag, _, _ := strings.Cut(a, "=")
				if strings.HasPrefix(flag, "--") && !strings.Contains(help, " "+flag+" ") {
					t.Errorf("README.md has %q, but warpmap %s has no %s", command, strings.Join(sub, " "), flag)
				}
			}
		}
	}
	if found == 0 {
		t.Error("README.md shows no command")
	}
}

// The examples of warpmap join --help do as they stand there.
func TestJoinExamplesRun(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	tools, dir := commandFolder(t), t.TempDir()
	shell := func(line string) {
		t.Helper()
		cmd := exec.Command("sh", "-ec", line)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", line, err, out)
		}
	}
	for name, text := range map[string]string{
		"customers.csv": "id,name\n1,a\n2,b\n", "sales.csv": "customer,what\n1,x\n3,y\n", "users.csv": "user,n\n1,a\n", "vip.csv": "user\n1\n",
		"users.jsonl": "{\"user\":1}\n", "days.csv": "region,day\nN,2024-02-29\n", "e.csv": "user,region,day\n1,N,2024-02-29\n2,S,2024-03-01\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	shell("warpmap gen tpch --sf 0.001 --out .; mkdir -p events/day=2024-02-29; gzip -c e.csv >events.csv.gz")
	for _, out := range []string{"events.parquet", "events.arrow", "events/day=2024-02-29/x.parquet"} {
		shell("warpmap join e.csv e.csv --on user --how semi --quiet --out " + out)
	}
	shell("warpmap join days.csv days.csv --on day --how semi --quiet --out days.parquet")
	found := 0
	for line := range strings.Lines(joinCommand().Example) {
		if line = strings.TrimSpace(line); strings.Contains(line, "warpmap join ") {
			found++
			shell(line)
		}
	}
	if found < 8 {
		t.Errorf("%d examples", found)
	}
}

// commandFolder is a folder with this test's program as the command warpmap.
func commandFolder(t *testing.T) string {
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nWARPMAP_TEST_COMMAND=1 exec %q \"$@\"\n", os.Args[0])
	if err := os.WriteFile(filepath.Join(dir, "warpmap"), []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

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
	tools, dir, found := t.TempDir(), t.TempDir(), 0
	script := fmt.Sprintf("#!/bin/sh\nWARPMAP_TEST_COMMAND=1 exec %q \"$@\"\n", os.Args[0])
	if err := os.WriteFile(filepath.Join(tools, "warpmap"), []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
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

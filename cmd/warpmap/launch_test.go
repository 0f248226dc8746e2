package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warpmap/warpmap/internal/bench"
)

// launch runs a script in so many processes.
func launch(ctx context.Context, script string, flags ...string) (out string, err error) {
	cmd := root()
	var text bytes.Buffer
	cmd.SetOut(&text)
	cmd.SetErr(&text)
	cmd.SetArgs(append(append([]string{"launch"}, flags...), "--", "sh", "-c", script))
	err = cmd.ExecuteContext(ctx)
	return text.String(), err
}

func TestLaunch(t *testing.T) {
	dir := t.TempDir()
	_, err := launch(t.Context(),
		`echo "$RANK $LOCAL_RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT $WARPMAP_TOKEN" >`+dir+`/$RANK`, "-n", "3")
	if err != nil {
		t.Fatal(err)
	}
	var rest []string
	for _, rank := range []string{"0", "1", "2"} {
		text, err := os.ReadFile(filepath.Join(dir, rank))
		own, all, _ := strings.Cut(string(text), " of ")
		if err != nil || own != rank+" "+rank || !strings.HasPrefix(all, "3 at 127.0.0.1:") ||
			len(strings.Fields(all)) != 4 {
			t.Errorf("rank %s: %q, %v", rank, text, err)
		}
		rest = append(rest, all)
	}
	if rest[0] != rest[1] || rest[0] != rest[2] {
		t.Errorf("they are not of one job: %q", rest)
	}
}

// When one fails, those that do not end are ended, with all that they started, and the error says which it was.
func TestLaunchFails(t *testing.T) {
	start := time.Now()
	_, err := launch(t.Context(), `test $RANK = 1 && exit 7; trap "" TERM; sleep 60 & wait; sleep 60`, "-n", "3",
		"--grace", "100ms")
	if err == nil || !strings.Contains(err.Error(), "rank 1: sh: exit status 7") || time.Since(start) > 20*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	if _, err := launch(t.Context(), "", "-n", "0"); err == nil || !strings.Contains(err.Error(), "want 1 to 1024") {
		t.Error(err)
	}
	for command, want := range map[string]string{"/nowhere/command": "starting rank 0", "": "argument 1 is empty: want a command"} {
		cmd := root()
		cmd.SetArgs([]string{"launch", "-n", "2", "--", command})
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) ||
			(exitCode(err) == exitUsage) != (command == "") {
			t.Errorf("command %q: %v, want %s", command, err, want)
		}
	}
}

// A command that is interrupted ends all processes.
func TestLaunchInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	var interrupted time.Time
	go func() {
		waitForFiles(dir, "0.runs", "1.runs")
		interrupted = time.Now()
		cancel()
	}()
	_, err := launch(ctx, `trap 'echo >`+dir+`/$RANK; exit 1' TERM; >`+dir+`/$RANK.runs; while :; do sleep 0.05; done`,
		"-n", "2")
	if err == nil || time.Since(interrupted) > 10*time.Second {
		t.Errorf("after %v: %v", time.Since(interrupted), err)
	}
	if told, err := os.ReadDir(dir); len(told) != 4 || err != nil {
		t.Errorf("%d processes were told, %v", len(told)-2, err)
	}
}

// waitForFiles waits half a minute until all files are there.
func waitForFiles(dir string, names ...string) {
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if names = slices.DeleteFunc(names, there); len(names) == 0 {
			return
		}
	}
}

// standInNCCL has this test, and what it starts, take the stand-in for NCCL, which needs no GPU.
func standInNCCL(t *testing.T) {
	t.Helper()
	lib := filepath.Join(t.TempDir(), "libnccl.so")
	source := filepath.Join("..", "..", "shard", "internal", "nccl", "standin", "testdata", "standin.c")
	if _, err := os.Stat(source); err != nil {
		t.Skip("needs a checkout: ", err)
	}
	if out, err := exec.Command("cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-pthread", "-o", lib,
		source).CombinedOutput(); err != nil {
		t.Skipf("needs a C compiler: %v %s", err, out)
	}
	t.Setenv("WARPMAP_LIBNCCL", lib)
}

// The members of a job measure tables over all of them, through the stand-in for NCCL.
func TestBenchJoined(t *testing.T) {
	standInNCCL(t)
	t.Setenv("WARPMAP_TEST_COMMAND", "1")
	for _, more := range []string{"--load 0.8", "--load 0.8 --key-bytes 8 --value-bytes 8", "--load 0.6 --kind set",
		"--load 0.6 --kind counter", "--load 0.6 --kind multimap", "--load 0.6 --update"} {
		out, err := launch(t.Context(), os.Args[0]+` bench --devices joined --device cpu --n 3000 --json `+more, "-n",
			"3", "--grace", "20s")
		var got severalResult
		if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got.Rows) != 1 ||
			got.Rows[0].Devices != 3 || got.Rows[0].Wrong != 0 || got.Rows[0].Find <= 0 {
			t.Errorf("%s: %v\n%s", more, err, out)
		}
	}
	// A figure sets one process beside them, and is kept after each point.
	keep := filepath.Join(t.TempDir(), "six.json")
	_, said, err := run(t, "bench", "fig", "shard/6", "--devices", "cpu:0,cpu:1", "--n", "2000", "--keep", keep)
	var fig bench.Fig
	data, e := os.ReadFile(keep)
	if err = errors.Join(err, e); err != nil || json.Unmarshal(data, &fig) != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	last := fig.Rows[len(fig.Rows)-1]
	if last[fig.Column("way")] != "a process a device, NCCL" || last[fig.Column("note")] != "" ||
		last[fig.Column("wrong")] != 0.0 {
		t.Errorf("%v", last)
	}
	if !strings.Contains(said, "s  strong scaling, 2 devices") {
		t.Errorf("it says %q", said)
	}
}

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// anonymous is the memory of a process that no file holds, in bytes; 0 when it has ended.
func anonymous(pid int) int64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	kilobytes, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, _ := strconv.ParseInt(kilobytes, 10, 64)
	return n << 10
}

// --memory is a bound: of k-mers that take several times as much, in a file that is plain or packed, the process takes
// a third more, and 150 MB for what is not k-mers.
func TestKmersKeepToMemory(t *testing.T) {
	testenv.ByTurns(t)
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	if anonymous(os.Getpid()) == 0 {
		t.Skip("/proc does not tell")
	}
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, 12))
	text := []byte(">a\n")
	for range 32 << 20 {
		text = append(text, "ACGT"[r.IntN(4)])
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, 1)
	if err != nil {
		t.Fatal(err)
	}
	z.Write(append(text, '\n'))
	z.Close()
	for name, content := range map[string][]byte{"a.fa": text, "a.fa.gz": packed.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name  string
		bound int64
	}{{"a.fa", 50e6}, {"a.fa.gz", 50e6}, {"a.fa", 200e6}} {
		cmd := exec.Command(os.Args[0], "kmers", "count", filepath.Join(dir, c.name), "-k", "21", "--device", "cpu",
			"--threads", "2", "--memory", fmt.Sprint(c.bound), "--out", filepath.Join(dir, "out.wk"))
		cmd.Env = append(os.Environ(), "WARPMAP_TEST_COMMAND=1")
		var says bytes.Buffer
		cmd.Stderr = &says
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended, peak := make(chan error, 1), int64(0)
		go func() { ended <- cmd.Wait() }()
		for running := true; running; {
			select {
			case err = <-ended:
				running = false
			case <-time.After(3 * time.Millisecond):
				peak = max(peak, anonymous(cmd.Process.Pid))
			}
		}
		if most := c.bound*13/10 + 150e6; err != nil || peak > most || peak < c.bound/4 {
			t.Errorf("%s with %d: a peak of %d, want %d at most; %v, %s", c.name, c.bound, peak, most, err, says.String())
		}
		t.Logf("%s with %d: a peak of %d: %s", c.name, c.bound, peak, says.String())
	}
}

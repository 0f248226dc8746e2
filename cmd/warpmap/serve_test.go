package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A server in a process of its own finishes what has begun when a signal comes, and ends with success.
func TestServeEndsWell(t *testing.T) {
	dir := genomes(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, "classify", "build", in("x.db"), in("refs"), "--taxonomy", in("tax"))
	want := must(t, "classify", "query", in("x.db"), in("1.fa"), "--lowest", "species")
	reads, err := os.ReadFile(in("1.fa"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "classify", "serve", in("x.db"), "--device", "cpu", "--listen", "127.0.0.1:0",
		"--socket", in("s"), "--lowest", "species")
	cmd.Env = append(os.Environ(), "WARPMAP_TEST_COMMAND=1")
	says, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	lines, url := bufio.NewScanner(says), ""
	for lines.Scan() && !strings.HasSuffix(lines.Text(), in("s")) {
		if at := strings.Index(lines.Text(), "http://"); at >= 0 {
			url = lines.Text()[at:]
		}
	}
	if i, err := os.Stat(in("s")); err != nil || i.Mode() != os.ModeSocket|0o600 ||
		!strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatal(err, url)
	}
	if err := os.Truncate(in("x.db"), 0); err != nil { // the server has what it needs
		t.Fatal(err)
	}
	body, to := io.Pipe()
	got := make(chan string, 1)
	go func() {
		a, err := http.Post(url, "", body)
		if err != nil {
			got <- err.Error()
			return
		}
		defer a.Body.Close()
		text, _ := io.ReadAll(a.Body)
		got <- string(text)
	}()
	to.Write(reads[:10])
	for end := time.Now().Add(time.Minute); !active(t, strings.Replace(url, "classify", "metrics",
		1)); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the request does not come")
		}
	}
	cmd.Process.Signal(syscall.SIGTERM)
	time.Sleep(patience + patience/2) // longer than other commands have
	to.Write(reads[10:])
	to.Close()
	if text := <-got; text != want {
		t.Errorf("%q, want %q", text, want)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(in("s")); !os.IsNotExist(err) {
		t.Errorf("the socket stays: %v", err)
	}
}

// active tells whether a server has a request.
func active(t *testing.T, metrics string) bool {
	t.Helper()
	a, err := http.Get(metrics)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(text), "\nwarpmap_requests_active 1\n")
}

func TestServeErrors(t *testing.T) {
	dir := genomes(t)
	must(t, "classify", "build", filepath.Join(dir, "x.db"), filepath.Join(dir, "refs"), "--taxonomy",
		filepath.Join(dir, "tax"))
	for _, c := range []struct {
		code int
		args []string
		says string
	}{
		{exitUsage, []string{"x.db", "--listen", ""}, "--socket"},
		{exitUsage, []string{"x.db", "--listen", "nowhere"}, "--listen"},
		{exitUsage, []string{"x.db", "--listen", "", "--socket", "1.fa"}, "no socket"},
		{exitUsage, []string{"x.db", "--lowest", "tribes"}, "want a rank"},
		{exitInput, []string{"1.fa"}, "not a database"},
		{exitUsage, []string{"x.db", "--requests", "-3"}, "--requests -3"},
		{exitUsage, []string{"x.db", "--queue", "-1"}, "--queue -1"},
		{exitUsage, []string{"x.db", "--per-client", "-1"}, "--per-client -1"},
		{exitUsage, []string{"x.db", "--per-client", "9", "--requests", "8"}, "--per-client 9"},
		{exitUsage, []string{"x.db", "--spool", "much"}, "--spool"},
	} {
		args := []string{"classify", "serve"}
		for _, a := range c.args {
			if _, err := os.Stat(filepath.Join(dir, a)); a != "" && err == nil {
				a = filepath.Join(dir, a)
			}
			args = append(args, a)
		}
		if _, _, err := run(t, args...); err == nil || exitCode(err) != c.code ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: exit code %d, %v; want %d, %s", args, exitCode(err), err, c.code, c.says)
		}
	}
}

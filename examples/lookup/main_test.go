package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	_ "github.com/warpmap/warpmap/internal/testenv" // kernels that are compiled sooner
)

// command is set in a process that is the program itself.
const command = "WARPMAP_TEST_LOOKUP"

func TestMain(m *testing.M) {
	if os.Getenv(command) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestServes(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-device", "cpu", "-listen", "127.0.0.1:0", "-n", "1000")
	cmd.Env = append(os.Environ(), command+"=1")
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	line, err := bufio.NewReader(said).ReadString('\n')
	at := regexp.MustCompile(`1000 pairs on cpu .* at (\S+)\n$`).FindStringSubmatch(line)
	if err != nil || at == nil {
		t.Fatalf("%q, %v", line, err)
	}
	for _, c := range []struct {
		query  string
		status int
		text   string
	}{{"key=12", 200, "144\n"}, {"key=999", 200, "998001\n"}, {"key=1000", 404, ""}, {"key=x", 400, ""}, {"", 400, ""}} {
		r, err := http.Get("http://" + at[1] + "/?" + c.query)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != c.status || c.text != "" && string(text) != c.text {
			t.Errorf("%q: %d %q, %v; want %d %q", c.query, r.StatusCode, text, err, c.status, c.text)
		}
	}
}

// README says how long the program is.
func TestLength(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if os.IsNotExist(err) {
		t.Skip(err)
	}
	lines := 0
	_, code, _ := strings.Cut(string(text), "\n)\n") // behind the imports
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			lines++
		}
	}
	if lines == 0 || lines > 40 {
		t.Errorf("%d lines of code, want 40 at most", lines)
	}
}

package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	_ "github.com/warpmap/warpmap/internal/testenv" // kernels that are compiled sooner
)

// command is set in a process that is the program itself.
const command = "WARPMAP_TEST_TIERED"

func TestMain(m *testing.M) {
	if os.Getenv(command) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// start starts the program, and tells its address and what ends it.
func start(t *testing.T, file string) (at string, end func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-device", "cpu", "-file", file, "-listen", "127.0.0.1:0", "-places", "12", "-wait", "1h")
	cmd.Env = append(os.Environ(), command+"=1")
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	r := bufio.NewReader(said)
	line, err := r.ReadString('\n')
	found := regexp.MustCompile(` at (\S+)\n$`).FindStringSubmatch(line)
	if err != nil || found == nil {
		t.Fatalf("%q, %v", line, err)
	}
	return "http://" + found[1] + "/", func() {
		t.Helper()
		err := cmd.Process.Signal(syscall.SIGTERM)
		rest, _ := io.ReadAll(r)
		if wrong := cmd.Wait(); err != nil || wrong != nil {
			t.Fatalf("%v, %v: %s", err, wrong, rest)
		}
	}
}

// ask sends a request, and checks its answer.
func ask(t *testing.T, method, url, body string, status int, want string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil || got.StatusCode != status || want != "" && string(text) != want {
		t.Errorf("%s %s of %q: %d %q, %v; want %d %q", method, url, body, got.StatusCode, text, err, status, want)
	}
}

// What is put is there at once, also when the cache has let it go, and the file has it when the program has ended: the
// next one finds it.
func TestServes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "numbers")
	at, end := start(t, file)
	for i, key := range strings.Fields("7 1 2 3 4 5 6 8 9 10 11 12 13 14 15 16") { // more than there are places
		ask(t, "PUT", at+key, strings.Repeat("4", 1+i), 204, "")
	}
	ask(t, "PUT", at+"7", "49", 204, "")
	ask(t, "GET", at+"7", "", 200, "49\n")
	ask(t, "GET", at+"1", "", 200, "44\n")
	ask(t, "GET", at+"100", "", 404, "")
	for _, key := range []string{"x", "-1", "1099511627777"} {
		ask(t, "GET", at+key, "", 400, "")
		ask(t, "PUT", at+key, "1", 400, "")
	}
	ask(t, "PUT", at+"7", "many", 400, "")
	ask(t, "PUT", at+"7", "0", 400, "")
	if b, err := os.ReadFile(file); err != nil || len(b) > 0 {
		t.Errorf("%d bytes are in the file before they need to, %v", len(b), err)
	}
	end()
	at, end = start(t, file)
	ask(t, "GET", at+"7", "", 200, "49\n")
	ask(t, "GET", at+"16", "", 200, strings.Repeat("4", 16)+"\n")
	ask(t, "GET", at+"17", "", 404, "")
	end()
}

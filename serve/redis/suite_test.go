package redis

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// suiteUnits are the parts of Redis' own tests that ask for what is here. Others are of other types, or start servers
// of their own, as auth does.
var suiteUnits = []string{"unit/type/string", "unit/type/incr", "unit/expire", "unit/scan", "unit/keyspace",
	"unit/hyperloglog", "unit/protocol", "unit/introspection", "unit/introspection-2", "unit/multi", "unit/bitops", "unit/other",
	"unit/quit"}

var (
	colours  = regexp.MustCompile("\x1b\\[[0-9;]*m")
	testOK   = regexp.MustCompile(`(?m)^\[ok\]`)
	testSkip = regexp.MustCompile(`(?m)^\[(skip|ignore)\]`)
	testFail = regexp.MustCompile(`(?m)^(\[(err|exception|timeout)\].*\n.*|Executing test client.*)`)
)

// Redis' own tests, of its source in the folder that WARPMAP_REDIS_SOURCE names, but for those of testdata/redis-tests.txt.
// They take half a minute, since many wait for keys to expire.
func TestRedisSuite(t *testing.T) {
	source := os.Getenv("WARPMAP_REDIS_SOURCE")
	if source == "" {
		t.Skip("WARPMAP_REDIS_SOURCE does not name the source of Redis")
	}
	if _, err := exec.LookPath("tclsh"); err != nil {
		testenv.Require(t, "tcl", err)
	}
	// Where they ask a server that they did not start, the tests begin with FUNCTION FLUSH, which is of scripts.
	at := t.TempDir()
	if err := os.CopyFS(filepath.Join(at, "tests"), os.DirFS(filepath.Join(source, "tests"))); err != nil {
		t.Fatal(err)
	}
	server := filepath.Join(at, "tests/support/server.tcl")
	text, err := os.ReadFile(server)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("r function flush\n"), []byte("\n"))
	if err := os.WriteFile(server, text, 0o666); err != nil {
		t.Fatal(err)
	}
	reasons, err := os.ReadFile("testdata/redis-tests.txt")
	if err != nil {
		t.Fatal(err)
	}
	var skipped []string
	for line := range strings.Lines(string(reasons)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			skipped = append(skipped, line)
		}
	}
	skip := filepath.Join(at, "skip")
	if err := os.WriteFile(skip, []byte(strings.Join(skipped, "\n")), 0o666); err != nil {
		t.Fatal(err)
	}
	s, port := local(t, Options{Folder: t.TempDir(), Fsync: FsyncEverySecond})
	for _, unit := range suiteUnits {
		t.Run(unit, func(t *testing.T) {
			cmd := exec.Command("tclsh", "tests/test_helper.tcl", "--host", "127.0.0.1", "--port", port, "--singledb",
				"--ignore-encoding", "--ignore-digest", "--tags", "-needs:debug -needs:repl", "--skipfile", skip, "--clients", "1",
				"--durable", "--single", unit)
			cmd.Dir = at
			out, err := cmd.CombinedOutput()
			out = colours.ReplaceAll(out, nil)
			ok := len(testOK.FindAll(out, -1))
			t.Logf("%d passed, %d skipped", ok, len(testSkip.FindAll(out, -1)))
			for _, failed := range testFail.FindAll(out, -1) {
				t.Errorf("%.1000s", failed)
			}
			if err != nil || ok == 0 {
				t.Errorf("%v: %.3000s", err, out[max(0, len(out)-3000):])
			}
		})
	}
	if err := s.space.Check(); err != nil {
		t.Error(err)
	}
}

// hiredis' own tests, of its source in the folder that WARPMAP_HIREDIS_SOURCE names. Where they ask for lists they ask for
// MGET here. One waits for DEBUG SLEEP, which is not here.
func TestHiredisSuite(t *testing.T) {
	source := os.Getenv("WARPMAP_HIREDIS_SOURCE")
	if source == "" {
		t.Skip("WARPMAP_HIREDIS_SOURCE does not name the source of hiredis")
	}
	at := t.TempDir()
	if err := os.CopyFS(at, os.DirFS(source)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(at, "test.c"))
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"LPUSH mylist foo": "SET m1 foo", "LPUSH mylist bar": "SET m2 bar",
		"LRANGE mylist 0 -1": "MGET m2 m1", "LRANGE mylist 0 499": "MGET" + strings.Repeat(" m1", 500)} {
		if !bytes.Contains(text, []byte(from)) {
			t.Errorf("test.c has no %q", from)
		}
		text = bytes.ReplaceAll(text, []byte(from), []byte(to))
	}
	if err := os.WriteFile(filepath.Join(at, "test.c"), text, 0o666); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("make", "-B", "hiredis-test")
	build.Dir = at
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, Options{}, l, tcp)
	_, port, _ := net.SplitHostPort(tcp.Addr().String())
	out, err := exec.Command(filepath.Join(at, "hiredis-test"), "-h", "127.0.0.1", "-p", port, "-s", socket).CombinedOutput()
	out = colours.ReplaceAll(out, nil)
	passed, failed := bytes.Count(out, []byte("PASSED")), bytes.Count(out, []byte(": FAILED"))
	slept := bytes.Count(out, []byte("Does not return a reply when the command times out: FAILED"))
	t.Logf("%d passed, %d failed", passed, failed)
	if passed < 60 || failed != slept {
		t.Errorf("%v: %d passed, %d failed, of which %d need DEBUG: %s", err, passed, failed, slept, out)
	}
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/testenv"
)

// TestMain is the command itself where a test below has started it.
func TestMain(m *testing.M) {
	worker := slices.Contains(os.Args, "-test.fuzzworker") // of go test -fuzz, which has our environment
	if os.Getenv("WARPMAP_TEST_COMMAND") == "" || worker {
		os.Setenv("WARPMAP_TEST_COMMAND", "1") // what the command starts is the command, not its tests
		for _, s := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
			if signal.Ignored(s) { // by nohup or the like: the commands that tests start must not
				signal.Notify(make(chan os.Signal, 1), s)
			}
		}
		os.Exit(m.Run())
	}
	if n := os.Getenv("WARPMAP_TEST_PANIC"); n != "" {
		plantPanic(n)
	}
	if most := os.Getenv("WARPMAP_TEST_SMALL_FILES"); most != "" {
		bytes, err := strconv.ParseUint(most, 10, 64)
		if err != nil {
			panic(err)
		}
		if err := limitFiles(bytes); err != nil {
			panic(err)
		}
	}
	if os.Getenv("WARPMAP_TEST_BEGINS") != "" { // the signals are ours
		crash.Plant = sync.OnceFunc(func() { os.NewFile(3, "begins").Close() })
	}
	if path := os.Getenv("WARPMAP_TEST_SAVE"); path != "" {
		if err := saveTable(path); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	main()
	if os.Getenv("WARPMAP_TEST_LATE_SIGNAL") != "" {
		self, _ := os.FindProcess(os.Getpid())
		self.Signal(os.Interrupt)
		time.Sleep(200 * time.Millisecond)
	}
	os.Exit(0)
}

// started is the command in a process of its own, joining a file with itself to a hundred million rows: seconds, so that it
// does not end before a test that waits for a core does something to it.
type started struct {
	*exec.Cmd
	dir    string
	stderr bytes.Buffer
	ended  chan error
}

func start(t *testing.T, out string, stdout *os.File, env ...string) *started {
	t.Helper()
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	s := &started{dir: t.TempDir(), ended: make(chan error, 1)}
	in := filepath.Join(s.dir, "in.csv")
	if err := os.WriteFile(in, []byte("k\n"+strings.Repeat("1\n", 10_000)), 0o666); err != nil {
		t.Fatal(err)
	}
	if out != "-" {
		out = filepath.Join(s.dir, out)
	}
	s.Cmd = exec.Command(os.Args[0], "join", in, in, "--on", "k", "--out", out, "--device", "cpu", "--table",
		"warpcore")
	s.Env = append(append(os.Environ(), "WARPMAP_TEST_COMMAND=1"), env...)
	s.Stderr = &s.stderr
	if stdout != nil {
		s.Stdout = stdout
	}
	killAll := ownGroup(s.Cmd)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(killAll)
	go func() { s.ended <- s.Wait() }()
	return s
}

// grown waits until a hidden file in dir has so many bytes.
func (s *started) grown(t *testing.T, dir string, bytes int64) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		names, _ := filepath.Glob(filepath.Join(dir, ".out*.tmp"))
		for _, n := range names {
			if i, err := os.Stat(n); err == nil && i.Size() >= bytes {
				return
			}
		}
	}
	t.Fatalf("no hidden file of %d bytes in a minute: %s", bytes, &s.stderr)
}

// failed waits for the end and wants a message of one line, and no file but the input.
func (s *started) failed(t *testing.T, message string) {
	t.Helper()
	select {
	case err := <-s.ended:
		if by := diedOf(s.Cmd); err == nil || by != message && (by != "" || s.ProcessState.ExitCode() != 1) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("runs on")
	}
	if said := s.stderr.String(); !strings.HasPrefix(said, "warpmap: ") || strings.Count(said, "\n") != 1 ||
		!strings.Contains(said, message) {
		t.Errorf("said %q, want a line with %q", said, message)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left are %v, %v", entries, err)
	}
}

// diedOf names the signal that ended a command; "": none did.
func diedOf(cmd *exec.Cmd) string {
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal().String()
	}
	return ""
}

// What nohup or a shell keeps from a command does not end it, and another signal does.
func TestSignalThatIsIgnored(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		cmd := exec.Command("sh", "-c", fmt.Sprintf(`trap "" %d; exec "$0" serve --flight 127.0.0.1:0 --device cpu`, sig), os.Args[0])
		cmd.Env = append(os.Environ(), "WARPMAP_TEST_COMMAND=1")
		said, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Skip(err)
		}
		defer cmd.Process.Kill()
		if _, err := said.Read(make([]byte, 1)); err != nil { // it listens
			t.Fatal(err)
		}
		cmd.Process.Signal(sig)
		ended := make(chan error, 1)
		go func() {
			io.Copy(io.Discard, said)
			ended <- cmd.Wait()
		}()
		select {
		case err := <-ended:
			t.Errorf("%v ended it: %v", sig, err)
		case <-time.After(100 * time.Millisecond):
			cmd.Process.Signal(syscall.SIGTERM)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
}

func TestSignalWhileRowsAreWritten(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		s := start(t, "out.csv", nil)
		s.grown(t, s.dir, 1)
		s.Process.Signal(sig)
		s.failed(t, sig.String())
	}
}

// A signal at any time, in joins of all ways (by columns, by bits, of text, by parts): nothing is left but the inputs
// and, where the join was done, its output.
func TestSignalAtAnyTime(t *testing.T) {
	testenv.ByTurns(t)
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	sf, steps := "0.01", 4
	if testenv.Long() {
		sf, steps = "0.02", 16
	}
	dir, spills := t.TempDir(), t.TempDir()
	if _, errs, err := run(t, "gen", "tpch", "--sf", sf, "--out", dir); err != nil {
		t.Fatal(err, errs)
	}
	for _, f := range []string{"orders", "lineitem"} {
		if _, errs, err := run(t, "join", dir+"/"+f+".parquet", dir+"/"+f+".parquet", "--on", f[:1]+"_orderkey",
			"--how", "semi", "--device", "cpu", "--out", dir+"/"+f+".csv"); err != nil {
			t.Fatal(err, errs)
		}
	}
	for i, args := range [][]string{
		{"orders.parquet", "lineitem.parquet", "--out", "out.parquet"},
		{"orders.parquet", "lineitem.parquet", "--how", "anti", "--out", "out.parquet"},
		{"orders.parquet", "lineitem.parquet", "--table", "warpcore", "--how", "full", "--out", "out.parquet"},
		{"orders.csv", "lineitem.csv", "--out", "out.csv.gz"},
		{"orders.parquet", "lineitem.parquet", "--rows-per-file", "1000", "--out", "out/"},
		{"orders.parquet", "lineitem.parquet", "--memory", "200kB", "--how", "full", "--out", "out.parquet"},
		{"orders.csv", "lineitem.csv", "--memory", "1MB", "--out", "out.arrow"},
	} {
		join := func(after time.Duration, sig syscall.Signal) (took time.Duration, ended error) {
			cmd := exec.Command(os.Args[0],
				append([]string{"join", "--device", "cpu", "--on", "o_orderkey=l_orderkey", "--quiet"}, args...)...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "WARPMAP_TEST_COMMAND=1", "TMPDIR="+spills,
				"GORACE=atexit_sleep_ms=0")
			var said bytes.Buffer
			cmd.Stderr = &said
			begins, child, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer begins.Close()
			cmd.ExtraFiles, cmd.Env = []*os.File{child}, append(cmd.Env, "WARPMAP_TEST_BEGINS=1")
			start := time.Now()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			child.Close()
			begun := true
			if sig != 0 {
				begins.SetReadDeadline(start.Add(after))
				_, err := begins.Read(make([]byte, 1))
				begun = err == io.EOF
				time.Sleep(time.Until(start.Add(after)))
				cmd.Process.Signal(sig)
			}
			ended = cmd.Wait()
			took = time.Since(start)
			want := 0 // lines
			if ended != nil {
				want = 1
			}
			if got := strings.Count(said.String(), "\n"); got != want && !(ended != nil && got == 0 && !begun) {
				t.Errorf("%v ended by %v after %v: %v, %q", args, sig, after, ended, &said)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				switch name := e.Name(); {
				case strings.HasPrefix(name, "orders.") || strings.HasPrefix(name, "lineitem."):
				case strings.HasPrefix(name, "out") && ended == nil:
					os.RemoveAll(filepath.Join(dir, name))
				default:
					t.Errorf("%v ended by %v after %v: %s is left", args, sig, after, name)
					os.RemoveAll(filepath.Join(dir, name))
				}
			}
			if left, _ := os.ReadDir(spills); len(left) > 0 {
				t.Errorf("%v ended by %v after %v: %v are left", args, sig, after, left)
			}
			return took, ended
		}
		first, err := join(0, 0) // which may compile kernels
		whole, again := join(0, 0)
		if err := errors.Join(err, again); err != nil {
			t.Fatal(args, err)
		}
		whole = min(whole, first)
		stopped := 0
		for k := range steps {
			if _, err := join(whole*time.Duration(k+1)/time.Duration(steps+1),
				[]syscall.Signal{syscall.SIGINT, syscall.SIGTERM}[(i+k)%2]); err != nil {
				stopped++
			}
		}
		// Where others had the processors meanwhile, all of it took much less than before.
		for after := whole / 16; stopped == 0 && after > 0; after /= 8 {
			if _, err := join(after, syscall.SIGTERM); err != nil {
				stopped++
			}
		}
		t.Logf("%v takes %v, and was stopped %d times of %d", args, whole, stopped, steps)
		if stopped == 0 {
			t.Errorf("%v, which takes %v, was never stopped", args, whole)
		}
	}
}

// A signal that comes when all is done does not make a failure of it.
func TestSignalAtTheEnd(t *testing.T) {
	cmd := exec.Command(os.Args[0], "version")
	cmd.Env = append(os.Environ(), "WARPMAP_TEST_COMMAND=1", "WARPMAP_TEST_LATE_SIGNAL=1", "GORACE=atexit_sleep_ms=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// A compiler cannot be interrupted: the command ends without it.
func TestSignalWhileKernelsAreCompiled(t *testing.T) {
	tools := t.TempDir()
	cxx := filepath.Join(tools, "c++")
	script := "#!/bin/sh\ncase \"$*\" in --version) echo 'g++ (slow) 12.2.0'; exit;; esac\n: >" +
		filepath.Join(tools, ".out.tmp") + "\nexec sleep 100\n"
	if err := os.WriteFile(cxx, []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	s := start(t, "out.csv", nil, "CXX="+cxx, "WARPMAP_CACHE="+t.TempDir())
	s.grown(t, s.dir, 0)
	s.grown(t, tools, 0) // the compiler runs
	s.Process.Signal(syscall.SIGTERM)
	s.failed(t, "terminated")
}

func TestFileThatMayNotGrow(t *testing.T) {
	for _, suffix := range []string{".csv", ".arrow"} { // as Parquet the rows are packed to nothing
		s := start(t, "out"+suffix, nil, "WARPMAP_TEST_SMALL_FILES=8388608")
		s.failed(t, fmt.Sprintf("%s: file too large", filepath.Join(s.dir, "out"+suffix)))
	}
}

// Commands that fill a folder leave none where nothing fits, and say why in a line.
func TestFolderThatStaysEmpty(t *testing.T) {
	for args, want := range map[string]string{
		"gen tpch --sf 0.01 --out new/folder": "new/folder/orders.parquet: file too large",
		"compile --arch " + runtime.GOARCH + " --table warpcore --key-bytes 8 --value-bytes 8 --out new/folder": "file too large",
		"bench draw absent.json --out new/folder":                   "absent.json",
		"bench fig gph/9 --n 100 --device cuda:99 --out new/folder": "cuda:99",
	} {
		cmd := exec.Command(os.Args[0], strings.Fields(args)...)
		cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "WARPMAP_TEST_COMMAND=1", "WARPMAP_TEST_SMALL_FILES=4096")
		var said bytes.Buffer
		cmd.Stderr = &said
		err := cmd.Run()
		_, last, _ := strings.Cut(said.String(), "warpmap: ")
		if err == nil || strings.Count(last, "\n") != 1 || !strings.Contains(last, want) {
			t.Errorf("warpmap %s: %v: %s", args, err, &said)
		}
		if left, err := os.ReadDir(cmd.Dir); err != nil || len(left) > 0 {
			t.Errorf("warpmap %s leaves %v, %v", args, left, err)
		}
	}
}

// What is printed where there is no room is a failure, also of commands that print lines and tables.
func TestFullStandardOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, args := range []string{"--help", "version", "devices"} {
		cmd := exec.Command(os.Args[0], strings.Fields(args)...)
		var said bytes.Buffer
		cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "WARPMAP_TEST_COMMAND=1"), full, &said
		if cmd.Run(); cmd.ProcessState.ExitCode() != exitOther || !strings.Contains(said.String(), "no space left") {
			t.Errorf("warpmap %s: %v, %q", args, cmd.ProcessState, &said)
		}
	}
}

func TestClosedPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	s := start(t, "-", w)
	select {
	case err := <-s.ended:
		if err == nil {
			t.Error("ended as if all had been read")
		}
	case <-time.After(time.Minute):
		t.Fatal("writes on")
	}
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/internal/syscalls"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// saveTable is a program that saves a table: see TestMain.
func saveTable(path string) error {
	d, err := warpmap.Open("cpu")
	if err != nil {
		return err
	}
	defer d.Close()
	m, err := warpmap.New[uint64, uint32](d, warpmap.WarpCore, table.Options{Seed: 1})
	if err != nil {
		return err
	}
	defer m.Close()
	keys, values := make([]uint64, 3000), make([]uint32, 3000)
	for i := range keys {
		keys[i], values[i] = uint64(i)*0x9e3779b97f4a7c15, uint32(i)
	}
	if err := m.Insert(keys, values); err != nil {
		return err
	}
	return snapshot.Map(m).SaveFile(context.Background(), path)
}

// writer is a command that makes a file, in a folder of its own.
type writer struct {
	name string
	args []string // nil: saveTable
	out  string
	old  []string // what makes the file that is there before
}

func writers(t *testing.T) (dir string, all []writer) {
	dir = genomes(t)
	var left, right strings.Builder
	left.WriteString("k,a\n")
	right.WriteString("k,b\n")
	for i := range 20000 {
		fmt.Fprintf(&left, "%d,x%d\n", i, i)
		fmt.Fprintf(&right, "%d,y%d\n", i*2, i)
	}
	letters, r := make([]byte, 1_000_000), rand.New(rand.NewPCG(3, 4))
	for i := range letters {
		letters[i] = "ACGT"[r.IntN(4)]
	}
	for name, text := range map[string]string{"left.csv": left.String(), "right.csv": right.String(),
		"many.fa": ">m\n" + string(letters) + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	join := []string{"join", "left.csv", "right.csv", "--on", "k", "--quiet", "--device", "cpu", "--out"}
	build := []string{"classify", "build", "out.db", "refs", "--taxonomy", "tax", "--force", "--device", "cpu"}
	count := []string{"kmers", "count", "1.fa", "2.fa", "-k", "21", "--out", "out.wk", "--device", "cpu"}
	all = []writer{
		{"save", nil, "out.table", nil},
		{"join", append(slices.Clone(join), "out.csv"), "out.csv",
			[]string{"join", "left.csv", "left.csv", "--on", "k", "--device", "cpu", "--out", "out.csv"}},
		{"build", build, "out.db",
			[]string{"classify", "build", "out.db", "refs/6.fa", "--taxonomy", "tax", "--force", "--device", "cpu"}},
		{"count", count, "out.wk",
			[]string{"kmers", "count", "1.fa", "-k", "21", "--out", "out.wk", "--device", "cpu"}},
		{"count by rounds", []string{"kmers", "count", "many.fa", "-k", "31", "--out", "out.wk", "--device", "cpu",
			"--memory", "8MiB"}, "out.wk", nil},
		{"join to Arrow", append(slices.Clone(join), "out.arrow", "--how", "full", "--threads", "1"), "out.arrow", nil},
	}
	return dir, testenv.Some(all, 4)
}

// command is a process of its own that makes the file; its temporary files are in the folder, too.
func (w *writer) command(dir string, args []string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "WARPMAP_TEST_COMMAND=1", "TMPDIR="+filepath.Join(dir, "tmp"),
		"GORACE=atexit_sleep_ms=0")
	if w.args == nil {
		cmd.Env = append(cmd.Env, "WARPMAP_TEST_SAVE="+w.out)
	}
	return cmd
}

// trace runs the command under ptrace, and returns what it said.
func trace(t *testing.T, tr *syscalls.Trace, cmd *exec.Cmd) string {
	t.Helper()
	said, err := os.CreateTemp(t.TempDir(), "said")
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said
	err = tr.Run(cmd)
	if err != nil && !errors.Is(err, syscall.EPERM) && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
	testenv.Require(t, "ptrace", err)
	text, err := os.ReadFile(said.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// entries are the names in the folder and in that of temporary files.
func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	for _, sub := range []string{".", "tmp"} {
		list, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			names = append(names, filepath.Join(sub, e.Name()))
		}
	}
	return names
}

// prepared is a command with what it makes.
type prepared struct {
	writer
	dir        string
	inputs     []string
	old, fresh []byte
}

func (p *prepared) path() string { return filepath.Join(p.dir, p.out) }

// make runs a command that must succeed, and returns the file.
func (p *prepared) make(t *testing.T, args []string) []byte {
	t.Helper()
	if text, err := p.command(p.dir, args).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, text)
	}
	made, err := os.ReadFile(p.path())
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// before makes what there is before the command runs: the old file, or none.
func (p *prepared) before(t *testing.T, there bool) {
	t.Helper()
	os.Remove(p.path())
	if there {
		if err := os.WriteFile(p.path(), p.old, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// trace runs the command under ptrace, and returns what it said.
func (p *prepared) trace(t *testing.T, tr *syscalls.Trace) string {
	tr.Under = p.dir
	return trace(t, tr, p.command(p.dir, p.args))
}

// whole tells whether the output is the new one, and returns an error if it is neither that nor what was there before.
func (p *prepared) whole(there bool) (made bool, err error) {
	got, err := os.ReadFile(p.path())
	switch {
	case err == nil && bytes.Equal(got, p.fresh):
		return true, nil
	case err == nil && there && bytes.Equal(got, p.old), os.IsNotExist(err) && !there:
		return false, nil
	}
	return false, fmt.Errorf("%v; the output has %d bytes: neither the old ones nor the new ones", err, len(got))
}

// left are the names of what is neither an input nor the output.
func (p *prepared) left(t *testing.T) (names []string) {
	t.Helper()
	for _, name := range entries(t, p.dir) {
		if !slices.Contains(p.inputs, name) && name != p.out {
			names = append(names, name)
		}
	}
	return names
}

// eachWriter runs a test with each command, and the moments to try: all its calls that count, or few of them.
func eachWriter(t *testing.T, which func(syscalls.Call) bool, do func(t *testing.T, p *prepared, moments []int)) {
	dir, all := writers(t)
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o777); err != nil {
		t.Fatal(err)
	}
	inputs := entries(t, dir)
	for i, w := range all {
		t.Run(w.name, func(t *testing.T) {
			testenv.Turn(t)
			p := &prepared{writer: w, dir: dir, inputs: inputs, old: []byte("of another program")}
			t.Cleanup(func() { os.Remove(p.path()) })
			p.fresh = p.make(t, w.args)
			if w.old != nil && testenv.Long() {
				p.old = p.make(t, w.old)
			}
			calls := &syscalls.Trace{Which: which}
			if said := p.trace(t, calls); calls.State.ExitStatus() != 0 {
				t.Fatalf("under ptrace: %s", said)
			}
			if len(calls.Seen) < 5 {
				t.Fatalf("only %d calls count: %v", len(calls.Seen), calls.Seen)
			}
			moments := rand.New(rand.NewPCG(1+testenv.FirstSeed(), uint64(i))).Perm(len(calls.Seen))
			do(t, p, testenv.Some(moments[:min(len(moments), 48)], 1)) // where there are more, they are alike
		})
	}
}

// Each command is killed at each system call by which it changes files, in turn. Then the output is the old file or the
// new one, whole; and the next run makes the new one, and leaves nothing beside it.
func TestKilledAtEachCall(t *testing.T) {
	eachWriter(t, nil, func(t *testing.T, p *prepared, moments []int) {
		made, kept := 0, 0
		for _, n := range moments {
			there := n%2 == 0 // or there was no file before
			p.before(t, there)
			tr := &syscalls.Trace{Kill: n + 1}
			said := p.trace(t, tr)
			if len(tr.Seen) <= n {
				continue // it made fewer calls this time
			}
			wrong := func(what any) {
				t.Helper()
				t.Fatalf("killed at call %d, %v: %v\n%s", n+1, tr.Seen[n], what, said)
			}
			if tr.State.Signal() != syscall.SIGKILL {
				wrong(tr.State)
			}
			if new, err := p.whole(there); err != nil {
				wrong(err)
			} else if new {
				made++
			} else {
				kept++
			}
			for _, name := range p.left(t) { // as if it had been so for a while
				long := time.Now().Add(-time.Hour)
				os.Chtimes(filepath.Join(p.dir, name), long, long)
			}
			if again := p.make(t, p.args); !bytes.Equal(again, p.fresh) {
				wrong("the next run makes another file")
			}
			if left := p.left(t); len(left) > 0 {
				wrong(fmt.Sprintf("%v stays behind", left))
			}
		}
		testenv.Tried(t, made+kept, "kills")
		t.Logf("killed %d times: %d times the new file was there, %d times what was before", made+kept, made, kept)
	})
}

// Each system call on files fails in turn, of those that read, too. The command says so in a line, its output is the
// old file, and nothing is left. It may also do without the call.
func TestEachCallOnFilesFails(t *testing.T) {
	every := func(syscalls.Call) bool { return true }
	eachWriter(t, every, func(t *testing.T, p *prepared, moments []int) {
		failed, without := 0, 0
		for _, n := range moments {
			there := n%2 == 0
			p.before(t, there)
			errno := []syscall.Errno{syscall.EIO, syscall.ENOSPC}[n/2%2]
			tr := &syscalls.Trace{Fail: n + 1, Errno: errno, Which: every}
			said := p.trace(t, tr)
			if len(tr.Seen) <= n {
				continue
			}
			wrong := func(what any) {
				t.Helper()
				t.Fatalf("call %d, %v, fails with %v: %v\n%s", n+1, tr.Seen[n], errno, what, said)
			}
			made, err := p.whole(there)
			if err != nil {
				wrong(err)
			}
			lines := strings.Split(strings.TrimSpace(said), "\n")
			last := lines[len(lines)-1]
			switch {
			case !tr.State.Exited():
				wrong(tr.State)
			case tr.State.ExitStatus() == 0 && !made:
				wrong("success without the new file")
			case tr.State.ExitStatus() == 0:
				without++
			case p.args != nil && (!strings.HasPrefix(last, "warpmap: ") || !strings.Contains(last, errno.Error())):
				wrong("another error")
			case made && !strings.Contains(said, "perhaps"):
				wrong("an error, and the new file")
			default:
				failed++
			}
			if left := p.left(t); len(left) > 0 && tr.Seen[n].Name != "unlink" {
				wrong(fmt.Sprintf("%v stays behind", left))
			}
		}
		testenv.Tried(t, failed+without, "faults")
		t.Logf("%d calls failed: %d times the command did, %d times it did without", failed+without, failed, without)
	})
}

// When a server is killed, a client whose request is under way hears of it at once, and the next server takes the
// socket that was left.
func TestServeKilled(t *testing.T) {
	dir := genomes(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, "classify", "build", in("x.db"), in("refs"), "--taxonomy", in("tax"))
	serve := func() *exec.Cmd {
		t.Helper()
		cmd := exec.Command(os.Args[0], "classify", "serve", in("x.db"), "--device", "cpu", "--listen", "",
			"--socket", in("s"))
		cmd.Env = append(os.Environ(), "WARPMAP_TEST_COMMAND=1")
		says, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		lines := bufio.NewScanner(says)
		for lines.Scan() {
			if strings.HasSuffix(lines.Text(), in("s")) {
				return cmd
			}
		}
		t.Fatal("the server does not begin")
		return nil
	}
	request := func(body io.Reader) error {
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", in("s"))
		}
		client := http.Client{Transport: &http.Transport{DialContext: dial}}
		a, err := client.Post("http://server/classify", "", body)
		if err != nil {
			return err
		}
		defer a.Body.Close()
		_, err = io.Copy(io.Discard, a.Body)
		if err == nil && a.StatusCode != http.StatusOK {
			err = errors.New(a.Status)
		}
		return err
	}
	server := serve()
	conn, err := net.Dial("unix", in("s"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = io.WriteString(conn,
		"POST /classify HTTP/1.1\r\nHost: server\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n>r\nAC\r\n")
	if err != nil {
		t.Fatal(err)
	}
	server.Process.Kill()
	conn.SetReadDeadline(time.Now().Add(20 * time.Second)) // on a busy machine
	if text, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) || len(text) > 0 {
		t.Fatalf("the client hears %q for 20 s", text)
	}
	server.Wait()
	serve()
	reads, err := os.Open(in("1.fa"))
	if err != nil {
		t.Fatal(err)
	}
	defer reads.Close()
	if err := request(reads); err != nil {
		t.Errorf("the next server: %v", err)
	}
}

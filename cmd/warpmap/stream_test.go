package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// piped is a command that joins what comes through a pipe, where no temporary file can be.
type piped struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	rows *bufio.Reader
	said bytes.Buffer
}

func pipedJoin(t *testing.T, dir string, args ...string) *piped {
	t.Helper()
	p := &piped{cmd: exec.Command(os.Args[0], append([]string{"join", "--device", "cpu", "-q"}, args...)...)}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), "WARPMAP_TEST_COMMAND=1", "TMPDIR="+filepath.Join(dir, "absent"))
	p.cmd.Stderr = &p.said
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.rows = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { p.cmd.Process.Kill() })
	t.Cleanup(func() { late.Stop(); p.cmd.Process.Kill(); p.cmd.Wait() })
	return p
}

// want reads lines of the output.
func (p *piped) want(t *testing.T, lines ...string) {
	t.Helper()
	for _, want := range lines {
		if got, err := p.rows.ReadString('\n'); err != nil || got != want+"\n" {
			t.Fatalf("%q, %v, want %q; %s", got, err, want, &p.said)
		}
	}
}

// end ends the input, and wants no more rows.
func (p *piped) end(t *testing.T, want string) {
	t.Helper()
	p.in.Close()
	rest, err := io.ReadAll(p.rows)
	if e := p.cmd.Wait(); err != nil || e != nil || string(rest) != want {
		t.Fatalf("%q, %v, %v, want %q; %s", rest, err, e, want, &p.said)
	}
}

// Rows of a pipe come out before the pipe ends, and go to no file.
func TestPipedProbe(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b.csv": "k,v\n1,a\n2,b\n", "text.csv": "k,v\nx,a\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("csv", func(t *testing.T) {
		p := pipedJoin(t, dir, "b.csv", "-", "--on", "k", "--probe-format", "csv", "--how", "left")
		io.WriteString(p.in, "w,k\nx,1\ny,2\n\"half of")
		p.want(t, "w,k,v", "x,1,a", "y,2,b")
		io.WriteString(p.in, " a\nrow\",3\n,\nz,1")
		p.want(t, `"half of a`, `row",3,`, `,,`)
		p.end(t, "z,1,a\n")
	})
	t.Run("gzip", func(t *testing.T) {
		p := pipedJoin(t, dir, "b.csv", "/dev/stdin", "--on", "k", "--format", "csv", "--how", "semi")
		z := gzip.NewWriter(p.in)
		io.WriteString(z, "k\n1\n7\n")
		z.Flush()
		p.want(t, "k", "1")
		io.WriteString(z, "2\n")
		z.Close()
		p.end(t, "2\n")
	})
	t.Run("json", func(t *testing.T) {
		p := pipedJoin(t, dir, "b.csv", "-", "--on", "k", "--probe-format", "tsv", "--out-format", "jsonl", "--types", "w=double")
		io.WriteString(p.in, "k\tw\n1\t5\n")
		p.want(t, `{"k":1,"w":5.0,"v":"a"}`)
		p.end(t, "")
	})
	t.Run("arrow", func(t *testing.T) {
		p := pipedJoin(t, dir, "b.csv", "-", "--on", "k")
		s := arrow.NewSchema([]arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int32}, {Name: "w", Type: arrow.BinaryTypes.String}}, nil)
		w := ipc.NewWriter(p.in, ipc.WithSchema(s))
		send := func(k int32, text string) {
			b := array.NewRecordBuilder(memory.DefaultAllocator, s)
			defer b.Release()
			b.Field(0).(*array.Int32Builder).Append(k)
			b.Field(1).(*array.StringBuilder).Append(text)
			rec := b.NewRecordBatch()
			defer rec.Release()
			if err := w.Write(rec); err != nil {
				t.Fatal(err)
			}
		}
		send(2, "x")
		p.want(t, "k,w,v", "2,x,b")
		send(3, "y")
		send(1, "z")
		p.want(t, "1,z,a")
		w.Close()
		p.end(t, "")
	})
	t.Run("limit", func(t *testing.T) { // ends although the pipe does not
		p := pipedJoin(t, dir, "b.csv", "-", "--on", "k", "--probe-format", "csv", "--limit", "2")
		io.WriteString(p.in, "k\n2\n")
		p.want(t, "k,v", "2,b")
		io.WriteString(p.in, "1\n1\n")
		p.want(t, "1,a")
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, &p.said)
		}
	})
	t.Run("signal", func(t *testing.T) {
		took := time.Hour
		for tries := 0; took > patience && tries < 5; tries++ { // a busy machine may take so long once
			p := pipedJoin(t, dir, "b.csv", "-", "--on", "k", "--probe-format", "csv")
			io.WriteString(p.in, "k\n2\n")
			p.want(t, "k,v", "2,b")
			start := time.Now()
			p.cmd.Process.Signal(os.Interrupt)
			if p.cmd.Wait(); diedOf(p.cmd) != "interrupt" {
				t.Fatalf("%v: %s", p.cmd.ProcessState, &p.said)
			}
			took = time.Since(start)
		}
		if took > patience {
			t.Errorf("it ends after %v", took)
		}
	})
	for _, c := range []struct{ args, in, want string }{
		{"b.csv", "k\n1\n2\n1.5\n", `standard input: line 4, column "k": "1.5" is no bigint, as the build side's keys are, and what comes through a pipe`},
		{"b.csv", "k\n1.5\n", "(--types k=double)"},
		{"b.csv", "k\n1\nx\n", "(--types k=text)"},
		{"b.csv --types k=tinyint", "k\n1\n1000\n", `line 3, column "k": "1000" is no tinyint`},
		{"b.csv", "j\n1\n", `the probe side has no column "k"; its columns: j`},
		{"b.csv", "", "standard input: no header line: the file is empty"},
		{"b.csv", "k\n1\n\"2", "a quoted field without its closing quote"},
		{"text.csv", "k\nx\n\xff\n", `line 3, column "k": not UTF-8`},
	} {
		p := pipedJoin(t, dir, append(strings.Fields(c.args), "-", "--on", "k", "--probe-format", "csv")...)
		io.WriteString(p.in, c.in)
		p.in.Close()
		io.Copy(io.Discard, p.rows)
		p.cmd.Wait()
		if code := p.cmd.ProcessState.ExitCode(); code != exitInput && !strings.Contains(c.want, "has no column") ||
			!strings.Contains(p.said.String(), c.want) || strings.Count(p.said.String(), "\n") != 1 {
			t.Errorf("%q: %d, %s, want %s", c.in, code, &p.said, c.want)
		}
	}
}

// The rows of a pipe are those of the file, whatever comes at a time.
func TestPipedProbeAsFile(t *testing.T) {
	dir := t.TempDir()
	var build, probe strings.Builder
	build.WriteString("k,v\n")
	probe.WriteString("k,w\n")
	for i := range 2000 {
		fmt.Fprintf(&build, "%d,%d\n", i*3, i)
	}
	for i := range 200_000 {
		fmt.Fprintf(&probe, "%d,\"row %d\n%s\"\n", i*7%9001, i, strings.Repeat("x", i%50))
	}
	for name, text := range map[string]string{"b.csv": build.String(), "p.csv": probe.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	must(t, "join", "b.csv", "p.csv", "--on", "k", "--how", "full", "--out", "want.csv")
	b, err := os.ReadFile("want.csv")
	if err != nil || len(b) < 1<<20 {
		t.Fatal(len(b), err)
	}
	want := string(b)
	for _, size := range []int{1 << 20, 1 << 16, 9973} {
		p := pipedJoin(t, dir, "b.csv", "-", "--on", "k", "--probe-format", "csv", "--how", "full")
		go func() {
			for rest := probe.String(); len(rest) > 0; {
				n := min(size, len(rest))
				io.WriteString(p.in, rest[:n])
				rest = rest[n:]
			}
			p.in.Close()
		}()
		got, err := io.ReadAll(p.rows)
		if err != nil || string(got) != want {
			t.Errorf("by %d: %d bytes, %v, want %d; %s", size, len(got), err, len(want), &p.said)
		}
	}
}

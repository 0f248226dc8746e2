// Package operations_test has files of operations held over jobs of members. It is no part of shard's own tests, for
// these have all that they import, among it package operations, compiled a second time.
package operations_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/operations"
	"github.com/warpmap/warpmap/internal/ports"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/shard/internal/nccl"
	"github.com/warpmap/warpmap/shard/internal/nccl/standin"
)

// memberEnv makes the test binary a member of a job, which serves the operations that come on standard input.
const memberEnv = "WARPMAP_TEST_MEMBER"

func TestMain(m *testing.M) {
	if os.Getenv(memberEnv) != "" {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func serve() (err error) {
	d, err := device.Open("cpu:" + os.Getenv("RANK"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	m, err := shard.Join(context.Background(), shard.JoinOptions{Device: d, Timeout: 30 * time.Second})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	return operations.Serve(m, os.Stdin, os.Stdout)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// starter starts jobs of members that serve a file of operations.
type starter struct {
	t   *testing.T
	lib string
}

// start starts the members of a ground, which are processes of this test binary.
func (x starter) start(f *operations.File, g operations.Settings) (m *operations.Members, end func() error, err error) {
	port, err := ports.Free()
	if err != nil {
		return nil, nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(x.t.Context(), 5*time.Minute) // kernels may have to be compiled
	var cmds []*exec.Cmd
	var to []io.Writer
	var from []io.Reader
	var closes []io.Closer
	var said []*strings.Builder
	end = func() (err error) {
		defer cancel()
		for _, c := range closes {
			c.Close()
		}
		for rank, cmd := range cmds {
			if e := cmd.Wait(); e != nil {
				err = errors.Join(err, fmt.Errorf("member %d: %w: %s", rank, e, said[rank]))
			}
		}
		return err
	}
	n := 2
	fmt.Sscan(g.Get("members"), &n)
	for rank := range n {
		cmd := exec.CommandContext(ctx, exe)
		cmd.Env = append(os.Environ(), fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", n),
			fmt.Sprintf("LOCAL_RANK=%d", rank), "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port, "WARPMAP_TOKEN=secret",
			memberEnv+"=1", nccl.Env+"="+x.lib)
		in, e1 := cmd.StdinPipe()
		out, e2 := cmd.StdoutPipe()
		text := &strings.Builder{}
		cmd.Stderr = text
		if err := errors.Join(e1, e2, cmd.Start()); err != nil {
			return nil, nil, errors.Join(err, end())
		}
		cmds, said, closes = append(cmds, cmd), append(said, text), append(closes, in)
		to, from = append(to, in), append(from, out)
	}
	m, err = operations.NewMembers(f, g, to, from)
	if errors.Is(err, operations.ErrRefused) {
		end() // with that
		return nil, nil, err
	}
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return m, end, nil
}

// Files of operations hold over jobs of members, as package operations has them over the devices of a process.
func TestMembersFiles(t *testing.T) {
	x := starter{t, standin.Build(t)}
	end := time.Now()
	if testenv.Long() {
		end = end.Add(time.Minute)
	}
	if text := os.Getenv("WARPMAP_PROGRAMS"); text != "" {
		long, err := time.ParseDuration(text)
		must(t, err)
		end = time.Now().Add(long)
	}
	kinds := []string{"map", "multimap", "set", "counter", "bucketlist", "multibucket"}
	files, sum := 0, operations.Runner{}
	for n := uint64(1); n <= 2 || time.Now().Before(end); n++ {
		seed := n + testenv.FirstSeed()
		kind := kinds[int((seed-1)%uint64(len(kinds)))]
		g := operations.Generator{Kind: kind, Short: true, Members: 2 + int(seed%2)}
		f := g.Generate(seed)
		if err := runOver(x, &sum, f); err != nil {
			small, _ := operations.Reduce(f, 60, func(f *operations.File) error { return runOver(x, &operations.Runner{}, f) })
			t.Errorf("seed %d of %s: %v\n%vreduced:\n%v", seed, kind, err, f, small)
			if files > 9 {
				return
			}
		}
		files++
	}
	testenv.Tried(t, files, "programs")
	testenv.Tried(t, sum.Operations, "operations")
	t.Logf("%d operations refused in part", sum.Full)
}

// What files over members once found wrong in the way they are run: a multimap's members each count all deletions, and
// options that all members refuse are no failure.
func TestMembersKeptFiles(t *testing.T) {
	testenv.ByTurns(t)
	x := starter{t, standin.Build(t)}
	for text, want := range map[string]operations.Runner{
		"table multimap key=u32 value=u64\nground family=warpcore members=2\ninsert 1=1 2=1 1=3\ndelete 1\n": {Operations: 2},
		"table set key=u32 maxbytes=2048\nground family=warpcore members=3\ninsert 1\n":                      {Refused: 1},
	} {
		f, err := operations.Parse("operations 1\n" + text)
		must(t, err)
		var r operations.Runner
		if err := runOver(x, &r, f); err != nil || r.Operations != want.Operations || r.Refused != want.Refused {
			t.Errorf("%d operations are done, and %d grounds refused, %v:\n%v", r.Operations, r.Refused, err, f)
		}
	}
}

func runOver(x starter, r *operations.Runner, f *operations.File) error {
	r.Members = x.start
	return r.Run(f)
}

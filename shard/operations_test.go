package shard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/warpmap/warpmap/internal/operations"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/shard/internal/nccl"
	"github.com/warpmap/warpmap/shard/internal/nccl/standin"
)

// starter starts jobs of members that serve a file of operations.
type starter struct {
	t   *testing.T
	lib string
}

// start starts the members of a ground, which are processes of this test binary.
func (x starter) start(f *operations.File, g operations.Settings) (m *operations.Members, end func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err := errors.Join(err, l.Close()); err != nil {
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
			scenarioEnv+"=play", deviceEnv+"=cpu", operationsEnv+"=file", nccl.Env+"="+x.lib)
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
	if m, err = operations.NewMembers(f, g, to, from); err != nil {
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

func runOver(x starter, r *operations.Runner, f *operations.File) error {
	r.Members = x.start
	return r.Run(f)
}

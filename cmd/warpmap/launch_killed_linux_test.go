package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warpmap/warpmap/internal/testenv"
)

// One member of a job is killed, at whatever moment of it. The others and launch hear of it: they end, not with 0, and
// launch names the member. No process is left.
func TestLaunchMemberKilled(t *testing.T) {
	standInNCCL(t)
	r := rand.New(rand.NewPCG(39, 1+testenv.FirstSeed()))
	longest := time.Duration(0)
	kills := 1
	if testenv.Long() {
		kills = 30
	}
	for n := range kills {
		victim, after := r.IntN(3), time.Duration(r.IntN(400))*time.Millisecond
		longest = max(longest, memberKilled(t, fmt.Sprintf("kill %d, of rank %d after %v", n, victim, after), victim, after))
	}
	testenv.Tried(t, kills, "kills")
	t.Logf("%d members killed; the last process ended within %v", kills, longest)
}

// memberKilled starts a job, kills a member, and tells how long the others went on. A member that is killed before it
// joins is waited for, which is not what this is about.
func memberKilled(t *testing.T, what string, victim int, after time.Duration) time.Duration {
	t.Helper()
	dir := t.TempDir()
	// Tables of ever other load factors are measured until all is over.
	script := `echo $$ >` + dir + `/$RANK; exec "$0" bench --devices joined --device cpu --n 20000 --load ` +
		strings.TrimSuffix(strings.Repeat("0.5,", 4000), ",")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "launch", "-n", "3", "--grace", "30s", "--", "sh", "-c", script, os.Args[0])
	cmd.Env = append(os.Environ(), "WARPMAP_TEST_COMMAND=1")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ranks []int
	for rank := range 3 {
		ranks = append(ranks, number(t, filepath.Join(dir, strconv.Itoa(rank))))
	}
	connected(t, ranks)
	time.Sleep(after)
	if err := syscall.Kill(ranks[victim], syscall.SIGKILL); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	killed := time.Now()
	err := cmd.Wait()
	took := time.Since(killed)
	if err == nil || took > 25*time.Second { // less than launch would wait for them
		t.Errorf("%s: launch ended after %v: %v", what, took, err)
	}
	for _, name := range []string{fmt.Sprintf("rank %d: sh: signal: killed", victim),
		fmt.Sprintf("rank %d is gone", victim)} {
		if !strings.Contains(said.String(), name) {
			t.Errorf("%s: nobody says %q:\n%s", what, name, said.String())
		}
	}
	for rank, pid := range ranks {
		if !gone(pid) {
			t.Errorf("%s: rank %d runs on", what, rank)
		}
	}
	return took
}

// connected waits until all processes have loaded NCCL and opened sockets to one another: until they have met.
func connected(t *testing.T, pids []int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		joined := 0
		for _, pid := range pids {
			links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
			sockets := 0
			for _, link := range links {
				if to, _ := os.Readlink(link); strings.HasPrefix(to, "socket:") {
					sockets++
				}
			}
			if sockets >= 3 { // of the meeting one or two, and of NCCL two
				joined++
			}
		}
		if joined == len(pids) {
			return
		}
	}
	t.Fatal("the members do not meet")
}

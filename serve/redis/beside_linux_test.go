package redis

import (
	"encoding/csv"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warpmap/warpmap/internal/testenv"
)

// cpuTime is what this process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// cpuTimeOf is what another process has used, in steps of 10 ms.
func cpuTimeOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// Beside Redis, in runs by turns of redis-benchmark with a million keys. (`warpmap bench fig serve/redis` has clients that
// cost less, and bench/results what they measure.) Rates depend on what else the machine does, so the bound is one of CPU time: a request of a pipeline of 256, and a key of MGET, takes
// less than Redis' does, by a wide margin here.
func TestBesideRedis(t *testing.T) {
	if !testenv.Long() {
		t.Skip("takes a few minutes: WARPMAP_LONG=1")
	}
	port := func(a net.Addr) string { _, p, _ := net.SplitHostPort(a.String()); return p }
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("redis-server")
	testenv.Require(t, "redis-server", err)
	theirs := port(free.Addr())
	free.Close()
	cmd := exec.Command(program, "--port", theirs, "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	_, ours := local(t, Options{})
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", "127.0.0.1:"+theirs); err == nil {
			c.Close()
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	for _, p := range []string{ours, theirs} {
		runs(t, "", "redis-benchmark", "-p", p, "-q", "-t", "set", "-n", "2000000", "-r", "1000000", "-P", "256", "-c", "20")
	}
	// measured is a median of runs, by turns: requests a second, the CPU's time for one, and the median of their times.
	type measured struct {
		rate, cpu, median float64
	}
	for _, c := range []struct {
		name    string
		n, keys int
		least   float64 // of Redis' CPU time over ours
		args    []string
	}{
		{"GET", 60_000, 1, 0, []string{"-t", "get", "-c", "50"}},
		{"SET", 60_000, 1, 0, []string{"-t", "set", "-c", "50"}},
		{"GET, 1,000 connections", 60_000, 1, 0, []string{"-t", "get", "-c", "1000"}},
		{"SET, 1,000 connections", 60_000, 1, 0, []string{"-t", "set", "-c", "1000"}},
		{"GET, pipelines of 16", 600_000, 1, 0, []string{"-t", "get", "-c", "50", "-P", "16"}},
		{"SET, pipelines of 16", 600_000, 1, 0, []string{"-t", "set", "-c", "50", "-P", "16"}},
		{"GET, pipelines of 256", 1_500_000, 1, 1.3, []string{"-t", "get", "-c", "50", "-P", "256"}},
		{"SET, pipelines of 256", 1_500_000, 1, 1.3, []string{"-t", "set", "-c", "50", "-P", "256"}},
		{"MGET of 1,000, a key", 1500, 1000, 1.3, append([]string{"-c", "20", "mget"}, slices.Repeat([]string{"key:__rand_int__"}, 1000)...)},
	} {
		all := map[string][]measured{}
		for turn := range 6 {
			p, cpu := ours, func() time.Duration { return cpuTime(t) }
			if turn%4 == 1 || turn%4 == 2 {
				p, cpu = theirs, func() time.Duration { return cpuTimeOf(t, cmd.Process.Pid) }
			}
			before := cpu()
			out := runs(t, "", "redis-benchmark", append([]string{"-p", p, "--csv", "-n", strconv.Itoa(c.n), "-r", "1000000"}, c.args...)...)
			took := cpu() - before
			rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
			if err != nil {
				t.Fatal(err, out)
			}
			last := rows[len(rows)-1]
			rate, _ := strconv.ParseFloat(last[1], 64)
			median, _ := strconv.ParseFloat(last[4], 64)
			all[p] = append(all[p], measured{rate * float64(c.keys), float64(took.Nanoseconds()) / 1000 / float64(c.n*c.keys), median})
		}
		middle := func(p string) (m measured) {
			for to, of := range map[*float64]func(measured) float64{&m.rate: func(m measured) float64 { return m.rate },
				&m.cpu: func(m measured) float64 { return m.cpu }, &m.median: func(m measured) float64 { return m.median }} {
				var v []float64
				for _, one := range all[p] {
					v = append(v, of(one))
				}
				slices.Sort(v)
				*to = v[len(v)/2]
			}
			return m
		}
		a, b := middle(ours), middle(theirs)
		t.Logf("[%q, %.0f, %.0f, %.2f, %.2f, %.2f, %.2f, %.2f],", c.name, a.rate/1000, b.rate/1000, a.rate/b.rate, a.cpu, b.cpu, a.median,
			b.median)
		if b.cpu < c.least*a.cpu {
			t.Errorf("%s: %.2f µs of CPU time, and Redis takes %.2f", c.name, a.cpu, b.cpu)
		}
	}
}

package serve

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/ports"
)

// leastMeasured is from how many keys on a point is the median of several turns, of a second each.
const leastMeasured = 100_000

// keys measures `warpmap serve` beside Redis, where that is installed.
func keys(_ *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	if len(o.Self) == 0 {
		return nil, errors.New("serve/redis runs this program again: FigOptions.Self is empty")
	}
	runtime.LockOSThread() // servers end with this thread
	defer runtime.UnlockOSThread()
	both := []string{"warpmap", "Redis"}
	fig := &bench.Fig{
		Title: fmt.Sprintf("warpmap serve beside Redis over loopback, by turns: %d keys of 16 bytes, values of 8",
			o.N),
		Columns: []string{"work", "warpmap k/s", "Redis k/s", "times"},
		Plots:   []bench.Plot{{Title: "warpmap serve", X: "work", Y: "warpmap k/s"}},
	}
	for _, what := range []string{"p50 ms", "p99 ms", "µs CPU", "client µs CPU"} {
		for _, who := range both {
			fig.Columns = append(fig.Columns, who+" "+what)
		}
	}
	program, err := exec.LookPath("redis-server")
	if err != nil {
		both = both[:1]
		fig.Notes = append(fig.Notes, "Redis is not installed")
	} else if version, err := exec.Command(program, "--version").Output(); err == nil {
		fig.Notes = append(fig.Notes, strings.TrimSpace(string(version)))
	}
	cores := runtime.NumCPU()
	fig.Notes = append(fig.Notes, fmt.Sprintf("%d cores, clients on the same with %d threads; 50 connections where the "+
		"work says nothing else, 20 for MGET; k/s and CPU are of requests, or of keys of MGET; p50 and p99 of all that "+
		"a connection asks at once; medians of three turns of a second", cores, max(1, cores/2)))
	for _, logged := range []bool{false, true} {
		if err := beside(fig, o, program, both, logged, cores); err != nil {
			return nil, err
		}
	}
	return fig, nil
}

// work is a row.
type work struct {
	name string
	load Load
}

// works are the rows of servers without a log, or with one that is synced every second.
func works(logged bool) (all []work) {
	if logged {
		return []work{{"SET, pipelines of 16, log every second", Load{Command: "SET", Depth: 16}}}
	}
	for _, of := range []work{{"", Load{}}, {", 1,000 connections", Load{Connections: 1000}},
		{", pipelines of 16", Load{Depth: 16}}, {", pipelines of 256", Load{Depth: 256}}} {
		for _, command := range []string{"GET", "SET"} {
			of.load.Command = command
			all = append(all, work{command + of.name, of.load})
		}
	}
	return append(all, work{"MGET of 1,000, a key", Load{Command: "MGET", Batch: 1000, Connections: 20}})
}

// beside measures the works of both servers by turns.
func beside(fig *bench.Fig, o bench.FigOptions, redis string, both []string, logged bool, cores int) error {
	dir, err := os.MkdirTemp("", "warpmap-serve")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	running := map[string]*server{}
	for _, who := range both {
		command := func(port string) []string { return ours(o.Self[0], port, dir, logged) }
		if who == "Redis" {
			command = func(port string) []string { return theirs(redis, port, dir, logged, cores) }
		}
		s, err := start(command)
		if err != nil {
			return err
		}
		defer s.stop()
		running[who] = s
		fill := Load{Address: s.address, Keys: o.N, Depth: 256, Connections: 8, Fill: true}
		if _, err := fill.Run(); err != nil {
			return fmt.Errorf("%s: %w", who, err)
		}
	}
	for _, w := range works(logged) {
		o.Step(w.name)
		w.load.Keys, w.load.Seconds = o.N, 1
		turns := 3 * len(both)
		if o.N < leastMeasured {
			w.load.Seconds, turns = 0.01, len(both)
		}
		got := map[string][]Rates{}
		for turn := range turns {
			who := both[(turn+turn/len(both))%len(both)] // so that neither always comes first
			w.load.Address, w.load.PID = running[who].address, running[who].Process.Pid
			r, err := w.load.Run()
			if err != nil {
				return fmt.Errorf("%s, %s: %w", who, w.name, err)
			}
			got[who] = append(got[who], r)
		}
		row := []any{w.name}
		for _, of := range []func(r Rates) float64{func(r Rates) float64 { return r.Rate / 1000 }, nil,
			func(r Rates) float64 { return r.P50 }, func(r Rates) float64 { return r.P99 },
			func(r Rates) float64 { return r.Server }, func(r Rates) float64 { return r.Client }} {
			if of == nil {
				row = append(row, quotient(row[1], row[2]))
				continue
			}
			for _, who := range []string{"warpmap", "Redis"} {
				row = append(row, median(got[who], of))
			}
		}
		fig.Add(row...)
		if err := o.Done(fig); err != nil {
			return err
		}
	}
	return nil
}

// median is nil of nothing.
func median(all []Rates, of func(Rates) float64) any {
	var x []float64
	for _, r := range all {
		x = append(x, of(r))
	}
	if slices.Sort(x); len(x) == 0 || math.IsNaN(x[len(x)/2]) {
		return nil
	}
	return bench.Round(x[len(x)/2])
}

func quotient(a, b any) any {
	x, is := bench.Number(a)
	y, both := bench.Number(b)
	if !is || !both {
		return nil
	}
	return bench.Round(x / y)
}

func ours(self, port, dir string, logged bool) []string {
	command := []string{self, "serve", "--quiet", "--redis", "127.0.0.1:" + port}
	if logged {
		command = append(command, "--data", filepath.Join(dir, "warpmap"), "--log", "everysec")
	}
	return command
}

// theirs has threads for input and output where there are cores for them.
func theirs(program, port, dir string, logged bool, cores int) []string {
	command := []string{program, "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", dir, "--appendonly", "no"}
	if logged {
		command[len(command)-1] = "yes"
	}
	if cores >= 4 {
		command = append(command, "--io-threads", strconv.Itoa(cores/2), "--io-threads-do-reads", "yes")
	}
	return command
}

// server is one that runs in a process of its own.
type server struct {
	*exec.Cmd
	address string
	says    bytes.Buffer
}

// start starts a server at a port that is free, and waits until it answers.
func start(command func(port string) []string) (*server, error) {
	port, err := ports.Free()
	if err != nil {
		return nil, err
	}
	s := &server{address: "127.0.0.1:" + port}
	words := command(port)
	s.Cmd = exec.Command(words[0], words[1:]...)
	s.Stdout, s.Stderr = &s.says, &s.says
	endWithThread(s.Cmd)
	if err := s.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if err = s.answers(); err == nil {
			return s, nil
		}
		if time.Now().After(end) {
			s.stop()
			return nil, fmt.Errorf("%s does not answer: %w: %s", words[0], err, s.says.String())
		}
	}
}

// answers tells whether the server says PONG.
func (s *server) answers() error {
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	var b [7]byte
	_, err = c.Write([]byte("PING\r\n"))
	_, failed := c.Read(b[:])
	if err := cmp.Or(err, failed); err != nil || string(b[:]) != "+PONG\r\n" {
		return fmt.Errorf("PING gives %q, %w", b, err)
	}
	return nil
}

func (s *server) stop() {
	s.Process.Kill()
	s.Wait()
}

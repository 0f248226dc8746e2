package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// What the server of TestHostileHours has, and how much its process may take for that: tables, replies and exports that
// wait, parts of requests of as many clients, and what Go has not collected yet.
const (
	hoursFlights    = 128
	hoursMost       = 1500 << 20
	hoursFiles      = hoursFlights + mostWeb + 100
	hoursGoroutines = 64 * hoursFlights // a connection has some, and so has each of its 8 calls
	hoursPassword   = "right"
)

var hoursArgs = []string{"--device", "cpu", "--http", "127.0.0.1:0", "--save", "every=3s", "--timeout", "4s", "--idle", "8s",
	"--flight-clients", fmt.Sprint(hoursFlights), "--flight-calls", "8", "--max-message", "2MiB", "--max-rows", "65536",
	"--max-exports", "64MiB", "--table-memory", "128MiB", "--device-memory", "256MiB", "--max-time", "60s"}

// hostile is one who attacks.
type hostile struct {
	*rand.Rand
	tables string // its socket
	web    string // where /metrics is
	end    time.Time
}

func (h *hostile) over() bool { return time.Now().After(h.end) }

// sleep sleeps for a random time below most.
func (h *hostile) sleep(most time.Duration) { time.Sleep(time.Duration(h.Int64N(int64(most)))) }

// connect connects, and gives nil where there are too many.
func (h *hostile) connect(network, addr string) net.Conn {
	c, err := net.Dial(network, addr)
	if err != nil {
		time.Sleep(10 * time.Millisecond)
		return nil
	}
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

// pause is how long attackers rest between two connections at most: without it all that a server does is to accept.
const pause = 50 * time.Millisecond

// with connects, does something, and closes, again and again.
func (h *hostile) with(connect func() net.Conn, do func(c net.Conn)) {
	for !h.over() {
		if c := connect(); c != nil {
			do(c)
			c.Close()
			h.sleep(pause)
		}
	}
}

func (h *hostile) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(h.Uint32())
	}
	return b
}

func (h *hostile) of(all ...string) string { return all[h.IntN(len(all))] }

// attacks are ways of being hostile to the figures, and to any server.
var attacks = map[string]func(h *hostile){
	"random bytes": func(h *hostile) {
		for !h.over() {
			for _, network := range [][2]string{{"unix", h.tables}, {"tcp", h.web}} {
				if c := h.connect(network[0], network[1]); c != nil {
					c.Write(h.bytes(1 + h.IntN(5000)))
					c.Close()
				}
			}
			h.sleep(pause)
		}
	},
	"crowds": func(h *hostile) {
		for !h.over() {
			var all []net.Conn
			for i := range 8 * hoursFlights {
				network, addr := "unix", h.tables
				if i%2 == 1 {
					network, addr = "tcp", h.web
				}
				if c := h.connect(network, addr); c != nil {
					all = append(all, c)
				}
			}
			time.Sleep(100 * time.Millisecond)
			for _, c := range all {
				c.Close()
			}
			h.sleep(4 * time.Second)
		}
	},
	"figures": func(h *hostile) {
		h.with(func() net.Conn { return h.connect("tcp", h.web) }, func(c net.Conn) {
			io.WriteString(c, h.of("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
				"POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n", "GET /"+strings.Repeat("x", 1<<20), "GET /me"))
			h.sleep(50 * time.Millisecond)
		})
	},
}

// figures are those of the server; nil: it does not say them.
func figures(web string) []byte {
	c := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	page, err := c.Get("http://" + web + "/metrics")
	if err != nil {
		return nil
	}
	defer page.Body.Close()
	text, _ := io.ReadAll(page.Body)
	return text
}

// watched is what the system and the server's figures say of the process that is attacked.
type watched struct{ memory, files, goroutines int }

func (w *watched) most(x watched) {
	w.memory, w.files, w.goroutines = max(w.memory, x.memory), max(w.files, x.files), max(w.goroutines, x.goroutines)
}

func (w watched) String() string {
	return fmt.Sprintf("%d MiB, %d files, %d goroutines", w.memory>>20, w.files, w.goroutines)
}

var (
	rssLine        = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)
	countersLine   = regexp.MustCompile(`(?m)^warpmap.*_total .*$`)
	goroutinesLine = regexp.MustCompile(`\ngo_goroutines (\d+)\n`)
)

// watch looks at the process. What it is not told is 0.
func (s *tableServer) watch(web string) (w watched) {
	text, _ := os.ReadFile(fmt.Sprint("/proc/", s.Process.Pid, "/status"))
	if m := rssLine.FindSubmatch(text); m != nil {
		kb, _ := strconv.Atoi(string(m[1]))
		w.memory = kb << 10
	}
	files, _ := os.ReadDir(fmt.Sprint("/proc/", s.Process.Pid, "/fd"))
	w.files = len(files)
	if m := goroutinesLine.FindSubmatch(figures(web)); m != nil {
		w.goroutines, _ = strconv.Atoi(string(m[1]))
	}
	return w
}

// room bounds the files of the process, or ends that.
func (s *tableServer) room(is bool) error {
	if is {
		return moreRoom(s.Process.Pid)
	}
	return unix.Prlimit(s.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: unix.RLIM_INFINITY}, nil)
}

// Clients of all bad kinds, and a disk that is full now and then, attack a server of tables for as long as
// WARPMAP_HOSTILE says, such as 30m. It does not die, it answers those who behave, and as it should, its memory, files and
// goroutines are bounded, and what was acknowledged is there when it has ended, or was killed.
func TestHostileHours(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	lasts := 2 * time.Second
	if text := os.Getenv("WARPMAP_HOSTILE"); text != "" {
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	} else if testenv.Long() {
		lasts = 20 * time.Second
	}
	dir, seed := t.TempDir(), testenv.FirstSeed()
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte(hoursPassword), 0o600); err != nil {
		t.Fatal(err)
	}
	log := []string{"always", "everysec"}[seed%2]
	args := append(hoursArgs, "--data", filepath.Join(dir, "data"), "--log", log, "--password-file", password)
	s := startServer(t, dir, nil, args...)
	web := s.web()
	end := time.Now().Add(lasts)
	one := func(n uint64) *hostile { return &hostile{rand.New(rand.NewPCG(seed, n)), s.socket, web, end} }
	tables := newHonestTables(t, one(1))
	tables.create()
	before := s.watch(web)
	var bad, good sync.WaitGroup
	n := uint64(1)
	for _, all := range []map[string]func(*hostile){attacks, tableAttacks} {
		for _, attack := range all {
			for range 2 {
				n++
				h := one(n)
				bad.Go(func() { attack(h) })
			}
		}
	}
	good.Go(func() { tables.work() })
	died := make(chan struct{})
	go func() { s.ended(); close(died) }()
	most := before // for meanwhile there may be no place for who asks
	for begin, told, full := time.Now(), 0, false; time.Now().Before(end); {
		select {
		case <-died:
			t.Fatalf("the server has ended: %.5000s", s.says)
		case <-time.After(200 * time.Millisecond):
		}
		now := s.watch(web)
		most.most(now)
		if minutes := int(time.Since(begin).Minutes()); minutes > told {
			told = minutes
			t.Logf("%d minutes: %v; until then at most %v; %v", minutes, now, most, tables)
		}
		if is := int(time.Since(begin)/min(3*time.Second, lasts/4))%3 == 1; is != full {
			full = is
			if err := s.room(!full); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.room(true); err != nil {
		t.Fatal(err)
	}
	bad.Wait()
	good.Wait()
	t.Logf("%v, --log %s: at most %v; %v", lasts, log, most, tables)
	if most.memory > hoursMost || most.files > hoursFiles || most.goroutines > hoursGoroutines || most.goroutines == 0 {
		t.Errorf("at most %v, want no more than %d bytes, %d files and %d goroutines", most, hoursMost, hoursFiles, hoursGoroutines)
	}
	if tables.answered.Load() == 0 {
		t.Error("the client that behaves was not answered")
	}
	tables.settle()
	quiet := watched{}
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		if quiet = s.watch(web); quiet.files <= before.files+8 && quiet.goroutines <= before.goroutines+20 {
			break
		}
	}
	t.Logf("when all have gone there are %v\n%s", quiet, bytes.Join(countersLine.FindAll(figures(web), -1), []byte("\n")))
	if quiet.files > before.files+8 || quiet.goroutines > before.goroutines+20 {
		t.Errorf("when all have gone there are %v, before them %v", quiet, before)
	}
	if t.Failed() {
		s.Process.Signal(syscall.SIGQUIT) // it says what its goroutines wait for
		<-died
		t.Fatalf("%.30000s", s.says)
	}
	for round := range 2 { // a signal, or kill -9 where all that was acknowledged is on the disk; and then the other
		if kill := (log == "always") == (round == 0); kill {
			s.Process.Kill()
		} else {
			s.Process.Signal(syscall.SIGTERM)
		}
		<-died
		if code := s.ProcessState.ExitCode(); code != 0 && code != -1 {
			t.Fatalf("it ends with %d: %.5000s", code, s.says)
		}
		for _, word := range []string{"panic", "fatal error", "goroutine "} {
			if strings.Contains(s.says.String(), word) {
				t.Errorf("the server says %.5000s", s.says)
			}
		}
		s = startServer(t, dir, nil, args...)
		died = make(chan struct{})
		go func() { s.ended(); close(died) }()
		tables.check()
	}
}

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

// What the server of TestHostileHours has, and how much its process may take for that: keys, tables, replies and exports
// that wait, parts of requests of as many clients, and what Go has not collected yet.
const (
	hoursClients, hoursFlights = 3000, 128
	hoursMost                  = 1500 << 20
	hoursFiles                 = hoursClients + hoursFlights + mostWeb + 100
	hoursGoroutines            = 64 * hoursFlights // a connection has some, and so has each of its 8 calls
	hoursPassword              = "right"
)

var hoursArgs = []string{"--device", "cpu", "--http", "127.0.0.1:0", "--save", "every=3s", "--memory", "64MiB", "--max-bulk",
	"1MiB", "--max-request", "4MiB", "--max-output", "8MiB", "--clients", fmt.Sprint(hoursClients), "--timeout", "4s", "--idle", "8s",
	"--flight-clients", fmt.Sprint(hoursFlights), "--flight-calls", "8", "--max-message", "2MiB", "--max-rows", "65536",
	"--max-exports", "64MiB", "--table-memory", "128MiB", "--device-memory", "256MiB", "--max-time", "60s"}

// hostile is one who attacks.
type hostile struct {
	*rand.Rand
	keys, tables string // sockets
	web          string // where /metrics is
	end          time.Time
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

// dial connects to the server of keys, and says the password if it should.
func (h *hostile) dial(login bool) net.Conn {
	c := h.connect("unix", h.keys)
	if c != nil && login {
		c.Write(request("AUTH", hoursPassword))
		b := make([]byte, 5)
		if n, _ := io.ReadFull(c, b); string(b[:n]) != "+OK\r\n" { // there are too many
			c.Close()
			return nil
		}
	}
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

func (h *hostile) withKeys(login bool, do func(c net.Conn)) {
	h.with(func() net.Conn { return h.dial(login) }, do)
}

func (h *hostile) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(h.Uint32())
	}
	return b
}

func (h *hostile) of(all ...string) string { return all[h.IntN(len(all))] }

// command is a random command: whatever the page names, but what ends sessions, or takes the keys of all others.
func (h *hostile) command() []byte {
	n := func() string { return strconv.Itoa(h.IntN(1<<h.IntN(24)) - 1) }
	name := h.of("GET", "SET", "SETNX", "SETEX", "PSETEX", "GETSET", "GETDEL", "GETEX", "MGET", "MSET", "MSETNX", "APPEND", "STRLEN",
		"INCR", "DECR", "INCRBY", "DECRBY", "INCRBYFLOAT", "GETRANGE", "SUBSTR", "SETRANGE", "GETBIT", "SETBIT", "BITCOUNT", "DEL",
		"UNLINK", "EXISTS", "TOUCH", "TYPE", "RENAME", "RENAMENX", "COPY", "RANDOMKEY", "KEYS", "SCAN", "DBSIZE", "OBJECT", "MEMORY",
		"MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH", "EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT", "TTL", "PTTL", "EXPIRETIME",
		"PERSIST", "TIME", "PFADD", "PFCOUNT", "PFMERGE", "BF.RESERVE", "BF.ADD", "BF.MADD", "BF.EXISTS", "BF.MEXISTS", "BF.CARD",
		"BF.INFO", "CF.RESERVE", "CF.ADD", "CF.ADDNX", "CF.DEL", "CF.EXISTS", "CF.MEXISTS", "CF.COUNT", "CF.INFO", "PING", "ECHO",
		"SELECT", "INFO", "COMMAND", "SAVE", "BGSAVE", "LASTSAVE", "WAIT", "FOO")
	args := []string{name}
	for range h.IntN(6) {
		switch h.IntN(8) {
		case 0, 1, 2:
			args = append(args, h.of("k", "b", "c", "h")+strconv.Itoa(h.IntN(9)))
		case 3, 4:
			args = append(args, n())
		case 5:
			args = append(args, h.of("NX", "XX", "GET", "EX", "PX", "KEEPTTL", "USAGE", "ENCODING", "COUNT", "MATCH", "*", "EXPANSION",
				"CAPACITY", "1e-300", "0.999", "9223372036854775807", "-9223372036854775808", "", "\x00\r\n"))
		case 6:
			args = append(args, strings.Repeat("v", h.IntN(1<<h.IntN(20))))
		case 7:
			args = append(args, string(h.bytes(h.IntN(20))))
		}
	}
	return request(args...)
}

// attacks are ways of being hostile to the server of keys, and to that of figures.
var attacks = map[string]func(h *hostile){
	"random bytes": func(h *hostile) {
		for !h.over() {
			for _, network := range [][2]string{{"unix", h.keys}, {"unix", h.tables}, {"tcp", h.web}} {
				if c := h.connect(network[0], network[1]); c != nil {
					c.Write(h.bytes(1 + h.IntN(5000)))
					c.Close()
				}
			}
			h.sleep(pause)
		}
	},
	"cut requests": func(h *hostile) {
		h.withKeys(true, func(c net.Conn) {
			b := bytes.Repeat(h.command(), 1+h.IntN(20))
			c.Write(b[:h.IntN(len(b)+1)])
			h.sleep(5 * time.Millisecond)
		})
	},
	"huge lengths": func(h *hostile) {
		h.withKeys(true, func(c net.Conn) {
			io.WriteString(c, h.of("*1048576\r\n$1048576\r\n", "*2147483647\r\n", "*3\r\n$1048576\r\nab", "*-1\r\n*1\r\n$99999999999\r\n"))
			h.sleep(100 * time.Millisecond)
		})
	},
	"large parts": func(h *hostile) {
		part := append([]byte("*4\r\n$1048576\r\n"), make([]byte, 1<<20)...)
		h.withKeys(true, func(c net.Conn) {
			for range 3 {
				c.Write(part[:h.IntN(len(part))])
				time.Sleep(20 * time.Millisecond)
			}
		})
	},
	"slow": func(h *hostile) {
		h.withKeys(h.IntN(2) == 0, func(c net.Conn) {
			for _, b := range request("SET", "k", "value") {
				if _, err := c.Write([]byte{b}); err != nil || h.over() {
					return
				}
				time.Sleep(200 * time.Millisecond)
			}
		})
	},
	"no reader": func(h *hostile) {
		h.withKeys(true, func(c net.Conn) {
			c.Write(request("SET", "large", strings.Repeat("v", 900_000)))
			c.Write(bytes.Repeat(request("GET", "large"), 200))
			h.sleep(3 * time.Second)
		})
	},
	"wrong passwords": func(h *hostile) {
		h.withKeys(false, func(c net.Conn) { c.Write(bytes.Repeat(request("AUTH", "wrong"), 50)) })
	},
	"crowds": func(h *hostile) {
		for !h.over() {
			var all []net.Conn
			for i := range hoursClients + 3*hoursFlights {
				network, addr := "unix", h.keys
				if i%8 == 0 {
					addr = h.tables
				} else if i%8 == 1 {
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
	"transactions": func(h *hostile) {
		h.withKeys(true, func(c net.Conn) {
			c.Write(request("MULTI"))
			for range 8 {
				c.Write(request("SET", "k"+strconv.Itoa(h.IntN(9)), strings.Repeat("v", h.IntN(1<<20))))
			}
			c.Write(request("EXEC"))
			for i := range 2000 {
				c.Write(request("WATCH", strings.Repeat("w", 1000)+strconv.Itoa(i)))
			}
			time.Sleep(10 * time.Millisecond)
		})
	},
	"commands": func(h *hostile) {
		h.withKeys(true, func(c net.Conn) {
			go io.Copy(io.Discard, c)
			for range 300 {
				if _, err := c.Write(h.command()); err != nil {
					return
				}
			}
			time.Sleep(10 * time.Millisecond)
		})
	},
	"figures": func(h *hostile) {
		h.with(func() net.Conn { return h.connect("tcp", h.web) }, func(c net.Conn) {
			io.WriteString(c, h.of("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
				"POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n", "GET /"+strings.Repeat("x", 1<<20), "GET /me"))
			h.sleep(50 * time.Millisecond)
		})
	},
}

// figures are those of the server that count; nil: it does not say them.
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
func (s *keyServer) watch(web string) (w watched) {
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
func (s *keyServer) room(is bool) error {
	if is {
		return moreRoom(s.Process.Pid)
	}
	return unix.Prlimit(s.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: unix.RLIM_INFINITY}, nil)
}

// Clients of all bad kinds, and a disk that is full now and then, attack a server of keys and of tables for as long as
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
	password, socket := filepath.Join(dir, "password"), filepath.Join(dir, "f")
	if err := os.WriteFile(password, []byte(hoursPassword), 0o600); err != nil {
		t.Fatal(err)
	}
	log := []string{"always", "everysec"}[seed%2]
	args := append(hoursArgs, "--data", filepath.Join(dir, "data"), "--log", log, "--password-file", password, "--flight-socket",
		socket)
	s := startKeyServer(t, dir, nil, args...)
	web := s.web()
	end := time.Now().Add(lasts)
	one := func(n uint64) *hostile { return &hostile{rand.New(rand.NewPCG(seed, n)), s.socket, socket, web, end} }
	keys, tables := newHonestKeys(t, one(1), log == "always"), newHonestTables(t, one(2))
	tables.create()
	before := s.watch(web)
	var bad, good sync.WaitGroup
	n := uint64(2)
	for _, all := range []map[string]func(*hostile){attacks, tableAttacks} {
		for _, attack := range all {
			for range 2 {
				n++
				h := one(n)
				bad.Go(func() { attack(h) })
			}
		}
	}
	good.Go(func() { keys.work() })
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
			t.Logf("%d minutes: %v; until then at most %v; %v; %v", minutes, now, most, keys, tables)
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
	t.Logf("%v, --log %s: at most %v; %v; %v", lasts, log, most, keys, tables)
	if most.memory > hoursMost || most.files > hoursFiles || most.goroutines > hoursGoroutines || most.goroutines == 0 {
		t.Errorf("at most %v, want no more than %d bytes, %d files and %d goroutines", most, hoursMost, hoursFiles, hoursGoroutines)
	}
	if keys.answered.Load() == 0 || tables.answered.Load() == 0 {
		t.Error("those who behave were not answered")
	}
	keys.settle()
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
		os.Remove(s.socket)
		s = startKeyServer(t, dir, nil, args...)
		died = make(chan struct{})
		go func() { s.ended(); close(died) }()
		keys.check()
		tables.check()
	}
}

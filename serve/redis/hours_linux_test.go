package redis

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/warpmap/warpmap/internal/testenv"
)

// What the server of TestHostileHours has, and how much memory its process may take for that: keys, replies that wait,
// parts of requests of as many clients, and what Go has not collected yet.
const (
	hoursMemory, hoursRequest, hoursOutput, hoursClients = 64 << 20, 4 << 20, 8 << 20, 3000
	hoursMost                                            = 1500 << 20
)

// hostileServer is the process that TestHostileHours attacks. Now and then its disk is full: no file may grow.
func hostileServer(folder string) {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := New(Options{Folder: folder, Fsync: FsyncEverySecond, Save: 3 * time.Second, MaxMemory: hoursMemory,
		Request: hoursRequest, Bulk: 1 << 20, Output: hoursOutput, Clients: hoursClients, Timeout: 2 * time.Second,
		Password: "right", Log: log.New(os.Stderr, "", 0), Retry: func(err error) bool {
			fmt.Fprintln(os.Stderr, "the end waits:", err) // for the disk has room again
			time.Sleep(100 * time.Millisecond)
			return true
		}})
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(folder, "socket"))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		var room unix.Rlimit
		unix.Getrlimit(unix.RLIMIT_FSIZE, &room)
		for full := false; ctx.Err() == nil; full = !full {
			limit := room
			if full {
				limit.Cur = 4096
			}
			unix.Setrlimit(unix.RLIMIT_FSIZE, &limit)
			time.Sleep(3 * time.Second)
		}
		unix.Setrlimit(unix.RLIMIT_FSIZE, &room)
	}()
	if err := s.Serve(ctx, l); err != nil {
		log.Fatal("the end: ", err)
	}
	if err := s.Close(); err != nil {
		log.Fatal("close: ", err)
	}
}

// hostile is one who attacks.
type hostile struct {
	addr string
	r    *rand.Rand
	end  time.Time
}

func (h *hostile) over() bool { return time.Now().After(h.end) }

// dial connects, and says the password if it should.
func (h *hostile) dial(login bool) net.Conn {
	c, err := net.Dial("unix", h.addr)
	if err != nil {
		time.Sleep(10 * time.Millisecond)
		return nil
	}
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if login {
		c.Write(request("AUTH", "right"))
		b := make([]byte, 5)
		if n, _ := c.Read(b); string(b[:n]) != "+OK\r\n" { // there are too many
			c.Close()
			return nil
		}
	}
	return c
}

// with connects, does something, and closes, again and again.
func (h *hostile) with(login bool, do func(c net.Conn)) {
	for !h.over() {
		if c := h.dial(login); c != nil {
			do(c)
			c.Close()
		}
	}
}

func (h *hostile) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(h.r.Uint32())
	}
	return b
}

// any is a random command.
func (h *hostile) any() []byte {
	w := words{h.r, new(int)}
	for {
		args := w.plain()
		if h.r.IntN(3) == 0 {
			args = h.filter()
		}
		if name := strings.ToUpper(args[0]); name != "CLIENT" && name != "AUTH" && name != "HELLO" {
			return request(args...)
		}
	}
}

func (h *hostile) filter() []string {
	one := func(all ...string) string { return all[h.r.IntN(len(all))] }
	n := func() string { return strconv.Itoa(h.r.IntN(1 << h.r.IntN(24))) }
	switch h.r.IntN(6) {
	case 0:
		return []string{one("BF.RESERVE", "DEL"), "b" + n(), one("0.01", "1e-300", "0.999", "x"), n(), "EXPANSION", n()}
	case 1:
		return []string{"CF.RESERVE", "c" + n(), n(), "EXPANSION", n()}
	case 2:
		return []string{one("BF.MADD", "BF.MEXISTS", "CF.MEXISTS"), one("b1", "c1"), n(), n(), n()}
	case 3:
		return []string{one("CF.ADD", "CF.ADDNX", "CF.DEL", "CF.COUNT", "BF.ADD"), one("b1", "c1"), n()}
	case 4:
		return []string{one("SETRANGE", "SETBIT"), "k" + n(), n(), one("0", "1")}
	}
	return []string{one("SAVE", "BGSAVE", "FLUSHALL", "INFO", "RANDOMKEY")}
}

// attacks are ways of being hostile.
var attacks = map[string]func(h *hostile){
	"random bytes": func(h *hostile) { h.with(h.r.IntN(2) == 0, func(c net.Conn) { c.Write(h.bytes(1 + h.r.IntN(5000))) }) },
	"cut frames": func(h *hostile) {
		h.with(true, func(c net.Conn) {
			b := bytes.Repeat(h.any(), 1+h.r.IntN(20))
			c.Write(b[:h.r.IntN(len(b)+1)])
			time.Sleep(time.Duration(h.r.IntN(5)) * time.Millisecond)
		})
	},
	"huge lengths": func(h *hostile) {
		h.with(true, func(c net.Conn) {
			c.Write([]byte([]string{"*1048576\r\n$1048576\r\n", "*2147483647\r\n", "*3\r\n$1048576\r\nab", "*-1\r\n*1\r\n$99999999999\r\n"}[h.r.IntN(4)]))
			time.Sleep(time.Duration(h.r.IntN(100)) * time.Millisecond)
		})
	},
	"large parts": func(h *hostile) {
		part := append([]byte("*4\r\n$1048576\r\n"), make([]byte, 1<<20)...)
		h.with(true, func(c net.Conn) {
			for range 3 {
				c.Write(part[:h.r.IntN(len(part))])
				time.Sleep(20 * time.Millisecond)
			}
		})
	},
	"slow": func(h *hostile) {
		h.with(h.r.IntN(2) == 0, func(c net.Conn) {
			for _, b := range request("SET", "k", "value") {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(200 * time.Millisecond)
			}
		})
	},
	"no reader": func(h *hostile) {
		h.with(true, func(c net.Conn) {
			c.Write(request("SET", "large", strings.Repeat("v", 900_000)))
			c.Write(bytes.Repeat(request("GET", "large"), 200))
			time.Sleep(time.Duration(h.r.IntN(3000)) * time.Millisecond)
		})
	},
	"wrong passwords": func(h *hostile) {
		h.with(false, func(c net.Conn) { c.Write(bytes.Repeat(request("AUTH", "wrong"), 50)) })
	},
	"crowds": func(h *hostile) {
		for !h.over() {
			var all []net.Conn
			for range hoursClients {
				if c := h.dial(false); c != nil {
					all = append(all, c)
				}
			}
			time.Sleep(100 * time.Millisecond)
			for _, c := range all {
				c.Close()
			}
		}
	},
	"transactions": func(h *hostile) {
		h.with(true, func(c net.Conn) {
			c.Write(request("MULTI"))
			for range 8 {
				c.Write(request("SET", "k"+strconv.Itoa(h.r.IntN(9)), strings.Repeat("v", h.r.IntN(1<<20))))
			}
			c.Write(request("EXEC"))
			for i := range 2000 {
				c.Write(request("WATCH", strings.Repeat("w", 1000)+strconv.Itoa(i)))
			}
			time.Sleep(10 * time.Millisecond)
		})
	},
	"commands": func(h *hostile) {
		h.with(true, func(c net.Conn) {
			go func() {
				b := make([]byte, 1<<16)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
				}
			}()
			for range 300 {
				if _, err := c.Write(h.any()); err != nil {
					return
				}
			}
			time.Sleep(10 * time.Millisecond)
		})
	},
}

// Clients of all bad kinds, and a disk that is full now and then, hurt a server for as long as WARPMAP_HOSTILE says, such
// as 30m: it does not die, it answers those who behave, its memory is bounded, and its files are sound.
func TestHostileHours(t *testing.T) {
	lasts := 20 * time.Second
	if text := os.Getenv("WARPMAP_HOSTILE"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	} else if !testenv.Long() {
		t.Skip("WARPMAP_HOSTILE says for how long")
	}
	folder := t.TempDir()
	var said safeBuffer
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), hostileFolder+"="+folder)
	server.Stderr = &said
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	addr := filepath.Join(folder, "socket")
	end := time.Now().Add(lasts)
	good := &hostile{addr, rand.New(rand.NewPCG(1, 1)), end}
	for i := 0; ; i++ {
		if c := good.dial(false); c != nil {
			c.Close()
			break
		}
		if i > 1000 {
			t.Fatalf("the server does not begin: %s", said.String())
		}
	}
	var work sync.WaitGroup
	for name, attack := range attacks {
		for i := range 2 {
			h := &hostile{addr, rand.New(rand.NewPCG(testenv.FirstSeed()+uint64(i), uint64(len(name)))), end}
			work.Go(func() { attack(h) })
		}
	}
	var answered, refused atomic.Int64
	slowest := time.Duration(0)
	work.Go(func() {
		for !good.over() {
			c := good.dial(true)
			if c == nil { // too many
				refused.Add(1)
				continue
			}
			for range 100 {
				begin := time.Now()
				c.SetDeadline(begin.Add(30 * time.Second))
				c.Write(request("SET", "good", "v"))
				b := make([]byte, 300)
				n, err := c.Read(b)
				if err != nil {
					t.Errorf("one that behaves is cut off: %v", err)
					break
				}
				if got := string(b[:n]); got != "+OK\r\n" && !strings.HasPrefix(got, "-MISCONF") && !strings.HasPrefix(got, "-OOM") {
					t.Errorf("one that behaves is answered %q", got)
				}
				answered.Add(1)
				slowest = max(slowest, time.Since(begin))
			}
			c.Close()
		}
	})
	most, last := 0, 0
	rss := regexp.MustCompile(`VmRSS:\s+(\d+) kB`)
	for died := false; time.Now().Before(end) && !died; {
		select {
		case err := <-ended:
			t.Errorf("the server has ended: %v: %.3000s", err, said.String())
			died = true
		case <-time.After(200 * time.Millisecond):
			text, _ := os.ReadFile(fmt.Sprint("/proc/", server.Process.Pid, "/status"))
			if m := rss.FindSubmatch(text); m != nil {
				last, _ = strconv.Atoi(string(m[1]))
				most = max(most, last)
			}
		}
	}
	work.Wait()
	t.Logf("%v: %d requests of one that behaves were answered, the slowest in %v, and %d of its connections refused; %d MiB at most, "+
		"%d at the end", lasts, answered.Load(), slowest, refused.Load(), most>>10, last>>10)
	if most<<10 > hoursMost || answered.Load() == 0 {
		t.Errorf("%d MiB, want at most %d; %d were answered", most>>10, hoursMost>>20, answered.Load())
	}
	if t.Failed() {
		server.Process.Kill()
		return
	}
	server.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the end: %v: %.3000s", err, said.String())
		}
	case <-time.After(time.Minute):
		server.Process.Kill()
		t.Fatal("the server does not end")
	}
	again, err := New(Options{Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	if err := again.space.Check(); err != nil {
		t.Error(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"panic", "fatal error", "goroutine "} {
		if strings.Contains(said.String(), bad) {
			t.Errorf("the server says %.3000s", said.String())
		}
	}
}

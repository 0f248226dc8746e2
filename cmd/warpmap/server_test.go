package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/serve/flight"
)

// tableServer is a server of tables in a process of its own, on a Unix socket.
type tableServer struct {
	*exec.Cmd
	t      *testing.T
	socket string
	says   *said
	ended  func() error // waits for the end
}

// said is what a process says, which may be read while it says more.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// startServer starts a server on the socket f of dir, and waits until it listens.
func startServer(t *testing.T, dir string, env []string, args ...string) *tableServer {
	t.Helper()
	s := &tableServer{t: t, socket: filepath.Join(dir, "f"), says: &said{}}
	s.Cmd = exec.Command(os.Args[0], append([]string{"serve", "--flight-socket", s.socket}, args...)...)
	s.Env = append(append(os.Environ(), "WARPMAP_TEST_COMMAND=1"), env...)
	s.Stderr, s.ended = s.says, sync.OnceValue(s.Cmd.Wait)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Process.Kill(); s.Wait() })
	s.said(" for Flight\n")
	return s
}

// Wait waits a minute for the end. Then the server says what its goroutines wait for.
func (s *tableServer) Wait() error {
	t := time.AfterFunc(time.Minute, func() { s.Process.Signal(syscall.SIGQUIT) })
	defer t.Stop()
	return s.ended()
}

// said waits until the server's output has all of these texts, and returns the output: lines that the server writes
// before it answers may be read later.
func (s *tableServer) said(all ...string) string {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		says := s.says.String()
		if !slices.ContainsFunc(all, func(x string) bool { return !strings.Contains(says, x) }) {
			return says
		}
		if time.Now().After(end) {
			s.t.Fatalf("it says %s, want %q", says, all)
		}
	}
}

// web is where the process says that it has figures.
func (s *tableServer) web() string {
	s.t.Helper()
	_, rest, _ := strings.Cut(s.said("/metrics\n"), "http://")
	at, _, _ := strings.Cut(rest, "/metrics\n")
	return at
}

// killTime is how long a server is under load before it is killed, and until when what it had acknowledged must be there:
// all of it with --log always, and with everysec what is older than "a second or two", and one more, for the processors
// are others', too.
func killTime(r *rand.Rand, log string) (after, lost time.Duration) {
	after = time.Duration(100+r.IntN(400)) * time.Millisecond
	if log == "everysec" {
		if after, lost = after+time.Second, 3*time.Second; testenv.Long() {
			after += time.Duration(r.IntN(4000)) * time.Millisecond
		}
	}
	return after, lost
}

// load has clients work until the server is killed, so long after each had an acknowledgement. least is what they had had
// acknowledged when that must be kept.
func (s *tableServer) load(after, lost time.Duration, acknowledged []atomic.Int64, client func(own int)) (least []int64) {
	now := func() (all []int64) {
		for i := range acknowledged {
			all = append(all, acknowledged[i].Load())
		}
		return all
	}
	var wg sync.WaitGroup
	least = now()
	for own := range acknowledged {
		wg.Go(func() { client(own) })
	}
	for end, own := time.Now().Add(time.Minute), 0; own < len(least) && time.Now().Before(end); {
		if acknowledged[own].Load() > least[own] {
			own++
		} else {
			time.Sleep(time.Millisecond)
		}
	}
	if after > lost {
		time.Sleep(after - lost)
		least = now()
		time.Sleep(lost)
	} else {
		time.Sleep(after)
	}
	s.Process.Kill()
	wg.Wait()
	if lost == 0 {
		least = now()
	}
	s.Wait()
	return least
}

// A listener for figures takes as many connections as there are places, closes more, and takes others when some have gone.
func TestFiguresAreBounded(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial := func() net.Conn {
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	taken := make(chan net.Conn, 10)
	go func() {
		for b := (&bounded{l, make(chan struct{}, 2)}); ; {
			c, err := b.Accept()
			if err != nil {
				return
			}
			taken <- c
		}
	}()
	dial()
	dial()
	first, _ := <-taken, <-taken
	third := dial()
	third.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := third.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("a third is held: %v", err)
	}
	first.Close()
	first.Close() // as servers do
	dial()
	<-taken
	fourth := dial()
	fourth.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := fourth.Read(make([]byte, 1)); err != io.EOF || len(taken) != 0 {
		t.Fatalf("one too many is held: %v", err)
	}
}

// /healthz says that a server works, and that it ends.
func TestHealth(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	defer d.Close()
	server, err := flight.New(t.Context(), flight.Options{Devices: []*device.Device{d}})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	serving, end := context.WithCancel(t.Context())
	h := (&flights{Server: server}).handler(serving)
	ask := func() string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/healthz", nil))
		return fmt.Sprint(w.Code, " ", w.Body)
	}
	if got := ask(); got != "200 ok\n" {
		t.Errorf("a server that works answers %q", got)
	}
	end()
	if got := ask(); got != "503 ending\n" {
		t.Errorf("a server that ends answers %q", got)
	}
}

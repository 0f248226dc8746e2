package redis

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/warpmap/warpmap/internal/testenv"
)

// A client may send a large pipeline before it takes a reply, and end its half of the connection behind that.
func TestPipelineSentWhole(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, Options{Folder: t.TempDir(), Fsync: FsyncEverySecond}, l)
	c := dial(t, s.addr)
	value := strings.Repeat("v", 10_000)
	c.want("+OK\r\n", "SET", "k", value)
	const n = 3000 // 60 MB of replies, and as many bytes of requests
	var all []byte
	for range n {
		all = append(all, request("GET", "k")...)
		all = append(all, request("APPEND", "k2", value)...)
		all = append(all, request("GETSET", "k", value)...)
	}
	c.send(all)
	c.Conn.(*net.TCPConn).CloseWrite()
	for i := range n {
		for _, want := range []string{"$10000\r\n" + value + "\r\n", fmt.Sprintf(":%d\r\n", 10_000*(i+1)), "$10000\r\n" + value + "\r\n"} {
			if got := c.reply(); got != want {
				t.Fatalf("reply %d: %.60q, want %.60q", i, got, want)
			}
		}
	}
	if got := c.ends(); got != "" {
		t.Errorf("behind all replies: %.60q", got)
	}
	if n := s.waiting.Load(); n != 0 {
		t.Errorf("%d bytes wait", n)
	}
}

// A client that ends its half of the connection behind a pipeline hears of no write before that is in the log, which here
// cannot be written any more.
func TestEndBehindWrite(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	s := serve(t, Options{Folder: folder, Fsync: FsyncAlways, Loops: 1}, l)
	c := dial(t, s.addr)
	value := strings.Repeat("v", mostRound)
	c.want("+OK\r\n", "SET", "large", value)
	full, restore := fullFile(t, filepath.Join(folder, "log.1"))
	defer restore()
	full()
	c.send(append(request("GET", "large"), request("SET", "k", "v")...)) // a round ends between the two
	c.Conn.(*net.TCPConn).CloseWrite()
	if got := c.reply(); len(got) < len(value) {
		t.Fatalf("%.60q", got)
	}
	if got := c.ends(); got != "" {
		t.Errorf("%q is acknowledged, and in no log", got)
	}
}

// fullFile has an open file of this process be one on a disk that is full, until it is restored.
func fullFile(t *testing.T, name string) (full, restore func()) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if to, _ := os.Readlink("/proc/self/fd/" + one.Name()); to != name {
			continue
		}
		fd, _ := strconv.Atoi(one.Name())
		own, err := unix.Dup(fd)
		if err != nil {
			t.Fatal(err)
		}
		null, err := unix.Open("/dev/full", unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		put := func(from int) func() {
			return func() {
				if err := unix.Dup3(from, fd, unix.O_CLOEXEC); err != nil {
					t.Error(err)
				}
				unix.Close(from)
			}
		}
		return put(null), put(own)
	}
	t.Fatalf("nobody has %s open", name)
	return nil, nil
}

// Clients that take no replies have only so many of theirs made, all together, and one that does take them is answered.
func TestRepliesThatWaitAreBounded(t *testing.T) {
	testenv.ByTurns(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, Options{Output: 400 << 20}, l)
	dial(t, s.addr).want("+OK\r\n", "SET", "k", strings.Repeat("v", 1<<20))
	for range 3 {
		c := dial(t, s.addr)
		c.send(bytes.Repeat(request("GET", "k"), 300))
	}
	for end := time.Now().Add(time.Minute); s.waiting.Load() < mostWaiting; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes wait", s.waiting.Load())
		}
	}
	other := dial(t, s.addr)
	for range 100 {
		other.want("+PONG\r\n", "PING")
	}
	if n := s.waiting.Load(); n > mostWaiting+8<<20 {
		t.Errorf("%d bytes wait, want little more than %d", n, mostWaiting)
	}
}

// Connections that send pieces of requests at the same time get what each would alone: the first request of each is looked
// at before its turn.
func TestPiecesTogether(t *testing.T) {
	text := slices.Concat(request("SET", "a", "1"), []byte("\r\nGET a\r\n  \r\n\"get\" 'a'\n"), request("GET", "none"),
		request("MGET", "a", "a"), request("ECHO", strings.Repeat("x", 2*shortBytes)), request("APPEND", "own", "y"),
		request("STRLEN", "own"), []byte("*2\r\n$3\r\nGET\r\n+\r"))
	const clients = 2*mostReady + 3
	var want string
	for round := range 2 {
		s := serve(t, Options{Loops: 1})
		var all []*testClient
		for range 1 + round*(clients-1) {
			all = append(all, dial(t, s.addr))
		}
		own := func(i int) []byte { return bytes.ReplaceAll(text, []byte("own"), []byte(fmt.Sprint(100+i))) }
		for at, piece := 0, 1; at < len(text); at, piece = at+piece, piece%11+3 {
			for i, c := range all {
				c.send(own(i)[at:min(len(text), at+piece)])
			}
		}
		for i, c := range all {
			got := c.ends()
			if round == 0 {
				want = got
			}
			if got != want || !strings.HasSuffix(got, "expected '$', got '+'\r\n") {
				t.Errorf("client %d of %d: %q, want %q", i, len(all), got, want)
			}
		}
	}
}

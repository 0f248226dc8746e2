package redis

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

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

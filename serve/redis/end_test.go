package redis

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/keyspace"
)

// Replies that a client has not taken yet when the server ends are sent all the same, also where it has sent more than
// the server reads. Those who wait for nothing hold up nothing, and those who never read hold up little.
func TestRepliesAtEnd(t *testing.T) {
	const size, n = 1 << 20, 4
	for _, beyond := range []int{0, 300_000} {
		eachWay(t, func(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient) {
			for tries := 0; ; tries++ {
				s := serve(t, Options{Loops: 1}, listen())
				c, idle := dial(s), dial(s)
				idle.want("+OK\r\n", "SET", "k", strings.Repeat("v", size))
				c.send(bytes.Repeat(request("GET", "k"), n)) // which are read at once
				for end := time.Now().Add(time.Minute); s.metrics.requests.Load() < 2; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("nothing is asked")
					}
				}
				if beyond > 0 {
					go c.Write([]byte(strings.Repeat("PING\r\n", beyond/6)))
					time.Sleep(50 * time.Millisecond)
				}
				ended, begin := make(chan error), time.Now()
				go func() { ended <- s.stop() }()
				time.Sleep(100 * time.Millisecond)
				got, err := io.ReadAll(c.from)
				took := time.Since(begin)
				if err := <-ended; err != nil {
					t.Error(err)
				}
				idle.ends()
				if want := n * (size + len(fmt.Sprintf("$%d\r\n\r\n", size))); len(got) >= want {
					return
				} else if took < lastWords/2 || tries == 5 { // else others had the cores: it was late itself
					t.Fatalf("%d bytes of %d come in %v: %v", len(got), want, took, err)
				}
			}
		})
	}
}

// A server that cannot write its last snapshot asks whether to try again, and has lost nothing when it can.
func TestEndOnFullDisk(t *testing.T) {
	for _, again := range []bool{true, false} {
		folder, asked := t.TempDir(), 0
		obstacle := filepath.Join(folder, "snapshot.1")
		s := serve(t, Options{Folder: folder, Save: time.Hour, Retry: func(err error) bool {
			asked++
			return again && err != nil && os.RemoveAll(obstacle) == nil
		}})
		dial(t, s.addr).want("+OK\r\n", "SET", "k", "v")
		if err := os.MkdirAll(filepath.Join(obstacle, "in the way"), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := s.stop(); (err == nil) != again || asked != 1 {
			t.Errorf("it was asked %d times, and ends with %v", asked, err)
		}
		os.RemoveAll(obstacle)
		one, err := New(Options{Folder: folder})
		if err != nil {
			t.Fatal(err)
		}
		if n := one.Len(); (n == 1) != again {
			t.Errorf("%d keys are there again", n)
		}
		if err := one.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestEndWaitsForNobodyLong(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		eachWay(t, func(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient) {
			most, took := lastWords, time.Hour
			if deaf {
				most *= 5
			}
			for tries := 0; took > most && tries < 3; tries++ { // others may have the cores once
				s := serve(t, Options{}, listen())
				c := dial(s)
				c.want("+OK\r\n", "SET", "k", strings.Repeat("v", 1<<20))
				if deaf {
					c.send([]byte(strings.Repeat("GET k\r\n", 100)))
				}
				time.Sleep(100 * time.Millisecond)
				begin := time.Now()
				if err := s.stop(); err != nil {
					t.Error(err)
				}
				took = time.Since(begin)
			}
			if took > most {
				t.Errorf("the end takes %v", took)
			}
		})
	}
}

// slowToBound is a listener, one of whose connections takes its time to set a deadline that is far away, and tells of it.
type slowToBound struct {
	net.Listener
	sets chan struct{} // when it is empty
}

type slowToBoundConn struct {
	net.Conn
	of slowToBound
}

func (l slowToBound) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &slowToBoundConn{c, l}, nil
}

func (c *slowToBoundConn) SetWriteDeadline(at time.Time) error {
	if time.Until(at) > 10*time.Second {
		select {
		case c.of.sets <- struct{}{}:
			time.Sleep(300 * time.Millisecond)
		default:
		}
	}
	return c.Conn.SetWriteDeadline(at)
}

// A client that stalls holds up the end no longer than others, though the end comes while a write is given its time.
func TestEndWhileWriteBegins(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	slow := slowToBound{l, make(chan struct{}, 1)}
	slow.sets <- struct{}{}
	s := serve(t, Options{Timeout: 20 * time.Second}, slow)
	c := dial(t, s.addr)
	c.want("+OK\r\n", "SET", "k", strings.Repeat("v", 1<<20))
	<-slow.sets
	c.send([]byte(strings.Repeat("GET k\r\n", 100)))
	<-slow.sets
	begin := time.Now()
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 5*lastWords {
		t.Errorf("the end takes %v", took)
	}
}

// A panic of whoever has a lock ends the server, though others wait for that lock for ever: a command ends then.
func TestPanicUnderLock(t *testing.T) {
	defer func(d time.Duration) { stuck = d }(stuck)
	stuck = 200 * time.Millisecond
	said := make(chan error, 1)
	crash.Handle(func(e *crash.Error) { said <- e })
	defer crash.Handle(nil)
	eachWay(t, func(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient) {
		locked, others := make(chan *keyspace.Shard, 1), make(chan bool)
		commands["break"] = &command{name: "break", arity: 2, first: 1, last: 1, step: 1,
			do: func(c *session, args [][]byte) {
				sh, _ := c.lock(args[1])
				locked <- sh
				<-others
				panic("made to order")
			}}
		defer delete(commands, "break")
		s, err := New(Options{Loops: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		l := listen()
		ended := make(chan error)
		go func() { ended <- crash.Catch(func() error { return s.Serve(t.Context(), l) }) }()
		one, other := dial(&serving{addr: l.Addr()}), dial(&serving{addr: l.Addr()})
		for _, c := range []*testClient{one, other} { // each has a thread of its own
			c.want("+PONG\r\n", "PING")
		}
		one.send(request("BREAK", "k"))
		sh := <-locked
		other.send(request("SET", "k", "v"))
		time.Sleep(50 * time.Millisecond)
		close(others)
		select {
		case err := <-said:
			if err.Error() != "made to order" {
				t.Error(err)
			}
		case err := <-ended:
			t.Fatalf("nobody waits for the lock: %v", err)
		case <-time.After(20 * time.Second):
			t.Error("a panic is kept from those who could end the process")
		}
		sh.Unlock()
		if err := <-ended; !errors.As(err, new(*crash.Error)) {
			t.Errorf("the server ends with %v", err)
		}
	})
}

package redis

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// serving is a server that a test asks.
type serving struct {
	*Server
	addr net.Addr
	says *safeBuffer
	stop func() error // ends Serve and closes the server
}

// serve has a server answer on a Unix socket, or on what listen gives.
func serve(t testing.TB, o Options, listen ...net.Listener) *serving {
	t.Helper()
	said := &safeBuffer{}
	o.Log = log.New(said, "", 0)
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if len(listen) == 0 {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		listen = []net.Listener{l}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, listen...) }()
	stopped := false
	one := &serving{s, listen[0].Addr(), said, func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return errors.Join(<-done, s.Close())
	}}
	t.Cleanup(func() {
		if err := one.stop(); err != nil {
			t.Error(err)
		}
	})
	return one
}

// client is a connection that a test speaks the protocol over by itself.
type testClient struct {
	t testing.TB
	net.Conn
	from *bufio.Reader
}

func dial(t testing.TB, addr net.Addr) *testClient {
	t.Helper()
	c, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	return &testClient{t, c, bufio.NewReaderSize(c, 1<<16)}
}

// request is a request as clients send it.
func request(args ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

func (c *testClient) send(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// reply is the bytes of the next reply.
func (c *testClient) reply() string {
	c.t.Helper()
	var b bytes.Buffer
	if err := readReply(c.from, &b); err != nil {
		c.t.Fatalf("%v behind %q", err, b.Bytes())
	}
	return b.String()
}

func (c *testClient) do(args ...string) string {
	c.t.Helper()
	c.send(request(args...))
	return c.reply()
}

// ask gives the replies to requests, one after the other, or in a pipeline.
func (c *testClient) ask(requests [][]string, pipelined bool) (replies string) {
	c.t.Helper()
	var pipeline []byte
	for _, one := range requests {
		if pipeline = append(pipeline, request(one...)...); !pipelined {
			c.send(pipeline)
			replies, pipeline = replies+c.reply(), nil
		}
	}
	if pipelined {
		c.send(pipeline)
		for range requests {
			replies += c.reply()
		}
	}
	return replies
}

// want fails where a command has another reply.
func (c *testClient) want(reply string, args ...string) {
	c.t.Helper()
	if got := c.do(args...); got != reply {
		c.t.Fatalf("%.100q: %.200q, want %.200q", args, got, reply)
	}
}

// ends reads what comes until the connection ends.
func (c *testClient) ends() string {
	c.t.Helper()
	text, err := io.ReadAll(c.from)
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		c.t.Fatalf("the connection does not end: %.200q", text)
	}
	return string(text)
}

func readReply(r *bufio.Reader, to *bytes.Buffer) error {
	line, err := r.ReadString('\n')
	to.WriteString(line)
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	switch line[0] {
	case '+', '-', ':', '_', ',', '#', '(':
		return nil
	case '$', '=', '!':
		if n < 0 {
			return nil
		}
		_, err := io.CopyN(to, r, int64(n)+2)
		return err
	case '%':
		n *= 2
		fallthrough
	case '*', '~', '>':
		for range max(0, n) {
			if err := readReply(r, to); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("a reply of kind %q", line[0])
}

func TestCommands(t *testing.T) {
	s := serve(t, Options{})
	c := dial(t, s.addr)
	c.want("+PONG\r\n", "PING")
	c.want("$-1\r\n", "GET", "a")
	c.want("+OK\r\n", "SET", "a", "b\r\n\x00")
	c.want("$4\r\nb\r\n\x00\r\n", "get", "a")
	c.want(":2\r\n", "exists", "a", "a", "b")
	c.want("*3\r\n$4\r\nb\r\n\x00\r\n$-1\r\n$4\r\nb\r\n\x00\r\n", "mget", "a", "b", "a")
	c.want(":1\r\n", "incr", "n")
	c.want("-ERR value is not an integer or out of range\r\n", "incr", "a")
}

// A pipeline of GET is answered as one GET behind the other is, also where keys have expired, hold filters or are absent,
// and where other commands stand between.
func TestPipelinesOfGet(t *testing.T) {
	s := serve(t, Options{})
	c := dial(t, s.addr)
	var all [2]string
	for round := range all {
		c.want("+OK\r\n", "FLUSHALL")
		c.want("+OK\r\n", "CONFIG", "RESETSTAT")
		c.want("*1\r\n:1\r\n", "BF.MADD", "filter", "x")
		var asked [][]string
		for i := range 100 {
			key, time := fmt.Sprint("k", i), "100000"
			if i%3 == 0 {
				time = "1"
			}
			c.want("+OK\r\n", "SET", key, fmt.Sprint("v", i), "PX", time)
			asked = append(asked, []string{"get", key}, []string{"GeT", "no" + key})
			switch i % 25 {
			case 7:
				asked = append(asked, []string{"GET", "filter"}, []string{"GET"})
			case 13:
				asked = append(asked, []string{"SET", "k70", "other"})
			case 20:
				asked = append(asked, []string{"MGET", "k1", "k99", "filter", "none", "k70"})
			}
		}
		time.Sleep(20 * time.Millisecond)
		all[round] = c.ask(asked, round == 1)
		n := s.space.Counts(false)
		all[round] += fmt.Sprint(n.Hits, n.Misses, n.Keys)
	}
	if all[0] != all[1] || !strings.Contains(all[0], "WRONGTYPE") || !strings.Contains(all[0], "$3\r\nv98\r\n") {
		t.Errorf("one after the other:\n%q\nin a pipeline:\n%q", all[0], all[1])
	}
}

// A pipeline of SET is answered as one SET behind the other is, and logged: also where other commands stand between, keys
// come again, hold filters, expire or are watched, and beside others who do the same.
func TestPipelinesOfSet(t *testing.T) {
	var all [2]string
	for round := range all {
		folder := t.TempDir()
		s := serve(t, Options{Folder: folder, Fsync: FsyncEverySecond})
		c, watcher := dial(t, s.addr), dial(t, s.addr)
		c.want("*1\r\n:1\r\n", "BF.MADD", "filter", "x")
		watcher.want("+OK\r\n", "WATCH", "k40")
		watcher.want("+OK\r\n", "MULTI")
		watcher.want("+QUEUED\r\n", "SET", "seen", "no")
		var asked [][]string
		for i := range 200 {
			asked = append(asked, []string{"sEt", fmt.Sprint("k", i%150), fmt.Sprint("v", i)})
			switch i % 40 {
			case 7:
				asked = append(asked, []string{"SET", "filter", "text"}, []string{"SET", "k1"}, []string{"SET", "k2", "x", "NX"})
			case 13:
				asked = append(asked, []string{"GET", "k12"}, []string{"PEXPIRE", "k12", "1000000"}, []string{"SET", "k12", "lives"})
			case 20:
				asked = append(asked, []string{"MULTI"}, []string{"SET", "a", "1"}, []string{"SET", "b", "2"},
					[]string{"SET", "c", "3"}, []string{"SET", "d", "4"}, []string{"EXEC"}, []string{"TTL", "k12"})
			}
		}
		others := make(chan error)
		for i := range 4 * round {
			other := dial(t, s.addr)
			go func() {
				var b []byte
				for j := range 5000 {
					b = append(b, request("SET", fmt.Sprint("other", j%100), fmt.Sprint(i))...)
				}
				_, err := other.Write(b)
				for range 5000 {
					err = cmp.Or(err, readReply(other.from, new(bytes.Buffer)))
				}
				others <- err
			}()
		}
		all[round] = c.ask(asked, round == 1)
		for range 4 * round {
			if err := <-others; err != nil {
				t.Error(err)
			}
		}
		watcher.want("*-1\r\n", "EXEC")
		state := s.state()
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		if again := serve(t, Options{Folder: folder}).state(); again != state {
			t.Errorf("opened again: %.300q\nwant %.300q", again, state)
		}
		for _, line := range strings.Split(state, "\n") {
			if !strings.HasPrefix(line, `"other`) {
				all[round] += line
			}
		}
	}
	if all[0] != all[1] || !strings.Contains(all[0], `"k149" "v149"`) || !strings.Contains(all[0], "wrong number") {
		t.Errorf("one after the other:\n%q\nin a pipeline:\n%q", all[0], all[1])
	}
}

// A round of SETs ends for as many replies as one of other commands, and the rest is answered in the next.
func TestRoundsOfSet(t *testing.T) {
	s := serve(t, Options{})
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	c := s.newSession(near)
	const n, reply = mostRound/5 + 100, 5
	c.in.Feed(bytes.Repeat([]byte("SET a b\r\n"), n))
	c.run(time.Now())
	if first := c.done; !c.more || first >= n || len(c.out) >= mostRound+1000 {
		t.Fatalf("%d of %d SETs are done in a round, with %d bytes of replies; more: %t", first, n, len(c.out), c.more)
	} else if c.run(time.Now()); c.more || first+c.done != n || len(c.out) != n*reply {
		t.Fatalf("%d and %d of %d SETs are done, with %d bytes of replies", first, c.done, n, len(c.out))
	}
}

// An MGET that removes keys, which have expired, finds all others, though these move in the index, which may shrink or go.
func TestMGetRemovesExpired(t *testing.T) {
	s := serve(t, Options{MaxMemory: 64 << 20})
	c := dial(t, s.addr)
	for round := range 30 {
		now, asked, want := time.Now().UnixMilli(), []string{"MGET"}, "*120\r\n"
		var number uint64 // of the shard in which all keys are
		for i := 0; len(asked) < 121; i++ {
			key := fmt.Sprint(round, " ", i)
			h := s.space.Hash([]byte(key))
			if number == 0 {
				number = h >> 54
			}
			if h>>54 != number {
				continue
			}
			stays := round%2 == 0 && len(asked)%20 == 1
			expires := now - 1
			if stays {
				expires = 0
			}
			sh := s.space.Lock(h)
			sh.Put(h, []byte(key), []byte("v"), expires, now-2)
			sh.Unlock()
			for range 2 {
				if asked = append(asked, key); stays {
					want += "$1\r\nv\r\n"
				} else {
					want += "$-1\r\n"
				}
			}
		}
		c.want(want, asked...)
	}
}

// safeBuffer is a buffer that several goroutines write to.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A snapshot in the background has begun when its client hears so: another cannot begin, and INFO says that it is made.
func TestBackgroundHasBegun(t *testing.T) {
	s := serve(t, Options{Folder: t.TempDir()})
	c := dial(t, s.addr)
	c.want("+OK\r\n", "SET", "k", "v")
	sh := s.space.Lock(s.space.Hash([]byte("k"))) // a snapshot waits for it
	got := c.ask([][]string{{"BGSAVE"}, {"BGSAVE"}, {"INFO", "persistence"}}, true)
	sh.Unlock()
	if !strings.HasPrefix(got, "+Background saving started\r\n-ERR Background save already in progress\r\n") ||
		!strings.Contains(got, "rdb_bgsave_in_progress:1\r\n") {
		t.Errorf("%q", got)
	}
}

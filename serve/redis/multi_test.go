package redis

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// What others do to a watched key, to its time, or to all keys, ends a transaction.
func TestWatch(t *testing.T) {
	s := serve(t, Options{})
	a, b := dial(t, s.addr), dial(t, s.addr)
	for _, version := range []string{"2", "3"} {
		a.do("HELLO", version)
		none := map[string]string{"2": "*-1\r\n", "3": "_\r\n"}[version]
		for _, change := range [][]string{
			{"SET", "k", "v"}, {"APPEND", "k", "x"}, {"SETRANGE", "k", "0", "y"}, {"DEL", "k"}, {"EXPIRE", "k", "100"},
			{"PERSIST", "t"}, {"RENAME", "k", "l"}, {"RENAME", "t", "k"}, {"COPY", "t", "k", "REPLACE"}, {"GETDEL", "k"},
			{"FLUSHALL"}, {"MSET", "k", "1", "l", "2"}, {"PFADD", "h", "x"}, {"PEXPIRE", "k", "1"},
			{"BF.ADD", "f", "2"}, {"CF.DEL", "g", "1"},
		} {
			b.do("FLUSHALL")
			b.do("MSET", "k", "v", "t", "v")
			b.do("EXPIRE", "t", "1000")
			b.do("PFADD", "h", "y")
			b.do("BF.ADD", "f", "1")
			b.do("CF.ADD", "g", "1")
			a.want("+OK\r\n", "WATCH", "k", "t", "h", "f", "g", "none")
			a.want("+OK\r\n", "WATCH", "t")
			if change[0] == "PEXPIRE" { // that it expires is a change, too
				a.do("UNWATCH")
				b.do(change...)
				a.want("+OK\r\n", "WATCH", "k", "t")
				time.Sleep(5 * time.Millisecond)
			} else if got := b.do(change...); got[0] == '-' {
				t.Fatalf("%q: %s", change, got)
			}
			a.want("+OK\r\n", "MULTI")
			a.want("+QUEUED\r\n", "SET", "done", "1")
			switch got := a.do("EXEC"); {
			case change[0] == "PEXPIRE": // it may have expired before it was watched
			case got != none:
				t.Fatalf("behind %q EXEC gives %q", change, got)
			}
			if change[0] != "PEXPIRE" {
				a.want(":0\r\n", "EXISTS", "done")
			}
			a.want("+OK\r\n", "MULTI") // which watches nothing
			a.want("*0\r\n", "EXEC")
		}
		for _, other := range [][]string{{"SET", "l", "v"}, {"GET", "k"}, {"DEL", "none"}, {"SETNX", "k", "w"}, {"PERSIST", "k"}} {
			b.do("FLUSHALL")
			b.do("SET", "k", "v")
			a.want("+OK\r\n", "WATCH", "k", "none")
			b.do(other...)
			a.want("+OK\r\n", "MULTI")
			if got := a.do("EXEC"); got != "*0\r\n" {
				t.Fatalf("behind %q EXEC gives %q", other, got)
			}
		}
	}
	a.want("+OK\r\n", "WATCH", "k", "none")
	b.want("+OK\r\n", "WATCH", "k")
	if n := s.space.Counts(false).Watched; n != 2 {
		t.Errorf("%d keys are watched, want 2", n)
	}
	a.Close()
	b.do("RESET")
	for range 1000 { // a watch ends with its connection
		if s.space.Counts(false).Watched == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d keys are still watched", s.space.Counts(false).Watched)
}

// Transactions of many clients over keys in common keep a sum, and no reader sees one in the middle.
func TestTransactionsTogether(t *testing.T) {
	eachWay(t, func(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient) {
		s := serve(t, Options{Folder: t.TempDir(), Fsync: FsyncNever}, listen())
		c := dial(s)
		const keys, clients, each = 6, 4, 150
		for i := range keys {
			c.do("SET", fmt.Sprint("k", i), "0")
		}
		var wg sync.WaitGroup
		for n := range clients {
			c := dial(s)
			wg.Go(func() {
				for i := range each {
					from, to := fmt.Sprint("k", (i+n)%keys), fmt.Sprint("k", (i*7+n+1)%keys)
					c.send([]byte(strings.Join([]string{string(request("MULTI")), string(request("DECRBY", from, "3")),
						string(request("INCRBY", to, "3")), string(request("DBSIZE")), string(request("EXEC"))}, "")))
					for range 4 {
						c.reply()
					}
					if got := c.reply(); !strings.HasPrefix(got, "*3\r\n:") || !strings.HasSuffix(got, fmt.Sprintf(":%d\r\n", keys)) {
						t.Errorf("EXEC gives %q", got)
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		for ended := false; !ended; {
			select {
			case <-done:
				ended = true
			default:
			}
			sum, n := 0, 0
			for _, line := range strings.Split(c.do("MGET", "k0", "k1", "k2", "k3", "k4", "k5"), "\r\n") {
				if line != "" && line[0] != '$' && line[0] != '*' {
					fmt.Sscan(line, &n)
					sum += n
				}
			}
			if sum != 0 {
				t.Fatalf("the sum is %d", sum)
			}
		}
		if err := s.space.Check(); err != nil {
			t.Error(err)
		}
	})
}

// A transaction is in the log as a whole: a log that is cut anywhere has all of one or nothing.
func TestCutTransactions(t *testing.T) {
	folder := t.TempDir()
	s := serve(t, Options{Folder: folder, Fsync: FsyncNever})
	c := dial(t, s.addr)
	for i := range 5 {
		c.do("MULTI")
		for k := range 4 {
			c.do("SET", fmt.Sprint("k", k), fmt.Sprint(i))
		}
		c.do("RENAME", "k3", "k4")
		c.do("EXEC")
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(folder, "log.1")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for n := len(text); n > 16; n -= 13 {
		at := t.TempDir()
		if err := os.WriteFile(filepath.Join(at, "log.1"), text[:n], 0o666); err != nil {
			t.Fatal(err)
		}
		again, err := New(Options{Folder: at})
		if err != nil {
			t.Fatal(err)
		}
		var values []string
		for _, key := range []string{"k0", "k1", "k2", "k4"} {
			h := again.space.Hash([]byte(key))
			sh := again.space.Lock(h)
			v, _, _ := sh.Peek(h, []byte(key), 0)
			values = append(values, string(v))
			sh.Unlock()
		}
		for _, v := range values {
			if v != values[0] {
				t.Fatalf("%d bytes of %d give %q", n, len(text), values)
			}
		}
		seen[values[0]] = true
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 6 {
		t.Errorf("there were %d states, want 6", len(seen))
	}
}

// The queue of a transaction and the names of watched keys are bounded, and a transaction is done to its end even if
// its replies are too large.
func TestBoundsOfTransactions(t *testing.T) {
	s := serve(t, Options{Request: 100_000, Output: 50_000, MaxMemory: 2 << 20})
	c := dial(t, s.addr)
	c.want("+OK\r\n", "MULTI")
	value, refused := strings.Repeat("v", 20_000), false
	for range 10 {
		got := c.do("SET", "k", value)
		refused = refused || strings.HasPrefix(got, "-ERR a transaction of more than 100000 bytes")
	}
	if !refused {
		t.Error("a queue of 200,000 bytes is taken")
	}
	c.want("-EXECABORT Transaction discarded because of previous errors.\r\n", "EXEC")
	c.want(":0\r\n", "EXISTS", "k")
	got := ""
	for i := range 10 {
		got = c.do("WATCH", fmt.Sprint(i, value))
	}
	if !strings.HasPrefix(got, "-ERR keys of more than") {
		t.Errorf("names of 200,000 bytes are watched: %q", got)
	}
	c.want("+OK\r\n", "UNWATCH")

	c.do("MULTI")
	for range 8 { // each would do alone
		c.do("SETRANGE", "large", "300000", "x")
		c.do("RENAME", "large", "other")
	}
	if got := c.do("EXEC"); !strings.HasPrefix(got, "-EXECABORT Transaction discarded because of: OOM") {
		t.Errorf("EXEC without memory gives %.100q", got)
	}
	c.want(":0\r\n", "EXISTS", "large", "other")

	c.want("+OK\r\n", "SET", "k", value)
	c.do("MULTI")
	for range 5 {
		c.do("GET", "k")
	}
	c.do("SET", "last", "1")
	c.send(request("EXEC"))
	if got := c.ends(); got != "" {
		t.Errorf("replies of 100,000 bytes are sent: %.60q", got)
	}
	dial(t, s.addr).want("$1\r\n1\r\n", "GET", "last")
}

// CLIENT REPLY and CLIENT KILL do what they say, for connections of both kinds.
func TestClientCommands(t *testing.T) {
	eachWay(t, func(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient) {
		s := serve(t, Options{}, listen())
		c := dial(s)
		c.send([]byte("CLIENT REPLY SKIP\r\nSET a 1\r\nGET a\r\nCLIENT REPLY OFF\r\nINCR a\r\nFOO\r\nCLIENT REPLY ON\r\nGET a\r\n"))
		for _, want := range []string{"$1\r\n1\r\n", "+OK\r\n", "$1\r\n2\r\n"} {
			if got := c.reply(); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		other := dial(s)
		id := strings.Trim(other.do("CLIENT", "ID"), ":\r\n")
		c.want(":1\r\n", "CLIENT", "KILL", "ID", id)
		if got := other.ends(); got != "" {
			t.Errorf("one that is killed gets %q", got)
		}
		other = dial(s)
		other.do("PING")
		c.want(":0\r\n", "CLIENT", "KILL", "TYPE", "pubsub")
		c.want(":1\r\n", "CLIENT", "KILL", "SKIPME", "yes")
		other.ends()
		c.want(":1\r\n", "CLIENT", "KILL", "SKIPME", "no")
		if got := c.ends(); got != "" {
			t.Errorf("one that kills itself gets %q", got)
		}
	})
}

// Settings that can change do.
func TestConfigSet(t *testing.T) {
	s := serve(t, Options{})
	c := dial(t, s.addr)
	c.want("+OK\r\n", "CONFIG", "SET", "maxmemory", "1mb", "maxmemory-policy", "allkeys-lru", "timeout", "7")
	c.want("*6\r\n$9\r\nmaxmemory\r\n$7\r\n1048576\r\n$16\r\nmaxmemory-policy\r\n$11\r\nallkeys-lru\r\n$7\r\ntimeout\r\n$1\r\n7\r\n",
		"CONFIG", "GET", "maxmemory*", "timeout")
	for i := range 300 {
		c.want("+OK\r\n", "SET", fmt.Sprint(i), strings.Repeat("v", 10_000))
	}
	if n := s.space.Counts(false); n.Evicted == 0 || n.Live > 1<<20 {
		t.Errorf("%d bytes, %d evicted", n.Live, n.Evicted)
	}
	c.do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	got := ""
	for i := range 300 {
		got = c.do("SET", fmt.Sprint(i), strings.Repeat("v", 10_000))
	}
	if !strings.HasPrefix(got, "-OOM") {
		t.Errorf("above the bound: %q", got)
	}
	c.want("+OK\r\n", "CONFIG", "RESETSTAT")
	if n := s.space.Counts(false); n.Evicted != 0 || s.metrics.full.Load() != 0 {
		t.Errorf("%d evicted", n.Evicted)
	}
	c.want("-ERR CONFIG SET failed (possibly related to argument 'port') - can't set immutable config\r\n", "CONFIG", "SET", "port", "1")
	c.want("-ERR Unknown option or number of arguments for CONFIG SET - 'foo'\r\n", "CONFIG", "SET", "foo", "1")
	c.want("-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a memory value\r\n", "CONFIG", "SET",
		"maxmemory", "-1")
}

// Every command can be in a transaction, and none waits there for a lock that the transaction has.
func TestEveryCommandInATransaction(t *testing.T) {
	s := serve(t, Options{MaxMemory: 10 << 20, Folder: t.TempDir(), Fsync: FsyncAlways})
	c := dial(t, s.addr)
	c.do("SET", "a", "1")
	for _, ask := range []string{"CONFIG SET maxmemory 0", "CONFIG RESETSTAT", "CONFIG GET *", "INFO", "KEYS *", "SCAN 0", "RANDOMKEY", "DBSIZE",
		"FLUSHALL", "BGSAVE", "CLIENT LIST", "CLIENT KILL ID 999", "UNWATCH", "RENAME a b", "COPY a b", "MSET x 1 y 2", "MSETNX x 1", "DEL a b c",
		"PFMERGE h a", "PFADD h x", "BF.MADD b x y", "CF.ADD c x", "SETRANGE a 5 x", "APPEND a x", "OBJECT ENCODING a", "MEMORY USAGE a", "HELLO 2",
		"EXPIRE a 5", "WAIT 0 0", "LASTSAVE", "COMMAND COUNT", "GETDEL a", "INCRBYFLOAT a 1", "BITCOUNT a", "TYPE a", "TIME", "SELECT 0"} {
		c.want("+OK\r\n", "WATCH", "a", "w")
		c.want("+OK\r\n", "MULTI")
		c.want("+QUEUED\r\n", "SET", "a", "2")
		c.want("+QUEUED\r\n", strings.Split(ask, " ")...)
		if got := c.do("EXEC"); !strings.HasPrefix(got, "*2\r\n+OK\r\n") {
			t.Errorf("%s: %.200q", ask, got)
		}
	}
	c.want("+OK\r\n", "MULTI")
	c.want("-ERR Command not allowed inside a transaction\r\n", "SAVE")
	if err := s.space.Check(); err != nil {
		t.Error(err)
	}
}

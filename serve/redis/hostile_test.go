package redis

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math"
	"math/big"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warpmap/warpmap/internal/testenv"
)

// eachWay runs a test for connections of loops, and for those that have a goroutine each, as those of TLS have.
func eachWay(t *testing.T, test func(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient)) {
	t.Run("plain", func(t *testing.T) {
		test(t, func() net.Listener {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			return l
		}, func(s *serving) *testClient { return dial(t, s.addr) })
	})
	t.Run("tls", func(t *testing.T) {
		pair := certificate(t)
		test(t, func() net.Listener {
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
			if err != nil {
				t.Fatal(err)
			}
			return l
		}, func(s *serving) *testClient {
			c := dial(t, s.addr)
			c.Conn = tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})
			c.from.Reset(c.Conn)
			return c
		})
	})
}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(crand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Requests that are cut anywhere, and pipelines without end, have their replies, in order.
func TestPipelines(t *testing.T) {
	eachWay(t, func(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient) {
		s := serve(t, Options{}, listen())
		c := dial(s)
		const n = 30_000
		var text []byte
		for i := range n {
			text = append(text, request("INCR", "n")...)
			text = append(text, request("SET", "k", strings.Repeat("v", i%300))...)
			text = append(text, request("GET", "k")...)
		}
		go func() { // and nobody reads while it begins
			r := rand.New(rand.NewPCG(1, 2))
			for len(text) > 0 {
				k := min(len(text), 1+r.IntN(100_000))
				if _, err := c.Write(text[:k]); err != nil {
					return
				}
				text = text[k:]
			}
		}()
		time.Sleep(50 * time.Millisecond)
		for i := range n {
			for _, want := range []string{fmt.Sprintf(":%d\r\n", i+1), "+OK\r\n", fmt.Sprintf("$%d\r\n%s\r\n", i%300, strings.Repeat("v", i%300))} {
				if got := c.reply(); got != want {
					t.Fatalf("reply %d: %.60q, want %.60q", i, got, want)
				}
			}
		}
	})
}

// Replies that are much larger than their requests come in order, too: a round ends within what was read.
func TestLargeReplies(t *testing.T) {
	eachWay(t, func(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient) {
		s := serve(t, Options{}, listen())
		c := dial(s)
		value := strings.Repeat("v", 50_000)
		c.want("+OK\r\n", "SET", "k", value)
		const n = 500
		go c.Write(bytes.Repeat(append(request("GET", "k"), request("INCR", "n")...), n))
		for i := range n {
			if got := c.reply(); got != "$50000\r\n"+value+"\r\n" {
				t.Fatalf("reply %d: %.60q", i, got)
			}
			if got := c.reply(); got != fmt.Sprintf(":%d\r\n", i+1) {
				t.Fatalf("reply %d: %.60q", i, got)
			}
		}
	})
}

// Connections that change the same keys at once see each change once: every reply of INCR is another, and grows for each
// connection. MSET and MGET of two keys never see one without the other.
func TestConnectionsTogether(t *testing.T) {
	s := serve(t, Options{Loops: 3})
	const clients, each = 6, 2000
	seen := make([]atomic.Int32, clients*each+1)
	var wg sync.WaitGroup
	for i := range clients {
		c := dial(t, s.addr)
		wg.Go(func() {
			c.Write(bytes.Repeat(append(append(request("INCR", "n"), request("MSET", "a", fmt.Sprint(i), "b", fmt.Sprint(i))...),
				request("MGET", "a", "b")...), each))
		})
		wg.Go(func() {
			last := 0
			for range each {
				var replies [3]bytes.Buffer
				for j := range replies {
					if err := readReply(c.from, &replies[j]); err != nil {
						t.Error(err)
						return
					}
				}
				var n int
				fmt.Sscanf(replies[0].String(), ":%d", &n)
				if n <= last || n >= len(seen) || seen[n].Add(1) != 1 {
					t.Errorf("INCR gives %d behind %d, or twice", n, last)
					return
				}
				last = n
				if parts := strings.Split(replies[2].String(), "\r\n"); len(parts) != 6 || parts[2] != parts[4] {
					t.Errorf("MGET gives %q", parts)
					return
				}
			}
		})
	}
	wg.Wait()
	dial(t, s.addr).want(fmt.Sprintf("$5\r\n%d\r\n", clients*each), "GET", "n")
}

// Values as large as they may be go in and out, and larger ones are refused.
func TestLargeValues(t *testing.T) {
	eachWay(t, func(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient) {
		s := serve(t, Options{Bulk: 8 << 20, Output: 20 << 20}, listen())
		c := dial(s)
		value := strings.Repeat("0123456789abcdef", 8<<20/16)
		go c.Write(request("SET", "large", value))
		if got := c.reply(); got != "+OK\r\n" {
			t.Fatal(got)
		}
		if got := c.do("GET", "large"); got != fmt.Sprintf("$%d\r\n%s\r\n", len(value), value) {
			t.Fatalf("%d bytes come back", len(got))
		}
		c.want("-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n", "APPEND", "large", "x")
		c.want(fmt.Sprintf(":%d\r\n", len(value)), "STRLEN", "large")
		c.send([]byte("*2\r\n$4\r\nECHO\r\n$8388609\r\n"))
		if got := c.ends(); got != "-ERR Protocol error: invalid bulk length\r\n" {
			t.Errorf("%q", got)
		}
		c = dial(s) // replies that are more than may wait end the connection, and nothing else
		c.send(request("MGET", "large", "large", "large", "large"))
		if got := c.ends(); len(got) > 0 {
			t.Errorf("%d bytes of replies come", len(got))
		}
		dial(s).want("+PONG\r\n", "PING")
	})
}

// A client that does not read holds up nobody, and no more than its bound of memory, and is given up; so is one that
// leaves a request half sent. One that is idle stays.
func TestStalled(t *testing.T) {
	eachWay(t, func(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient) {
		s := serve(t, Options{Timeout: time.Second, Loops: 1}, listen())
		idle, half, deaf := dial(s), dial(s), dial(s)
		idle.want("+OK\r\n", "SET", "k", strings.Repeat("v", 1<<20))
		half.send([]byte("*2\r\n$3\r\nGET\r\n$10\r\nabc"))
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			ask := bytes.Repeat(request("GET", "k"), 1000)
			for {
				if _, err := deaf.Write(ask); err != nil {
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 100 { // others are served meanwhile
			idle.want("+PONG\r\n", "PING")
		}
		for end := time.Now().Add(time.Minute); s.metrics.expired.Load() < 2; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d connections are given up", s.metrics.expired.Load())
			}
			idle.want("+PONG\r\n", "PING")
		}
		grown := int64(math.MaxInt64)
		for end := time.Now().Add(10 * time.Second); grown > 64<<20 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			runtime.GC() // who is given up lets go of replies a moment later
			runtime.ReadMemStats(&after)
			grown = int64(after.HeapAlloc) - int64(before.HeapAlloc)
		}
		if grown > 64<<20 {
			t.Errorf("memory grows by %d bytes", grown)
		}
		close(stop)
		deaf.Close()
		wg.Wait()
		half.ends()
		idle.want("+PONG\r\n", "PING")
	})
}

func TestIdle(t *testing.T) {
	eachWay(t, func(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient) {
		s := serve(t, Options{Idle: 1500 * time.Millisecond}, listen())
		c := dial(s)
		c.want("+PONG\r\n", "PING")
		if got := c.ends(); got != "" {
			t.Errorf("%q", got)
		}
	})
}

func TestPassword(t *testing.T) {
	eachWay(t, func(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient) {
		s := serve(t, Options{Password: "secret"}, listen())
		c := dial(s)
		c.want("-NOAUTH Authentication required.\r\n", "GET", "a")
		c.want("-WRONGPASS invalid username-password pair or user is disabled.\r\n", "AUTH", "secre")
		c.want("-WRONGPASS invalid username-password pair or user is disabled.\r\n", "AUTH", "other", "secret")
		c.want("-NOAUTH Authentication required.\r\n", "FLUSHALL")
		if got := c.do("HELLO", "3"); !strings.HasPrefix(got, "-NOAUTH HELLO must be called") {
			t.Errorf("%q", got)
		}
		c.want("+OK\r\n", "AUTH", "secret")
		c.want("$-1\r\n", "GET", "a")
		c.want("+RESET\r\n", "RESET")
		c.want("-NOAUTH Authentication required.\r\n", "GET", "a")
		if got := c.do("HELLO", "3", "AUTH", "default", "secret", "SETNAME", "me"); !strings.HasPrefix(got, "%7\r\n") {
			t.Errorf("%q", got)
		}
		c.want("_\r\n", "GET", "a")
		c.want("$2\r\nme\r\n", "CLIENT", "GETNAME")
		c = dial(s)
		c.send([]byte("*100\r\n"))
		if got := c.ends(); got != "-ERR Protocol error: unauthenticated multibulk length\r\n" {
			t.Errorf("%q", got)
		}
		for range 3 {
			c.Close()
		}
	})
}

// More connections than may be are refused, and others come in when some have gone.
func TestConnections(t *testing.T) {
	s := serve(t, Options{Clients: 5})
	var all []*testClient
	for range 5 {
		c := dial(t, s.addr)
		c.want("+PONG\r\n", "PING")
		all = append(all, c)
	}
	if got := dial(t, s.addr).ends(); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("%q", got)
	}
	all[0].Close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c := dial(t, s.addr)
		c.Write(request("PING"))
		if line, _ := c.from.ReadString('\n'); line == "+PONG\r\n" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nobody comes in any more")
		}
	}
}

// Bytes at random, from many connections, end these connections and nothing else.
func TestRandomBytes(t *testing.T) {
	s := serve(t, Options{MaxMemory: 16 << 20, Bulk: 1 << 20, Output: 1 << 20})
	good := dial(t, s.addr)
	r := rand.New(rand.NewPCG(testenv.FirstSeed(), 3))
	whole := append(request("SET", "a", "b"), request("MGET", "a", "b", "c")...)
	for range testenv.Seeds(2000) {
		text := bytes.Clone(whole)
		switch r.IntN(4) {
		case 0:
			for i := range text {
				text[i] = byte(r.Uint32())
			}
		case 1:
			text[r.IntN(len(text))] = byte(r.Uint32())
		case 2:
			text = text[:r.IntN(len(text))]
		case 3:
			text = fmt.Appendf(nil, "*%d\r\n$%d\r\n", r.Int64(), r.Int64())
		}
		c := dial(t, s.addr)
		c.send(text)
		if r.IntN(2) == 0 {
			c.Conn.(*net.UnixConn).CloseWrite()
			io.Copy(io.Discard, c)
		}
		c.Close()
	}
	good.want("+PONG\r\n", "PING")
	for end := time.Now().Add(time.Minute); len(s.clients()) > 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections stay", len(s.clients()))
		}
	}
	if err := s.space.Check(); err != nil {
		t.Error(err)
	}
}

// Strangers and clients of every bad kind, many at once and for a while, end their own connections alone: a good client
// is answered, memory stays bounded, and nothing is left of them.
func TestCrowd(t *testing.T) {
	long, each := 200*time.Millisecond, 4
	if testenv.Long() {
		long, each = time.Minute, 30
	}
	eachWay(t, func(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient) {
		s := serve(t, Options{Password: "secret", Clients: 200, Bulk: 1 << 20, Output: 1 << 20, MaxMemory: 16 << 20,
			Timeout: 2 * time.Second}, listen())
		good := dial(s)
		good.want("+OK\r\n", "AUTH", "secret")
		good.want("+OK\r\n", "SET", "large", strings.Repeat("v", 100_000))
		end := time.Now().Add(long)
		bad := func(kind int, r *rand.Rand) {
			c, err := net.Dial(s.addr.Network(), s.addr.String())
			if err != nil {
				return
			}
			defer c.Close()
			if _, is := good.Conn.(*tls.Conn); is && r.IntN(10) > 0 {
				c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
			}
			c.SetDeadline(end)
			login := request("AUTH", "secret")
			switch kind {
			case 0: // random bytes
				b := make([]byte, r.IntN(2000))
				for i := range b {
					b[i] = byte(r.Uint32())
				}
				c.Write(append(login, b...))
			case 1: // asks for much, and does not read
				c.Write(append(login, bytes.Repeat(request("MGET", "large", "large"), 200)...))
				time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			case 2: // wrong passwords
				for range 20 {
					c.Write(request("AUTH", fmt.Sprint(r.IntN(100))))
				}
			case 3: // announces much
				fmt.Fprintf(c, "%s*%d\r\n$%d\r\nabc", login, 1+r.IntN(1<<20), r.IntN(1<<20))
				time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			case 4: // sends slowly
				for _, ch := range request("SET", "slow", "value")[:r.IntN(30)] {
					c.Write([]byte{ch})
				}
			case 5: // fills memory
				c.Write(append(login, request("SET", fmt.Sprint(r.IntN(1000)), strings.Repeat("v", 1<<r.IntN(20)))...))
				io.CopyN(io.Discard, c, 10)
			case 6: // comes and goes
			}
		}
		var wg sync.WaitGroup
		for kind := range 7 {
			for i := range each {
				wg.Go(func() {
					for r := rand.New(rand.NewPCG(uint64(kind), uint64(i))); time.Now().Before(end); {
						bad(kind, r)
					}
				})
			}
		}
		most := uint64(0)
		for i := 1; time.Now().Before(end); i++ {
			if got := good.do("INCR", "n"); got != fmt.Sprintf(":%d\r\n", i) && !strings.HasPrefix(got, "-OOM") {
				t.Fatalf("%q, want %d", got, i)
			} else if got[0] == '-' {
				good.want("+OK\r\n", "FLUSHALL")
				i = 0
			}
			if i%1000 == 1 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
		}
		wg.Wait()
		if most > 1<<30 {
			t.Errorf("memory grows to %d bytes", most)
		}
		for end := time.Now().Add(time.Minute); len(s.clients()) > 1; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d connections stay", len(s.clients()))
			}
			good.want("+PONG\r\n", "PING")
		}
		if err := s.space.Check(); err != nil {
			t.Error(err)
		}
		t.Logf("%d connections, %d answers, %d MB", s.metrics.connections.Load(), s.metrics.requests.Load(), most>>20)
	})
}

// Memory stays within its bound: writes are refused as Redis refuses them, or keys go that were not used.
func TestMemory(t *testing.T) {
	for _, policy := range []Policy{NoEviction, LRU} {
		s := serve(t, Options{MaxMemory: 4 << 20, Policy: policy})
		c := dial(t, s.addr)
		var text []byte
		const n = 10_000
		for i := range n {
			text = append(text, request("SET", fmt.Sprint("key ", i), strings.Repeat("v", 1000))...)
		}
		go c.Write(text)
		refused := 0
		for range n {
			switch got := c.reply(); got {
			case "+OK\r\n":
			case "-OOM command not allowed when used memory > 'maxmemory'.\r\n":
				refused++
			default:
				t.Fatal(got)
			}
		}
		if n := s.space.Counts(false); n.Allocated > 4<<20 || (refused > 0) != (policy == NoEviction) || (n.Evicted > 0) != (policy == LRU) {
			t.Errorf("policy %d: %d refused, %+v", policy, refused, n)
		}
		if got := c.do("GET", "key 9999"); policy == LRU && got == "$-1\r\n" {
			t.Error("the newest key is gone")
		}
		c.want(":1\r\n", "DEL", sorted(c.do("KEYS", "*"))[0])
		c.want("+OK\r\n", "FLUSHALL")
		c.want("+OK\r\n", "SET", "a", "b")
	}
}

func TestMetrics(t *testing.T) {
	s := serve(t, Options{})
	c := dial(t, s.addr)
	c.want("+OK\r\n", "SET", "a", "b")
	c.want("$1\r\nb\r\n", "GET", "a")
	c.do("FOO")
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code, w.Body.String()
	}
	code, text := get("/metrics")
	for _, line := range []string{"warpmap_redis_requests_total 3", "warpmap_redis_errors_total 1", "warpmap_redis_keys 1",
		"warpmap_redis_hits_total 1", "warpmap_redis_connections 1"} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no %q in %s", line, text)
		}
	}
	if code != 200 {
		t.Error(code)
	}
	if code, text := get("/healthz"); code != 200 || text != "ok\n" {
		t.Errorf("%d %s", code, text)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if code, _ := get("/healthz"); code != 503 {
		t.Errorf("a server that has ended is healthy: %d", code)
	}
}

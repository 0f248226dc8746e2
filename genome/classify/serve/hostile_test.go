package serve

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// onTCP is a server on loopback, and what sends it requests from one of its addresses: to the server they are different
// clients.
func (w *world) onTCP(t *testing.T, o Options) (s *Server, at string, from func(ip string) *http.Client) {
	t.Helper()
	s, err := New(w.c, w.d, o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	var clients []*http.Client
	t.Cleanup(func() {
		stop()
		for _, c := range clients {
			c.CloseIdleConnections()
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return s, "http://" + l.Addr().String(), func(ip string) *http.Client {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
		c := &http.Client{Transport: &http.Transport{DialContext: d.DialContext}}
		clients = append(clients, c)
		return c
	}
}

// until waits for something that comes soon.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what, "does not come")
		}
	}
}

// stall begins so many requests, which send a few bytes and no more.
func stall(t *testing.T, dial func() (net.Conn, error), n int, sent string) (stop func()) {
	t.Helper()
	var all []net.Conn
	stop = sync.OnceFunc(func() {
		for _, c := range all {
			c.Close()
		}
	})
	t.Cleanup(stop)
	for range n {
		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
		io.WriteString(c, "POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"+sent)
	}
	return stop
}

// Requests of which no byte of a body has come take no places, however many they are.
func TestStalledRequestsTakeNoPlaces(t *testing.T) {
	w := newWorld(t)
	var log lines
	s := w.serve(t, Options{Requests: 2, Queue: 1, Timeout: time.Minute, Log: &log})
	stop := stall(t, s.dial, 50, "")
	until(t, "all that stall", func() bool { s.gate.mu.Lock(); defer s.gate.mu.Unlock(); return s.gate.inside == 50 })
	for range 3 {
		if status, text, err := s.ask("", "", strings.NewReader(w.reads(1, 3))); status != 200 || err != nil {
			t.Fatal(status, text, err)
		}
	}
	if a, q := s.metrics.active.Load(), s.metrics.waiting.Load(); a != 0 || q != 0 {
		t.Errorf("%d have places, and %d wait", a, q)
	}
	stop()
	until(t, "the end of all that stall", func() bool {
		s.gate.mu.Lock()
		defer s.gate.mu.Unlock()
		return s.gate.inside == 0
	})
	if text := log.String(); text != "" {
		t.Errorf("clients that went away fill the log: %.300s", text)
	}
}

// One that sends a byte and no more has a place, but not as long as others wait for it.
func TestSilentClientsMakeRoom(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) { silentClients(t, w) })
}

func silentClients(t *testing.T, w *world) {
	s := w.servePipes(t, Options{Requests: 2, Queue: 8, Timeout: 4 * time.Second})
	stall(t, s.dial, 2, ">")
	until(t, "both that stall", func() bool { return s.metrics.active.Load() == 2 })
	begin := time.Now()
	status, text, err := s.ask("", "", strings.NewReader(w.reads(1, 3)))
	if took := time.Since(begin); status != 200 || err != nil || took > 500*time.Millisecond {
		t.Errorf("%v: %d, %s, %v; want an answer after an eighth of the time that a client may be silent", took, status,
			text, err)
	}
}

// No client takes all places or the whole queue, and what others get does not depend on how much it asks for.
func TestPlacesAreShared(t *testing.T) {
	w := newWorld(t)
	s, at, from := w.onTCP(t, Options{Requests: 4, Queue: 8, PerClient: 2, Timeout: time.Minute})
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	stop := stall(t, func() (net.Conn, error) { return d.Dial("tcp", strings.TrimPrefix(at, "http://")) }, 6, ">")
	until(t, "the greedy client's share", func() bool {
		return s.metrics.active.Load() == 2 && s.metrics.waiting.Load() == 4
	})
	a, err := from("127.0.0.2").Post(at+"/classify", "", strings.NewReader(w.reads(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(a.Body)
	a.Body.Close()
	if a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" ||
		!strings.Contains(string(text), "send the next when one has ended") {
		t.Errorf("more of the greedy client: %d, %s", a.StatusCode, text)
	}
	good := from("127.0.0.3")
	for range 3 {
		a, err := good.Post(at+"/classify", "", strings.NewReader(w.reads(1, 3)))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, a.Body)
		a.Body.Close()
		if a.StatusCode != 200 {
			t.Error(a.StatusCode)
		}
	}
	stop()
}

// A byte now and then is no progress.
func TestSlowSenders(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) { slowSender(t, w) })
}

func slowSender(t *testing.T, w *world) {
	s := w.servePipes(t, Options{Timeout: 400 * time.Millisecond, MaxTime: time.Minute})
	c, err := s.dial() // net/http's client may see that it cannot send on before it sees the answer
	if err != nil {
		t.Fatal(err)
	}
	var sender sync.WaitGroup
	sender.Go(func() {
		_, err := io.WriteString(c, "POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n>x\n")
		for ; err == nil; _, err = io.WriteString(c, "A") {
			time.Sleep(20 * time.Millisecond)
		}
	})
	defer sender.Wait()
	defer c.Close()
	begin := time.Now()
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(a.Body)
	if took := time.Since(begin); err != nil || a.StatusCode != 408 ||
		!strings.Contains(string(text), "without pauses") || took != 400*time.Millisecond {
		t.Errorf("%v: %d, %s, %v", took, a.StatusCode, text, err)
	}
}

// A small packed request with large lines, whose client does not take them, keeps no more than the budget, harms no
// other, and is given up.
func TestSpoolsAreBounded(t *testing.T) {
	w := newWorld(t)
	const most = 1 << 20
	s := w.serve(t, Options{MaxSpool: most, Timeout: time.Second})
	bomb := gzipped(strings.Repeat(">a\nA\n", 400_000))
	var deaf []net.Conn
	for range 3 {
		c, err := s.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(bomb), bomb)
		deaf = append(deaf, c)
	}
	peak := int64(0)
	until(t, "a spool that is full", func() bool {
		peak = max(peak, s.budget.bytes())
		return peak > most-2*pieceBytes
	})
	if status, text, err := s.ask("", "", strings.NewReader(w.reads(1, 500))); status != 200 || err != nil ||
		text != w.query(t, "kraken", w.reads(1, 500)) {
		t.Error(status, err)
	}
	until(t, "the end of those that take nothing", func() bool {
		peak = max(peak, s.budget.bytes())
		return s.metrics.active.Load() == 0
	})
	if peak > most || s.budget.bytes() != 0 {
		t.Errorf("%d bytes waited at the most, and %d are counted at the end", peak, s.budget.bytes())
	}
	// Who takes lines gets them all, however small the budget is.
	if status, text, err := s.ask("", "", strings.NewReader(bomb)); status != 200 || err != nil ||
		strings.Count(text, "\n") != 400_000 {
		t.Error(status, strings.Count(text, "\n"), err)
	}
}

// The first file of a form is kept until the second comes, and counts.
func TestFormsAreBounded(t *testing.T) {
	w := newWorld(t)
	s := w.serve(t, Options{MaxSpool: 64 << 10, Timeout: time.Second})
	kind, body := form(w.reads(1, 2000), w.reads(2, 2000))
	if status, text, err := s.ask("", kind, body); status != 413 || err != nil ||
		!strings.Contains(text, "?paired=true") {
		t.Error(status, text, err)
	}
	kind, body = form(w.reads(1, 100), w.reads(2, 100))
	if status, text, err := s.ask("", kind, body); status != 200 || err != nil ||
		text != w.query(t, "kraken", w.reads(1, 100), w.reads(2, 100)) {
		t.Error(status, text, err)
	}
	if n := s.budget.bytes(); n != 0 {
		t.Errorf("%d bytes are counted at the end", n)
	}
}

// Connections that say nothing are bounded, for each client, and shut out no other.
func TestConnectionsAreBounded(t *testing.T) {
	w := newWorld(t)
	s, at, from := w.onTCP(t, Options{Requests: 4, Queue: 8, PerClient: 1, Timeout: time.Minute})
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	var all []net.Conn
	for range leastConnections/4 + 50 {
		c, err := d.Dial("tcp", strings.TrimPrefix(at, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all = append(all, c)
	}
	for _, c := range all[leastConnections/4:] {
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a connection too many: %v", err)
		}
	}
	ask := func(client string) {
		t.Helper()
		a, err := from(client).Post(at+"/classify", "", strings.NewReader(w.reads(1, 3)))
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != 200 {
			t.Error(a.StatusCode)
		}
	}
	ask("127.0.0.3")
	for _, c := range all {
		c.Close()
	}
	until(t, "the end of all", func() bool {
		s.crowd.mu.Lock()
		defer s.crowd.mu.Unlock()
		return s.crowd.by["127.0.0.2"] == 0
	})
	ask("127.0.0.2")
	for files, want := range map[int]int{1 << 20: 4608, 1024: 704, 300: 150, 1: 1} {
		if got := connectionsOf(4608, 128, files); got != want {
			t.Errorf("%d connections where %d files may be open, want %d", got, files, want)
		}
	}
}

// What stands before a file of a form is not kept without a bound.
func TestHeadsOfFormsAreBounded(t *testing.T) {
	w := newWorld(t)
	s := w.serve(t, Options{})
	file := func(name, head, text string) string {
		return "--x\r\nContent-Disposition: form-data; name=" + name + "; filename=a\r\n" + head + "\r\n" + text +
			"\r\n"
	}
	head := strings.Repeat("A: "+strings.Repeat("x", 1000)+"\r\n", 9000)
	for what, body := range map[string]string{
		"preamble": strings.Repeat(head[:1000]+"\r\n", 9000) + file("reads", "", w.reads(1, 1)) + "--x--\r\n",
		"first":    file("reads", head, w.reads(1, 1)) + "--x--\r\n",
		"second":   file("reads", "", w.reads(1, 1)) + file("mates", head, w.reads(2, 1)) + "--x--\r\n",
	} {
		status, text, err := s.ask("", "multipart/form-data; boundary=x", strings.NewReader(body))
		if status != 413 || err != nil || !strings.Contains(text, "before a file") {
			t.Errorf("%s: %d, %s, %v", what, status, text, err)
		}
	}
	body := file("reads", head[:20*1005], w.reads(1, 100)) + "--x--\r\n"
	status, text, err := s.ask("", "multipart/form-data; boundary=x", strings.NewReader(body))
	if status != 200 || err != nil || text != w.query(t, "kraken", w.reads(1, 100)) {
		t.Error(status, text, err)
	}
}

// A page in a browser here may have its own name lead to this machine: the server answers to no name that is not its
// own.
func TestHosts(t *testing.T) {
	w := newWorld(t)
	_, at, from := w.onTCP(t, Options{Hosts: []string{"Genomes.lab"}})
	c := from("127.0.0.1")
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(at, "http://"))
	for host, want := range map[string]int{"": 200, "localhost": 200, "LOCALHOST:" + port: 200, "a.localhost.": 200,
		"127.0.0.1:" + port: 200, "127.9.9.9": 200, "[::1]:80": 200, "genomes.lab:80": 200,
		"evil.example": 403, "evil.example:" + port: 403, "localhost.evil.example": 403, "10.0.0.1": 403, "evillocalhost": 403} {
		for _, path := range []string{"/classify", "/metrics", "/healthz"} {
			method, body := http.MethodGet, io.Reader(nil)
			if path == "/classify" {
				method, body = http.MethodPost, strings.NewReader(w.reads(1, 1))
			}
			r, _ := http.NewRequest(method, at+path, body)
			r.Host = host
			a, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(a.Body)
			a.Body.Close()
			if a.StatusCode != want || want == 403 && !strings.Contains(string(text), "--host") {
				t.Errorf("%s of host %q: %d, %s; want %d", path, host, a.StatusCode, text, want)
			}
		}
	}
	r, _ := http.NewRequest(http.MethodPost, at+"/classify", strings.NewReader(w.reads(1, 1)))
	r.Header.Set("Origin", "https://evil.example")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	a, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
	if a.StatusCode != 403 {
		t.Errorf("a page of another origin: %d", a.StatusCode)
	}
}

func TestClients(t *testing.T) {
	for addr, want := range map[string]string{"@": "", "": "", "1.2.3.4:5": "1.2.3.4", "[::ffff:1.2.3.4]:5": "1.2.3.4",
		"[2001:db8:1:2:3:4:5:6]:7": "2001:db8:1:2::/64", "[fe80::1%eth0]:7": "fe80::/64"} {
		if got := clientOf(&http.Request{RemoteAddr: addr}); got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
}

// What has become of the database is told once.
func TestChangedDatabaseIsTold(t *testing.T) {
	w := newWorld(t)
	defer func(d time.Duration) { watchEvery = d }(watchEvery)
	watchEvery = time.Millisecond
	var changed atomic.Bool
	var asked atomic.Int64
	var log lines
	s := w.serve(t, Options{Log: &log, Changed: func() error {
		asked.Add(1)
		if changed.Load() {
			return errors.New("x.db: the database was written to since it was loaded")
		}
		return nil
	}})
	until(t, "a look", func() bool { return asked.Load() > 3 })
	if log.String() != "" {
		t.Error(log.String())
	}
	changed.Store(true)
	until(t, "the line", func() bool { return log.String() != "" })
	before := asked.Load()
	time.Sleep(20 * time.Millisecond)
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text,
		"written to since it was loaded: answers are still of what was loaded") || asked.Load() > before {
		t.Errorf("%q, and %d looks behind it", text, asked.Load()-before)
	}
	if s.metric(t, "warpmap_database_changed") != 1 {
		t.Error("metrics do not tell")
	}
	if status, _, err := s.ask("", "", strings.NewReader(w.reads(1, 3))); status != 200 || err != nil {
		t.Error(status, err)
	}
}

// lines is a buffer for several goroutines.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

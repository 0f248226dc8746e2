package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/serve/redis"
)

// keyServer is a server of keys in a process of its own, on a Unix socket.
type keyServer struct {
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

func startKeyServer(t *testing.T, dir string, env []string, args ...string) *keyServer {
	t.Helper()
	s := &keyServer{t: t, socket: filepath.Join(dir, "s"), says: &said{}}
	s.Cmd = exec.Command(os.Args[0], append([]string{"serve", "--redis", "", "--socket", s.socket}, args...)...)
	s.Env = append(append(os.Environ(), "WARPMAP_TEST_COMMAND=1"), env...)
	s.Stderr, s.ended = s.says, sync.OnceValue(s.Cmd.Wait)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Process.Kill(); s.Wait() })
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("unix", s.socket); err == nil {
			c.Write([]byte("PING\r\n"))
			c.SetReadDeadline(time.Now().Add(time.Minute))
			line, _ := bufio.NewReader(c).ReadString('\n')
			if c.Close(); line == "+PONG\r\n" || strings.HasPrefix(line, "-NOAUTH") {
				return s
			}
		}
		if time.Now().After(end) {
			s.Process.Kill()
			s.Wait()
			t.Fatalf("the server does not answer: %s", s.says)
		}
	}
}

// Wait waits a minute for the end. Then the server says what its goroutines wait for.
func (s *keyServer) Wait() error {
	t := time.AfterFunc(time.Minute, func() { s.Process.Signal(syscall.SIGQUIT) })
	defer t.Stop()
	return s.ended()
}

// said waits until the server has said all of it: what it writes before it answers may be read later. It gives what it has
// said by then.
func (s *keyServer) said(all ...string) string {
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

// ask sends a line, and gives the reply's: of a string its bytes.
func (s *keyServer) ask(line string) string {
	s.t.Helper()
	c, err := net.Dial("unix", s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "%s\r\n", line)
	r := bufio.NewReader(c)
	reply, err := r.ReadString('\n')
	if err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
	if reply = strings.TrimSpace(reply); reply[0] == '$' && reply != "$-1" {
		reply, _ = r.ReadString('\n')
		reply = strings.TrimSpace(reply)
	}
	return reply
}

// web is where the process says that it has figures.
func (s *keyServer) web() string {
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
func (s *keyServer) load(after, lost time.Duration, acknowledged []atomic.Int64, client func(own int)) (least []int64) {
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

// After kill -9 under load what is there is what each client wrote up to some moment, in its order: with --log always all
// that was acknowledged, with everysec all but that of the last second or two.
func TestKeysSurviveKill(t *testing.T) {
	for _, log := range []string{"always", "everysec"} {
		t.Run(log, func(t *testing.T) { keysSurviveKill(t, log) })
	}
}

func keysSurviveKill(t *testing.T, log string) {
	dir, rounds, clients := t.TempDir(), 1, 4
	if testenv.Long() {
		rounds = 20
	}
	r := rand.New(rand.NewPCG(testenv.FirstSeed(), 1))
	acknowledged, least := make([]atomic.Int64, clients), make([]int64, clients) // of each client's counter
	total, lost := int64(0), int64(0)
	for round := range rounds + 1 {
		s := startKeyServer(t, dir, nil, "--data", filepath.Join(dir, "data"), "--log", log, "--save", "every=200ms")
		for own := range clients {
			n := s.survived(own)
			if n < least[own] {
				t.Fatalf("round %d: client %d has %d writes, and %d must be there: %s", round, own, n, least[own], s.says)
			}
			lost += max(0, acknowledged[own].Load()-n)
			acknowledged[own].Store(n)
		}
		if round == rounds {
			break
		}
		before := int64(0)
		for own := range clients {
			before += acknowledged[own].Load()
		}
		after, may := killTime(r, log)
		least = s.load(after, may, acknowledged, func(own int) { s.count(own, &acknowledged[own]) })
		for own := range clients {
			total += acknowledged[own].Load()
		}
		total -= before
	}
	if total < int64(rounds*clients) {
		t.Errorf("%d writes were acknowledged", total)
	}
	testenv.Tried(t, int(total), "writes")
	t.Logf("%d writes were acknowledged, and %d of them lost in %d kills", total, lost, rounds)
}

// count counts on until the server is gone: each number is a key of its own, the value of a counter, and that of two keys
// that are set at once.
func (s *keyServer) count(own int, acknowledged *atomic.Int64) {
	c, err := net.Dial("unix", s.socket)
	if err != nil {
		return
	}
	defer c.Close()
	from := bufio.NewReader(c)
	for { // some at once, of which the last may not be acknowledged
		n, b := acknowledged.Load(), []byte(nil)
		for k := n + 1; k <= n+5; k++ {
			b = fmt.Appendf(b, "SET key:%d:%d %d\r\nSET counter:%d %d\r\nMSET left:%d %d right:%d %d\r\n", own, k, k, own, k, own, k, own, k)
		}
		if _, err := c.Write(b); err != nil {
			return
		}
		for range 5 {
			for range 3 {
				if line, err := readReply(from); err != nil || line != "+OK" {
					return
				}
			}
			acknowledged.Add(1)
		}
		time.Sleep(time.Millisecond) // for what there is must be looked up
	}
}

// survived tells how far a client had counted, and looks whether that is all there, and nothing else.
func (s *keyServer) survived(own int) (n int64) {
	s.t.Helper()
	c, err := net.Dial("unix", s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	from := bufio.NewReader(c)
	ask := func(args ...string) []string {
		c.Write(request(args...))
		reply, err := readReply(from)
		if err != nil {
			s.t.Fatal(err)
		}
		return strings.Split(reply, "\n")
	}
	got := ask("MGET", fmt.Sprint("counter:", own), fmt.Sprint("left:", own), fmt.Sprint("right:", own))
	number := func(text string) (n int64) { n, _ = strconv.ParseInt(text, 10, 64); return n }
	n, left, right := number(got[0]), number(got[1]), number(got[2])
	if left != right || left != n && left != n-1 {
		s.t.Fatalf("client %d has counted to %d, and has %d and %d, which are set at once, behind that: %s", own, n, left, right, s.says)
	}
	const checked = 20_000
	for k := max(1, n-checked); k <= n+100; k += 100 {
		args := []string{"MGET"}
		for i := range int64(100) {
			args = append(args, fmt.Sprintf("key:%d:%d", own, k+i))
		}
		for i, got := range ask(args...) {
			// The key of the next number may be there, for it comes before the counter.
			if at, v := k+int64(i), number(got); at <= n && v != at || at > n+1 && got != nothing {
				s.t.Fatalf("client %d has counted to %d, and the key of %d is %s: %s", own, n, at, got, s.says)
			}
		}
	}
	return n
}

const nothing = "(nil)"

// request is a command as the protocol has it.
func request(args ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// readReply reads a reply of Redis: of a string its bytes, of nothing "(nil)", and of several all, with lines between them.
func readReply(from *bufio.Reader) (string, error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	n, _ := strconv.Atoi(line[1:])
	switch {
	case line[0] == '$' && n < 0:
		return "(nil)", nil
	case line[0] == '$':
		b := make([]byte, n+2)
		_, err := io.ReadFull(from, b)
		return string(b[:n]), err
	case line[0] == '*':
		var all []string
		for range n {
			one, err := readReply(from)
			if err != nil {
				return "", err
			}
			all = append(all, one)
		}
		return strings.Join(all, "\n"), nil
	}
	return line, nil
}

// With --memory the process takes not much more than that, as the system counts it.
func TestServeKeysKeepsToMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("short runs are those of the race detector, which has memory of its own for all")
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip(err)
	}
	s := startKeyServer(t, t.TempDir(), nil, "--memory", "100MB", "--policy", "allkeys-lru")
	c, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const n = 40_000
	go func() {
		for i := range n {
			size := 1 + i*7919%20_000
			fmt.Fprintf(c, "*3\r\n$3\r\nSET\r\n$8\r\n%08d\r\n$%d\r\n%s\r\n", i*31%20_000, size, strings.Repeat("v", size))
		}
	}()
	from := bufio.NewReader(c)
	for i := range n {
		if line, err := from.ReadString('\n'); err != nil || line != "+OK\r\n" {
			t.Fatalf("write %d: %q, %v", i, line, err)
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	if kb, _ := strconv.Atoi(strings.Fields(rest)[0]); kb < 50_000 || kb > 300_000 {
		t.Errorf("at most %d kB were in memory", kb)
	} else {
		t.Logf("at most %d kB were in memory", kb)
	}
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

// --memory bounds what Go collects, but not where tables are served, which it says nothing about.
func TestServeCollects(t *testing.T) {
	was, percent := debug.SetMemoryLimit(math.MaxInt64), debug.SetGCPercent(100)
	defer func() { debug.SetMemoryLimit(was); debug.SetGCPercent(percent) }()
	s := keyFlags{o: redis.Options{MaxMemory: 1 << 30}, flights: flightFlags{listen: "x"}}
	if s.collect(); debug.SetMemoryLimit(-1) != math.MaxInt64 {
		t.Error("there is a limit beside tables")
	}
	s.flights.listen = ""
	if s.collect(); debug.SetMemoryLimit(-1) > 2<<30 {
		t.Error("there is no limit without tables")
	}
}

// A signal ends a server well: what is in memory is in the last snapshot, and is there again.
func TestServeKeysEndsWell(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--data", filepath.Join(dir, "data"), "--save", "every=1h", "--memory", "100MB", "--policy", "allkeys-lru"}
	s := startKeyServer(t, dir, nil, args...)
	s.ask("SET a \"b c\" EX 1000")
	s.ask("PFADD h x y z")
	s.Process.Signal(syscall.SIGTERM)
	if err := s.Wait(); err != nil {
		t.Fatalf("%v: %s", err, s.says)
	}
	if _, err := os.Stat(s.socket); !os.IsNotExist(err) {
		t.Errorf("the socket stays: %v", err)
	}
	s = startKeyServer(t, dir, nil, args...)
	if got := s.ask("GET a") + s.ask("PFCOUNT h") + s.ask("CONFIG GET maxmemory-policy"); got != "b c:3*2" {
		t.Errorf("%q", got)
	}
	s.said("2 keys loaded")
}

// Where the log cannot be written, writes are not acknowledged, then refused, and reads go on. What was acknowledged is
// there again.
func TestServeKeysOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	s := startKeyServer(t, dir, []string{"WARPMAP_TEST_SMALL_FILES=65536"}, "--data", filepath.Join(dir, "data"), "--log", "always")
	c, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	from, acknowledged := bufio.NewReader(c), 0
	for ; acknowledged < 10_000; acknowledged++ {
		fmt.Fprintf(c, "SET key:%d %s\r\n", acknowledged, strings.Repeat("v", 100))
		if line, err := from.ReadString('\n'); err != nil || line != "+OK\r\n" {
			break
		}
	}
	if acknowledged < 100 || acknowledged == 10_000 {
		t.Fatalf("%d writes were acknowledged: %s", acknowledged, s.says)
	}
	if got := s.ask("SET a b"); !strings.HasPrefix(got, "-MISCONF Errors writing to the AOF file: ") {
		t.Errorf("a write has the reply %q", got)
	}
	if got := s.ask("GET key:0"); got != strings.Repeat("v", 100) {
		t.Errorf("a read has the reply %q", got)
	}
	s.Process.Kill()
	s.Wait()
	s = startKeyServer(t, dir, nil, "--data", filepath.Join(dir, "data"))
	for i := range acknowledged {
		if i%50 == 0 || i == acknowledged-1 {
			if got := s.ask(fmt.Sprint("GET key:", i)); got != strings.Repeat("v", 100) {
				t.Errorf("key %d of %d that were acknowledged is %q", i, acknowledged, got)
			}
		}
	}
}

// A server that ends while the disk is full stays until what it has is in a file, or until another signal comes.
func TestServeKeysEndsOnFullDisk(t *testing.T) {
	half := strings.Repeat("v", 50_000)
	for _, c := range []struct {
		option string
		room   bool // there will be
	}{{"--save=every=1h", true}, {"--log=everysec", true}, {"--save=every=1h", false}} {
		dir := t.TempDir()
		args := []string{"--data", filepath.Join(dir, "data"), c.option}
		s := startKeyServer(t, dir, []string{"WARPMAP_TEST_SMALL_FILES=65536"}, args...)
		if got := s.ask("APPEND a "+half) + s.ask("APPEND a "+half); got != ":50000:100000" {
			t.Fatal(got)
		}
		s.Process.Signal(syscall.SIGTERM)
		s.said("another signal comes: ")
		if !c.room {
			s.Process.Signal(syscall.SIGTERM)
		} else if err := moreRoom(s.Process.Pid); err != nil {
			t.Skip(err)
		}
		if err := s.Wait(); (err == nil) != c.room {
			t.Errorf("%s, room %t: %v: %s", c.option, c.room, err, s.says)
		}
		os.Remove(s.socket)
		s = startKeyServer(t, dir, nil, args...)
		if got := s.ask("GET a"); (got == half+half) != c.room {
			t.Errorf("%s, room %t: %d bytes are there again", c.option, c.room, len(got))
		}
	}
}

func TestServeKeysErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	empty, password := file("empty", "\n"), file("password", "x\n")
	os.Mkdir(filepath.Join(dir, "data"), 0o700)
	file("data/log.1", "not a log of ours")
	for _, c := range []struct {
		code int
		args []string
		says string
	}{
		{exitUsage, []string{"--redis", ""}, "--socket"},
		{exitUsage, []string{"--redis", ":0"}, "--insecure"},
		{exitUsage, []string{"--redis", "0.0.0.0:0", "--password-file", password}, "--tls-cert"},
		{exitUsage, []string{"--redis", "[::]:0"}, "--insecure"},
		{exitUsage, []string{"--redis", "192.0.2.1:0"}, "--insecure"},
		{exitUsage, []string{"--http", ":0"}, "--insecure"},
		{exitUsage, []string{"--redis", "nowhere"}, "--redis"},
		{exitUsage, []string{"--policy", "lfu"}, "--policy"},
		{exitUsage, []string{"--log", "often", "--data", dir}, "--log"},
		{exitUsage, []string{"--log", "always"}, "--data"},
		{exitUsage, []string{"--save", "60s", "--data", dir}, "--save"},
		{exitUsage, []string{"--save", "every=0s", "--data", dir}, "--save"},
		{exitUsage, []string{"--tls-cert", "x"}, "--tls-key"},
		{exitUsage, []string{"--tls-cert", empty, "--tls-key", empty, "--redis", "127.0.0.1:0"}, "--tls-cert"},
		{exitUsage, []string{"--password-file", filepath.Join(dir, "none")}, "--password-file"},
		{exitUsage, []string{"--password-file", empty}, "empty"},
		{exitUsage, []string{"--clients", "0"}, "--clients"},
		{exitUsage, []string{"--memory", "-1"}, "--memory"},
		{exitOther, []string{"--max-bulk", "1GB", "--redis", "127.0.0.1:0"}, "want no more"},
		{exitInput, []string{"--data", filepath.Join(dir, "data"), "--redis", "127.0.0.1:0"}, "log.1"},
	} {
		if _, _, err := run(t, append([]string{"serve"}, c.args...)...); err == nil || exitCode(err) != c.code ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: exit code %d, %v; want %d, %s", c.args, exitCode(err), err, c.code, c.says)
		}
	}
}

package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/genome/classify"
	"github.com/warpmap/warpmap/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const nodes = "1\t|\t1\t|\tno " +
	"rank\t|\n5\t|\t1\t|\tgenus\t|\n6\t|\t5\t|\tspecies\t|\n7\t|\t5\t|\tspecies\t|\n8\t|\t1\t|\tspecies\t|\n"

// world is a database of three genomes, and reads from them.
type world struct {
	d          *device.Device
	c          *classify.Classifier
	references []string
}

func letters(r *rand.Rand, n int) string {
	text := make([]byte, n)
	for i := range text {
		text[i] = "ACGT"[r.IntN(4)]
	}
	return string(text)
}

func put(t testing.TB, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func newWorld(t testing.TB) *world {
	t.Helper()
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	t.Cleanup(func() { d.Close() })
	w, dir, r := &world{d: d}, t.TempDir(), rand.New(rand.NewPCG(1, 2))
	put(t, filepath.Join(dir, "nodes.dmp"), nodes)
	var text strings.Builder
	for i := range 3 {
		w.references = append(w.references, letters(r, 3000))
		fmt.Fprintf(&text, ">g%d taxid|%d\n%s\n", i, 6+i, w.references[i])
	}
	b, err := classify.NewBuilder(d, dir, classify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Add(t.Context(), []string{put(t, filepath.Join(dir, "refs.fa"), text.String())},
		genome.Options{}); err != nil {
		t.Fatal(err)
	}
	db, err := b.Database()
	if err != nil {
		t.Fatal(err)
	}
	if w.c, err = classify.NewClassifier(d, db, classify.QueryOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.c.Close() })
	return w
}

// reads are n of them, from references and from nowhere, as FASTQ.
func (w *world) reads(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 3))
	var text strings.Builder
	for i := range n {
		read := letters(r, 120)
		if r.IntN(5) > 0 {
			from := w.references[r.IntN(3)]
			at := r.IntN(len(from) - 150)
			read = from[at : at+100+r.IntN(50)]
		}
		fmt.Fprintf(&text, "@s%d.%d some words\n%s\n+\n%s\n", seed, i, read, strings.Repeat("I", len(read)))
	}
	return text.String()
}

// interleaved are the records of both in turns.
func interleaved(a, b string) string {
	x, y := strings.SplitAfter(a, "\n"), strings.SplitAfter(b, "\n")
	var text strings.Builder
	for i := 0; i+4 <= len(x); i += 4 {
		text.WriteString(strings.Join(x[i:i+4], "") + strings.Join(y[i:i+4], ""))
	}
	return text.String()
}

// query is what the command query says of reads.
func (w *world) query(t *testing.T, format string, reads ...string) string {
	t.Helper()
	var inputs [2][]string
	for i, text := range reads {
		inputs[i] = []string{put(t, filepath.Join(t.TempDir(), "reads.fq"), text)}
	}
	var out bytes.Buffer
	tally := w.c.NewTally(false)
	_, err := w.c.Run(t.Context(), inputs[0], inputs[1], genome.Options{}, func(*classify.Result) error {
		return nil
	}, func(r *classify.Result) error {
		tally.Add(r)
		if format != "report" {
			out.Write(w.c.AppendLines(nil, r, classify.Format(format)))
		}
		return nil
	})
	if err == nil && format == "report" {
		err = tally.Report(&out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// running is a server on a socket, or on pipes.
type running struct {
	*Server
	socket string
	pipes  *pipes
	client *http.Client
	stop   context.CancelFunc
	ended  chan error
}

// pipes are connections within this process. Unlike sockets, they keep nothing, and they know the time that
// testing/synctest gives.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p *pipes) dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (w *world) serve(t *testing.T, o Options) *running {
	t.Helper()
	dir, err := os.MkdirTemp("", "serve") // a socket's name must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &running{socket: filepath.Join(dir, "s")}
	l, err := ListenUnix(r.socket)
	if err != nil {
		t.Fatal(err)
	}
	r.begin(t, w, o, l)
	return r
}

// servePipes is a server on pipes.
func (w *world) servePipes(t testing.TB, o Options) *running {
	t.Helper()
	r := &running{pipes: &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}}
	r.begin(t, w, o, r.pipes)
	return r
}

// begin has the server serve until the test ends.
func (r *running) begin(t testing.TB, w *world, o Options, l net.Listener) {
	t.Helper()
	s, err := New(w.c, w.d, o)
	if err != nil {
		t.Fatal(err)
	}
	r.Server, r.ended = s, make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() {
		r.ended <- s.Serve(ctx, l)
		close(r.ended)
	}()
	r.client = &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn,
		error) {
		return r.dial()
	}}}
	t.Cleanup(func() {
		stop()
		r.client.CloseIdleConnections()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		s.Close()
	})
}

func (r *running) dial() (net.Conn, error) {
	if r.pipes != nil {
		return r.pipes.dial()
	}
	return net.Dial("unix", r.socket)
}

// ask sends a body, and gives what comes.
func (r *running) ask(query, kind string, body io.Reader) (status int, text string, err error) {
	a, err := r.client.Post("http://warpmap/classify"+query, kind, body)
	if err != nil {
		return 0, "", err
	}
	defer a.Body.Close()
	out, err := io.ReadAll(a.Body)
	if a.StatusCode == http.StatusServiceUnavailable && a.Header.Get("Retry-After") == "" {
		err = errors.New("no Retry-After")
	}
	return a.StatusCode, string(out), err
}

func (r *running) metric(t *testing.T, name string) (value float64) {
	t.Helper()
	a, err := r.client.Get("http://warpmap/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, _ := io.ReadAll(a.Body)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			fmt.Sscan(rest, &value)
			return value
		}
	}
	t.Errorf("no %s in %s", name, text)
	return 0
}

func form(texts ...string) (kind string, body io.Reader) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i, text := range texts {
		part, _ := w.CreateFormFile(fmt.Sprint("file", i), "reads.fq")
		io.WriteString(part, text)
	}
	w.Close()
	return w.FormDataContentType(), &b
}

func gzipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, text)
	z.Close()
	return b.String()
}

func zstded(text string) string {
	z, _ := zstd.NewWriter(nil)
	return string(z.EncodeAll([]byte(text), nil))
}

func TestAnswersAreThoseOfQuery(t *testing.T) {
	w := newWorld(t)
	s := w.serve(t, Options{})
	a, b := w.reads(1, 5001), w.reads(2, 5001) // several blocks, with an odd number of records here and there
	for name, c := range map[string]struct {
		query string
		files []string // of a form; else the body
		body  string
		want  string
	}{
		"lines":             {"", nil, a, w.query(t, "kraken", a)},
		"one":               {"?format=kraken", nil, ">x\nACGT\n", w.query(t, "kraken", ">x\nACGT\n")},
		"gzip":              {"", nil, gzipped(a), w.query(t, "kraken", a)},
		"zstd":              {"?format=metacache", nil, zstded(a), w.query(t, "metacache", a)},
		"report":            {"?format=report", nil, a, w.query(t, "report", a)},
		"interleaved":       {"?paired=true", nil, interleaved(a, b), w.query(t, "kraken", a, b)},
		"form":              {"", []string{a}, "", w.query(t, "kraken", a)},
		"form, pairs":       {"", []string{gzipped(a), zstded(b)}, "", w.query(t, "kraken", a, b)},
		"form, interleaved": {"?format=report&paired=1", []string{interleaved(a, b)}, "", w.query(t, "report", a, b)},
	} {
		t.Run(name, func(t *testing.T) {
			kind, body := "text/plain", io.Reader(strings.NewReader(c.body))
			if c.files != nil {
				kind, body = form(c.files...)
			}
			status, got, err := s.ask(c.query, kind, body)
			if err != nil || status != http.StatusOK {
				t.Fatal(status, got, err)
			}
			if got != c.want {
				t.Errorf("%d bytes that are not the %d of query: %.200q, want %.200q", len(got), len(c.want), got,
					c.want)
			}
		})
	}
	if n := s.metric(t, "warpmap_reads_total"); n != 8*5001+1 {
		t.Errorf("%v reads are counted", n)
	}
	if n, all := s.metric(t, "warpmap_reads_classified_total"), s.metric(t, "warpmap_reads_total"); n < all/2 ||
		n > 0.9*all {
		t.Errorf("%v reads of %v are classified", n, all)
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	s, hasty := w.serve(t, Options{MaxBytes: 1 << 20, MaxLetters: 1000}), w.serve(t, Options{Timeout: 500 * time.Millisecond})
	endless := func() io.Reader { return io.MultiReader(strings.NewReader(">x\nACGT\n"), stuck(t)) }
	three, body := form(w.reads(1, 3), w.reads(1, 3), "x")
	for name, c := range map[string]struct {
		query, kind string
		body        io.Reader
		status      int
		says        string
	}{
		"empty":           {"", "", strings.NewReader(""), 400, "no records"},
		"text":            {"", "", strings.NewReader("hello"), 400, "neither FASTA"},
		"broken":          {"", "", strings.NewReader("@a\nACGT\n+\n!!!\n"), 400, "reads:4: 3 qualities for 4 letters"},
		"cut gzip":        {"", "", strings.NewReader(gzipped(w.reads(1, 50))[:500]), 400, "ends too early"},
		"format":          {"?format=xml", "", strings.NewReader(""), 400, "kraken or metacache or report"},
		"parameter":       {"?formt=report", "", strings.NewReader(""), 400, `"formt"`},
		"paired":          {"?paired=maybe", "", strings.NewReader(""), 400, "want true or false"},
		"no mate":         {"?paired=true", "", strings.NewReader(w.reads(1, 1)), 400, "no mate"},
		"long read":       {"", "", strings.NewReader(">x\n" + strings.Repeat("A", 1001) + "\n"), 413, "1000 at most"},
		"longer read":     {"", "", strings.NewReader(">x\n" + strings.Repeat("A", 900_000) + "\n"), 413, "more than"},
		"large":           {"", "", strings.NewReader(w.reads(1, 5000)), 413, "want 1048576 at most"},
		"large, unknown":  {"?format=report", "", io.MultiReader(strings.NewReader(w.reads(1, 9000))), 413, "too large"},
		"large, unpacked": {"?format=report", "", strings.NewReader(gzipped(strings.Repeat(">x\nA\n", 1<<20))), 413, "with names"},
		"large window":    {"", "", strings.NewReader(windowed(t)), 400, "window size exceeded"},
		"slow":            {"", "", endless(), 408, "timeout"},
		"mates first":     {"", "multipart/form-data; boundary=x", strings.NewReader("--x\r\nContent-Disposition: form-data; name=mates\r\n\r\n>x\nACGT\n\r\n--x--\r\n"), 400, "want reads first"},
		"three files":     {"?format=report", three, body, 400, "more than two files"},
		"no files":        {"", "multipart/form-data; boundary=x", strings.NewReader("--x--\r\n"), 400, "without files"},
	} {
		t.Run(name, func(t *testing.T) {
			s := s
			if c.status == http.StatusRequestTimeout {
				s = hasty // for the others, who are slow where others have the cores, there is time
			}
			status, text, err := s.ask(c.query, c.kind, c.body)
			if code, after, err := s.ask("", "", strings.NewReader(">x\nACGT\n")); code != 200 || err != nil {
				t.Errorf("the next request: status %d, %q, %v", code, after, err)
			}
			if err != nil || status != c.status || !strings.Contains(text, c.says) {
				t.Errorf("status %d, %.200q, %v; want %d, %s", status, text, err, c.status, c.says)
			}
		})
	}
	if a, err := s.client.Get("http://warpmap/classify"); err != nil || a.StatusCode != 405 {
		t.Error(a, err)
	} else {
		a.Body.Close()
	}
	if n := s.metric(t, "warpmap_requests_active"); n != 0 {
		t.Errorf("%v requests are active", n)
	}
}

// A client that sends a little now and then is given up when its time is over.
func TestTimeIsBounded(t *testing.T) {
	w := newWorld(t)
	s := w.serve(t, Options{MaxTime: 300 * time.Millisecond})
	for _, kind := range []string{"", "multipart/form-data; boundary=x"} {
		status, text, err := s.ask("", kind, io.MultiReader(strings.NewReader("--x\r\nContent-Disposition: "+
			"form-data; name=a\r\n\r\n>x\nACGT\n"), stuck(t)))
		if err != nil || status != 503 && status != 408 {
			t.Errorf("status %d, %q, %v", status, text, err)
		}
	}
}

// stuck is a body that sends nothing, until the test ends.
func stuck(t *testing.T) io.Reader {
	r, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	return r
}

// windowed is zstd that wants a window of 64 MiB.
func windowed(t *testing.T) string {
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b, zstd.WithWindowSize(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(z, ">x\nACGT\n")
	z.Flush()
	z.Close()
	return b.String()
}

// What breaks behind the first lines is not taken for all.
func TestBrokenOff(t *testing.T) {
	w := newWorld(t)
	s := w.serve(t, Options{})
	_, text, err := s.ask("", "", strings.NewReader(w.reads(1, 3000)+"@a\nACGT\n+\n!!!\n"))
	if err == nil || !strings.HasPrefix(w.query(t, "kraken", w.reads(1, 3000)), text[:1000]) ||
		!strings.HasSuffix(text, "# error: reads:12004: 3 qualities for 4 letters\n") {
		t.Errorf("%v, %.100q … %q", err, text, text[max(0, len(text)-100):])
	}
}

func TestQueueIsBounded(t *testing.T) {
	w := newWorld(t)
	s := w.serve(t, Options{Requests: 1, Queue: 1, Timeout: 10 * time.Second})
	bodies := make([]*io.PipeWriter, 2)
	answers := make(chan string, 2)
	for i := range bodies {
		r, to := io.Pipe()
		bodies[i] = to
		go func() {
			status, _, err := s.ask("", "", r)
			answers <- fmt.Sprint(status, err)
		}()
		io.WriteString(to, "\n") // a place, or one in the queue, is for those that send something
		for end := time.Now().Add(10 * time.Second); s.metrics.active.Load()+
			s.metrics.waiting.Load() < int64(i+1); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("a request does not come")
			}
		}
	}
	if status, text, err := s.ask("", "", strings.NewReader(w.reads(1, 1))); status != 503 || err != nil {
		t.Error(status, text, err)
	}
	for _, b := range bodies {
		io.WriteString(b, w.reads(1, 1))
		b.Close()
	}
	for range bodies {
		if a := <-answers; a != "200 <nil>" {
			t.Error(a)
		}
	}
}

// Two hundred clients, while one sends half a request, and another reads nothing: answers are those of query, and
// memory is bounded. Time passes only while everybody waits: clients of a machine with other work are slow, and a server
// that gives those up is right.
func TestManyClients(t *testing.T) {
	w := newWorld(t)
	sizes := []int{1, 7, 100, 3000}
	var wants []string
	for i, n := range sizes {
		wants = append(wants, w.query(t, "kraken", w.reads(uint64(i), n)))
	}
	synctest.Test(t, func(t *testing.T) { manyClients(t, w, sizes, wants) })
}

func manyClients(t *testing.T, w *world, sizes []int, wants []string) {
	s := w.servePipes(t, Options{Requests: 16, Queue: 400, Timeout: 8 * time.Second})
	half, err := s.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	io.WriteString(half, "POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n>x\nACGT")
	told := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(half)
		told <- string(text)
	}()
	deaf, err := s.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	many := w.reads(9, 40_000)
	fmt.Fprintf(deaf, "POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(many), many)

	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begin := time.Now()
	var clients sync.WaitGroup
	for i := range 200 {
		clients.Go(func() {
			k := i % len(sizes)
			status, got, err := s.ask("", "", strings.NewReader(w.reads(uint64(k), sizes[k])))
			if err != nil || status != http.StatusOK || got != wants[k] {
				t.Errorf("client %d: status %d, %v, %d bytes; want %d", i, status, err, len(got), len(wants[k]))
			}
		})
	}
	clients.Wait()
	if took := time.Since(begin); took > 0 {
		t.Errorf("everybody waited for %v, while there was work", took)
	}
	runtime.ReadMemStats(&during)
	if grown := int64(during.Sys) - int64(before.Sys); grown > 500<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
	if s.metrics.active.Load() == 0 {
		t.Error("the clients that do not go on were given up at once")
	}
	// Both are given up, and their places are free.
	if text := <-told; !strings.HasPrefix(text, "HTTP/1.1 408") || time.Since(begin) > 10*time.Second {
		t.Errorf("half a request: %q after %v", text, time.Since(begin))
	}
	for end := time.Now().Add(20 * time.Second); s.metrics.active.Load() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the client that does not read keeps its place")
		}
	}
	if text, err := io.ReadAll(deaf); strings.HasSuffix(string(text), "0\r\n\r\n") {
		t.Errorf("the client that does not read got all: %v", err)
	}
	if n, batches := s.metric(t, "warpmap_reads_total"), s.metric(t, "warpmap_batches_total"); n < 50*3108 ||
		batches < 10 {
		t.Errorf("%v reads in %v batches", n, batches)
	}
}

// A client may send all before it reads.
func TestReadingComesLast(t *testing.T) {
	w := newWorld(t)
	s := w.serve(t, Options{Timeout: 3 * time.Second})
	text := w.reads(1, 40_000)
	c, err := s.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprintf(c, "POST /classify HTTP/1.0\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(text),
		text); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if _, lines, _ := strings.Cut(string(got), "\r\n\r\n"); err != nil || lines != w.query(t, "kraken", text) {
		t.Errorf("%d bytes, %v", len(lines), err)
	}
}

func TestEnd(t *testing.T) {
	w := newWorld(t)
	for name, finished := range map[string]bool{"finished": true, "broken off": false} {
		t.Run(name, func(t *testing.T) {
			s := w.serve(t,
				Options{Grace: map[bool]time.Duration{true: time.Minute, false: 50 * time.Millisecond}[finished]})
			if i, err := os.Stat(s.socket); err != nil || i.Mode() != fsSocket {
				t.Error(i.Mode(), err)
			}
			if l, err := ListenUnix(s.socket); err == nil {
				l.Close()
				t.Error("two servers listen on one socket")
			}
			text := w.reads(1, 3000)
			body, to := io.Pipe()
			type outcome struct {
				status int
				text   string
				err    error
			}
			got := make(chan outcome, 1)
			go func() {
				status, text, err := s.ask("", "", body)
				body.CloseWithError(io.ErrClosedPipe)
				got <- outcome{status, text, err}
			}()
			io.WriteString(to, text[:len(text)-100])
			s.stop()
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				if _, err := os.Stat(s.socket); os.IsNotExist(err) {
					break
				} else if time.Now().After(end) {
					t.Fatal("the socket stays")
				}
			}
			if _, err := s.dial(); err == nil {
				t.Error("it listens on")
			}
			if finished {
				io.WriteString(to, text[len(text)-100:])
				to.Close()
			}
			switch o := <-got; {
			case finished && (o.err != nil || o.status != 200 || o.text != w.query(t, "kraken", text)):
				t.Errorf("status %d, %d bytes, %v", o.status, len(o.text), o.err)
			case !finished && o.err == nil:
				t.Errorf("status %d, %d bytes", o.status, len(o.text))
			}
		})
	}
}

const fsSocket = os.ModeSocket | 0o600

func TestSocketsLeftBehind(t *testing.T) {
	dir, err := os.MkdirTemp("", "serve")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	left := filepath.Join(dir, "left")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: left})
		syscall.Close(fd)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := ListenUnix(left)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Error("the socket stays", err)
	}
	if _, err := ListenUnix(put(t, filepath.Join(dir, "file"), "")); err == nil ||
		!strings.Contains(err.Error(), "no socket") {
		t.Error(err)
	}
}

func TestSpool(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 5))
	for round := range 20 {
		s := newSpool(t.Context(),
			newBudget(Options{MaxSpool: []int64{1 << 30, 1 << 19, 0}[round%3], PerClient: 1, Requests: 1}), "")
		var want, got bytes.Buffer
		var writer sync.WaitGroup
		writer.Go(func() {
			for range 100 {
				text := bytes.Repeat([]byte{byte('a' + want.Len()%26)}, r.IntN(20_000))
				want.Write(text)
				if _, err := s.Write(text); err != nil {
					t.Error(err)
				}
				if want.Len()%3 == 0 {
					runtime.Gosched()
				}
			}
			s.end(nil)
		})
		into := make([]byte, 30_000)
		for {
			n, last, err := s.next(into)
			got.Write(into[:n])
			if err == io.EOF && n == 0 {
				break
			} else if err != nil || last && s.from != s.to {
				t.Fatal(n, last, err)
			}
		}
		writer.Wait()
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%d bytes came, of %d", got.Len(), want.Len())
		}
		if n := s.b.bytes(); n != 0 {
			t.Errorf("%d bytes are counted, and nothing waits", n)
		}
		s.close()
	}
}

func TestOptions(t *testing.T) {
	w := newWorld(t)
	for _, o := range []Options{{Requests: -1}, {Queue: -2}, {MaxBytes: -1}, {MaxLetters: -1}, {Timeout: -1},
		{MaxTime: -1}, {Grace: -1}} {
		if s, err := New(w.c, w.d, o); err == nil {
			s.Close()
			t.Errorf("%+v: no error", o)
		}
	}
}

package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/genome/classify"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/files"
)

// statusError is an error with a status of its own.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

func refused(status int, text string, with ...any) error {
	return &statusError{status, fmt.Errorf(text, with...)}
}

// statusOf tells how a request that failed is answered.
func statusOf(err error) int {
	var (
		own   *statusError
		large *http.MaxBytesError
		input *genome.InputError
	)
	switch {
	case errors.As(err, &own):
		return own.status
	case errors.As(err, &large) || errors.Is(err, genome.ErrTooLong):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout
	case device.IsOutOfMemory(err):
		return http.StatusServiceUnavailable
	case errors.As(err, &input):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// classify answers POST /classify.
func (s *Server) classify(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	status := 0
	s.gate.in()
	defer s.gate.out()
	defer func() { s.metrics.done(status, time.Since(begin)) }()
	ctx, cancel := context.WithTimeoutCause(s.going, s.o.MaxTime,
		refused(http.StatusServiceUnavailable, "the request took longer than %v: send several", s.o.MaxTime))
	defer cancel()
	a, err := s.admit(ctx, w, r)
	if err != nil {
		status = s.fail(w, err)
		return
	}
	defer s.gate.leave(a.client, a.body)
	defer a.close()
	err = a.run(ctx)
	switch {
	case err == nil:
		status = http.StatusOK
	case !a.begun:
		if !a.body.whole { // net/http would take the rest for the next request
			w.Header().Set("Connection", "close")
		}
		status = s.fail(w, err)
	default:
		status = statusBroken
		s.log.Printf("%s: broken off: %v", r.RemoteAddr, err)
		fmt.Fprintf(w, "# error: %v\n", err)
		a.rc.Flush()
		panic(http.ErrAbortHandler) // so that no client takes the lines for all
	}
}

func (s *Server) fail(w http.ResponseWriter, err error) int {
	status := statusOf(err)
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	if status >= http.StatusInternalServerError && status != http.StatusServiceUnavailable {
		s.log.Printf("status %d: %v", status, err)
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.o.Timeout))
	http.Error(w, err.Error(), status)
	return status
}

// answer is a request that has a place, and what is told of it.
type answer struct {
	s      *Server
	client string
	w      http.ResponseWriter
	rc     *http.ResponseController
	body   *body
	form   *formBody // nil: the body is reads
	format classify.Format
	report bool
	paired bool
	tally  *classify.Tally
	out    *spool
	begun  bool // the status is sent
	bytes  int64
}

// admit checks a request, and waits for a place.
func (s *Server) admit(ctx context.Context, w http.ResponseWriter, r *http.Request) (*answer, error) {
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		w.Header().Set("Allow", "POST, PUT")
		return nil, refused(http.StatusMethodNotAllowed, "%s: want POST, with reads: curl --data-binary @reads.fastq",
			r.Method)
	}
	a := &answer{s: s, w: w, rc: http.NewResponseController(w), format: classify.KrakenLines, client: clientOf(r)}
	if err := a.parse(r); err != nil {
		return nil, err
	}
	if r.ContentLength > s.o.MaxBytes {
		return nil, refused(http.StatusRequestEntityTooLarge, "%d bytes: want %d at most; send several requests",
			r.ContentLength, s.o.MaxBytes)
	}
	a.rc.EnableFullDuplex() // lines come while reads are sent
	a.body = &body{ctx: ctx, from: http.MaxBytesReader(nil, r.Body, s.o.MaxBytes), rc: a.rc, timeout: s.o.Timeout,
		crowded: s.gate.crowded}
	err := s.first(a)
	if err == nil {
		err = s.gate.enter(ctx, a.client, a.body)
	}
	if err != nil {
		a.body.close()
		w.Header().Set("Connection", "close")
		return nil, err
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		own := r.WithContext(ctx) // net/http looks at its own request's body, to tell whether it was read
		a.form = &formBody{body: a.body}
		own.Body = io.NopCloser(a.form)
		if a.form.parts, err = own.MultipartReader(); err != nil {
			s.gate.leave(a.client, a.body)
			return nil, refused(http.StatusBadRequest, "%w: want a form as of curl -F reads=@1.fq -F mates=@2.fq", err)
		}
	}
	return a, nil
}

func (a *answer) parse(r *http.Request) (err error) {
	for name, values := range r.URL.Query() {
		value := values[len(values)-1]
		switch name {
		case "format":
			if a.report = value == "report"; !a.report {
				if a.format, err = classify.ParseFormat(value); err != nil {
					return refused(http.StatusBadRequest, "format=%w or report", err)
				}
			}
		case "paired":
			if a.paired, err = strconv.ParseBool(value); err != nil {
				return refused(http.StatusBadRequest, "paired=%q: want true or false", value)
			}
		default:
			return refused(http.StatusBadRequest, "parameter %q: want format or paired", name)
		}
	}
	return nil
}

// firstBytes is how much of a body comes before its request has a place, at most.
const firstBytes = 4 << 10

// first waits for the first bytes of a body: requests that send nothing take no places. Their memory is of the budget.
func (s *Server) first(a *answer) error {
	last := time.After(2 * s.o.Timeout) // who holds the room and takes nothing is given up within one
	for {
		ok, freed := s.budget.take(a.client, firstBytes)
		if ok {
			break
		}
		select {
		case <-freed:
		case <-s.going.Done():
			return errEnded
		case <-last:
			return refused(http.StatusServiceUnavailable,
				"the server keeps as much for clients as it may: try again later")
		}
	}
	defer s.budget.give(a.client, firstBytes)
	room := make([]byte, firstBytes)
	n, err := a.body.Read(room)
	a.body.ahead = room[:n]
	if err == nil || err == io.EOF { // which comes again
		return nil
	}
	return &genome.InputError{Input: reads, Err: err} // of the client, who may be gone
}

// close gives back what the answer holds.
func (a *answer) close() { a.out.close() }

// run reads, classifies and answers, beside one another. Nothing of it goes on when it returns.
func (a *answer) run(ctx context.Context) error {
	if a.report {
		a.tally = a.s.c.NewTally(false)
	}
	inner, stop := context.WithCancel(ctx)
	a.out = newSpool(inner, a.s.budget, a.client)
	var both crash.WaitGroup
	order := make(chan *job, 1)
	var reading error
	both.Go(func() {
		defer close(order)
		reading = crash.Catch(func() error {
			if err := a.read(inner, order); err != nil {
				return err
			}
			_, err := io.Copy(io.Discard, a.body) // what stands behind the end of a form
			return err
		})
	})
	both.Go(func() {
		err := crash.Catch(func() error {
			if err := a.collect(order); err != nil {
				return err
			}
			if reading == nil && a.report { // there is no more in order
				return a.tally.Report(a.out)
			}
			return reading
		})
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			err = context.Cause(ctx)
		}
		a.out.end(err)
		stop()
	})
	err := a.write()
	stop()
	a.body.close()
	both.Wait()
	return err
}

// The inputs of a request, as errors name them.
const reads, mates = "reads", "mates"

// read hands blocks to the batcher, and to order.
func (a *answer) read(ctx context.Context, order chan<- *job) error {
	o := genome.Options{BlockBytes: a.s.blockBytes, Threads: 1, MaxLetters: a.s.o.MaxLetters}
	o.Open = func(string) (io.ReadCloser, error) { return io.NopCloser(a.body), nil }
	pairs := func(x, y *genome.Block) error { return a.hand(ctx, order, x, y) }
	if a.form != nil {
		first, second, err := a.files(ctx)
		if err != nil {
			return err
		}
		defer first.Close()
		o.Open = func(name string) (io.ReadCloser, error) {
			if name == mates {
				return io.NopCloser(second), nil
			}
			return io.NopCloser(first), nil
		}
		if second != nil {
			_, err = genome.ReadPaired(ctx, []string{reads}, []string{mates}, o, pairs)
			return err
		}
	}
	var err error
	if a.paired {
		_, err = genome.ReadInterleaved(ctx, []string{reads}, o, pairs)
	} else {
		_, err = genome.Read(ctx, []string{reads}, o, func(b *genome.Block) error { return a.hand(ctx, order, b, nil) })
	}
	return err
}

// files are those of a form: the first in a temporary file, for it comes before the second; that may be nil.
func (a *answer) files(ctx context.Context) (first *upload, second io.Reader, err error) {
	part, err := a.form.next()
	if err == io.EOF {
		return nil, nil, refused(http.StatusBadRequest,
			"a form without files: want one of reads, or two of reads and mates")
	} else if err != nil {
		return nil, nil, formError(err)
	}
	if part.FormName() == "mates" {
		return nil, nil, errOrder
	}
	file, err := files.Temporary("")
	if err != nil {
		return nil, nil, fullDisk(err)
	}
	kept := &upload{File: file, a: a, ctx: ctx}
	first = kept
	defer func() {
		if err != nil {
			kept.Close()
		}
	}()
	if _, err = io.Copy(struct{ io.Writer }{first}, part); err != nil {
		return nil, nil, formError(err)
	}
	if _, err = first.Seek(0, io.SeekStart); err != nil {
		return nil, nil, err
	}
	part, err = a.form.next()
	if err == io.EOF {
		return first, nil, nil
	} else if err != nil {
		return nil, nil, formError(err)
	}
	return first, &lastPart{part, a.form}, nil
}

var errOrder = refused(http.StatusBadRequest, "a form that begins with mates: want reads first, then mates")

func formError(err error) error { return &genome.InputError{Input: "form", Err: err} }

// formBody is a body with files in it. What stands before a file is kept in memory until the file begins.
type formBody struct {
	body  *body
	parts *multipart.Reader
	in    bool // a file
	left  int  // bytes that may come before the next
}

// mostHead is how much may stand before a file. Browsers and curl send some hundred bytes.
const mostHead = 64 << 10

func (f *formBody) next() (*multipart.Part, error) {
	f.in, f.left = false, mostHead
	part, err := f.parts.NextPart()
	f.in = true
	return part, err
}

func (f *formBody) Read(to []byte) (int, error) {
	if f.in {
		return f.body.Read(to)
	}
	if f.left == 0 {
		return 0, refused(http.StatusRequestEntityTooLarge,
			"more than %d bytes before a file of the form: want its name, and little else",
			mostHead)
	}
	n, err := f.body.Read(to[:min(len(to), f.left)])
	f.left -= n
	return n, err
}

// lastPart is a part of a form that nothing may follow.
type lastPart struct {
	part io.Reader
	form *formBody
}

func (p *lastPart) Read(to []byte) (int, error) {
	n, err := p.part.Read(to)
	if err == io.EOF {
		if _, more := p.form.next(); more != io.EOF {
			err = refused(http.StatusBadRequest,
				"a form of more than two files: want one of reads, or two of reads and mates")
		}
	}
	return n, err
}

// recordCost is what a record counts beside its letters: it gets a line, however short it is.
const recordCost = 16

// hand gives a block and its mates to the batcher.
func (a *answer) hand(ctx context.Context, order chan<- *job, x, y *genome.Block) error {
	j := &job{Result: &classify.Result{Reads: x, Mates: y}, letters: len(x.Text), done: make(chan struct{})}
	for _, b := range []*genome.Block{x, y} {
		if b == nil {
			continue
		}
		for _, r := range b.Records {
			a.bytes += int64(len(r.Name)+r.End-r.Start) + recordCost
		}
	}
	if a.bytes > a.s.o.MaxBytes {
		return refused(http.StatusRequestEntityTooLarge, "more than %d letters, with names: send several requests",
			a.s.o.MaxBytes)
	}
	if err := a.s.batcher.submit(ctx, j); err != nil {
		return err
	}
	select {
	case order <- j:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// collect makes lines of verdicts, or counts them for the report.
func (a *answer) collect(order <-chan *job) error {
	var text []byte
	for j := range order {
		<-j.done
		if j.err != nil {
			return j.err
		}
		a.count(j)
		if a.report {
			a.tally.Add(j.Result)
		} else {
			text = a.s.c.AppendLines(text[:0], j.Result, a.format)
			if _, err := a.out.Write(text); err != nil {
				return err
			}
		}
		j.Reads.Release()
		if j.Mates != nil {
			j.Mates.Release()
		}
	}
	return nil
}

func (a *answer) count(j *job) {
	m := &a.s.metrics
	m.reads.Add(int64(len(j.Verdicts)))
	m.letters.Add(j.Letters())
	for _, v := range j.Verdicts {
		if v.Taxon != 0 {
			m.classified.Add(1)
		}
	}
}

// write gives the client what there is.
func (a *answer) write() error {
	text := make([]byte, 64<<10)
	for {
		n, last, err := a.out.next(text)
		if n > 0 {
			a.begun = true
			a.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			a.rc.SetWriteDeadline(time.Now().Add(a.s.o.Timeout))
			if _, err := a.w.Write(text[:n]); err != nil {
				return fmt.Errorf("the client took no lines for %v: read them while you send: %w", a.s.o.Timeout, err)
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case !last:
			a.rc.Flush()
		}
	}
}

// body is a request's, which gives up after a time with too little news, or with its context, and which nobody reads
// any more behind close.
type body struct {
	ctx     context.Context
	mu      sync.Mutex
	from    io.Reader
	ahead   []byte // comes before what from has
	rc      *http.ResponseController
	timeout time.Duration
	crowded func() bool // requests wait for places
	waited  time.Duration
	got     int // bytes, since waited was 0
	clock   sync.Mutex
	since   time.Time // somebody reads, and the client has been silent so long; zero: nobody does
	whole   bool      // read to its end
	closed  atomic.Bool
}

// leastBytes is how much of a body must come in Options.Timeout: a byte now and then is no progress. Time in which the
// server does not read does not count.
const leastBytes = 1 << 10

// hurry is by how much clients have less time where others wait for their places.
const hurry = 8

var errClosed = errors.New("the request has ended")

func (b *body) Read(to []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	if len(b.ahead) > 0 {
		n := copy(to, b.ahead)
		b.ahead = b.ahead[n:]
		return n, nil
	}
	begin := time.Now()
	b.clock.Lock()
	b.since = begin.Add(-b.waited)
	b.clock.Unlock()
	b.wind(b.timeout)
	if b.crowded() {
		b.wind(b.timeout / hurry)
	}
	if b.closed.Load() { // or close comes now, and its deadline with it
		return 0, errClosed
	}
	n, err := b.from.Read(to)
	b.clock.Lock()
	b.since = time.Time{}
	b.clock.Unlock()
	b.waited += time.Since(begin)
	if b.got += n; b.got >= leastBytes { // a client that sends all before it reads is not one that never reads
		b.got, b.waited = 0, 0
		b.rc.SetWriteDeadline(time.Now().Add(b.timeout))
	}
	if err == io.EOF {
		b.whole = true
		b.rc.SetReadDeadline(time.Time{})
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && !b.closed.Load() && b.ctx.Err() == nil {
		err = refused(http.StatusRequestTimeout, "timeout: less than %d bytes of the body came in %v (%v where "+
			"others wait): send it without pauses, or in several requests: %w",
			leastBytes, b.timeout, b.timeout/hurry, err)
	}
	return n, err
}

// wind lets whoever reads wait until the client has been silent so long, or the context is done.
func (b *body) wind(timeout time.Duration) {
	b.clock.Lock()
	defer b.clock.Unlock()
	if b.since.IsZero() || b.closed.Load() {
		return
	}
	soon := b.since.Add(timeout)
	if last, ok := b.ctx.Deadline(); ok && last.Before(soon) {
		soon = last
	}
	b.rc.SetReadDeadline(soon)
}

// close waits until nobody reads, and lets nobody read any more.
func (b *body) close() {
	b.clock.Lock()
	b.closed.Store(true)
	b.rc.SetReadDeadline(time.Unix(1, 0))
	b.clock.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.whole {
		b.rc.SetReadDeadline(time.Time{})
	} else { // net/http reads on for a while: a client that is refused while it sends would not see the answer
		b.rc.SetReadDeadline(time.Now().Add(time.Second))
	}
}

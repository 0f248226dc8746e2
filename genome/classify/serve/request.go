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
	defer func() { s.metrics.done(status, time.Since(begin)) }()
	ctx, cancel := context.WithTimeoutCause(s.going, s.o.MaxTime, refused(http.StatusServiceUnavailable, "the request took longer than %v: send several", s.o.MaxTime))
	defer cancel()
	a, err := s.admit(ctx, w, r)
	if err != nil {
		status = s.fail(w, err)
		return
	}
	defer s.leave()
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
	if status == http.StatusServiceUnavailable {
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
	w      http.ResponseWriter
	rc     *http.ResponseController
	body   *body
	form   *multipart.Reader // nil: the body is reads
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
		return nil, refused(http.StatusMethodNotAllowed, "%s: want POST, with reads: curl --data-binary @reads.fastq", r.Method)
	}
	a := &answer{s: s, w: w, rc: http.NewResponseController(w), format: classify.KrakenLines, out: newSpool()}
	if err := a.parse(r); err != nil {
		return nil, err
	}
	if r.ContentLength > s.o.MaxBytes {
		return nil, refused(http.StatusRequestEntityTooLarge, "%d bytes: want %d at most; send several requests", r.ContentLength, s.o.MaxBytes)
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	a.rc.EnableFullDuplex() // lines come while reads are sent
	a.body = &body{ctx: ctx, from: http.MaxBytesReader(nil, r.Body, s.o.MaxBytes), rc: a.rc, timeout: s.o.Timeout}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		own := r.WithContext(ctx) // net/http looks at its own request's body, to tell whether it was read
		own.Body = io.NopCloser(a.body)
		form, err := own.MultipartReader()
		if err != nil {
			s.leave()
			return nil, refused(http.StatusBadRequest, "%w", err)
		}
		a.form = form
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

// enter waits for a place.
func (s *Server) enter(ctx context.Context) error {
	select {
	case s.places <- struct{}{}:
		s.metrics.active.Add(1)
		return nil
	default:
	}
	defer s.metrics.waiting.Add(-1)
	if s.metrics.waiting.Add(1) > int64(s.o.Queue) {
		return refused(http.StatusServiceUnavailable, "%d requests wait: try again", s.o.Queue)
	}
	select {
	case s.places <- struct{}{}:
		s.metrics.active.Add(1)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Server) leave() {
	s.metrics.active.Add(-1)
	<-s.places
}

// close gives back what the answer holds.
func (a *answer) close() { a.out.close() }

// run reads, classifies and answers, beside one another. Nothing of it goes on when it returns.
func (a *answer) run(ctx context.Context) error {
	if a.report {
		a.tally = a.s.c.NewTally(false)
	}
	inner, stop := context.WithCancel(ctx)
	var both sync.WaitGroup
	order := make(chan *job, 1)
	var reading error
	both.Go(func() {
		defer close(order)
		if reading = a.read(inner, order); reading == nil {
			_, reading = io.Copy(io.Discard, a.body) // what stands behind the end of a form
		}
	})
	both.Go(func() {
		err := a.collect(order)
		if err == nil {
			err = reading // there is no more in order
		}
		if err == nil && a.report {
			err = a.tally.Report(a.out)
		}
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
		first, second, err := a.files()
		if err != nil {
			return err
		}
		defer first.Close()
		o.Open = func(name string) (io.ReadCloser, error) {
			if name == mates {
				return io.NopCloser(second), nil
			}
			return first, nil
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
func (a *answer) files() (first *os.File, second io.Reader, err error) {
	part, err := a.form.NextPart()
	if err == io.EOF {
		return nil, nil, refused(http.StatusBadRequest, "a form without files: want one of reads, or two of reads and mates")
	} else if err != nil {
		return nil, nil, formError(err)
	}
	if part.FormName() == "mates" {
		return nil, nil, errOrder
	}
	if first, err = temporary(); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			first.Close()
		}
	}()
	if _, err = io.Copy(first, part); err != nil {
		return nil, nil, formError(err)
	}
	if _, err = first.Seek(0, io.SeekStart); err != nil {
		return nil, nil, err
	}
	part, err = a.form.NextPart()
	if err == io.EOF {
		return first, nil, nil
	} else if err != nil {
		return nil, nil, formError(err)
	}
	return first, &lastPart{part, a.form}, nil
}

var errOrder = refused(http.StatusBadRequest, "a form that begins with mates: want reads first, then mates")

func formError(err error) error { return &genome.InputError{Input: "form", Err: err} }

// lastPart is a part of a form that nothing may follow.
type lastPart struct {
	part io.Reader
	form *multipart.Reader
}

func (p *lastPart) Read(to []byte) (int, error) {
	n, err := p.part.Read(to)
	if err == io.EOF {
		if _, more := p.form.NextPart(); more != io.EOF {
			err = refused(http.StatusBadRequest, "a form of more than two files: want one of reads, or two of reads and mates")
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
		return refused(http.StatusRequestEntityTooLarge, "more than %d letters, with names: send several requests", a.s.o.MaxBytes)
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
				return fmt.Errorf("the client takes no lines: %w", err)
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

// body is a request's, which gives up after a time without news, or with its context, and which nobody reads any more behind close.
type body struct {
	ctx     context.Context
	mu      sync.Mutex
	from    io.Reader
	rc      *http.ResponseController
	timeout time.Duration
	whole   bool // read to its end
	closed  atomic.Bool
}

var errClosed = errors.New("the request has ended")

func (b *body) Read(to []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	soon := time.Now().Add(b.timeout)
	if last, ok := b.ctx.Deadline(); ok && last.Before(soon) {
		soon = last
	}
	b.rc.SetReadDeadline(soon)
	if b.closed.Load() { // or close comes now, and its deadline with it
		return 0, errClosed
	}
	n, err := b.from.Read(to)
	if n > 0 { // a client that sends all before it reads is not one that never reads
		b.rc.SetWriteDeadline(time.Now().Add(b.timeout))
	}
	if err == io.EOF {
		b.whole = true
		b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// close waits until nobody reads, and lets nobody read any more.
func (b *body) close() {
	b.closed.Store(true)
	b.rc.SetReadDeadline(time.Unix(1, 0))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.whole {
		b.rc.SetReadDeadline(time.Time{})
	} else { // net/http reads on for a while: a client that is refused while it sends would not see the answer
		b.rc.SetReadDeadline(time.Now().Add(time.Second))
	}
}

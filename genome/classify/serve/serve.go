package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome/classify"
	"github.com/warpmap/warpmap/internal/crash"
)

// Options bound what clients can ask for. The zero value is good.
type Options struct {
	Requests   int           // most requests that are read at once; 0: 128
	Queue      int           // most requests that wait for a place; 0: 1024, −1: none. More are refused.
	MaxBytes   int64         // most bytes of a request's body as it is sent, and of its letters and names; 0: 1 GiB
	MaxLetters int           // most letters of a read; 0: 1 Mi
	Timeout    time.Duration // a client that takes and sends nothing for so long is given up; 0: 30 s
	MaxTime    time.Duration // most time for a request, including its wait for a place; 0: 10 min
	Grace      time.Duration // time for running requests to finish when the server ends; 0: 30 s
	Log        io.Writer     // gets a line for each request that the server could not finish; nil: no log

	// PerClient is how many requests of one address are read at once; 0: a quarter of Requests. An address has as large
	// a share of Queue, of MaxSpool, and of the connections. There may be four connections for each request that is
	// read or waits, and at least 1024, as far as the process may open files. A Unix socket has no such bound.
	PerClient int
	// MaxSpool bounds the bytes of all requests that wait for clients, in memory and in temporary files; 0: 4 GiB. If
	// there is no room, reading waits for clients.
	MaxSpool int64
	Hosts    []string     // names of this server that clients on this machine may use, beside localhost and its own
	Changed  func() error // is called from time to time to tell of changes to the database; its first error goes to Log
}

func (o *Options) complete() error {
	if o.Requests < 0 || o.Queue < -1 || o.MaxBytes < 0 || o.MaxLetters < 0 || o.Timeout < 0 || o.MaxTime < 0 ||
		o.Grace < 0 {
		return fmt.Errorf("%d requests, %d that wait, %d bytes, reads of %d letters, times of %v, %v and %v: want "+
			"none to be negative",
			o.Requests, o.Queue, o.MaxBytes, o.MaxLetters, o.Timeout, o.MaxTime, o.Grace)
	}
	if o.PerClient < 0 || o.MaxSpool < 0 {
		return fmt.Errorf("%d requests of a client, %d bytes that wait: want none to be negative", o.PerClient,
			o.MaxSpool)
	}
	o.Requests = cmp.Or(o.Requests, 128)
	o.PerClient = min(o.Requests, cmp.Or(o.PerClient, max(1, o.Requests/4)))
	o.MaxSpool = cmp.Or(o.MaxSpool, 4<<30)
	o.Queue = max(0, cmp.Or(o.Queue, 1024))
	o.MaxBytes = cmp.Or(o.MaxBytes, 1<<30)
	o.MaxLetters = cmp.Or(o.MaxLetters, 1<<20)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.MaxTime = cmp.Or(o.MaxTime, 10*time.Minute)
	o.Grace = cmp.Or(o.Grace, 30*time.Second)
	if o.Log == nil {
		o.Log = io.Discard
	}
	return nil
}

// Server answers requests with a Classifier.
type Server struct {
	c          *classify.Classifier
	o          Options
	log        *log.Logger
	blockBytes int
	batcher    *batcher
	gate       *gate
	crowd      *crowd
	budget     *budget
	metrics    metrics
	ending     atomic.Bool
	going      context.Context // done when nothing can go on: the device is lost, or the time for the end is over
	stop       context.CancelCauseFunc
}

var errEnded = refused(http.StatusServiceUnavailable, "the server ends")

// Bytes of a request's blocks, and of the device's batches.
const (
	cpuBlockBytes, cpuBatchBytes = 1 << 17, 1 << 21
	gpuBlockBytes, gpuBatchBytes = 1 << 20, 1 << 25
)

// New makes a Server. It starts no request before Serve. The caller closes the classifier, after Close. Errors: options
// out of range; the device's.
func New(c *classify.Classifier, d *device.Device, o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Server{c: c, o: o, log: log.New(o.Log, "", log.LstdFlags), blockBytes: cpuBlockBytes}
	s.budget, s.crowd = newBudget(o), newCrowd(o)
	s.gate = newGate(o, &s.metrics)
	s.metrics.spooled = s.budget.bytes
	batch := cpuBatchBytes
	if d.Info().CUDA() {
		s.blockBytes, batch = gpuBlockBytes, gpuBatchBytes
	}
	s.going, s.stop = context.WithCancelCause(context.Background())
	var err error
	s.batcher, err = newBatcher(c, batch, &s.metrics, s.stop)
	return s, err
}

// Close frees the device's memory. No request may be under way.
func (s *Server) Close() {
	s.stop(errEnded)
	s.batcher.close()
}

// Serve answers on all listeners until ctx is done. Then it takes no new requests, and running requests have
// Options.Grace to finish. It closes the listeners. Errors: a listener's; the device's, if it cannot go on.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	h := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: s.o.Timeout, ReadTimeout: s.o.Timeout,
		WriteTimeout: s.o.Timeout, IdleTimeout: 2 * s.o.Timeout,
		MaxHeaderBytes: 64 << 10, ErrorLog: s.log, ConnState: s.crowd.state}
	g, serving := crash.WithContext(ctx)
	for _, l := range listeners {
		g.Go(func() error {
			if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	g.Go(func() error { s.watch(serving); return nil })
	g.Go(func() error {
		select {
		case <-serving.Done():
		case <-s.going.Done():
		}
		s.ending.Store(true)
		grace, cancel := context.WithTimeout(context.Background(), s.o.Grace)
		defer cancel()
		if err := h.Shutdown(grace); err != nil {
			s.log.Printf("requests that were not done in %v are broken off", s.o.Grace)
			s.stop(errEnded)
			h.Close()
		}
		if err := context.Cause(s.going); err != errEnded {
			return err
		}
		return nil
	})
	err := g.Wait()
	s.gate.wait() // those that were broken off are on their way out
	return err
}

// watch tells once what has become of the database.
func (s *Server) watch(ctx context.Context) {
	if s.o.Changed == nil {
		return
	}
	for t := time.NewTicker(watchEvery); ; {
		select {
		case <-t.C:
			if err := s.o.Changed(); err != nil {
				s.metrics.changed.Store(1)
				s.log.Printf("%v: answers are still of what was loaded; end the server and start it again to have "+
					"what is there now", err)
				t.Stop()
				return
			}
		case <-ctx.Done():
			t.Stop()
			return
		case <-s.going.Done():
			t.Stop()
			return
		}
	}
}

// watchEvery is how often somebody looks after the database.
var watchEvery = 5 * time.Second

// Handler gives the handler that Serve uses, for a server of your own. That server must bound the time in which the
// headers of requests arrive.
func (s *Server) Handler() http.Handler {
	m := http.NewServeMux()
	foreign := http.NewCrossOriginProtection() // a page of somebody else has a browser here send requests
	foreign.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "a request that a page of another origin makes: want one that the user makes, as with curl",
			http.StatusForbidden)
	}))
	m.Handle("/classify", foreign.Handler(http.HandlerFunc(s.classify)))
	m.Handle("GET /metrics", &s.metrics)
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if s.ending.Load() || s.going.Err() != nil {
			http.Error(w, "ending", http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "ok\n")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answersTo(r, s.o.Hosts) {
			http.Error(w, fmt.Sprintf("host %.100q: on this address the server answers to localhost alone; ask for "+
				"that, or name the host when it is started, with --host", r.Host), http.StatusForbidden)
			return
		}
		m.ServeHTTP(w, r)
	})
}

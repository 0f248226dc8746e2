package redis

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
)

// metrics are what happened to a server.
type metrics struct {
	requests, errors     atomic.Int64
	connections, refused atomic.Int64
	// Connections that ended for bytes that are no requests, for their replies, and for their time.
	broken, overflows, expired atomic.Int64
	refusedPasswords, full     atomic.Int64
	rounds                     atomic.Int64
}

// Handler gives a handler of GET /metrics, in Prometheus's text format, and GET /healthz, which is 200 while the server
// serves and its log is written. That server must bound the time in which the headers of requests arrive.
func (s *Server) Handler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		switch err := s.space.Err(); {
		case s.ending.Load():
			http.Error(w, "ending", http.StatusServiceUnavailable)
		case err != nil:
			http.Error(w, "the log cannot be written: "+err.Error(), http.StatusServiceUnavailable)
		default:
			io.WriteString(w, "ok\n")
		}
	})
	m.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Write(s.figures())
	})
	return m
}

func (s *Server) figures() []byte {
	var b bytes.Buffer
	one := func(name, kind, help string, value any) {
		name = "warpmap_redis_" + name
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n%s %v\n", name, help, name, kind, name, value)
	}
	m, n := &s.metrics, s.space.Counts(false)
	at, saving, failed := s.space.Saved()
	most, _ := s.space.Bounds()
	one("requests_total", "counter", "Requests that were answered.", m.requests.Load())
	one("errors_total", "counter", "Answers that are errors.", m.errors.Load())
	one("rounds_total", "counter", "Times that a loop took what lay ready.", m.rounds.Load())
	one("connections", "gauge", "Connections that are open.", len(s.clients()))
	one("output_waiting_bytes", "gauge", "Bytes of replies that clients do not take.", s.waiting.Load())
	one("connections_total", "counter", "Connections that were taken.", m.connections.Load())
	one("connections_refused_total", "counter", "Connections above the bound.", m.refused.Load())
	one("protocol_errors_total", "counter", "Connections that ended for bytes that are no requests.", m.broken.Load())
	one("output_overflows_total", "counter", "Connections that ended for their replies.", m.overflows.Load())
	one("timeouts_total", "counter", "Connections that ended for their time.", m.expired.Load())
	one("wrong_passwords_total", "counter", "Passwords that were wrong.", m.refusedPasswords.Load())
	one("memory_refused_total", "counter", "Commands that found no memory.", m.full.Load())
	one("keys", "gauge", "Keys.", n.Keys)
	one("keys_expiring", "gauge", "Keys that expire.", n.Expiring)
	one("keys_watched", "gauge", "Keys that are watched for transactions.", n.Watched)
	one("keys_expired_total", "counter", "Keys that have expired.", n.Expired)
	one("keys_evicted_total", "counter", "Keys that went for want of memory.", n.Evicted)
	one("hits_total", "counter", "Keys that were looked up and found.", n.Hits)
	one("misses_total", "counter", "Keys that were looked up and not found.", n.Misses)
	one("memory_bytes", "gauge", "Memory of keys, values and indexes.", n.Allocated)
	one("memory_live_bytes", "gauge", "The part of it that keys use.", n.Live)
	one("memory_limit_bytes", "gauge", "Its bound; 0 for none.", most)
	one("last_save_seconds", "gauge", "When the last snapshot was made, in seconds since 1970.", at.Unix())
	one("saving", "gauge", "1 while a snapshot is made.", number(saving))
	one("last_save_failed", "gauge", "1 if the last snapshot failed.", number(failed))
	one("log_failing", "gauge", "1 while the log cannot be written.", number(s.space.Err() != nil))
	fmt.Fprintf(&b, "# HELP go_goroutines Goroutines of the process.\n# TYPE go_goroutines gauge\ngo_goroutines %d\n",
		runtime.NumGoroutine())
	return b.Bytes()
}

// forget sets what is counted back to 0.
func (m *metrics) forget() {
	for _, n := range []*atomic.Int64{&m.requests, &m.errors, &m.connections, &m.refused, &m.broken, &m.overflows,
		&m.expired, &m.refusedPasswords, &m.full, &m.rounds} {
		n.Store(0)
	}
}

package serve

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// metrics are what /metrics tells, in Prometheus's text format.
type metrics struct {
	reads, classified, letters, batches atomic.Int64
	active, waiting                     atomic.Int64
	changed                             atomic.Int64
	spooled                             func() int64

	mu       sync.Mutex
	statuses [600]int64
	buckets  [len(secondBounds)]int64 // requests by their time
	requests int64
	seconds  float64
}

var secondBounds = [...]float64{0.005, 0.02, 0.1, 0.5, 2, 10, 60, 600}

// statusBroken counts requests whose connection broke off behind the first line.
const statusBroken = 599

func (m *metrics) done(status int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.statuses[status]++
	m.requests++
	m.seconds += took.Seconds()
	for i, bound := range secondBounds {
		if took.Seconds() <= bound {
			m.buckets[i]++
		}
	}
}

func (m *metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	family := func(name, kind, help string) { fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind) }
	one := func(name, kind, help string, value int64) {
		family(name, kind, help)
		fmt.Fprintf(&b, "%s %d\n", name, value)
	}
	one("warpmap_reads_total", "counter", "Reads, or pairs, that have verdicts.", m.reads.Load())
	one("warpmap_reads_classified_total", "counter", "Reads, or pairs, that have a taxon.", m.classified.Load())
	one("warpmap_letters_total", "counter", "Letters of these reads.", m.letters.Load())
	one("warpmap_batches_total", "counter", "Batches that the device has classified.", m.batches.Load())
	one("warpmap_requests_active", "gauge", "Requests that have a place.", m.active.Load())
	one("warpmap_requests_waiting", "gauge", "Requests that wait for a place.", m.waiting.Load())
	one("warpmap_spool_bytes", "gauge", "Bytes that wait for clients, in memory and in temporary files.", m.spooled())
	one("warpmap_database_changed", "gauge", "1 where the database's file is no more what was loaded.",
		m.changed.Load())
	m.mu.Lock()
	family("warpmap_requests_total", "counter",
		"Requests to classify, by status; broken are those that broke off behind the first line.")
	for status, n := range m.statuses {
		if n > 0 {
			code := strconv.Itoa(status)
			if status == statusBroken {
				code = "broken"
			}
			fmt.Fprintf(&b, "warpmap_requests_total{code=%q} %d\n", code, n)
		}
	}
	family("warpmap_request_seconds", "histogram", "Time of requests to classify, from their head to their last line.")
	for i, bound := range secondBounds {
		fmt.Fprintf(&b, "warpmap_request_seconds_bucket{le=\"%g\"} %d\n", bound, m.buckets[i])
	}
	fmt.Fprintf(&b, "warpmap_request_seconds_bucket{le=\"+Inf\"} %d\nwarpmap_request_seconds_sum "+
		"%g\nwarpmap_request_seconds_count %d\n", m.requests, m.seconds, m.requests)
	m.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Write(b.Bytes())
}

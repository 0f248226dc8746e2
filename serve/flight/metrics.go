package flight

import (
	"fmt"
	"io"
	"sync/atomic"
)

// metrics are what happened to a server.
type metrics struct {
	calls, failed, open  atomic.Int64
	connections, refused atomic.Int64
	strangers, expired   atomic.Int64
	found, put           atomic.Int64
}

// WriteMetrics writes figures in Prometheus's text format. Errors: the writer's. Cost: each table's Len.
func (s *Server) WriteMetrics(w io.Writer) (err error) {
	one := func(name, kind, help string, value any) {
		if err == nil {
			name = "warpmap_flight_" + name
			_, err = fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s %v\n", name, help, name, kind, name, value)
		}
	}
	m := &s.metrics
	one("calls_total", "counter", "Calls that were begun.", m.calls.Load())
	one("calls_failed_total", "counter", "Calls that ended with an error.", m.failed.Load())
	one("calls", "gauge", "Calls that are under way.", m.open.Load())
	one("connections_total", "counter", "Connections that were taken.", m.connections.Load())
	one("connections_refused_total", "counter", "Connections above the bound.", m.refused.Load())
	one("strangers_total", "counter", "Calls without the token or the password.", m.strangers.Load())
	one("timeouts_total", "counter", "Calls that ended for their time, and connections of strangers.", m.expired.Load())
	one("rows_found_total", "counter", "Rows that were looked up.", m.found.Load())
	one("rows_put_total", "counter", "Rows that were written.", m.put.Load())
	one("export_bytes", "gauge", "Bytes of exports that wait for clients.", s.exports.Load())
	one("host_bytes", "gauge", "Bytes of value columns in host memory.", s.tables.budget.Used())
	one("last_save_seconds", "gauge", "When the last snapshots were made, in seconds since 1970.",
		s.tables.saved.Load())
	number := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	one("last_save_failed", "gauge", "1 if the last snapshots failed.", number(s.tables.failed.Load()))
	logged, _ := s.tables.logged()
	one("log_bytes", "gauge", "Bytes of the log.", logged)
	one("log_failing", "gauge", "1 while the log cannot be written.", number(s.Err() != nil))
	help := "# HELP warpmap_flight_rows Rows of a table.\n# TYPE warpmap_flight_rows gauge\n"
	for _, e := range s.tables.list() {
		n, failed := e.Rows()
		if failed != nil || err != nil {
			continue
		}
		_, err = fmt.Fprintf(w, "%swarpmap_flight_rows{table=%q} %d\n", help, e.Schema().Name, n)
		help = ""
	}
	return err
}

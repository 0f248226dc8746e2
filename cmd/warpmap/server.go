package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	classify "github.com/warpmap/warpmap/genome/classify/serve"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/serve/flight"
)

const serveTablesLong = `serve serves tables to clients of Arrow Flight, such as pyarrow: columns of keys go in, and
columns of values come out. Each --table is made of a file in a format that join reads, of a snapshot, or is empty with
--schema; --key, --value, --schema and --family are of the --table before them. Tables are on --device, or spread over
--devices. docs/serve.md has more.

--flight listens on this machine alone, as in 127.0.0.1:8815. Another address needs --tls-cert, --tls-key and
--password-file, or --insecure, where the network itself keeps strangers away.

Without --data everything is in memory only. With it, --save makes snapshots while serving, and --log keeps a log: after
a crash, what was acknowledged under --log always is there, and under everysec all but the last second or two. On
SIGTERM calls end, and the last snapshot and the log are written. On a full disk that is tried until there is room, or
another signal comes.

--http serves /metrics for Prometheus, and /healthz.`

const serveTablesExample = `  warpmap serve --flight 127.0.0.1:8815 --table prices=prices.parquet --key id
  warpmap serve --flight-socket /run/warpmap.sock --table seen --schema user:utf8,day:date32,n:int64 --key user,day
  warpmap serve --flight 127.0.0.1:8815 --device cuda:0 --data /var/lib/warpmap --save every=60s --log everysec \
    --http 127.0.0.1:9121 --table prices=prices.parquet --key id
  warpmap serve --flight :8815 --tls-cert server.crt --tls-key server.key --password-file /etc/warpmap/password \
    --table prices=prices.parquet --key id

` + exitCodes

func serveCommand() *cobra.Command {
	var s flightFlags
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Serve tables to clients of Arrow Flight",
		Long:    serveTablesLong,
		Example: serveTablesExample,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	s.serverFlags(cmd)
	s.flags(cmd)
	return cmd
}

// serverFlags are the flags of files, of passwords and of figures.
func (s *flightFlags) serverFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.http, "http", "", "address for /metrics and /healthz; empty for none")
	f.StringVar(&s.folder, "data", "", "folder for snapshots and logs, which are read at the start")
	f.StringVar(&s.save, "save", "", "make snapshots: every=60s, and at the end")
	f.StringVar(&s.log, "log", "", "keep a log in --data, and write it to the disk always, everysec or no")
	f.BoolVar(&s.o.Repair, "repair", false, "cut a log where it is damaged, and lose what follows")
	f.StringVar(&s.password, "password-file", "", "file with the password that clients must say")
	f.StringVar(&s.cert, "tls-cert", "", "certificate, in PEM: --flight is TLS then")
	f.StringVar(&s.key, "tls-key", "", "its key, in PEM")
	f.BoolVar(&s.insecure, "insecure", false, "listen on other addresses without TLS or password")
	f.DurationVar(&s.o.Timeout, "timeout", time.Minute, "give up a client that takes no replies for so long, or "+
		"sends nothing in a new call, or has not said the password")
	f.DurationVar(&s.o.Idle, "idle", 0, "give up a call in which nothing is sent for so long; 0 for 10 minutes")
	f.BoolVarP(&s.quiet, "quiet", "q", false, "no messages")
}

// checkServer completes the options by the flags of serverFlags. Errors: flags that do not fit.
func (s *flightFlags) checkServer() error {
	switch s.log {
	case "":
	case "always":
		s.o.Fsync = flight.FsyncAlways
	case "everysec":
		s.o.Fsync = flight.FsyncEverySecond
	case "no":
		s.o.Fsync = flight.FsyncNever
	default:
		return fmt.Errorf("--log %q: want always, everysec or no", s.log)
	}
	if s.save != "" {
		every, is := strings.CutPrefix(s.save, "every=")
		var err error
		if s.o.Save, err = time.ParseDuration(every); err != nil || !is || s.o.Save <= 0 {
			return fmt.Errorf("--save %q: want every= and a time, such as every=60s", s.save)
		}
	}
	if s.folder == "" && (s.log != "" || s.save != "") {
		return errors.New("--log or --save without --data: want a folder for the files")
	}
	if (s.cert == "") != (s.key == "") {
		return errors.New("--tls-cert and --tls-key: want both or none")
	}
	if s.o.Timeout <= 0 || s.o.Idle < 0 {
		return fmt.Errorf("--timeout %v, --idle %v: want more than 0, of --idle 0 or more", s.o.Timeout, s.o.Idle)
	}
	return nil
}

// checkAddresses refuses to be heard by strangers.
func (s *flightFlags) checkAddresses() error {
	if s.insecure {
		return nil
	}
	if s.listen != "" && !onlyHere(s.listen) && (s.cert == "" || s.password == "") {
		return fmt.Errorf("--flight %s: others can reach this address: want --tls-cert, --tls-key and --password-file "+
			"too, or --insecure where the network keeps strangers away", s.listen)
	}
	if s.http != "" && !onlyHere(s.http) {
		return fmt.Errorf("--http %s: others can reach this address: want one of this machine alone, or --insecure "+
			"where the network keeps strangers away", s.http)
	}
	return nil
}

// onlyHere reports whether other machines cannot reach any address of a name. It is true for a text that is no address:
// listening on that fails.
func onlyHere(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true
	}
	if host == "" {
		return false
	}
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	all, err := net.LookupIP(host)
	for _, ip := range all {
		if !ip.IsLoopback() {
			return false
		}
	}
	return err == nil
}

// readPassword reads the password's file, whose last line break is not of it.
func (s *flightFlags) readPassword() error {
	if s.password == "" {
		return nil
	}
	text, err := os.ReadFile(s.password)
	if err != nil {
		return fmt.Errorf("--password-file: %w", err)
	}
	s.o.Token = string(bytes.TrimRight(text, "\r\n"))
	if s.o.Token == "" {
		return fmt.Errorf("--password-file %s: it is empty", s.password)
	}
	return nil
}

func (s *flightFlags) run(cmd *cobra.Command) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := s.readPassword(); err != nil {
		return err
	}
	to := cmd.ErrOrStderr()
	if s.quiet {
		to = io.Discard
	}
	s.o.Log = log.New(to, "", log.LstdFlags)
	if jsonFlag(cmd) {
		s.o.Log = slog.NewLogLogger(slog.NewJSONHandler(to, nil), slog.LevelInfo)
	}
	s.o.Retry = retry(s.o.Log)
	web, err := s.web()
	if err != nil {
		return err
	}
	if web != nil {
		defer web.Close()
	}
	// Columns in host memory have no pointers to follow: it costs little to collect garbage more often than usual, and
	// garbage would take as much memory as they do.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
	tables, err := s.open(cmd)
	if err != nil {
		return err
	}
	finishes.Store(true) // before anybody hears that it listens, and sends a signal
	for _, l := range tables.listeners {
		s.o.Log.Printf("listening on %s for Flight", l.Addr())
	}
	return errors.Join(s.serve(cmd.Context(), tables, web), tables.close())
}

// retry returns Options.Retry of a server, which keeps its data in memory until the disk takes it.
func retry(to *log.Logger) func(error) bool {
	var said time.Time
	return func(err error) bool {
		if time.Since(said) >= 10*time.Second {
			said = time.Now()
			to.Printf("what no file has stays in memory until it can be written, or another signal comes: %v", err)
		}
		time.Sleep(time.Second)
		return true
	}
}

// serve answers until ctx is done.
func (s *flightFlags) serve(ctx context.Context, tables *flights, web net.Listener) error {
	if web == nil {
		return tables.Serve(ctx, tables.listeners...)
	}
	g, serving := crash.WithContext(ctx)
	s.o.Log.Printf("listening on http://%s/metrics", web.Addr())
	h := &http.Server{Handler: tables.handler(serving), ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: s.o.Log}
	g.Go(func() error {
		if err := h.Serve(web); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		defer h.Close() // the last to go: /healthz says that the server ends
		return tables.Serve(serving, tables.listeners...)
	})
	return g.Wait()
}

// handler returns a handler of GET /metrics, in Prometheus's text format, and GET /healthz, which is 200 while the
// server serves and its log is written.
func (f *flights) handler(serving context.Context) http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		switch err := f.Err(); {
		case err != nil:
			http.Error(w, "the log of tables cannot be written: "+err.Error(), http.StatusServiceUnavailable)
		case serving.Err() != nil:
			http.Error(w, "ending", http.StatusServiceUnavailable)
		default:
			io.WriteString(w, "ok\n")
		}
	})
	m.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		fmt.Fprintf(w, "# HELP go_goroutines Goroutines of the process.\n# TYPE go_goroutines gauge\n"+
			"go_goroutines %d\n", runtime.NumGoroutine())
		f.WriteMetrics(w)
	})
	return m
}

func (s *flightFlags) web() (net.Listener, error) {
	if s.http == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", s.http)
	if err != nil {
		return nil, fmt.Errorf("--http: %w", err)
	}
	return &bounded{l, make(chan struct{}, mostWeb)}, nil
}

// mostWeb is how many connections for figures there are at most: each takes a file, which clients need.
const mostWeb = 256

// bounded is a listener of as many connections at once as there are places. It closes more at once.
type bounded struct {
	net.Listener
	places chan struct{}
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.places <- struct{}{}:
			return &placed{c, sync.OnceFunc(func() { <-b.places })}, nil
		default:
			c.Close()
		}
	}
}

// placed is a connection that gives its place back when it is closed.
type placed struct {
	net.Conn
	leave func()
}

func (p *placed) Close() error {
	p.leave()
	return p.Conn.Close()
}

// listeners listens at the address of --flight, with TLS if there is a certificate, and on the socket of
// --flight-socket, if these are not empty. On an error it returns the listeners before it.
func (s *flightFlags) listeners() (all []net.Listener, err error) {
	if s.listen != "" {
		l, err := net.Listen("tcp", s.listen)
		if err != nil {
			return all, fmt.Errorf("--flight: %w", err)
		}
		if s.cert != "" {
			pair, err := tls.LoadX509KeyPair(s.cert, s.key)
			if err != nil {
				l.Close()
				return all, fmt.Errorf("--tls-cert: %w", err)
			}
			l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
				NextProtos: []string{"h2"}})
		}
		all = append(all, l)
	}
	if s.socket != "" {
		l, err := classify.ListenUnix(s.socket)
		if err != nil {
			return all, fmt.Errorf("--flight-socket: %w", err)
		}
		all = append(all, l)
	}
	return all, nil
}

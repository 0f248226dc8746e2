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
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	classify "github.com/warpmap/warpmap/genome/classify/serve"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/serve/redis"
)

const serveKeysLong = `serve holds strings under keys, in host memory, for clients of Redis (RESP2 and RESP3), such as
redis-cli, redis-py and go-redis. Commands are GET, SET and their kin, counters, times to live, transactions, SCAN,
PFADD, and filters (BF.ADD, CF.ADD). Replies are those of Redis 7, and what is not there is an unknown command. COMMAND
LIST lists all.

It listens on this machine alone. Another address needs --tls-cert, --tls-key and --password-file, or --insecure, where
the network itself keeps strangers away. Without --data everything is in memory only. With it, --save makes snapshots
while serving, and --log keeps a log: after a crash, what was acknowledged under --log always is there, and under
everysec all but the last second or two. On SIGTERM requests end, and the last snapshot and the log are written. On a
full disk that is tried until there is room, or another signal comes.

--flight serves tables to clients of Arrow Flight, such as pyarrow: columns of keys go in, and columns of values come
out. Each --table is made of a file in a format that join reads, of a snapshot, or is empty with --schema; --key,
--value, --schema and --family are of the --table before them. Tables are on --device, or spread over --devices. --save
and --log are for them, too. docs/serve.md has more.

--http serves /metrics for Prometheus, and /healthz. At --memory commands that need memory get an error. With --policy
allkeys-lru keys go instead that were not used for long.`

const serveKeysExample = `  warpmap serve
  redis-cli set answer 42 ex 60
  warpmap serve --data /var/lib/warpmap --save every=60s --log everysec --memory 4GB --http 127.0.0.1:9121
  warpmap serve --redis '' --socket /run/warpmap.sock --policy allkeys-lru --memory 500MB
  warpmap serve --flight 127.0.0.1:8815 --table prices=prices.parquet --key id --value price,name
  warpmap serve --redis '' --flight 127.0.0.1:8815 --device cuda:0 --data /var/lib/warpmap --log everysec \
    --table prices=prices.parquet --key id --table seen --schema user:utf8,day:date32,n:int64 --key user,day
  warpmap serve --redis :6379 --tls-cert server.crt --tls-key server.key --password-file /etc/warpmap/password

` + exitCodes

// keyFlags are those of a server of keys.
type keyFlags struct {
	o                   redis.Options
	listen, socket      string
	http                string
	save, log, policy   string
	password, cert, key string
	insecure, quiet     bool
	bulk, request, out  int64
	flights             flightFlags
}

func serveCommand() *cobra.Command {
	var s keyFlags
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Hold keys and values for clients of Redis, and tables for those of Arrow Flight",
		Long:    serveKeysLong,
		Example: serveKeysExample,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	s.flags(cmd)
	return cmd
}

func (s *keyFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.listen, "redis", "127.0.0.1:6379", "address for clients of Redis; empty for none, :6379 for all "+
		"the machine's")
	f.StringVar(&s.socket, "socket", "", "name for a Unix socket, with mode 0600")
	f.StringVar(&s.http, "http", "", "address for /metrics and /healthz; empty for none")
	f.Var(&size{&s.o.MaxMemory}, "memory", "most bytes of keys, values and indexes, such as 4GB; left out, no "+
		"bound. A quarter is for what is dead")
	f.StringVar(&s.policy, "policy", "noeviction", "what happens at --memory: noeviction or allkeys-lru")
	f.StringVar(&s.o.Folder, "data", "", "folder for snapshots and logs, which are read at the start")
	f.StringVar(&s.save, "save", "", "make snapshots: every=60s, and at the end")
	f.StringVar(&s.log, "log", "", "keep a log in --data, and bring it to the disk always, everysec or no")
	f.BoolVar(&s.o.Repair, "repair", false, "cut a log where it is damaged, and lose what stands behind")
	f.StringVar(&s.password, "password-file", "", "file with the password that clients must say")
	f.StringVar(&s.cert, "tls-cert", "", "certificate, in PEM: --redis is TLS then")
	f.StringVar(&s.key, "tls-key", "", "its key, in PEM")
	f.BoolVar(&s.insecure, "insecure", false, "listen on other addresses without TLS or password")
	f.IntVar(&s.o.Clients, "clients", 10_000, "most connections at once")
	f.Var(&size{&s.bulk}, "max-bulk", "most bytes of a key or value; left out, 512 MiB")
	f.Var(&size{&s.request}, "max-request", "most bytes of a request; left out, 1 GiB")
	f.Var(&size{&s.out}, "max-output", "most bytes of replies that wait for a client; left out, 1 GiB")
	f.DurationVar(&s.o.Timeout, "timeout", time.Minute, "give up a client that takes no replies for so long, or "+
		"leaves a request half sent, or has not said the password")
	f.DurationVar(&s.o.Idle, "idle", 0, "give up a client that asks for nothing for so long; 0 for never")
	f.IntVar(&s.o.Loops, "threads", 0, "answer with so many threads; 0 for one for every two cores")
	f.BoolVarP(&s.quiet, "quiet", "q", false, "no messages")
	s.flights.flags(cmd)
}

// check completes the options, or tells of flags that say nothing that can be done.
func (s *keyFlags) check() error {
	if s.listen == "" && s.socket == "" && !s.flights.asked() {
		return errors.New("--redis '' without --socket or --flight: want one to listen on")
	}
	switch s.policy {
	case "noeviction":
	case "allkeys-lru":
		s.o.Policy = redis.LRU
	default:
		return fmt.Errorf("--policy %q: want noeviction or allkeys-lru", s.policy)
	}
	switch s.log {
	case "":
	case "always":
		s.o.Fsync = redis.FsyncAlways
	case "everysec":
		s.o.Fsync = redis.FsyncEverySecond
	case "no":
		s.o.Fsync = redis.FsyncNever
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
	if s.o.Folder == "" && (s.log != "" || s.save != "") {
		return errors.New("--log or --save without --data: want a folder for the files")
	}
	if (s.cert == "") != (s.key == "") {
		return errors.New("--tls-cert and --tls-key: want both or none")
	}
	for _, n := range []*int64{&s.bulk, &s.request, &s.out, &s.o.MaxMemory} {
		if *n < 0 {
			return fmt.Errorf("--memory, --max-bulk, --max-request or --max-output of %d: want a size, such as 2GB", *n)
		}
	}
	if s.o.Loops > crash.MostThreads {
		return fmt.Errorf("--threads %d: want 1 to %d, or 0 for one for every two cores", s.o.Loops, crash.MostThreads)
	}
	if s.o.Clients < 1 || s.o.Timeout <= 0 || s.o.Idle < 0 || s.o.Loops < 0 {
		return fmt.Errorf("--clients %d, --timeout %v, --idle %v, --threads %d: want more than 0, of --idle and "+
			"--threads 0 or more", s.o.Clients, s.o.Timeout, s.o.Idle, s.o.Loops)
	}
	s.o.Bulk, s.o.Request, s.o.Output = int(s.bulk), int(s.request), int(s.out)
	if err := s.flights.check(s); err != nil {
		return err
	}
	return s.checkAddresses()
}

// checkAddresses refuses to be heard by strangers.
func (s *keyFlags) checkAddresses() error {
	if s.insecure {
		return nil
	}
	if s.listen != "" && !onlyHere(s.listen) && (s.cert == "" || s.password == "") {
		return fmt.Errorf("--redis %s: others can reach this address: want --tls-cert, --tls-key and --password-file "+
			"too, or --insecure where the network keeps strangers away", s.listen)
	}
	if s.http != "" && !onlyHere(s.http) {
		return fmt.Errorf("--http %s: others can reach this address: want one of this machine alone, or --insecure "+
			"where the network keeps strangers away", s.http)
	}
	return nil
}

// onlyHere tells whether all addresses of a name are of this machine alone. What is none is told when it is listened
// on.
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
func (s *keyFlags) readPassword() error {
	if s.password == "" {
		return nil
	}
	text, err := os.ReadFile(s.password)
	if err != nil {
		return fmt.Errorf("--password-file: %w", err)
	}
	s.o.Password = string(bytes.TrimRight(text, "\r\n"))
	if s.o.Password == "" {
		return fmt.Errorf("--password-file %s: it is empty", s.password)
	}
	return nil
}

func (s *keyFlags) run(cmd *cobra.Command) error {
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
	listeners, err := s.listeners()
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	if err != nil {
		return err
	}
	web, err := s.web()
	if err != nil {
		return err
	}
	if web != nil {
		defer web.Close()
	}
	s.collect()
	begin := time.Now()
	server, err := redis.New(s.o)
	if err != nil {
		return err
	}
	if s.o.Folder != "" {
		s.o.Log.Printf("%d keys loaded in %v", server.Len(), time.Since(begin).Round(time.Millisecond))
	}
	tables, err := s.flights.open(cmd, s)
	if err != nil {
		return errors.Join(err, server.Close())
	}
	finishes.Store(true) // before anybody hears that it listens, and sends a signal
	for _, l := range listeners {
		s.o.Log.Printf("listening on %s", l.Addr())
	}
	tables.tell(s.o.Log)
	return errors.Join(s.serve(cmd.Context(), server, tables, listeners, web), tables.close(), server.Close())
}

// retry is Options.Retry of servers: what they have stays in memory until the disk takes it.
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

// collect has Go collect garbage more often than it would: keys and values have no pointers to follow, so that costs
// little, and what is dead otherwise takes as much memory as they do. Beside tables --memory is no bound of what Go
// has, and would have it collect again and again.
func (s *keyFlags) collect() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
	if s.o.MaxMemory > 0 && !s.flights.asked() && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(s.o.MaxMemory + s.o.MaxMemory/8 + 64<<20)
	}
}

// serve answers until ctx is done.
func (s *keyFlags) serve(ctx context.Context, server *redis.Server, tables *flights, listeners []net.Listener,
	web net.Listener) error {
	if web == nil && tables == nil {
		return server.Serve(ctx, listeners...)
	}
	g, serving := crash.WithContext(ctx)
	if tables != nil {
		g.Go(func() error { return tables.Serve(serving, tables.listeners...) })
	}
	if web == nil {
		g.Go(func() error { return server.Serve(serving, listeners...) })
		return g.Wait()
	}
	s.o.Log.Printf("listening on http://%s/metrics", web.Addr())
	h := &http.Server{Handler: handler(server, tables), ReadHeaderTimeout: 10 * time.Second,
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
		return server.Serve(serving, listeners...)
	})
	return g.Wait()
}

// handler has the figures of tables behind those of keys, and the health of both.
func handler(server *redis.Server, tables *flights) http.Handler {
	if tables == nil {
		return server.Handler()
	}
	m := http.NewServeMux()
	m.Handle("/", server.Handler())
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		if err := tables.Err(); err != nil {
			http.Error(w, "the log of tables cannot be written: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		server.Handler().ServeHTTP(w, r)
	})
	m.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		server.Handler().ServeHTTP(w, r)
		tables.WriteMetrics(w)
	})
	return m
}

func (s *keyFlags) web() (net.Listener, error) {
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

// listeners are those that the flags name; on an error, those before it.
func (s *keyFlags) listeners() ([]net.Listener, error) {
	return s.listenAt("--redis", s.listen, "--socket", s.socket)
}

// listenAt listens at an address, with TLS where there is a certificate, and on a socket, where these are not empty:
// what flags of those names say. protocols are those within TLS. On an error it gives the listeners before it.
func (s *keyFlags) listenAt(flag, address, socketFlag, socket string, protocols ...string) (
	all []net.Listener, err error) {
	if address != "" {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return all, fmt.Errorf("%s: %w", flag, err)
		}
		if s.cert != "" {
			pair, err := tls.LoadX509KeyPair(s.cert, s.key)
			if err != nil {
				l.Close()
				return all, fmt.Errorf("--tls-cert: %w", err)
			}
			l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
				NextProtos: protocols})
		}
		all = append(all, l)
	}
	if socket != "" {
		l, err := classify.ListenUnix(socket)
		if err != nil {
			return all, fmt.Errorf("%s: %w", socketFlag, err)
		}
		all = append(all, l)
	}
	return all, nil
}

package main

import (
	"fmt"
	"io"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/genome/classify"
	"github.com/warpmap/warpmap/genome/classify/serve"
)

const serveLong = `serve loads a database once, and classifies what clients send: FASTA or FASTQ, plain or packed with
gzip or zstd.

POST /classify answers with lines, as of query, while reads are still coming; with ?format=metacache with those of
MetaCache, with ?format=report with a report in Kraken's format. With ?paired=true mates take turns; a form with two
files is reads and their mates. GET /healthz says whether it serves, GET /metrics has figures for Prometheus. Reads of
many requests go to the device together.

Status 400 is for what is no FASTA or FASTQ, 408 for clients that stop sending, 413 for what is too large, 429 and 503
with Retry-After where too many requests of a client, or of all, wait. Lines that a client does not take wait for it, as
far as --spool allows; then its reads wait. On this machine's own addresses the server answers to localhost, to the
machine's name, and to those of --host alone. DB may be replaced while it is served: a line tells so, and answers are of
what was loaded. After a signal, what has begun is finished; a second signal ends that.`

const serveExample = `  warpmap classify serve refs.db
  warpmap classify serve refs.db --listen '' --socket /run/warpmap.sock --lowest species
  curl --data-binary @reads.fastq.gz localhost:8080/classify > verdicts.tsv
  curl -F reads=@sample_1.fq.gz -F mates=@sample_2.fq.gz 'localhost:8080/classify?format=report'
  curl --unix-socket /run/warpmap.sock --data-binary @reads.fa http://warpmap/classify

` + exitCodes

// serveFlags are those of a server.
type serveFlags struct {
	v              verdictFlags
	over           several
	o              serve.Options
	listen, socket string
	quiet          bool
}

func classifyServeCommand() *cobra.Command {
	var s serveFlags
	cmd := &cobra.Command{
		Use:     "serve DB",
		Short:   "Classify reads for clients, over HTTP or a Unix socket",
		Long:    serveLong,
		Example: serveExample,
		Args:    cobra.ExactArgs(1),
		RunE:    s.run,
	}
	s.flags(cmd)
	return cmd
}

// check tells of flags that say nothing that can be done.
func (s *serveFlags) check() error {
	if s.listen == "" && s.socket == "" {
		return fmt.Errorf("--listen '' without --socket: want one to listen on")
	}
	if s.o.Requests < 1 || s.o.MaxLetters < 1 || s.o.Timeout <= 0 || s.o.Queue < 0 {
		return fmt.Errorf(
			"--requests %d, --max-read %d, --timeout %v, --queue %d: want more than 0, of --queue 0 or more",
			s.o.Requests, s.o.MaxLetters, s.o.Timeout, s.o.Queue)
	}
	if s.o.MaxBytes < 0 || s.o.MaxTime < 0 || s.o.Grace < 0 {
		return fmt.Errorf("--max-request %d, --max-time %v, --grace %v: want 0 or more", s.o.MaxBytes, s.o.MaxTime,
			s.o.Grace)
	}
	if s.o.Queue == 0 {
		s.o.Queue = -1
	}
	if s.o.PerClient < 0 || s.o.PerClient > s.o.Requests || s.o.MaxSpool < 0 {
		return fmt.Errorf("--per-client %d, --spool %d: want 0 or more, and no more than --requests", s.o.PerClient,
			s.o.MaxSpool)
	}
	return nil
}

func (s *serveFlags) run(cmd *cobra.Command, args []string) error {
	q, err := s.v.options()
	if err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	if s.quiet {
		cmd.SetErr(io.Discard)
	}
	s.o.Log = cmd.ErrOrStderr()
	devices, closeAll, err := s.over.openOr(cmd)
	if err != nil {
		return err
	}
	defer closeAll()
	begin := time.Now()
	db, err := classify.Open(args[0])
	if err != nil {
		return err
	}
	defer db.Close()
	s.o.Changed = db.Changed
	c, err := classify.NewClassifier(devices[0], db, q, devices[1:]...)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Load(); err != nil { // what comes later must not be an error of requests
		return err
	}
	server, err := serve.New(c, devices[0], s.o)
	if err != nil {
		return err
	}
	defer server.Close()
	fmt.Fprintf(cmd.ErrOrStderr(), "loaded in %v\n", time.Since(begin).Round(time.Millisecond))
	listeners, err := s.listeners(cmd)
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	if err != nil {
		return err
	}
	finishes.Store(true)
	return server.Serve(cmd.Context(), listeners...)
}

// listeners are those that the flags name; on an error, those before it.
func (s *serveFlags) listeners(cmd *cobra.Command) (all []net.Listener, err error) {
	if s.listen != "" {
		l, err := net.Listen("tcp", s.listen)
		if err != nil {
			return all, fmt.Errorf("--listen: %w", err)
		}
		all = append(all, l)
		fmt.Fprintf(cmd.ErrOrStderr(), "listening on http://%s/classify\n", l.Addr())
	}
	if s.socket != "" {
		l, err := serve.ListenUnix(s.socket)
		if err != nil {
			return all, fmt.Errorf("--socket: %w", err)
		}
		all = append(all, l)
		fmt.Fprintf(cmd.ErrOrStderr(), "listening on %s\n", s.socket)
	}
	return all, nil
}

func (s *serveFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.listen, "listen", "127.0.0.1:8080", "address for HTTP; empty for none, :8080 for all the machine's")
	f.StringVar(&s.socket, "socket", "", "name for a Unix socket, with mode 0600")
	f.IntVar(&s.o.Requests, "requests", 128, "requests that are read at once")
	f.IntVar(&s.o.Queue, "queue", 1024, "requests that wait for a place; more are refused")
	f.IntVar(&s.o.PerClient, "per-client", 0, "requests of one address that are read at once, and as large a share "+
		"of --queue and --spool; 0 for a quarter. Raise it behind a proxy")
	f.Var(&size{&s.o.MaxSpool}, "spool", "most bytes that wait for clients, in memory and in the folder that TMPDIR "+
		"names, such as 500MB; left out, 4 GiB")
	f.StringSliceVar(&s.o.Hosts, "host", nil, "names that clients on this machine may call the server by, beside "+
		"localhost and the machine's, such as a proxy's")
	f.Var(&size{&s.o.MaxBytes}, "max-request", "most bytes of a request, such as 500MB; left out, 1 GiB")
	f.IntVar(&s.o.MaxLetters, "max-read", 1<<20, "most letters of a read")
	f.DurationVar(&s.o.Timeout, "timeout", 30*time.Second,
		"give up a client that takes and sends next to nothing for so long; an eighth of it where others wait")
	f.DurationVar(&s.o.MaxTime, "max-time", 10*time.Minute, "give up a request that takes so long")
	f.DurationVar(&s.o.Grace, "grace", 30*time.Second, "time for what has begun, after a signal")
	f.BoolVarP(&s.quiet, "quiet", "q", false, "no messages")
	s.v.add(cmd)
	s.over.flags(cmd)
}

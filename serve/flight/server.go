package flight

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	wire "github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/columnar"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/journal"
	"github.com/warpmap/warpmap/table"
)

// DamagedError says what is wrong with a file of Options.Folder.
type DamagedError = columnar.DamagedError

// Server serves tables. Make one with New.
type Server struct {
	wire.BaseFlightServer
	o       Options
	tables  tables
	session string // the token of clients that have said the password
	metrics metrics
	exports atomic.Int64 // bytes that wait for clients
	ending  chan struct{}
	end     sync.Once
	over    crash.WaitGroup // calls
}

// New makes a server of the tables in Options.Folder, or of none. The caller closes it. Cost: reading them, and the
// log. Errors: options out of range; the system's; *DamagedError and *DamagedLogError; those of tables; a folder that
// another process uses.
func New(ctx context.Context, o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Server{o: o, ending: make(chan struct{})}
	s.tables = tables{o: &s.o, all: map[string]*entry{}, making: map[string]bool{},
		left: map[string]bool{}}
	s.tables.budget.Most = o.Memory
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return nil, err
	}
	s.session = hex.EncodeToString(secret[:])
	if err := s.tables.read(ctx); err != nil {
		s.tables.close()
		return nil, err
	}
	return s, nil
}

// Has tells whether there is a table of the name, such as one of Options.Folder. Errors: it is another than the spec
// says, by its keys, or by its columns where the spec has them.
func (s *Server) Has(spec Spec) (bool, error) {
	e, err := s.tables.get(spec.Name)
	if err != nil {
		return false, nil
	}
	have := e.Schema()
	same := spec.Keys == nil || slices.EqualFunc(have.Keys, spec.Keys, named)
	same = same && (spec.Values == nil || slices.EqualFunc(have.Values, spec.Values, named))
	if same && spec.Columns != "" {
		columns, err := columnar.Parse(spec.Columns)
		if err != nil {
			return false, err
		}
		want, err := columnar.Split(spec.Name, columns, spec.Keys, spec.Values)
		if err != nil {
			return false, err
		}
		same = columnar.Describe(have.All()) == columnar.Describe(want.All())
	}
	if !same {
		return true, fmt.Errorf("table %q: its snapshot has the keys %s and the values %s, and not those that are "+
			"wanted: drop it, or choose another name", spec.Name, columnar.Describe(have.Keys),
			columnar.Describe(have.Values))
	}
	return true, nil
}

func named(c columnar.Column, name string) bool { return c.Name == name }

// Create makes an empty table. Errors: columns that are none, or that no table has; a table of the name; those of
// warpmap.New.
func (s *Server) Create(spec Spec) error {
	e, err := s.tables.create(spec)
	if err != nil {
		return err
	}
	if err := s.tables.add(e); err != nil {
		return errors.Join(err, e.Close())
	}
	return nil
}

// Source gives records, such as a join.Reader does.
type Source interface {
	columnar.Source
	Close() error
}

// Fill makes a table of all rows of a source. Spec.Columns is not used: the columns are the source's, and those
// without nulls have none ever. Rows with a null among the keys are left out, and counted. open opens the source: a
// first time to look for nulls, and a second time for the rows. Cost: reading it twice. Errors: those of Create, of
// open and of the source.
func (s *Server) Fill(ctx context.Context, spec Spec, open func() (Source, error)) (rows, left int64, err error) {
	columns, known, err := nullable(ctx, open)
	if err != nil {
		return 0, 0, err
	}
	if spec.Capacity == 0 {
		spec.Capacity = int(known)
	}
	e, err := s.tables.make(spec, columns)
	if err != nil {
		return 0, 0, err
	}
	from, err := open()
	if err != nil {
		return 0, 0, errors.Join(err, e.Close())
	}
	defer from.Close()
	if left, err = e.Fill(ctx, from); err == nil {
		rows, err = e.Rows()
	}
	if err == nil {
		err = s.tables.addFilled(ctx, e)
	}
	if err != nil {
		return 0, 0, errors.Join(err, e.Close())
	}
	return rows, left, nil
}

// nullable gives the columns of a source, with those nullable that have nulls, and how many rows it has, as far as that
// is known.
func nullable(ctx context.Context, open func() (Source, error)) (columns []columnar.Column, rows int64, err error) {
	from, err := open()
	if err != nil {
		return nil, 0, err
	}
	defer from.Close()
	if counted, is := from.(interface{ Rows() int64 }); is {
		rows = max(0, counted.Rows())
	}
	unsure := false
	columns = columnar.ColumnsOf(from.Schema())
	for i := range columns {
		unsure = unsure || columns[i].Nullable
		columns[i].Nullable = false
	}
	for unsure && from.Next() {
		if ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
		for i, a := range from.RecordBatch().Columns() {
			columns[i].Nullable = columns[i].Nullable || a.NullN() > 0
		}
	}
	return columns, rows, from.Err()
}

// Load makes a table, of the spec's name and family, of a file that the action save wrote. Errors: *DamagedError; those
// of Create.
func (s *Server) Load(ctx context.Context, from io.Reader, spec Spec) error {
	x, err := columnar.Load(ctx, from, s.o.Devices, columnar.Options{Name: spec.Name, Family: spec.Family,
		Budget: &s.tables.budget})
	if err != nil {
		return err
	}
	if err := s.tables.addFilled(ctx, &entry{Table: x}); err != nil {
		return errors.Join(err, x.Close())
	}
	return nil
}

// Close frees the tables. Serve must have returned. It is idempotent.
func (s *Server) Close() error { return s.tables.close() }

// lastWords is how long calls may go on when the server ends.
const lastWords = time.Second

// Serve answers on all listeners until ctx is done. Then it begins nothing more, gives calls a second to end, and with
// Options.Save makes the last snapshots. It closes the listeners. Errors: a listener's; the last snapshots', or the
// log's: see Options.Retry.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	g, serving := crash.WithContext(ctx)
	server := s.newServer()
	places := make(chan struct{}, s.o.Clients)
	for _, l := range listeners {
		g.Go(func() error {
			err := server.Serve(&bounded{l, places, s})
			if serving.Err() != nil || errors.Is(err, grpc.ErrServerStopped) {
				return nil
			}
			return err
		})
	}
	if s.o.Save > 0 || s.tables.logs() {
		g.Go(func() error { s.saving(serving); return nil })
	}
	g.Go(func() error {
		<-serving.Done()
		for _, l := range listeners {
			l.Close()
		}
		s.end.Do(func() { close(s.ending) })
		stop := time.AfterFunc(2*lastWords, server.Stop)
		defer stop.Stop()
		server.GracefulStop()
		return nil
	})
	err := g.Wait()
	s.over.Wait()
	return errors.Join(err, journal.Last(s.o.Retry, func() error { return s.last(context.WithoutCancel(ctx)) }))
}

// last has all that was done in files: in snapshots, or else in the log, unless that cannot be written any more.
func (s *Server) last(ctx context.Context) (err error) {
	if s.o.Save == 0 && s.tables.logs() {
		err = s.tables.journal.Flush()
	}
	if s.o.Save > 0 || err != nil {
		err = s.tables.save(ctx, "")
	}
	return err
}

// newServer makes gRPC's server, with all bounds.
func (s *Server) newServer() *grpc.Server {
	server := grpc.NewServer(
		grpc.ForceServerCodecV2(newCodec()),
		grpc.Creds(reach{}),
		grpc.InTapHandle(s.admit),
		grpc.MaxRecvMsgSize(s.o.Message),
		grpc.MaxSendMsgSize(2<<30-1),
		grpc.MaxHeaderListSize(64<<10),
		grpc.MaxConcurrentStreams(uint32(s.o.Streams)),
		grpc.ConnectionTimeout(s.o.Timeout),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(2*window),
		grpc.ReadBufferSize(buffer), grpc.WriteBufferSize(buffer),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: s.o.Timeout, Timeout: s.o.Timeout / 2}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second,
			PermitWithoutStream: true}),
	)
	wire.RegisterFlightServiceServer(server, s)
	return server
}

// What a stream may send before it is read, and what a connection reads and writes at once.
const window, buffer = 8 << 20, 256 << 10

// saveAgain is how long later a snapshot is tried again that a long log wants, and that failed.
const saveAgain = time.Minute

// saving makes snapshots from time to time, and where the log is long.
func (s *Server) saving(ctx context.Context) {
	t := time.NewTicker(min(cmp.Or(s.o.Save, time.Second), time.Second))
	defer t.Stop()
	for since, failed := time.Now(), false; ; {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		_, long := s.tables.logged()
		due := s.o.Save > 0 && time.Since(since) >= s.o.Save
		if !due && (!long || failed && time.Since(since) < saveAgain) {
			continue
		}
		since = time.Now()
		err := s.tables.save(ctx, "")
		if failed = err != nil; failed && ctx.Err() == nil {
			s.o.Log.Print(err)
		}
	}
}

// Err is why the log cannot be written, or nil.
func (s *Server) Err() error {
	if !s.tables.logs() {
		return nil
	}
	return s.tables.journal.Err()
}

// call is a call of a client.
type call struct {
	s       *Server
	begun   time.Time
	sending atomic.Int64 // when the send that waits began, in nanoseconds since begun; 0: none waits
	reading atomic.Int64 // and the receive
	first   atomic.Bool  // something has come
	work    atomic.Int64 // batches that have come and are not answered
	last    atomic.Int64 // when the last was answered
}

// answered tells that a batch was.
func (c *call) answered() {
	c.last.Store(c.now())
	c.work.Add(-1)
}

func (c *call) now() int64 { return max(1, int64(time.Since(c.begun))) }

// do runs a call's work, and gives it up where its client stalls, or the server ends: the work's sends and receives
// return when the call has returned, and so does the work then.
func (s *Server) do(ctx context.Context, method string, work func(c *call) error) error {
	leave, err := s.entered(ctx)
	if err != nil {
		return err
	}
	c := &call{s: s, begun: time.Now()}
	s.metrics.calls.Add(1)
	s.metrics.open.Add(1)
	done := make(chan error, 1)
	s.over.Go(func() {
		err := crash.Catch(func() error { return work(c) })
		s.metrics.open.Add(-1)
		leave() // before the client hears of the end, and may begin another call
		done <- err
	})
	err = c.wait(ctx, done)
	if err = statusOf(err); status.Code(err) != codes.OK {
		s.metrics.failed.Add(1)
		if status.Code(err) == codes.Internal {
			s.o.Log.Printf("%s: %v", method, err)
		}
	}
	return err
}

func (c *call) wait(ctx context.Context, done <-chan error) error {
	o, ending := &c.s.o, c.s.ending
	tick := time.NewTicker(max(time.Millisecond, min(time.Second, o.Timeout/4)))
	defer tick.Stop()
	var last <-chan time.Time
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done(): // sends and receives return; what waits for others still is the client's
			<-done
			return ctx.Err()
		case <-ending:
			ending, last = nil, time.After(lastWords)
		case <-last:
			return errEnds
		case <-tick.C:
		}
		since := func(at int64) time.Duration {
			if at == 0 {
				return 0
			}
			return time.Duration(c.now() - at)
		}
		reads, sends := since(c.reading.Load()), since(c.sending.Load())
		idle := reads > 0 && sends == 0 && c.work.Load() == 0
		switch {
		case ending == nil && idle:
			return errEnds // nothing is under way that the client could lose
		case sends > o.Timeout, !c.first.Load() && reads > o.Timeout,
			idle && reads > o.Idle && since(max(1, c.last.Load())) > o.Idle:
			c.s.metrics.expired.Add(1)
			if sends > o.Timeout {
				hangUp(ctx)
			}
			return status.Errorf(codes.DeadlineExceeded, "the client has taken nothing for %v, or sent nothing for %v",
				sends.Round(time.Millisecond), reads.Round(time.Millisecond))
		case o.MaxTime > 0 && time.Since(c.begun) > o.MaxTime:
			c.s.metrics.expired.Add(1)
			return status.Errorf(codes.DeadlineExceeded, "the call has taken %v", o.MaxTime)
		}
	}
}

var errEnds = status.Error(codes.Unavailable, "the server ends")

// send sends with a clock.
func (c *call) send(do func() error) error {
	c.sending.Store(c.now())
	defer c.sending.Store(0)
	return do()
}

// receive receives with a clock.
func (c *call) receive(do func() (*wire.FlightData, error)) (*wire.FlightData, error) {
	c.reading.Store(c.now())
	d, err := do()
	if c.first.Swap(true) && err == nil { // a batch: the first message has the schema
		c.work.Add(1)
	}
	c.reading.Store(0)
	return d, err
}

// statusOf makes an error one of gRPC.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	if own := (interface{ GRPCStatus() *status.Status })(nil); errors.As(err, &own) {
		return own.GRPCStatus().Err() // without what is around it, which would say "rpc error" within another
	}
	var (
		schema *columnar.SchemaError
		null   *columnar.NullError
		full   *table.FullError
		memory *device.OutOfMemoryError
		broken *crash.Error
	)
	code := codes.InvalidArgument
	switch {
	case errors.As(err, &schema), errors.As(err, &null):
	case errors.As(err, &full), errors.As(err, &memory), errors.Is(err, columnar.ErrMemory):
		code = codes.ResourceExhausted
	case errors.Is(err, table.ErrClosed):
		code = codes.NotFound
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.As(err, &broken):
		code = codes.Internal
	case errors.Is(err, errInput):
	default:
		code = codes.Internal
	}
	return status.Error(code, err.Error())
}

// errInput is in errors of what a client has sent.
var errInput = errors.New("")

func input(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w%w", errInput, err)
}

// framed is a schema as streams begin with it.
func framed(s *arrow.Schema) ([]byte, error) {
	m, err := columnar.EncodeSchema(s)
	if err != nil {
		return nil, err
	}
	n := len(m)
	return append([]byte{255, 255, 255, 255, byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}, m...), nil
}

package flight

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	wire "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/warpmap/warpmap/internal/columnar"
)

// filled has a table "t" of n rows, whose values are their keys thrice.
func filled(t testing.TB, s *served, c wire.Client, n int) {
	t.Helper()
	mustAct(t, c, "create", `{"table":"t","columns":"id:int64,n:int64","keys":["id"]}`)
	ids, values := make([]int64, n), make([]int64, n)
	for i := range ids {
		ids[i], values[i] = int64(i), int64(3*i)
	}
	if _, err := put(context.Background(), c, path("t"), record(map[string][]int64{"id": ids, "n": values}, "id", "n")); err != nil {
		t.Fatal(err)
	}
}

// serves tells whether the server still answers as it should.
func serves(t *testing.T, c wire.Client) {
	t.Helper()
	rows, err := find(context.Background(), c, path("t"), record(map[string][]int64{"id": {2, -1}}, "id"))
	if err != nil || fmt.Sprint(rows) != "[[6 true] [(null) false]]" {
		t.Fatalf("the server answers %v, %v", rows, err)
	}
}

// eventually waits for what must come.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// Bytes that are nothing, streams that end early, calls that are given up, and messages of random bytes harm nobody.
func TestStrangeBytes(t *testing.T) {
	s := start(t, Options{Message: 1 << 20})
	c, ctx := s.client(), context.Background()
	filled(t, s, c, 10)
	r := mrand.New(mrand.NewPCG(1, 2))
	for i := range 20 {
		x, err := net.Dial("unix", s.socket)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, r.IntN(5000))
		for k := range b {
			b[k] = byte(r.Uint32())
		}
		if i%2 == 0 { // the first words of HTTP/2, and then a frame of any kind
			b = append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"), b...)
		}
		x.Write(b)
		x.Close()
	}
	x, err := c.DoExchange(ctx)
	if err != nil {
		t.Fatal(err)
	}
	x.CloseSend()
	_, err = x.Recv()
	code(t, "a stream of nothing", err, codes.InvalidArgument, "ends before")
	schema, err := columnar.EncodeSchema(record(map[string][]int64{"id": nil}, "id").Schema())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		x, err := c.DoExchange(ctx)
		if err != nil {
			t.Fatal(err)
		}
		header, body := make([]byte, r.IntN(200)), make([]byte, r.IntN(200))
		for k := range header {
			header[k] = byte(r.Uint32N(1 + uint32(i)*8))
		}
		first := &wire.FlightData{FlightDescriptor: path("t"), DataHeader: schema}
		if i%3 == 0 {
			first.DataHeader = append([]byte{8}, header...)
		}
		x.Send(first)
		x.Send(&wire.FlightData{DataHeader: append([]byte{8}, header...), DataBody: body})
		x.CloseSend()
		for err == nil {
			_, err = x.Recv()
		}
		code(t, "random bytes", err, codes.InvalidArgument)
	}
	_, err = find(ctx, c, path("t"), record(map[string][]int64{"id": make([]int64, 1<<18)}, "id"))
	code(t, "a message that is too large", err, codes.ResourceExhausted)
	for range 20 { // calls that are cancelled wherever they are
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Duration(r.IntN(2000))*time.Microsecond, cancel)
		find(ctx, c, path("t"), record(map[string][]int64{"id": make([]int64, 10000)}, "id"))
		cancel()
	}
	serves(t, c)
	if n := s.exports.Load(); n != 0 {
		t.Errorf("%d bytes of exports are left", n)
	}
	eventually(t, "all calls end", func() bool { return s.metrics.open.Load() == 0 })
}

// Clients that take no replies, send nothing or leave a call open are given up, and hold nobody up meanwhile.
func TestClientsThatStall(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := start(t, Options{Timeout: 1500 * time.Millisecond, Idle: 1500 * time.Millisecond})
	defer s.end()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := s.client()
	defer c.Close()
	filled(t, s, c, 500_000)
	small := []grpc.DialOption{grpc.WithInitialWindowSize(64 << 10), grpc.WithInitialConnWindowSize(64 << 10)}
	exporting := s.client(small...)
	defer exporting.Close()
	get, err := exporting.DoGet(ctx, &wire.Ticket{Ticket: []byte("t")})
	if err != nil {
		t.Fatal(err)
	}
	asking := s.client(small...)
	defer asking.Close()
	keys := record(map[string][]int64{"id": make([]int64, 100_000)}, "id")
	open := func(c wire.Client, first arrow.RecordBatch) (wire.FlightService_DoExchangeClient, *wire.Writer) {
		x, err := c.DoExchange(ctx)
		if err != nil {
			t.Fatal(err)
		}
		w := wire.NewRecordWriter(x, ipc.WithSchema(keys.Schema()))
		w.SetFlightDescriptor(path("t"))
		if err := w.Write(first); err != nil {
			t.Fatal(err)
		}
		return x, w
	}
	_, w := open(asking, keys)
	written := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			err = w.Write(keys) // and takes nothing, until the connection is closed
		}
		written <- err
	}()
	quiet := s.client()
	defer quiet.Close()
	silent, err := quiet.DoPut(ctx)
	if err != nil {
		t.Fatal(err)
	}
	idle, _ := open(quiet, record(map[string][]int64{"id": {1}}, "id"))
	serves(t, c)
	_, err = silent.Recv()
	code(t, "a call that says nothing", err, codes.DeadlineExceeded)
	for err = nil; err == nil; {
		_, err = idle.Recv()
	}
	code(t, "a call that is left open", err, codes.DeadlineExceeded)
	<-written
	eventually(t, "all four are given up", func() bool { return s.metrics.expired.Load() == 4 })
	eventually(t, "the export's memory is free", func() bool { return s.exports.Load() == 0 })
	serves(t, c)
	for err = nil; err == nil; { // what it had time for comes, and then the end
		_, err = get.Recv()
	}
	code(t, "the export", err, codes.Unavailable)
	if ctx.Err() != nil {
		t.Error("a minute has passed")
	}
}

// A server that ends does not wait for clients that leave calls open, and tells them.
func TestEnd(t *testing.T) {
	dir := t.TempDir()
	s := start(t, Options{Folder: dir, Save: time.Hour})
	c := s.client()
	filled(t, s, c, 10)
	x, err := c.DoExchange(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	keys := record(map[string][]int64{"id": {1}}, "id")
	w := wire.NewRecordWriter(x, ipc.WithSchema(keys.Schema()))
	w.SetFlightDescriptor(path("t"))
	if err := w.Write(keys); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = x.Recv()
	}
	if k := status.Code(err); k != codes.Unavailable {
		t.Errorf("the client gets %v", err)
	}
	s = start(t, Options{Folder: dir})
	serves(t, s.client())
}

// A server that cannot write its last snapshots asks whether to try again, and has lost nothing when it can.
func TestEndOnFullDisk(t *testing.T) {
	dir, asked := t.TempDir(), 0
	obstacle := filepath.Join(dir, "t"+suffix)
	s := start(t, Options{Folder: dir, Save: time.Hour, Retry: func(err error) bool {
		asked++
		return err != nil && os.RemoveAll(obstacle) == nil
	}})
	filled(t, s, s.client(), 10)
	if err := os.MkdirAll(filepath.Join(obstacle, "in the way"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := s.end(); err != nil || asked != 1 {
		t.Fatalf("it was asked %d times, and ends with %v", asked, err)
	}
	s = start(t, Options{Folder: dir})
	serves(t, s.client())
}

// More connections than may be are closed, and a connection that goes makes room.
func TestManyConnections(t *testing.T) {
	s := start(t, Options{Clients: 2})
	var held []net.Conn
	for range 2 {
		x, err := net.Dial("unix", s.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		held = append(held, x)
	}
	eventually(t, "two are in", func() bool { return s.metrics.connections.Load() == 2 })
	x, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	x.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := x.Read(make([]byte, 100)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a third is held: %v", err)
	}
	held[0].Close()
	eventually(t, "there is room", func() bool { _, err := act(s.client(), "stats", ""); return err == nil })
	if s.metrics.refused.Load() == 0 {
		t.Error("none was refused")
	}
}

// Without the token nothing is to be had, by no call; with it, as a bearer, as a password or after a handshake, all is.
func TestToken(t *testing.T) {
	s := start(t, Options{Token: "open sesame"})
	ctx, c := context.Background(), s.client()
	calls := map[string]func(ctx context.Context) error{
		"list": func(ctx context.Context) error {
			x, err := c.ListFlights(ctx, &wire.Criteria{})
			if err == nil {
				_, err = x.Recv()
			}
			return err
		},
		"schema": func(ctx context.Context) error { _, err := c.GetSchema(ctx, path("t")); return err },
		"put": func(ctx context.Context) error {
			_, err := put(ctx, c, path("t"), record(map[string][]int64{"id": {1}}, "id"))
			return err
		},
		"exchange": func(ctx context.Context) error {
			_, err := find(ctx, c, path("t"), record(map[string][]int64{"id": {1}}, "id"))
			return err
		},
		"handshake": func(ctx context.Context) error {
			x, err := c.Handshake(ctx)
			if err == nil {
				x.CloseSend()
				_, err = x.Recv()
			}
			return err
		},
	}
	for name, call := range calls {
		for _, header := range []string{"", "Bearer open", "Bearer ", "Basic b3Blbg==", "Basic !", "open sesame"} {
			own := ctx
			if header != "" {
				own = metadata.AppendToOutgoingContext(ctx, "authorization", header)
			}
			code(t, name+" with "+header, call(own), codes.Unauthenticated)
		}
	}
	if n := s.metrics.strangers.Load(); n != int64(6*len(calls)) {
		t.Errorf("%d strangers", n)
	}
	own := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer open sesame")
	code(t, "with the token", calls["schema"](own), codes.NotFound)
	own, err := c.AuthenticateBasicToken(ctx, "anybody", "open sesame")
	if err != nil {
		t.Fatal(err)
	}
	code(t, "with the password", calls["schema"](own), codes.NotFound)
	if err := calls["list"](own); !errors.Is(err, io.EOF) {
		t.Errorf("list: %v", err)
	}
}

// With TLS the listener is one of crypto/tls, as the command makes it.
func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pair := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}})
	s := start(t, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	defer func() { cancel(); <-done }()
	known := x509.NewCertPool()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	known.AddCert(cert)
	for want, creds := range map[codes.Code]credentials.TransportCredentials{
		codes.OK:          credentials.NewTLS(&tls.Config{RootCAs: known, ServerName: "localhost"}),
		codes.Unavailable: insecure.NewCredentials(),
	} {
		c, err := wire.NewClientWithMiddleware(l.Addr().String(), nil, nil, grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		_, err = act(c, "stats", "")
		code(t, "TLS", err, want)
		c.Close()
	}
}

// Exports take no more memory than they may, and parts are a way to have all the same.
func TestExportsAreBounded(t *testing.T) {
	s := start(t, Options{Exports: 3 << 20})
	c, ctx := s.client(), context.Background()
	filled(t, s, c, 250_000)
	x, err := c.DoGet(ctx, &wire.Ticket{Ticket: []byte("t")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = readAll(x)
	code(t, "4 MB", err, codes.ResourceExhausted, "parts")
	all := 0
	for part := range 2 {
		x, err := c.DoGet(ctx, &wire.Ticket{Ticket: fmt.Appendf(nil, `{"table":"t","part":%d,"parts":2}`, part)})
		if err != nil {
			t.Fatal(err)
		}
		rows, err := readAll(x)
		if err != nil {
			t.Fatal(err)
		}
		all += len(rows)
	}
	if all != 250_000 {
		t.Errorf("%d rows", all)
	}
}

// A call whose client waits for an answer is not idle, however long that takes; one that owes none is.
func TestWaitingIsNotIdle(t *testing.T) {
	o := Options{Timeout: 40 * time.Millisecond, Idle: time.Millisecond}
	for _, work := range []int64{1, 0} {
		c := &call{s: &Server{o: o, ending: make(chan struct{})}, begun: time.Now().Add(-time.Hour)}
		c.first.Store(true)
		c.reading.Store(1)
		c.work.Store(work)
		done := make(chan error, 1)
		if work > 0 {
			time.AfterFunc(200*time.Millisecond, func() { done <- nil }) // twenty looks at the clocks later
		}
		want := codes.OK
		if work == 0 {
			want = codes.DeadlineExceeded
		}
		code(t, fmt.Sprintf("with %d batches at work", work), c.wait(context.Background(), done), want)
	}
}

// Strangers who hold connections and make no call, or none with the token, lose them; who said it once keeps it.
func TestStrangersGo(t *testing.T) {
	s := start(t, Options{Clients: 3, Token: "open sesame", Timeout: 1200 * time.Millisecond})
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer open sesame")
	known := s.client()
	schema := func(c wire.Client) error { _, err := c.GetSchema(ctx, path("t")); return err }
	code(t, "the first", schema(known), codes.NotFound)
	stranger := s.client()
	_, err := act(stranger, "stats", "")
	code(t, "a stranger", err, codes.Unauthenticated)
	quiet, err := grpc.NewClient("unix:"+s.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Close()
	quiet.Connect()
	eventually(t, "two are closed", func() bool { return s.metrics.expired.Load() >= 2 })
	time.Sleep(s.o.Timeout / 4) // the first, which was before them, would be closed by now
	code(t, "the first again", schema(known), codes.NotFound)
	if n, closed := s.metrics.connections.Load(), s.metrics.expired.Load(); n < 3 || closed != 2 {
		t.Errorf("%d connections, of which %d were closed", n, closed)
	}
	code(t, "another", schema(s.client()), codes.NotFound)
}

// Messages without anything before the schema do not keep a call from being idle.
func TestEmptyMessagesAreIdle(t *testing.T) {
	s := start(t, Options{Timeout: 2 * time.Second, Idle: 200 * time.Millisecond}) // which are looked at by quarters of Timeout
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	x, err := s.client().DoExchange(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		x.Send(&wire.FlightData{AppMetadata: []byte("x")})
	}
	_, err = x.Recv()
	code(t, "a call of empty messages", err, codes.DeadlineExceeded, "sent nothing")
}

// Calls that are cancelled while they wait for others stay calls: there are no more than may be at once.
func TestCancelledCallsAreBounded(t *testing.T) {
	s := start(t, Options{Streams: 2})
	c := s.client()
	filled(t, s, c, 10)
	e, err := s.tables.get("t")
	if err != nil {
		t.Fatal(err)
	}
	held, free, done := make(chan bool), make(chan bool), make(chan error, 1)
	go func() {
		done <- e.Export(context.Background(), 0, 1, func(columnar.Frame) error { close(held); <-free; return nil })
	}()
	<-held // writes wait
	try := func() {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		put(ctx, c, path("t"), record(map[string][]int64{"id": {1}, "n": {1}}, "id", "n"))
		cancel()
	}
	// On a busy machine some are cancelled before they wait.
	eventually(t, "two calls wait", func() bool { try(); return s.metrics.open.Load() >= 2 })
	for range 8 {
		try()
	}
	eventually(t, "two calls wait, and no more", func() bool { return s.metrics.open.Load() == 2 })
	close(free)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	eventually(t, "all calls end", func() bool { return s.metrics.open.Load() == 0 })
	serves(t, c)
}

// Who lists all tables is not told of one that is dropped meanwhile.
func TestListWhileOthersDrop(t *testing.T) {
	s := start(t, Options{})
	c, other := s.client(), s.client()
	filled(t, s, c, 10)
	e, err := s.tables.get("t")
	if err != nil {
		t.Fatal(err)
	}
	mustAct(t, other, "create", `{"table":"u","columns":"id:int64,n:int64","keys":["id"]}`)
	closed, err := s.tables.get("u")
	if err == nil {
		err = closed.Close() // as drop does, when the list is made already
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := mustAct(t, c, "stats", ""); len(got) != 1 {
		t.Errorf("stats: %v", got)
	}
	x, err := c.ListFlights(context.Background(), &wire.Criteria{})
	n := 0
	for ; err == nil; n++ {
		_, err = x.Recv()
	}
	if !errors.Is(err, io.EOF) || n != 2 {
		t.Errorf("%d flights, %v", n-1, err)
	}
	_, err = act(c, "stats", "u")
	code(t, "the table itself", err, codes.NotFound)
	if rows, err := e.Rows(); err != nil || rows != 10 {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// An error says once what it is.
func TestErrorsSayItOnce(t *testing.T) {
	s := start(t, Options{})
	c := s.client()
	filled(t, s, c, 10)
	_, err := act(c, "create", `{"table":"t","columns":"id:int64","keys":["id"]}`)
	if want := `there is a table "t"`; status.Code(err) != codes.AlreadyExists || status.Convert(err).Message() != want {
		t.Errorf("create: %v", err)
	}
	_, err = put(context.Background(), c, path("none"), record(map[string][]int64{"id": {1}}, "id"))
	if want := `no table "none"`; status.Code(err) != codes.NotFound || status.Convert(err).Message() != want {
		t.Errorf("put: %v", err)
	}
}

// Calls that are open when a table's snapshot is loaded go on with what was loaded, and end where it was dropped.
func TestLoadBesideOpenCalls(t *testing.T) {
	s := start(t, Options{Folder: t.TempDir()})
	c, ctx := s.client(), context.Background()
	filled(t, s, c, 10)
	mustAct(t, c, "save", "t")
	keys := record(map[string][]int64{"id": {2}}, "id")
	rows := record(map[string][]int64{"id": {2}, "n": {7}}, "id", "n")
	x, err := c.DoExchange(ctx)
	if err != nil {
		t.Fatal(err)
	}
	find := wire.NewRecordWriter(x, ipc.WithSchema(keys.Schema()))
	find.SetFlightDescriptor(path("t"))
	p, err := c.DoPut(ctx)
	if err != nil {
		t.Fatal(err)
	}
	write := wire.NewRecordWriter(p, ipc.WithSchema(rows.Schema()))
	write.SetFlightDescriptor(path("t"))
	read := func() (err error) {
		if err = find.Write(keys); err == nil {
			var d *wire.FlightData
			for d, err = x.Recv(); err == nil && columnar.IsSchema(d.DataHeader); {
				d, err = x.Recv()
			}
		}
		return err
	}
	for round := range 3 {
		if err := read(); err != nil {
			t.Fatalf("round %d: a look-up: %v", round, err)
		}
		if err := write.Write(rows); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Recv(); err != nil {
			t.Fatalf("round %d: a write: %v", round, err)
		}
		mustAct(t, c, "load", "t")
		serves(t, c) // what was written is gone
	}
	mustAct(t, c, "drop", "t")
	code(t, "a look-up then", read(), codes.NotFound, `"t" was dropped`)
}

// Calls that are given up for their time go on working at times: then there are no more than may be at once, either.
func TestCallsGivenUpAreBounded(t *testing.T) {
	s := start(t, Options{Streams: 2, MaxTime: 50 * time.Millisecond})
	c := s.client()
	filled(t, s, c, 10)
	e, err := s.tables.get("t")
	if err != nil {
		t.Fatal(err)
	}
	held, free, done := make(chan bool), make(chan bool), make(chan error, 1)
	go func() {
		done <- e.Export(context.Background(), 0, 1, func(columnar.Frame) error { close(held); <-free; return nil })
	}()
	<-held // writes wait
	for range 5 {
		_, err := put(context.Background(), c, path("t"), record(map[string][]int64{"id": {1}, "n": {1}}, "id", "n"))
		if code := status.Code(err); code != codes.DeadlineExceeded && code != codes.ResourceExhausted {
			t.Error(err)
		}
	}
	if n := s.metrics.open.Load(); n != 2 {
		t.Errorf("the work of %d calls goes on, of which 2 may be at once", n)
	}
	close(free)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	eventually(t, "all calls end", func() bool { return s.metrics.open.Load() == 0 })
	serves(t, c)
}

// Connections that are cut while their calls wait keep their places: who connects again has no more calls.
func TestCutConnectionsAreBounded(t *testing.T) {
	s := start(t, Options{Clients: 3, Streams: 1})
	c := s.client()
	filled(t, s, c, 10)
	e, err := s.tables.get("t")
	if err != nil {
		t.Fatal(err)
	}
	held, free, done := make(chan bool), make(chan bool), make(chan error, 1)
	go func() {
		done <- e.Export(context.Background(), 0, 1, func(columnar.Frame) error { close(held); <-free; return nil })
	}()
	<-held // writes wait
	over := sync.OnceFunc(func() { close(free) })
	defer over()
	try := func() {
		x := s.client()
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		put(ctx, x, path("t"), record(map[string][]int64{"id": {1}, "n": {1}}, "id", "n"))
		cancel()
		x.Close()
	}
	// On a busy machine some are cut before they wait.
	eventually(t, "the calls of two connections wait", func() bool { try(); return s.metrics.open.Load() >= 2 })
	for range 8 {
		try()
	}
	eventually(t, "the calls of two connections wait, and of no more", func() bool { return s.metrics.open.Load() == 2 })
	if s.metrics.refused.Load() == 0 {
		t.Error("no connection was refused")
	}
	serves(t, c)
	over()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	eventually(t, "all calls end", func() bool { return s.metrics.open.Load() == 0 })
	for range 5 { // and then there are places
		var x wire.Client
		eventually(t, "a connection has a place", func() bool {
			x = s.client()
			_, err := find(context.Background(), x, path("t"), record(map[string][]int64{"id": {2}}, "id"))
			return err == nil
		})
		x.Close()
	}
}

// A large capacity takes no memory before rows come.
func TestCapacityIsAHint(t *testing.T) {
	s := start(t, Options{})
	mustAct(t, s.client(), "create", `{"table":"t","columns":"id:int64,n:int64","keys":["id"],"capacity":4294967296}`)
	e, err := s.tables.get("t")
	if err != nil {
		t.Fatal(err)
	}
	if st, err := e.Stats(); err != nil || st.Index.Bytes > 64<<20 {
		t.Errorf("%d bytes, %v", st.Index.Bytes, err)
	}
}

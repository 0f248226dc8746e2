package flight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	wire "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/columnar"
	"github.com/warpmap/warpmap/internal/testenv"
)

// served is a server on a Unix socket.
type served struct {
	*Server
	t      testing.TB
	socket string
	end    func() error // ends it, and gives what Serve returned
}

func start(t testing.TB, o Options) *served {
	t.Helper()
	if o.Devices == nil {
		d, err := device.Open("cpu")
		testenv.Require(t, "cpu", err)
		t.Cleanup(func() { d.Close() })
		o.Devices = []*device.Device{d}
	}
	s, err := New(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	end := sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-done, s.Close())
	})
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	return &served{s, t, socket, end}
}

// client connects with Arrow's own client.
func (s *served) client(o ...grpc.DialOption) wire.Client {
	s.t.Helper()
	o = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1 << 30))}, o...)
	c, err := wire.NewClientWithMiddleware("unix:"+s.socket, nil, nil, o...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

func path(name string) *wire.FlightDescriptor {
	return &wire.FlightDescriptor{Type: wire.DescriptorPATH, Path: []string{name}}
}

func commanded(text string, args ...any) *wire.FlightDescriptor {
	return &wire.FlightDescriptor{Type: wire.DescriptorCMD, Cmd: fmt.Appendf(nil, text, args...)}
}

// record makes columns of 8-byte integers, or of texts where the name begins with s.
func record(columns map[string][]int64, names ...string) arrow.RecordBatch {
	var fields []arrow.Field
	var arrays []arrow.Array
	for _, name := range names {
		if strings.HasPrefix(name, "s") {
			b := array.NewStringBuilder(memory.DefaultAllocator)
			for _, n := range columns[name] {
				b.Append(fmt.Sprint("text ", n))
			}
			arrays = append(arrays, b.NewArray())
		} else {
			b := array.NewInt64Builder(memory.DefaultAllocator)
			b.AppendValues(columns[name], nil)
			arrays = append(arrays, b.NewArray())
		}
		fields = append(fields, arrow.Field{Name: name, Type: arrays[len(arrays)-1].DataType(), Nullable: true})
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, -1)
}

// put sends records, and gives what the server says of each.
func put(ctx context.Context, c wire.Client, to *wire.FlightDescriptor, recs ...arrow.RecordBatch) (said []string, err error) {
	x, err := c.DoPut(ctx)
	if err != nil {
		return nil, err
	}
	w := wire.NewRecordWriter(x, ipc.WithSchema(recs[0].Schema()))
	w.SetFlightDescriptor(to)
	for _, rec := range recs {
		if err := w.Write(rec); err != nil {
			break // Recv says why
		}
	}
	w.Close()
	x.CloseSend()
	for {
		r, err := x.Recv()
		if errors.Is(err, io.EOF) {
			return said, nil
		} else if err != nil {
			return said, err
		}
		said = append(said, string(r.AppMetadata))
	}
}

// find looks records up: all replies are one record's rows.
func find(ctx context.Context, c wire.Client, to *wire.FlightDescriptor, recs ...arrow.RecordBatch) (rows [][]string, err error) {
	x, err := c.DoExchange(ctx)
	if err != nil {
		return nil, err
	}
	w := wire.NewRecordWriter(x, ipc.WithSchema(recs[0].Schema()))
	w.SetFlightDescriptor(to)
	go func() {
		for _, rec := range recs {
			if w.Write(rec) != nil {
				break
			}
		}
		w.Close()
		x.CloseSend()
	}()
	return readAll(x)
}

func readAll(x wire.DataStreamReader) (rows [][]string, err error) {
	r, err := wire.NewRecordReader(x)
	if err != nil {
		return nil, err
	}
	defer r.Release()
	for r.Next() {
		rec := r.RecordBatch()
		for at := range int(rec.NumRows()) {
			var row []string
			for _, c := range rec.Columns() {
				row = append(row, c.ValueStr(at))
			}
			rows = append(rows, row)
		}
	}
	return rows, r.Err()
}

func act(c wire.Client, name, body string) (results []string, err error) {
	x, err := c.DoAction(context.Background(), &wire.Action{Type: name, Body: []byte(body)})
	if err != nil {
		return nil, err
	}
	for {
		r, err := x.Recv()
		if errors.Is(err, io.EOF) {
			return results, nil
		} else if err != nil {
			return results, err
		}
		results = append(results, string(r.Body))
	}
}

func mustAct(t testing.TB, c wire.Client, name, body string) []string {
	t.Helper()
	results, err := act(c, name, body)
	if err != nil {
		t.Fatalf("%s %s: %v", name, body, err)
	}
	return results
}

func code(t *testing.T, what string, err error, want codes.Code, words ...string) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v does not say %s", what, err, w)
		}
	}
}

// Arrow's own client does all that there is, and sees what a Go map would.
func TestClient(t *testing.T) {
	s := start(t, Options{Folder: t.TempDir()})
	c, ctx := s.client(), context.Background()
	mustAct(t, c, "create", `{"table":"prices","columns":"id:int64,n:int64","keys":["id"]}`)
	mustAct(t, c, "create", `{"table":"names","columns":"day:int64,s1:utf8,s2:utf8?,n:int64","keys":["day","s1"]}`)
	ids := []int64{1, 2, 3, 0, -1}
	said, err := put(ctx, c, path("prices"), record(map[string][]int64{"id": ids, "n": {10, 20, 30, 0, -10}}, "n", "id"))
	if err != nil || fmt.Sprint(said) != `[{"rows":5}]` {
		t.Fatalf("%v, %v", said, err)
	}
	said, err = put(ctx, c, commanded(`{"table":"prices","mode":"add"}`), record(map[string][]int64{"id": {2, 2, 7}, "n": {1, 1, 5}}, "id", "n"))
	if err != nil || len(said) != 1 {
		t.Fatalf("%v, %v", said, err)
	}
	said, err = put(ctx, c, commanded(`{"table":"prices","mode":"delete"}`), record(map[string][]int64{"id": {3, 4}}, "id"))
	if err != nil || fmt.Sprint(said) != `[{"rows":2,"deleted":1}]` {
		t.Fatalf("%v, %v", said, err)
	}
	rows, err := find(ctx, c, path("prices"), record(map[string][]int64{"id": {2, 3, -1}}, "id"), record(map[string][]int64{"id": {7, 0}}, "id"))
	if want := "[[22 true] [(null) false] [-10 true] [5 true] [0 true]]"; err != nil || fmt.Sprint(rows) != want {
		t.Fatalf("%v, %v, want %s", rows, err, want)
	}
	many := map[string][]int64{"day": {1, 1, 2}, "s1": {1, 2, 1}, "s2": {11, 12, 21}, "n": {4, 5, 6}}
	said, err = put(ctx, c, commanded(`{"table":"names","mode":"insert-new"}`), record(many, "day", "s1", "s2", "n"))
	if err != nil || fmt.Sprint(said) != `[{"rows":3,"added":3}]` {
		t.Fatalf("%v, %v", said, err)
	}
	rows, err = find(ctx, c, path("names"), record(map[string][]int64{"day": {2, 2}, "s1": {1, 2}}, "s1", "day"))
	if want := "[[text 21 6 true] [(null) (null) false]]"; err != nil || fmt.Sprint(rows) != want {
		t.Fatalf("%v, %v, want %s", rows, err, want)
	}
	lookAround(t, c)
	mustAct(t, c, "save", "")
	mustAct(t, c, "clear", "prices")
	if rows, err := find(ctx, c, path("prices"), record(map[string][]int64{"id": {2}}, "id")); err != nil || rows[0][1] != "false" {
		t.Fatalf("%v, %v", rows, err)
	}
	mustAct(t, c, "load", "prices")
	if rows, err := find(ctx, c, path("prices"), record(map[string][]int64{"id": {2}}, "id")); err != nil || rows[0][0] != "22" {
		t.Fatalf("%v, %v", rows, err)
	}
	mustAct(t, c, "drop", "prices")
	_, err = find(ctx, c, path("prices"), record(map[string][]int64{"id": {2}}, "id"))
	code(t, "a table that was dropped", err, codes.NotFound, "prices")
	_, err = act(c, "load", "prices")
	code(t, "its snapshot", err, codes.NotFound)
}

// lookAround asks what there is.
func lookAround(t *testing.T, c wire.Client) {
	t.Helper()
	ctx := context.Background()
	flights, err := c.ListFlights(ctx, &wire.Criteria{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for f, err := flights.Recv(); err == nil; f, err = flights.Recv() {
		names = append(names, fmt.Sprint(f.FlightDescriptor.Path, f.TotalRecords))
	}
	if fmt.Sprint(names) != "[[names] 3 [prices] 5]" {
		t.Errorf("flights %v", names)
	}
	schema, err := c.GetSchema(ctx, path("names"))
	if err != nil {
		t.Fatal(err)
	}
	fields, err := wire.DeserializeSchema(schema.Schema, memory.DefaultAllocator)
	if err != nil || columnar.Describe(columnar.ColumnsOf(fields)) != "day:int64,s1:utf8,s2:utf8?,n:int64" {
		t.Errorf("%v, %v", fields, err)
	}
	info, err := c.GetFlightInfo(ctx, commanded(`{"table":"prices","parts":3}`))
	if err != nil || len(info.Endpoint) != 3 {
		t.Fatalf("%v, %v", info, err)
	}
	var rows [][]string
	for _, e := range info.Endpoint {
		x, err := c.DoGet(ctx, e.Ticket)
		if err != nil {
			t.Fatal(err)
		}
		part, err := readAll(x)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, part...)
	}
	if len(rows) != 5 {
		t.Errorf("all parts have %v", rows)
	}
	if stats := mustAct(t, c, "stats", ""); len(stats) != 2 || !strings.Contains(stats[1], `"rows":5`) {
		t.Errorf("stats %v", stats)
	}
	list, err := c.ListActions(ctx, &wire.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err = list.Recv(); err == nil; _, err = list.Recv() {
		n++
	}
	if n != len(actions) {
		t.Errorf("%d actions", n)
	}
}

// What does not fit is an error of the client's, which says what was wanted.
func TestWrongCalls(t *testing.T) {
	s := start(t, Options{Rows: 100, Tables: 2})
	c, ctx := s.client(), context.Background()
	mustAct(t, c, "create", `{"table":"prices","columns":"id:int64,n:int64","keys":["id"]}`)
	ok := record(map[string][]int64{"id": {1}, "n": {1}, "s": {1}}, "id")
	_, err := find(ctx, c, path("none"), ok)
	code(t, "no table", err, codes.NotFound, "none")
	_, err = find(ctx, c, path("prices"), record(map[string][]int64{"s": {1}}, "s"))
	code(t, "other columns", err, codes.InvalidArgument, "s:utf8?", "id:int64", "prices")
	_, err = put(ctx, c, path("prices"), ok)
	code(t, "a column less", err, codes.InvalidArgument, "id:int64?", "id:int64,n:int64")
	_, err = put(ctx, c, commanded(`{"table":"prices","mode":"upsert"}`), ok)
	code(t, "a mode that is none", err, codes.InvalidArgument, "upsert", "insert-new")
	_, err = put(ctx, c, commanded(`{"table":"prices","how":"add"}`), ok)
	code(t, "a word that is none", err, codes.InvalidArgument, "how")
	_, err = find(ctx, c, &wire.FlightDescriptor{Type: wire.DescriptorPATH, Path: []string{"a", "b"}}, ok)
	code(t, "a path of two", err, codes.InvalidArgument, "path")
	_, err = find(ctx, c, path("prices"), record(map[string][]int64{"id": make([]int64, 101)}, "id"))
	code(t, "too many rows", err, codes.InvalidArgument, "101", "100")
	for body, want := range map[string]codes.Code{
		`{"table":"prices","columns":"id:int64","keys":["id"]}`:                     codes.AlreadyExists,
		`{"table":"../x","columns":"id:int64","keys":["id"]}`:                       codes.InvalidArgument,
		`{"table":".x","columns":"id:int64","keys":["id"]}`:                         codes.InvalidArgument,
		`{"table":"x","columns":"id:int64","keys":[]}`:                              codes.InvalidArgument,
		`{"table":"x","columns":"id:int64","keys":["no"]}`:                          codes.InvalidArgument,
		`{"table":"x","columns":"id:int64,found:bool","keys":["id"]}`:               codes.InvalidArgument,
		`{"table":"x","columns":"id:int64","keys":["id"],"family":"none"}`:          codes.InvalidArgument,
		`{"table":"x","columns":"id:int64","keys":["id"],"capacity":-1}`:            codes.InvalidArgument,
		`{"table":"x","columns":"id:int64?,n:int64","keys":["id"],"values":["no"]}`: codes.InvalidArgument,
		`{"table":"x","columns":"id:int64,id:int32","keys":["id"]}`:                 codes.InvalidArgument,
		`{`: codes.InvalidArgument,
		`{"table":"x","columns":"id:int64","keys":["id"]} {"table":"y"}`: codes.InvalidArgument,
	} {
		_, err := act(c, "create", body)
		code(t, body, err, want)
	}
	mustAct(t, c, "create", `{"table":"second","columns":"id:int64","keys":["id"]}`)
	_, err = act(c, "create", `{"table":"third","columns":"id:int64","keys":["id"]}`)
	code(t, "a table too many", err, codes.ResourceExhausted)
	_, err = put(ctx, c, commanded(`{"table":"second","mode":"max"}`), ok)
	code(t, "a set's values", err, codes.InvalidArgument, "no value columns")
	for _, name := range []string{"save", "load"} {
		_, err = act(c, name, "prices")
		code(t, name, err, codes.FailedPrecondition)
	}
	_, err = act(c, "explode", "")
	code(t, "an action that is none", err, codes.Unimplemented)
	for _, ticket := range []string{"none", `{"table":"prices","part":2,"parts":2}`, `{"table":"prices","parts":100000000}`} {
		x, err := c.DoGet(ctx, &wire.Ticket{Ticket: []byte(ticket)})
		if err == nil {
			_, err = readAll(x)
		}
		if k := status.Code(err); k != codes.NotFound && k != codes.InvalidArgument {
			t.Errorf("ticket %s: %v", ticket, err)
		}
	}
	if _, err = find(ctx, c, path("prices"), ok); err != nil {
		t.Errorf("after all of that: %v", err)
	}
}

// Several clients put and find at once: each sees its own writes, and all rows are there at the end.
func TestSeveralClients(t *testing.T) {
	s := start(t, Options{})
	ctx, clients, rounds := context.Background(), 6, 5
	if testenv.Long() {
		rounds = 100
	}
	mustAct(t, s.client(), "create", `{"table":"t","columns":"id:int64,n:int64","keys":["id"]}`)
	var wg sync.WaitGroup
	for i := range clients {
		c := s.client()
		wg.Go(func() {
			r := rand.New(rand.NewPCG(testenv.FirstSeed(), uint64(i)))
			for round := range rounds {
				var ids, values []int64
				for range 1 + r.IntN(3000) {
					id := int64(len(ids)*clients + i)
					ids, values = append(ids, id), append(values, id*int64(round+2))
				}
				if _, err := put(ctx, c, path("t"), record(map[string][]int64{"id": ids, "n": values}, "id", "n")); err != nil {
					t.Error(err)
					return
				}
				rows, err := find(ctx, c, path("t"), record(map[string][]int64{"id": ids}, "id"), record(map[string][]int64{"id": {-1}}, "id"))
				if err != nil || len(rows) != len(ids)+1 || rows[len(ids)][1] != "false" {
					t.Errorf("%d rows, %v", len(rows), err)
					return
				}
				for k, row := range rows[:len(ids)] {
					if row[0] != fmt.Sprint(values[k]) || row[1] != "true" {
						t.Errorf("client %d: key %d has %v, want %d", i, ids[k], row, values[k])
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

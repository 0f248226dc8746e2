package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

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
	"github.com/warpmap/warpmap/internal/testenv"
)

// flightClient connects with Arrow's own client.
func flightClient(t *testing.T, socket string) wire.Client {
	t.Helper()
	c, err := wire.NewClientWithMiddleware("unix:"+socket, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// integers are columns of 8 bytes.
func integers(names []string, columns ...[]int64) arrow.RecordBatch {
	var fields []arrow.Field
	var arrays []arrow.Array
	for i, name := range names {
		b := array.NewInt64Builder(memory.DefaultAllocator)
		b.AppendValues(columns[i], nil)
		arrays = append(arrays, b.NewArray())
		fields = append(fields, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64})
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, -1)
}

func tableNamed(name string) *wire.FlightDescriptor {
	return &wire.FlightDescriptor{Type: wire.DescriptorPATH, Path: []string{name}}
}

// lookUp gives the rows that a table has for a batch of keys.
func lookUp(t *testing.T, c wire.Client, name string, keys arrow.RecordBatch) (rows [][]string) {
	t.Helper()
	x, err := c.DoExchange(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	w := wire.NewRecordWriter(x, ipc.WithSchema(keys.Schema()))
	w.SetFlightDescriptor(tableNamed(name))
	if err := errors.Join(w.Write(keys), w.Close(), x.CloseSend()); err != nil {
		t.Fatal(err)
	}
	r, err := wire.NewRecordReader(x)
	if err != nil {
		t.Fatal(err)
	}
	for r.Next() {
		for at := range int(r.RecordBatch().NumRows()) {
			var row []string
			for _, column := range r.RecordBatch().Columns() {
				row = append(row, column.ValueStr(at))
			}
			rows = append(rows, row)
		}
	}
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	return rows
}

// putRows sends a batch, and waits until it is done.
func putRows(c wire.Client, to *wire.FlightDescriptor, rec arrow.RecordBatch) error {
	x, err := c.DoPut(context.Background())
	if err != nil {
		return err
	}
	w := wire.NewRecordWriter(x, ipc.WithSchema(rec.Schema()))
	w.SetFlightDescriptor(to)
	if err := errors.Join(w.Write(rec), w.Close(), x.CloseSend()); err != nil {
		return err
	}
	if _, err := x.Recv(); err != nil {
		return err
	}
	_, err = x.Recv()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return errors.Join(err, errors.New("a batch has two results"))
}

// Tables of files and of schemas are served; after SIGTERM all is there again without the files.
func TestServeTables(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	text := "id,price,name\n1,1.5,one\n2,,two\n,3.5,none\n3,2.5,three\n"
	if err := os.WriteFile(in("prices.csv"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--device", "cpu", "--data", in("data"), "--save", "every=1h",
		"--http", "127.0.0.1:0",
		"--table", "prices=" + in("prices.csv"), "--key", "id", "--value", "name,price",
		"--table", "seen", "--schema", "id:int64,day:int64", "--key", "id,day", "--value", "", "--family", "slab"}
	s := startServer(t, dir, nil, args...)
	c := flightClient(t, in("f"))
	got := fmt.Sprint(lookUp(t, c, "prices", integers([]string{"id"}, []int64{3, 2, 5})))
	if want := "[[three 2.5 true] [two (null) true] [(null) (null) false]]"; got != want {
		t.Errorf("prices %s, want %s", got, want)
	}
	s.said("3 rows loaded", "1 rows with nulls")
	if err := putRows(c, tableNamed("seen"), integers([]string{"id", "day"}, []int64{1, 2}, []int64{10, 20})); err != nil {
		t.Fatal(err)
	}
	page, err := http.Get("http://" + s.web() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	figures, _ := io.ReadAll(page.Body)
	page.Body.Close()
	for _, want := range []string{"\ngo_goroutines ", `warpmap_flight_rows{table="prices"} 3`, `{table="seen"} 2`} {
		if !strings.Contains(string(figures), want) {
			t.Errorf("the figures do not have %s:\n%s", want, figures)
		}
	}
	s.Process.Signal(syscall.SIGTERM)
	if err := s.Wait(); err != nil {
		t.Fatalf("%v: %s", err, s.says)
	}
	os.Remove(in("prices.csv"))
	s = startServer(t, dir, nil, args...)
	c = flightClient(t, in("f"))
	got = fmt.Sprint(lookUp(t, c, "prices", integers([]string{"id"}, []int64{1})),
		lookUp(t, c, "seen", integers([]string{"day", "id"}, []int64{10, 10}, []int64{1, 2})))
	if want := "[[one 1.5 true]] [[true] [false]]"; got != want {
		t.Errorf("after the end it has %s, want %s", got, want)
	}
	// A table's file is one that another server takes, under another name.
	s.Process.Signal(syscall.SIGTERM)
	s.Wait()
	startServer(t, dir, nil, "--device", "cpu", "--table", "other="+in("data/tables/seen.table"))
	c = flightClient(t, in("f"))
	if got := lookUp(t, c, "other", integers([]string{"id", "day"}, []int64{2}, []int64{20})); got[0][0] != "true" {
		t.Errorf("the file has %v", got)
	}
}

// The last snapshot wants kernels that nothing wanted before the signal, and that no cache has: they are compiled.
func TestLastSnapshotCompiles(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	dir := t.TempDir()
	// Users have such kernels compiled one by one.
	env := []string{"WARPMAP_CACHE=" + filepath.Join(dir, "cache"), "WARPMAP_LONG=1"}
	s := startServer(t, dir, env, "--device", "cpu", "--data", filepath.Join(dir, "data"),
		"--save", "every=1h", "--table", "t", "--schema", "id:int64,n:int64", "--key", "id", "--value", "n")
	c := flightClient(t, filepath.Join(dir, "f"))
	if err := putRows(c, tableNamed("t"), integers([]string{"id", "n"}, []int64{1, 2}, []int64{10, 20})); err != nil {
		t.Fatal(err)
	}
	s.Process.Signal(syscall.SIGTERM)
	if err := s.Wait(); err != nil {
		t.Errorf("%v: %s", err, s.says)
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "tables", "t.table")); err != nil {
		t.Errorf("%v: %s", err, s.says)
	}
}

// A server that is killed while it makes snapshots has one of some moment afterwards: all batches until then, whole.
func TestTablesSurviveKill(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	dir, rounds, batch := t.TempDir(), 2, 500
	if testenv.Long() {
		rounds = 20
	}
	args := []string{"--device", "cpu", "--data", filepath.Join(dir, "data"), "--save", "every=10ms",
		"--table", "t", "--schema", "id:int64,n:int64,s:utf8?", "--key", "id", "--value", "n"}
	r, saved := rand.New(rand.NewPCG(testenv.FirstSeed(), 3)), 0
	for round := 0; round < rounds || saved == 0 && round < 2*rounds+10; round++ { // more where others had the cores
		s := startServer(t, dir, nil, args...)
		c := flightClient(t, s.socket)
		info, err := c.GetFlightInfo(context.Background(), tableNamed("t"))
		if err != nil || info.TotalRecords%int64(batch) != 0 {
			t.Fatalf("round %d: %d rows, %v", round, info.GetTotalRecords(), err)
		}
		n := int(info.TotalRecords)
		saved = max(saved, n)
		ids, values := make([]int64, n+1), make([]int64, batch)
		for i := range ids {
			ids[i] = int64(i)
		}
		for i, row := range lookUp(t, c, "t", integers([]string{"id"}, ids)) {
			if want := fmt.Sprint([]string{fmt.Sprint(i * 3), "true"}); i < n && fmt.Sprint(row) != want || i == n && row[1] == "true" {
				t.Fatalf("round %d: row %d of %d is %v", round, i, n, row)
			}
		}
		stop := time.AfterFunc(time.Duration(200+r.IntN(400))*time.Millisecond, func() { s.Process.Kill() })
		for at := n; ; at += batch {
			own := make([]int64, batch)
			for i := range own {
				own[i], values[i] = int64(at+i), int64(at+i)*3
			}
			if putRows(c, tableNamed("t"), integers([]string{"id", "n"}, own, values)) != nil {
				break
			}
		}
		stop.Stop()
		s.Process.Kill()
		s.Wait()
	}
	if saved == 0 {
		t.Error("no snapshot was made")
	}
	testenv.Tried(t, rounds, "kills")
}

// streamed adds to a table of its own numbers until the server is gone: batch j adds 1 to the client's first key, and j
// to its key j. It tells how many batches were sent, and counts those that are acknowledged.
func streamed(c wire.Client, name string, own int64, acknowledged *atomic.Int64) (sent int64) {
	sent = acknowledged.Load()
	x, err := c.DoPut(context.Background())
	if err != nil {
		return sent
	}
	names := []string{"id", "n", "m"}[:2+own%2]
	batch := func(j int64) arrow.RecordBatch {
		columns := [][]int64{{own << 32, own<<32 + j}, {1, j}, {1, j}}
		return integers(names, columns[:len(names)]...)
	}
	w := wire.NewRecordWriter(x, ipc.WithSchema(batch(1).Schema()))
	w.SetFlightDescriptor(&wire.FlightDescriptor{Type: wire.DescriptorCMD, Cmd: fmt.Appendf(nil, `{"table":%q,"mode":"add"}`, name)})
	const ahead = 5
	places, ended := make(chan struct{}, ahead), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, err := x.Recv(); err != nil {
				return
			}
			acknowledged.Add(1)
			<-places
		}
	}()
	for {
		select {
		case places <- struct{}{}:
		case <-ended:
			return sent
		}
		if sent++; w.Write(batch(sent)) != nil {
			<-ended
			return sent
		}
	}
}

// After kill -9 under load what is there is the batches of each client up to some one, wholly and once: with --log always
// all that were acknowledged, with everysec all but those of the last second or two. So it is on one device and on two,
// by turns: a folder of the one is read on the other.
func TestTablesLogSurvivesKill(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	for _, log := range []string{"always", "everysec"} {
		t.Run(log, func(t *testing.T) { tablesSurviveKill(t, log) })
	}
}

func tablesSurviveKill(t *testing.T, log string) {
	dir, rounds, clients := t.TempDir(), 2, 4
	if testenv.Long() {
		rounds = 20
	}
	args := []string{"--data", filepath.Join(dir, "data"), "--log", log, "--save", "every=150ms", "--table", "t0", "--schema", "id:int64,n:int64", "--key", "id", "--table", "t1", "--schema",
		"id:int64,n:int64,m:int64", "--key", "id"}
	r := rand.New(rand.NewPCG(testenv.FirstSeed(), 5))
	sent, least, acknowledged := make([]int64, clients), make([]int64, clients), make([]atomic.Int64, clients)
	total, lost := int64(0), int64(0)
	for round := range rounds + 1 {
		s := startServer(t, dir, nil, slices.Concat(args, [][]string{{"--devices", "cpu:0,cpu:1"}, {"--device", "cpu"}}[round/2%2])...)
		c := flightClient(t, s.socket)
		for own := range clients {
			first, name := int64(own)<<32, fmt.Sprint("t", own%2)
			n := int64(0)
			fmt.Sscan(lookUp(t, c, name, integers([]string{"id"}, []int64{first}))[0][0], &n)
			if n < least[own] || n > sent[own] {
				t.Fatalf("round %d: client %d has %d batches of %d that were sent and %d that must be there: %s", round, own, n, sent[own],
					least[own], s.says)
			}
			var ids []int64
			for j := int64(1); j <= max(n, sent[own])+1; j++ {
				ids = append(ids, first+j)
			}
			for i, row := range lookUp(t, c, name, integers([]string{"id"}, ids)) {
				j := int64(i + 1)
				if is := row[len(row)-1] == "true"; is != (j <= n) || is && (row[0] != fmt.Sprint(j) || row[len(row)-2] != row[0]) {
					t.Fatalf("round %d: client %d has %d batches, and row %d is %v", round, own, n, j, row)
				}
			}
			lost += max(0, acknowledged[own].Load()-n)
			sent[own] = n
			acknowledged[own].Store(n)
		}
		if round == rounds {
			break
		}
		before := slices.Clone(sent)
		after, may := killTime(r, log)
		least = s.load(after, may, acknowledged, func(own int) {
			sent[own] = streamed(flightClient(t, s.socket), fmt.Sprint("t", own%2), int64(own), &acknowledged[own])
		})
		for own := range clients {
			total += acknowledged[own].Load() - before[own]
		}
	}
	if total < int64(rounds*clients) {
		t.Errorf("%d batches were acknowledged", total)
	}
	testenv.Tried(t, int(total), "batches")
	t.Logf("%d batches were acknowledged, and %d of them lost in %d kills", total, lost, rounds)
}

// Where the log cannot be written, as on a full disk, batches are refused, and look-ups go on. When there is room, batches
// are done again, and what was acknowledged is there after a kill.
func TestServeTablesOnFullDisk(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	dir := t.TempDir()
	args := []string{"--device", "cpu", "--data", filepath.Join(dir, "data"), "--log", "always", "--http",
		"127.0.0.1:0", "--table", "t", "--schema", "id:int64,n:int64", "--key", "id"}
	s := startServer(t, dir, []string{"WARPMAP_TEST_SMALL_FILES=65536"}, args...)
	c := flightClient(t, s.socket)
	put := func(id int64) error {
		return putRows(c, tableNamed("t"), integers([]string{"id", "n"}, []int64{id}, []int64{2 * id}))
	}
	n := int64(0)
	for ; n < 10_000 && put(n) == nil; n++ {
	}
	if n < 50 || n == 10_000 {
		t.Fatalf("%d batches were acknowledged: %s", n, s.says)
	}
	err = put(n + 1)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the log cannot be written") {
		t.Errorf("a batch on a full disk: %v", err)
	}
	if rows := lookUp(t, c, "t", integers([]string{"id"}, []int64{n - 1})); rows[0][0] != fmt.Sprint(2*n-2) {
		t.Errorf("a look-up on a full disk: %v", rows)
	}
	page, err := http.Get("http://" + s.web() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	page.Body.Close()
	if page.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the health of it is %s", page.Status)
	}
	if err := moreRoom(s.Process.Pid); err != nil {
		t.Skip(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err = put(n + 2); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatalf("there is room again: %v: %s", err, s.says)
		}
	}
	s.Process.Kill()
	s.Wait()
	s = startServer(t, dir, nil, args...)
	var ids []int64
	for id := range n {
		ids = append(ids, id)
	}
	for i, row := range lookUp(t, flightClient(t, s.socket), "t", integers([]string{"id"}, append(ids, n+2))) {
		if want := int64(i); i < len(ids) && row[0] != fmt.Sprint(2*want) || i == len(ids) && row[0] != fmt.Sprint(2*n+4) {
			t.Fatalf("row %d is %v", i, row)
		}
	}
}

// A server that ends while the disk is full stays until what it has is in a file, or until another signal comes.
func TestServeTablesEndsOnFullDisk(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	ids := make([]int64, 10_000) // of 160,000 bytes with their values
	for i := range ids {
		ids[i] = int64(i)
	}
	last := integers([]string{"id"}, ids[len(ids)-1:])
	for _, c := range []struct {
		option string
		room   bool // there will be
	}{{"--save=every=1h", true}, {"--log=everysec", true}, {"--save=every=1h", false}} {
		dir := t.TempDir()
		args := []string{"--device", "cpu", "--data", filepath.Join(dir, "data"), c.option, "--table", "t", "--schema",
			"id:int64,n:int64", "--key", "id"}
		s := startServer(t, dir, []string{"WARPMAP_TEST_SMALL_FILES=65536"}, args...)
		if err := putRows(flightClient(t, s.socket), tableNamed("t"), integers([]string{"id", "n"}, ids, ids)); err != nil {
			t.Fatal(err)
		}
		s.Process.Signal(syscall.SIGTERM)
		s.said("another signal comes: ")
		if !c.room {
			s.Process.Signal(syscall.SIGTERM)
		} else if err := moreRoom(s.Process.Pid); err != nil {
			t.Skip(err)
		}
		if err := s.Wait(); (err == nil) != c.room {
			t.Errorf("%s, room %t: %v: %s", c.option, c.room, err, s.says)
		}
		s = startServer(t, dir, nil, args...)
		if got := lookUp(t, flightClient(t, s.socket), "t", last); (got[0][1] == "true") != c.room {
			t.Errorf("%s, room %t: the last row is %v", c.option, c.room, got)
		}
	}
}

func TestServeTablesErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	empty, password := file("empty", "\n"), file("password", "x\n")
	broken := filepath.Join(dir, "broken.table")
	if err := os.WriteFile(broken, []byte("warpmap columns 1\nrest"), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(dir, "damaged")
	if err := errors.Join(os.MkdirAll(filepath.Join(damaged, "tables"), 0o700),
		os.WriteFile(filepath.Join(damaged, "tables", "log.1"), []byte("what is no log of ours"), 0o600)); err != nil {
		t.Fatal(err)
	}
	listen := []string{"--device", "cpu", "--flight", "127.0.0.1:0"}
	for _, c := range []struct {
		code int
		args []string
		says string
	}{
		{exitUsage, nil, "--flight-socket"},
		{exitUsage, []string{"--table", "a=b.csv", "--key", "id"}, "--flight"},
		{exitUsage, []string{"--key", "id"}, "--table"},
		{exitUsage, []string{"--flight", ":0"}, "--insecure"},
		{exitUsage, []string{"--flight", "0.0.0.0:0", "--password-file", password}, "--tls-cert"},
		{exitUsage, []string{"--flight", "[::]:0"}, "--insecure"},
		{exitUsage, []string{"--flight", "192.0.2.1:0"}, "--insecure"},
		{exitUsage, append(listen, "--http", ":0"), "--insecure"},
		{exitUsage, []string{"--flight", "nowhere"}, "--flight"},
		{exitUsage, append(listen, "--table", "=x"), "NAME=FILE"},
		{exitUsage, append(listen, "--table", "a"), "--schema and --key"},
		{exitUsage, append(listen, "--table", "a", "--schema", "id:int65"), "int64"},
		{exitUsage, append(listen, "--table", "a", "--schema", "id:int64", "--key", "id", "--table", "a=x"), "two"},
		{exitUsage, append(listen, "--table", "a=x", "--schema", "id:int64"), "the file's"},
		{exitUsage, append(listen, "--log", "always"), "--data"},
		{exitUsage, append(listen, "--log", "often", "--data", dir), "--log"},
		{exitUsage, append(listen, "--save", "60s", "--data", dir), "--save"},
		{exitUsage, append(listen, "--save", "every=0s", "--data", dir), "--save"},
		{exitUsage, append(listen, "--tls-cert", "x"), "--tls-key"},
		{exitUsage, append(listen, "--tls-cert", empty, "--tls-key", empty), "--tls-cert"},
		{exitUsage, append(listen, "--password-file", filepath.Join(dir, "none")), "--password-file"},
		{exitUsage, append(listen, "--password-file", empty), "empty"},
		{exitUsage, append(listen, "--timeout", "0s"), "--timeout"},
		{exitInput, append(listen, "--data", damaged), "log.1"},
		{exitInput, append(listen, "--data", damaged, "--log", "no", "--repair"), "not repaired"},
		{exitUsage, append(listen, "--max-rows", "0"), "--max-rows"},
		{exitUsage, append(listen, "--table", "a="+filepath.Join(dir, "x.csv")), "--key"},
		{exitInput, append(listen, "--table", "a="+filepath.Join(dir, "x.csv"), "--key", "id"), "x.csv"},
		{exitInput, append(listen, "--table", "a="+broken), "broken.table"},
		{exitUsage, append(listen, "--table", "a", "--schema", "id:int64", "--key", "no"), `no column "no"`},
		{exitUsage, append(listen, "--table", "a", "--schema", "id:int64", "--key", "id", "--family", "none"), "want one of"},
	} {
		if _, _, err := run(t, append([]string{"serve"}, c.args...)...); err == nil || exitCode(err) != c.code ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: exit code %d, %v; want %d, %s", c.args, exitCode(err), err, c.code, c.says)
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	wire "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// nothing is the value of a row that is not there.
const nothing = "(nil)"

const honestMost = 300 // rows of a table

// honestTables is a client of Flight that behaves, and knows what it wrote. It has a table of numbers, which the device
// holds, and one of texts, which host memory holds.
type honestTables struct {
	t      *testing.T
	h      *hostile // its seed and addresses: it does no harm
	client wire.Client
	// all has the values that a row may have: one, and "(nil)" where there is none, or two, since a write was refused.
	all      map[honestRow][]string
	answered atomic.Int64
	refused  atomic.Int64 // writes that were refused, as on a full disk
	slowest  atomic.Int64 // nanoseconds
}

type honestRow struct {
	table string
	id    int64
}

var honestColumns = map[string]string{"numbers": "id:int64,n:int64", "texts": "id:int64,s:utf8?"}

func newHonestTables(t *testing.T, h *hostile) *honestTables {
	return &honestTables{t: t, h: h, all: map[honestRow][]string{}}
}

func (c *honestTables) String() string {
	return fmt.Sprintf("%d answers, the slowest in %v, %d writes refused", c.answered.Load(),
		time.Duration(c.slowest.Load()).Round(time.Millisecond), c.refused.Load())
}

// is reports whether a row may have a value, and has it from then on.
func (c *honestTables) is(row honestRow, got string) bool {
	if !slices.Contains(c.may(row), got) {
		c.t.Errorf("%v is %.100q, want %.100q", row, got, c.may(row))
		return false
	}
	c.all[row] = []string{got}
	return true
}

func (c *honestTables) may(row honestRow) []string {
	if v := c.all[row]; v != nil {
		return v
	}
	return []string{nothing}
}

// wrote says that a row has a value, or where it was refused, perhaps.
func (c *honestTables) wrote(row honestRow, value string, refused bool) {
	if !refused {
		c.all[row] = []string{value}
	} else if now := c.may(row); !slices.Contains(now, value) {
		c.all[row] = append(slices.Clone(now), value)
	}
}

// tableClient connects to a server of tables, whatever else does.
func tableClient(socket string, o ...grpc.DialOption) (wire.Client, error) {
	b := backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 100 * time.Millisecond}
	o = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: b, MinConnectTimeout: 5 * time.Second})}, o...)
	return wire.NewClientWithMiddleware("unix:"+socket, nil, nil, o...)
}

// login says the password in a call.
func login(ctx context.Context, password string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+password)
}

// call has do call the server, and tells whether that was not refused. What is refused for want of room or disk is right.
func (c *honestTables) call(what string, do func(ctx context.Context) error) (refused, ok bool) {
	if c.client == nil {
		var err error
		if c.client, err = tableClient(c.h.tables); err != nil {
			c.t.Error(err)
			return false, false
		}
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(login(context.Background(), hoursPassword), time.Minute)
	defer cancel()
	err := do(ctx)
	switch code := status.Code(err); {
	case err == nil:
	case code == codes.ResourceExhausted, code == codes.Unavailable && strings.Contains(err.Error(), "the log cannot be written"),
		strings.Contains(err.Error(), "file too large"): // so says a snapshot
		c.refused.Add(1)
		refused = true
	default:
		c.t.Errorf("%s: %v", what, err)
		return false, false
	}
	c.answered.Add(1)
	c.slowest.Store(max(c.slowest.Load(), int64(time.Since(begin))))
	return refused, true
}

func (c *honestTables) leave() {
	if c.client != nil {
		c.client.Close()
		c.client = nil
	}
}

func (c *honestTables) act(name, body string) (refused, ok bool) {
	return c.call(name+" "+body, func(ctx context.Context) error { return action(ctx, c.client, name, body) })
}

// action does an action, and leaves its results out.
func action(ctx context.Context, c wire.Client, name, body string) error {
	x, err := c.DoAction(ctx, &wire.Action{Type: name, Body: []byte(body)})
	for err == nil {
		_, err = x.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (c *honestTables) create() {
	for name, columns := range honestColumns {
		c.act("create", fmt.Sprintf(`{"table":%q,"columns":%q,"keys":["id"]}`, name, columns))
	}
}

func (c *honestTables) work() {
	for !c.h.over() && !c.t.Failed() {
		for range 50 {
			if c.h.over() || !c.step() {
				break
			}
		}
		c.leave()
	}
}

// valued is how a table has a number, and rows are a batch of a table.
func valued(table string, n int64) string {
	if table == "numbers" {
		return strconv.FormatInt(n, 10)
	}
	if n%5 == 0 {
		return "(null)"
	}
	return fmt.Sprint("text ", n)
}

func rows(table string, ids, values []int64) arrow.RecordBatch {
	if table == "numbers" {
		return integers([]string{"id", "n"}, ids, values)
	}
	b := array.NewStringBuilder(memory.DefaultAllocator)
	for _, n := range values {
		if s := valued(table, n); s == "(null)" {
			b.AppendNull()
		} else {
			b.Append(s)
		}
	}
	keys := integers([]string{"id"}, ids)
	fields := []arrow.Field{keys.Schema().Field(0), {Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), []arrow.Array{keys.Column(0), b.NewArray()}, -1)
}

// step does something to a table, and tells whether the answer is right.
func (c *honestTables) step() bool {
	h := c.h
	table := h.of("numbers", "texts")
	var ids, values []int64
	for _, id := range h.Perm(honestMost)[:1+h.IntN(honestMost)] {
		ids, values = append(ids, int64(id)), append(values, h.Int64N(1000))
	}
	sure := !slices.ContainsFunc(ids, func(id int64) bool { return len(c.may(honestRow{table, id})) > 1 })
	switch choice := h.IntN(40); {
	case choice == 0:
		refused, ok := c.act("clear", table)
		for id := range int64(honestMost) {
			c.wrote(honestRow{table, id}, nothing, refused)
		}
		return ok
	case choice == 1:
		_, ok := c.act(h.of("save", "stats"), table)
		return ok
	case choice < 5:
		return c.export(table)
	case !sure || choice < 20:
		return c.find(table, ids)
	case choice < 25:
		return c.put(table, "delete", ids, nil)
	case choice < 30 && table == "numbers":
		return c.put(table, "add", ids, values)
	}
	return c.put(table, h.of("insert", "insert-new"), ids, values)
}

// put has a batch done. So much is known of each of its rows that it may be counted what was.
func (c *honestTables) put(table, mode string, ids, values []int64) bool {
	rec := integers([]string{"id"}, ids)
	if values != nil {
		rec = rows(table, ids, values)
	}
	refused, ok := c.call("put "+mode+" "+table, func(ctx context.Context) error {
		x, err := c.client.DoPut(ctx)
		if err != nil {
			return err
		}
		w := wire.NewRecordWriter(x, ipc.WithSchema(rec.Schema()))
		w.SetFlightDescriptor(&wire.FlightDescriptor{Type: wire.DescriptorCMD, Cmd: fmt.Appendf(nil, `{"table":%q,"mode":%q}`, table,
			mode)})
		if w.Write(rec) == nil { // else Recv says why
			w.Close()
		}
		x.CloseSend()
		if _, err := x.Recv(); err != nil {
			return err
		}
		if _, err = x.Recv(); errors.Is(err, io.EOF) {
			return nil
		}
		return fmt.Errorf("a batch has two results, or %w", err)
	})
	if !ok {
		return false
	}
	for i, id := range ids {
		row := honestRow{table, id}
		was, value := c.may(row)[0], nothing
		switch {
		case mode == "insert-new" && was != nothing:
			value = was
		case mode == "add" && was != nothing:
			n, _ := strconv.ParseInt(was, 10, 64)
			value = valued(table, n+values[i])
		case values != nil:
			value = valued(table, values[i])
		}
		c.wrote(row, value, refused)
	}
	return true
}

// find looks rows up.
func (c *honestTables) find(table string, ids []int64) bool {
	var got []string
	rec := integers([]string{"id"}, ids)
	refused, ok := c.call("find in "+table, func(ctx context.Context) error {
		x, err := c.client.DoExchange(ctx)
		if err != nil {
			return err
		}
		w := wire.NewRecordWriter(x, ipc.WithSchema(rec.Schema()))
		w.SetFlightDescriptor(tableNamed(table))
		if w.Write(rec) == nil { // else the reader says why
			w.Close()
		}
		x.CloseSend()
		r, err := wire.NewRecordReader(x)
		if err != nil {
			return err
		}
		defer r.Release()
		for r.Next() {
			value, found := r.RecordBatch().Column(0), r.RecordBatch().Column(1)
			for i := range value.Len() {
				if found.ValueStr(i) != "true" {
					got = append(got, nothing)
				} else {
					got = append(got, value.ValueStr(i))
				}
			}
		}
		return r.Err()
	})
	if ok && !refused && len(got) != len(ids) {
		c.t.Errorf("%d rows for %d keys", len(got), len(ids))
		return false
	}
	for i, v := range got {
		if !c.is(honestRow{table, ids[i]}, v) {
			return false
		}
	}
	return ok
}

// export looks at all rows.
func (c *honestTables) export(table string) bool {
	got := map[int64]string{}
	refused, ok := c.call("export "+table, func(ctx context.Context) error {
		x, err := c.client.DoGet(ctx, &wire.Ticket{Ticket: []byte(table)})
		if err != nil {
			return err
		}
		r, err := wire.NewRecordReader(x)
		if err != nil {
			return err
		}
		defer r.Release()
		for r.Next() {
			rec := r.RecordBatch()
			for i, id := range rec.Column(0).(*array.Int64).Int64Values() {
				if _, twice := got[id]; twice || id < 0 || id >= honestMost {
					return fmt.Errorf("row %d comes twice, or was never written", id)
				}
				got[id] = rec.Column(1).ValueStr(i)
			}
		}
		return r.Err()
	})
	for id := range int64(honestMost) {
		v, is := got[id]
		if !is {
			v = nothing
		}
		if ok && !refused && !c.is(honestRow{table, id}, v) {
			return false
		}
	}
	return ok
}

// check looks all rows up, in both ways.
func (c *honestTables) check() {
	defer c.leave()
	var ids []int64
	for id := range int64(honestMost) {
		ids = append(ids, id)
	}
	for table := range honestColumns {
		if !c.find(table, ids) || !c.export(table) {
			return
		}
	}
}

// settle is check, and has a batch acknowledged behind it: so all before that stays.
func (c *honestTables) settle() {
	c.check()
	defer c.leave()
	for until := time.Now().Add(time.Minute); !c.t.Failed(); time.Sleep(10 * time.Millisecond) {
		before := c.refused.Load()
		if c.put("numbers", "insert", []int64{0}, []int64{1}); c.refused.Load() == before {
			return
		}
		if time.Now().After(until) {
			c.t.Error("the disk has room, and a batch is refused")
		}
	}
}

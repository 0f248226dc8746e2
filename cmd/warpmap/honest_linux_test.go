package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
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
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// honest is what a client that behaves knows of what it wrote.
type honest[K comparable] struct {
	t  *testing.T
	h  *hostile // its seed and addresses: it does no harm
	of string
	// all has the values that a key may have: one, and "(nil)" where there is none, or two, since a write was refused.
	all      map[K][]string
	answered atomic.Int64
	refused  atomic.Int64 // writes that were refused, as on a full disk
	lost     atomic.Int64 // connections that were
	slowest  atomic.Int64 // nanoseconds
}

func (c *honest[K]) String() string {
	return fmt.Sprintf("%s: %d answers, the slowest in %v, %d writes and %d connections refused", c.of, c.answered.Load(),
		time.Duration(c.slowest.Load()).Round(time.Millisecond), c.refused.Load(), c.lost.Load())
}

// is tells whether a key may have a value, and has it from then on.
func (c *honest[K]) is(key K, got string) bool {
	if !slices.Contains(c.may(key), got) {
		c.t.Errorf("%v is %.100q, want %.100q", key, got, c.may(key))
		return false
	}
	c.all[key] = []string{got}
	return true
}

func (c *honest[K]) may(key K) []string {
	if v := c.all[key]; v != nil {
		return v
	}
	return []string{nothing}
}

// wrote says that a key has a value, or where it was refused, perhaps.
func (c *honest[K]) wrote(key K, value string, refused bool) {
	if !refused {
		c.all[key] = []string{value}
	} else if now := c.may(key); !slices.Contains(now, value) {
		c.all[key] = append(slices.Clone(now), value)
	}
}

func (c *honest[K]) took(begin time.Time) {
	c.answered.Add(1)
	c.slowest.Store(max(c.slowest.Load(), int64(time.Since(begin))))
}

// done tells that the time is over, and that there was an answer: a machine with other work may have taken all of the time
// to give a place. That may take a minute more.
func (c *honest[K]) done() bool {
	return c.h.over() && (c.answered.Load() > 0 || time.Since(c.h.end) > time.Minute) || c.t.Failed()
}

// honestKeys is a client of Redis.
type honestKeys struct {
	honest[string]
	conn net.Conn
	from *bufio.Reader
	cut  bool // connections may be cut instead of replies: so it is where writes cannot be logged before that
}

func newHonestKeys(t *testing.T, h *hostile, cut bool) *honestKeys {
	return &honestKeys{honest: honest[string]{t: t, h: h, of: "keys", all: map[string][]string{}}, cut: cut}
}

const honestMost = 300 // keys of a kind

const noReply = "-MISCONF there is no reply"

// atOnce is what Linux has come through a Unix socket as one piece. Of more the server may have answered a part before it
// cuts the connection, and what it has not read by then has a client hear of a reset instead of the end.
const atOnce = 32 << 10

// ask sends a pipeline, and gives the replies; nil: there is something wrong.
func (c *honestKeys) ask(all ...[]string) (replies []string) {
	begin := time.Now()
	c.conn.SetDeadline(begin.Add(time.Minute))
	var b []byte
	for _, args := range all {
		b = append(b, request(args...)...)
	}
	cut := func(err error) bool {
		return c.cut && (err == io.EOF || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET))
	}
	if _, err := c.conn.Write(b); err != nil && !cut(err) {
		c.t.Errorf("a request is not taken: %v", err)
		return nil
	}
	for i := range all {
		reply, err := readReply(c.from)
		if cut(err) && (i == 0 || len(b) > atOnce) {
			c.leave()
			c.lost.Add(1)
			return append(replies, slices.Repeat([]string{noReply}, len(all)-i)...)
		} else if err != nil {
			c.t.Errorf("no reply: %v", err)
			return nil
		}
		replies = append(replies, reply)
	}
	c.took(begin)
	return replies
}

// connect connects where the client has no connection.
func (c *honestKeys) connect() bool {
	for c.conn == nil && !c.t.Failed() {
		if c.conn = c.h.dial(true); c.conn == nil {
			c.lost.Add(1)
			time.Sleep(5 * time.Millisecond)
		}
	}
	if c.conn == nil {
		return false
	}
	c.from = bufio.NewReader(c.conn)
	return true
}

func (c *honestKeys) leave() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

func (c *honestKeys) work() {
	for !c.done() {
		if c.connect() {
			for range 100 {
				if c.done() || c.conn == nil || !c.step() {
					break
				}
			}
		}
		c.leave()
	}
}

// refuses tells whether a reply refuses a write.
func refuses(reply string) bool {
	return strings.HasPrefix(reply, "-MISCONF") || strings.HasPrefix(reply, "-OOM")
}

// step sends a pipeline of commands, of each key one, and tells whether all replies are right.
func (c *honestKeys) step() bool {
	h := c.h
	if h.IntN(300) == 0 {
		reply := c.ask([]string{"FLUSHALL"})
		if reply == nil {
			return false
		}
		for key := range c.all {
			c.wrote(key, nothing, refuses(reply[0]))
		}
		if c.conn == nil {
			return true
		}
	}
	var asked [][]string
	numbers := h.Perm(honestMost)[:1+h.IntN(100)]
	for _, n := range numbers {
		key, value := fmt.Sprint("mine:", n), strings.Repeat(strconv.Itoa(h.IntN(1000)), 1+h.IntN(300))
		switch choice := h.IntN(8); {
		case len(c.may(key)) > 1 || choice < 2:
			asked = append(asked, []string{"GET", key})
		case choice < 5:
			asked = append(asked, []string{"SET", key, value})
		case choice == 5:
			asked = append(asked, []string{"APPEND", key, value[:len(value)%7]})
		case choice == 6:
			asked = append(asked, []string{"DEL", key})
		default:
			asked = append(asked, []string{"MSET", key, value, key + "'", value})
		}
	}
	replies := c.ask(asked...)
	for i, reply := range replies {
		if !c.right(asked[i], reply) {
			return false
		}
	}
	return replies != nil
}

// right tells whether a command's reply is, and knows then what it did.
func (c *honestKeys) right(args []string, got string) bool {
	key := args[1]
	was := c.may(key)[0]
	want, value := "+OK", args[len(args)-1]
	switch args[0] {
	case "GET":
		return got == noReply || c.is(key, got)
	case "DEL":
		if want, value = ":1", nothing; was == nothing {
			want = ":0"
		}
	case "APPEND":
		if was != nothing {
			value = was + value
		}
		want = fmt.Sprint(":", len(value))
	case "MSET":
		c.wrote(args[3], value, refuses(got))
	}
	no := refuses(got)
	if no {
		c.refused.Add(1)
	} else if got != want {
		c.t.Errorf("%.100q is answered %.100q, want %s", args, got, want)
		return false
	}
	c.wrote(key, value, no)
	return true
}

// check looks all keys up.
func (c *honestKeys) check() {
	defer c.leave()
	if !c.connect() {
		return
	}
	for n := range honestMost {
		key := fmt.Sprint("mine:", n)
		replies := c.ask([]string{"GET", key}, []string{"GET", key + "'"})
		if replies == nil || !c.is(key, replies[0]) || !c.is(key+"'", replies[1]) {
			return
		}
	}
}

// settle is check, and has a write acknowledged behind it: so all before that stays.
func (c *honestKeys) settle() {
	c.check()
	defer c.leave()
	for until := time.Now().Add(time.Minute); c.connect(); time.Sleep(10 * time.Millisecond) {
		reply := c.ask([]string{"SET", "mine:0", "settled"})
		if reply == nil || !c.right([]string{"SET", "mine:0", "settled"}, reply[0]) {
			return
		}
		if !refuses(reply[0]) {
			return
		}
		if time.Now().After(until) {
			c.t.Errorf("the disk has room, and a write is answered %q", reply[0])
			return
		}
	}
}

// honestTables is a client of Flight. It has a table of numbers, which the device holds, and one of texts, which host
// memory holds.
type honestTables struct {
	honest[honestRow]
	client wire.Client
}

type honestRow struct {
	table string
	id    int64
}

var honestColumns = map[string]string{"numbers": "id:int64,n:int64", "texts": "id:int64,s:utf8?"}

func newHonestTables(t *testing.T, h *hostile) *honestTables {
	return &honestTables{honest: honest[honestRow]{t: t, h: h, of: "tables", all: map[honestRow][]string{}}}
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
	c.took(begin)
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

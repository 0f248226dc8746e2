package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	wire "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"

	"github.com/warpmap/warpmap/internal/columnar"
)

// theirs are the tables that attackers have, by their columns.
var theirs = []string{"id:int64,n:int64", "id:int64,s:utf8?", "s:utf8,n:int64", "id:int64,s:utf8"}

// table is the name and the number of a table that attackers have.
func (h *hostile) table() (string, int) {
	n := h.IntN(len(theirs))
	return "their" + strconv.Itoa(n), n
}

// batch are random rows that fit a table, or its keys alone.
func (h *hostile) batch(table, rows int, keysAlone bool) arrow.RecordBatch {
	names := strings.FieldsFunc(theirs[table], func(r rune) bool { return r == ',' })
	if keysAlone {
		names = names[:1]
	}
	var fields []arrow.Field
	var arrays []arrow.Array
	for _, name := range names {
		name, _, _ = strings.Cut(name, ":")
		numbers, texts := array.NewInt64Builder(memory.DefaultAllocator), array.NewStringBuilder(memory.DefaultAllocator)
		for range rows {
			if name == "s" {
				texts.Append(strings.Repeat("s", h.IntN(40)) + strconv.Itoa(h.IntN(20_000)))
			} else {
				numbers.Append(h.Int64N(20_000))
			}
		}
		one := arrow.Array(numbers.NewArray())
		if name == "s" {
			one = texts.NewArray()
		}
		fields = append(fields, arrow.Field{Name: name, Type: one.DataType(), Nullable: true})
		arrays = append(arrays, one)
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, int64(rows))
}

// withTables connects and has do call the server, again and again.
func (h *hostile) withTables(do func(ctx context.Context, c wire.Client), o ...grpc.DialOption) {
	for !h.over() {
		c, err := tableClient(h.tables, o...)
		if err != nil {
			continue
		}
		for range 20 {
			if h.over() {
				break
			}
			ctx, cancel := context.WithTimeout(login(context.Background(), hoursPassword), 10*time.Second)
			do(ctx, c)
			cancel()
			h.sleep(pause)
		}
		c.Close()
	}
}

// streamOf is what DoPut and DoExchange have in common.
type streamOf interface {
	wire.DataStreamWriter
	CloseSend() error
}

// open opens a DoPut or a DoExchange, and has what comes back thrown away.
func (h *hostile) open(ctx context.Context, c wire.Client) (x streamOf, ended <-chan struct{}, ok bool) {
	done := make(chan struct{})
	if h.IntN(2) == 0 {
		x, err := c.DoExchange(ctx)
		if err != nil {
			return nil, nil, false
		}
		go func() {
			for err == nil {
				_, err = x.Recv()
			}
			close(done)
		}()
		return x, done, true
	}
	p, err := c.DoPut(ctx)
	if err != nil {
		return nil, nil, false
	}
	go func() {
		for err == nil {
			_, err = p.Recv()
		}
		close(done)
	}()
	return p, done, true
}

// mode is a descriptor of a table in any mode.
func (h *hostile) mode(table string) *wire.FlightDescriptor {
	return &wire.FlightDescriptor{Type: wire.DescriptorCMD, Cmd: fmt.Appendf(nil, `{"table":%q%s}`, table, h.of("", "", "", `,"mode":"add"`,
		`,"mode":"insert-new"`, `,"mode":"min"`, `,"mode":"delete"`, `,"mode":"find"`, `,"mode":"x"`, `,"part":-1`))}
}

// messages are those of a stream with one batch: of the schema and of the batch.
func messages(rec arrow.RecordBatch, o ...ipc.Option) (all []*wire.FlightData) {
	w := wire.NewRecordWriter(keeper{&all}, append(o, ipc.WithSchema(rec.Schema()))...)
	w.Write(rec)
	w.Close()
	return all
}

type keeper struct{ all *[]*wire.FlightData }

func (k keeper) Send(d *wire.FlightData) error {
	*k.all = append(*k.all, &wire.FlightData{DataHeader: append([]byte(nil), d.DataHeader...), DataBody: append([]byte(nil), d.DataBody...)})
	return nil
}

// odd are numbers that no place, length or offset should be.
func (h *hostile) odd() uint64 {
	all := []uint64{0, 1, 7, 1 << 20, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 62, 1<<63 - 1, 1 << 63, ^uint64(0), ^uint64(7)}
	return all[h.IntN(len(all))] + h.Uint64N(3) - 1
}

// broken puts odd numbers into a message: places and lengths of buffers and lists are in its header, and offsets of texts
// in its body.
func (h *hostile) broken(b []byte) {
	for range 1 + h.IntN(4) {
		switch {
		case len(b) < 8:
		case h.IntN(3) == 0:
			binary.LittleEndian.PutUint32(b[h.IntN(len(b)/4)*4:], uint32(h.odd()))
		case h.IntN(3) == 0:
			b[h.IntN(len(b))] = byte(h.Uint32())
		default:
			binary.LittleEndian.PutUint64(b[h.IntN(len(b)/8)*8:], h.odd())
		}
	}
}

// rawFrame is one of HTTP/2, whose length says what it likes.
func rawFrame(length int, kind, flags byte, stream uint32, payload []byte) []byte {
	b := []byte{byte(length >> 16), byte(length >> 8), byte(length), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// Kinds of frames, and the flags for their end.
const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameWindow, frameContinued = 0, 1, 3, 4, 6, 8, 9

	endHeaders = 4
)

// headers are those of a call, without compression.
func headers(method, token string) (b []byte) {
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/arrow.flight.protocol.FlightService/" + method},
		{":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}, {"authorization", "Bearer " + token}} {
		b = append(append(append(b, 0, byte(len(h[0]))), h[0]...), byte(len(h[1])))
		b = append(b, h[1]...)
	}
	return b
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// withFrames connects, and has do write frames.
func (h *hostile) withFrames(do func(c net.Conn)) {
	h.with(func() net.Conn { return h.connect("unix", h.tables) }, func(c net.Conn) {
		io.WriteString(c, preface)
		if h.IntN(4) > 0 {
			go io.Copy(io.Discard, c)
		}
		do(c)
		h.sleep(20 * time.Millisecond)
	})
}

func (h *hostile) method() []byte {
	return headers(h.of("DoPut", "DoExchange", "DoGet", "DoAction", "ListFlights", "Handshake", "Nothing"), h.of(hoursPassword,
		hoursPassword, "wrong"))
}

// tableAttacks are ways of being hostile to the server of tables.
var tableAttacks = map[string]func(h *hostile){
	"random frames": func(h *hostile) {
		h.withFrames(func(c net.Conn) {
			for range 1 + h.IntN(20) {
				n := h.IntN(300)
				c.Write(rawFrame(n+[]int{0, 0, 0, 1, -1, 1 << 23}[h.IntN(6)], byte(h.IntN(11)), byte(h.Uint32()), uint32(h.IntN(9)), h.bytes(n)))
			}
		})
	},
	"resets": func(h *hostile) {
		h.withFrames(func(c net.Conn) {
			for i := range uint32(500) {
				b := h.method()
				c.Write(append(rawFrame(len(b), frameHeaders, endHeaders, 2*i+1, b), rawFrame(4, frameReset, 0, 2*i+1, h.bytes(4))...))
			}
		})
	},
	"headers without end": func(h *hostile) {
		h.withFrames(func(c net.Conn) {
			b := h.method()
			c.Write(rawFrame(len(b), frameHeaders, 0, 1, b))
			for range 200 {
				b := append([]byte("\x00\x01x\x7f\x81\x1f"), make([]byte, 4095)...)
				if _, err := c.Write(rawFrame(len(b), frameContinued, 0, 1, b)); err != nil {
					return
				}
			}
		})
	},
	"floods": func(h *hostile) {
		h.withFrames(func(c net.Conn) {
			one := [][]byte{rawFrame(8, framePing, 0, 0, h.bytes(8)), rawFrame(6, frameSettings, 0, 0, []byte{0, 4, 127, 255, 255, 255}),
				rawFrame(4, frameWindow, 0, 0, []byte{127, 255, 255, 255}), rawFrame(0, frameData, 0, 1, nil)}[h.IntN(4)]
			for range 1000 {
				if _, err := c.Write(one); err != nil {
					return
				}
			}
		})
	},
	"huge messages": func(h *hostile) {
		h.withFrames(func(c net.Conn) {
			b := h.method()
			c.Write(rawFrame(len(b), frameHeaders, endHeaders, 1, b))
			first := append([]byte{byte(h.IntN(2))}, h.of("\xff\xff\xff\xff", "\x7f\xff\xff\xff", "\x00\x1f\xff\xf0", "\x00\x00\x00\x00")...)
			c.Write(rawFrame(len(first), frameData, 0, 1, first))
			for range h.IntN(200) {
				if _, err := c.Write(rawFrame(16<<10, frameData, 0, 1, h.bytes(16<<10))); err != nil {
					return
				}
			}
			h.sleep(time.Second)
		})
	},
	"bombs": func(h *hostile) { // two gigabytes of zeros, in two megabytes
		h.withTables(func(ctx context.Context, c wire.Client) {
			if x, ended, ok := h.open(ctx, c); ok {
				x.Send(&wire.FlightData{FlightDescriptor: h.mode("their0"), AppMetadata: make([]byte, 1<<h.IntN(26))})
				x.CloseSend()
				<-ended
			}
		}, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	},
	"broken batches": func(h *hostile) {
		h.withTables(func(ctx context.Context, c wire.Client) {
			x, ended, ok := h.open(ctx, c)
			if !ok {
				return
			}
			name, n := h.table()
			var o []ipc.Option
			if h.IntN(8) == 0 {
				o = append(o, ipc.WithZstd())
			}
			all := messages(h.batch(n, h.IntN(300), h.IntN(2) == 0), o...)
			if h.IntN(8) == 0 {
				h.broken(all[0].DataHeader)
			}
			all[0].FlightDescriptor = h.mode(name)
			for _, d := range all[1:] {
				switch h.IntN(6) {
				case 0:
					h.broken(d.DataBody)
				case 1:
					d.DataBody = d.DataBody[:h.IntN(len(d.DataBody)+1)]
				case 2:
					d.AppMetadata = h.bytes(h.IntN(1 << 16))
				case 3:
				default:
					h.broken(d.DataHeader)
				}
			}
			for _, d := range all {
				if x.Send(d) != nil {
					break
				}
			}
			x.CloseSend()
			<-ended
		})
	},
	"dictionaries": func(h *hostile) {
		kind := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}
		b := array.NewDictionaryBuilder(memory.DefaultAllocator, kind).(*array.BinaryDictionaryBuilder)
		for i := range 100 {
			b.AppendString(strconv.Itoa(i))
		}
		column := b.NewArray()
		rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "s", Type: kind}}, nil), []arrow.Array{column}, 100)
		plain, err := columnar.EncodeSchema(h.batch(2, 1, true).Schema())
		if err != nil {
			panic(err)
		}
		h.withTables(func(ctx context.Context, c wire.Client) {
			x, ended, ok := h.open(ctx, c)
			if !ok {
				return
			}
			all := messages(rec)
			if h.IntN(2) == 0 { // the schema has none, and what comes is the dictionary, or what refers to it
				all[0].DataHeader = plain
				all = append(all[:1], all[1+h.IntN(2):]...)
			}
			all[0].FlightDescriptor = h.mode("their2")
			for _, d := range all {
				x.Send(d)
			}
			x.CloseSend()
			<-ended
		})
	},
	"strangers": func(h *hostile) {
		h.withTables(func(ctx context.Context, c wire.Client) {
			ctx = login(context.Background(), string(h.of("", "wrong", strings.Repeat("long", 10_000))))
			if x, ended, ok := h.open(ctx, c); ok {
				x.Send(&wire.FlightData{FlightDescriptor: h.mode("numbers"), DataBody: make([]byte, 1<<20)})
				<-ended
			}
			action(ctx, c, "drop", "numbers")
			c.AuthenticateBasicToken(context.Background(), "numbers", "wrong")
		})
	},
	"silence": func(h *hostile) { // behind the schema, or before it, or in the middle of a batch
		h.withTables(func(ctx context.Context, c wire.Client) {
			x, ended, ok := h.open(ctx, c)
			if !ok {
				return
			}
			name, n := h.table()
			all := messages(h.batch(n, 10, false))
			all[0].FlightDescriptor = h.mode(name)
			for _, d := range all[:h.IntN(len(all)+1)] {
				x.Send(d)
			}
			select {
			case <-ended:
			case <-time.After(time.Until(h.end)):
			}
		})
	},
	"no reader": func(h *hostile) {
		small := []grpc.DialOption{grpc.WithInitialWindowSize(64 << 10), grpc.WithInitialConnWindowSize(64 << 10)}
		h.withTables(func(ctx context.Context, c wire.Client) {
			name, n := h.table()
			if h.IntN(2) == 0 {
				if _, err := c.DoGet(ctx, &wire.Ticket{Ticket: []byte(name)}); err == nil {
					h.sleep(3 * time.Second)
				}
				return
			}
			x, err := c.DoExchange(ctx)
			if err != nil {
				return
			}
			w := wire.NewRecordWriter(x, ipc.WithSchema(h.batch(n, 0, true).Schema()))
			w.SetFlightDescriptor(tableNamed(name))
			for rec := h.batch(n, 10_000, true); w.Write(rec) == nil; { // until it is given up
				if ctx.Err() != nil || h.over() {
					return
				}
			}
		}, small...)
	},
	"cancelled": func(h *hostile) {
		h.withTables(func(ctx context.Context, c wire.Client) {
			ctx, cancel := context.WithTimeout(ctx, time.Duration(h.IntN(20_000))*time.Microsecond)
			defer cancel()
			if x, ended, ok := h.open(ctx, c); ok {
				name, n := h.table()
				all := messages(h.batch(n, h.IntN(10_000), h.IntN(2) == 0))
				all[0].FlightDescriptor = h.mode(name)
				for _, d := range append(all, all[1:]...) {
					x.Send(d)
				}
				<-ended
			}
		})
	},
	"actions": func(h *hostile) {
		h.withTables(func(ctx context.Context, c wire.Client) {
			name, n := h.table()
			key, _, _ := strings.Cut(theirs[n], ":")
			switch h.IntN(12) {
			case 0:
				action(ctx, c, "drop", name)
			case 1:
				action(ctx, c, h.of("clear", "save", "load"), name)
			case 2, 3, 4:
				action(ctx, c, "create", fmt.Sprintf(`{"table":%q,"columns":%q,"keys":[%q],"capacity":%d}`, name, theirs[n], key,
					h.IntN(1<<32)))
			case 5:
				action(ctx, c, h.of("create", "load", "drop", "stats", "save", "nothing", ""), h.of("../x", "/etc/passwd", ".", "", "{",
					`{"table":"x","columns":"id:int64","keys":["id","id"]}`, `{"table":"x","columns":"`+strings.Repeat("i:int8,", 3000)+`"}`,
					`{"table":"x","columns":"id:binary[99999999]","keys":["id"],"capacity":4294967296}`, strings.Repeat("[", 1<<20)))
			case 6:
				c.GetFlightInfo(ctx, &wire.FlightDescriptor{Type: wire.DescriptorCMD, Cmd: fmt.Appendf(nil, `{"table":%q,"parts":%d}`, name,
					h.IntN(1<<18))})
			case 7:
				if x, err := c.ListFlights(ctx, &wire.Criteria{Expression: h.bytes(h.IntN(1000))}); err == nil {
					for err == nil {
						_, err = x.Recv()
					}
				}
			case 8:
				if x, err := c.DoGet(ctx, &wire.Ticket{Ticket: fmt.Appendf(nil, `{"table":%q,"part":%d,"parts":%d}`, name, h.IntN(9),
					1+h.IntN(9))}); err == nil {
					for err == nil {
						_, err = x.Recv()
					}
				}
			default:
				x, ended, ok := h.open(ctx, c)
				if !ok {
					return
				}
				all := messages(h.batch(n, h.IntN(20_000), h.IntN(2) == 0))
				all[0].FlightDescriptor = h.mode(name)
				for _, d := range append(all, all[1:]...) {
					x.Send(d)
				}
				x.CloseSend()
				<-ended
			}
		})
	},
}

package flight

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"

	wire "github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/columnar"
	"github.com/warpmap/warpmap/internal/testenv"
)

// The benchmarks look keys of 8 bytes up, whose values have 8 bytes, on the device that WARPMAP_BENCH_DEVICE names
// (auto), in a table of WARPMAP_BENCH_ROWS rows (a million), in batches of WARPMAP_BENCH_BATCH (a million). Half of the
// keys are there. They tell keys a second, and the CPU time of a key: of BenchmarkExchange that of server and clients,
// which are one process; of BenchmarkFind that of the look-up alone.
//
//	go test -run '^$' -bench 'Exchange|Find' -benchtime 50x ./serve/flight
//
// BenchmarkPut writes such rows, half of which are there, without a log and with each.
type bench struct {
	*served
	tcp   string
	rows  int
	batch *wire.FlightData // of keys
	keys  []int64
}

func number(b *testing.B, name string, unset int) int {
	text := os.Getenv(name)
	if text == "" {
		return unset
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func startBench(b *testing.B, columns string) *bench {
	testenv.UsersKernels(b)
	name := os.Getenv("WARPMAP_BENCH_DEVICE")
	if name == "" {
		name = "auto"
	}
	d, err := device.Open(name)
	testenv.Require(b, "cpu", err)
	b.Cleanup(func() { d.Close() })
	x := &bench{rows: number(b, "WARPMAP_BENCH_ROWS", 1_000_000), served: start(b, Options{Devices: []*device.Device{d}})}
	if err := x.Create(Spec{Name: "t", Columns: columns, Keys: []string{"id"}, Capacity: x.rows}); err != nil {
		b.Fatal(err)
	}
	e, _ := x.tables.get("t")
	for from := 0; from < x.rows; {
		n := min(1<<20, x.rows-from)
		ids, values := make([]byte, 8*n), make([]byte, 8*n)
		for i := range n {
			binary.LittleEndian.PutUint64(ids[8*i:], uint64(2*(from+i)))
			binary.LittleEndian.PutUint64(values[8*i:], uint64(from+i))
		}
		rows := columnar.Batch{Rows: n, Columns: []columnar.Data{{Fixed: ids}}}
		for range e.Schema().Values {
			rows.Columns = append(rows.Columns, columnar.Data{Fixed: values})
		}
		if _, err := e.Put(columnar.Insert, rows); err != nil {
			b.Fatal(err)
		}
		from += n
	}
	body := make([]byte, 8*number(b, "WARPMAP_BENCH_BATCH", 1_000_000))
	for i := range len(body) / 8 {
		key := rand.Int64N(2 * int64(x.rows))
		x.keys = append(x.keys, key)
		binary.LittleEndian.PutUint64(body[8*i:], uint64(key))
	}
	f := columnar.Encode(e.Schema().Keys, columnar.Batch{Rows: len(x.keys), Columns: []columnar.Data{{Fixed: body}}},
		func(n int) []byte { return make([]byte, n, n+1) }) // a size that nobody takes for one of bodies
	x.batch = &wire.FlightData{DataHeader: f.Header, DataBody: f.Body}
	return x
}

// listen serves on loopback, too.
func (x *bench) listen(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	x.tcp = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- x.Serve(ctx, l) }()
	b.Cleanup(func() { cancel(); <-done })
}

// exchange sends n batches, and takes n replies. The first is checked.
func (x *bench) exchange(c wire.Client, n int) error {
	s, err := c.DoExchange(context.Background())
	if err != nil {
		return err
	}
	e, _ := x.tables.get("t")
	schema, err := columnar.EncodeSchema(columnar.ArrowSchema(e.Schema().Keys, nil))
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		err := s.Send(&wire.FlightData{FlightDescriptor: path("t"), DataHeader: schema})
		for i := 0; i < n && err == nil; i++ {
			err = s.Send(x.batch)
		}
		sent <- errors.Join(err, s.CloseSend())
	}()
	for i := -1; ; i++ {
		d, err := s.Recv()
		if errors.Is(err, io.EOF) && i >= n {
			return <-sent
		} else if err != nil {
			return err
		}
		if i == 0 {
			if err := x.check(d, e.Schema().Reply()); err != nil {
				return err
			}
		}
		release(d.DataBody)
	}
}

func (x *bench) check(d *wire.FlightData, columns []columnar.Column) error {
	reply, err := columnar.Decode(d.DataHeader, d.DataBody, columns, len(x.keys))
	if err != nil {
		return err
	}
	for i, key := range x.keys {
		value, found := int64(binary.LittleEndian.Uint64(reply.Columns[0].Fixed[8*i:])), reply.Columns[1].Fixed[i] == 1
		if found != (key%2 == 0) || found && value != key/2 {
			return fmt.Errorf("key %d has %d, %v", key, value, found)
		}
	}
	return nil
}

func BenchmarkExchange(b *testing.B) {
	x := startBench(b, inline)
	x.listen(b)
	for _, network := range []string{"unix", "tcp"} {
		for _, clients := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/clients=%d", network, clients), func(b *testing.B) {
				address := "unix:" + x.socket
				if network == "tcp" {
					address = x.tcp
				}
				var all []wire.Client
				for range clients {
					c, err := wire.NewClientWithMiddleware(address, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()),
						grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec()), grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)),
						grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(2*window),
						grpc.WithReadBufferSize(buffer), grpc.WithWriteBufferSize(buffer))
					if err != nil {
						b.Fatal(err)
					}
					defer c.Close()
					if err := x.exchange(c, 1); err != nil {
						b.Fatal(err)
					}
					all = append(all, c)
				}
				b.ResetTimer()
				cpu := testenv.CPUTime()
				var wg sync.WaitGroup
				for i, c := range all {
					wg.Go(func() {
						if err := x.exchange(c, b.N/clients+min(1, max(0, b.N%clients-i))); err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
				x.report(b, testenv.CPUTime()-cpu)
			})
		}
	}
}

func (x *bench) report(b *testing.B, cpu interface{ Nanoseconds() int64 }) {
	keys := float64(b.N) * float64(len(x.keys))
	b.ReportMetric(keys/b.Elapsed().Seconds()/1e6, "Mkeys/s")
	b.ReportMetric(float64(cpu.Nanoseconds())/keys, "cpu-ns/key")
	b.ReportMetric(0, "ns/op")
}

// Columns of tables whose values are on the device, and in host memory.
const inline, inRows = "id:int64,n:int64", "id:int64,n:int64,m:int64?"

func BenchmarkFind(b *testing.B) {
	for _, columns := range []string{inline, inRows} {
		b.Run(columns, func(b *testing.B) {
			x := startBench(b, columns)
			e, _ := x.tables.get("t")
			keys, err := columnar.Decode(x.batch.DataHeader, x.batch.DataBody, e.Schema().Keys, len(x.keys))
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			cpu := testenv.CPUTime()
			for range b.N {
				f, _, err := e.Find(keys, 0, 1<<30, alloc)
				if err != nil {
					b.Fatal(err)
				}
				release(f.Body)
			}
			x.report(b, testenv.CPUTime()-cpu)
		})
	}
}

// BenchmarkPut sends batches of several sizes, 16 of them before it waits, from one client and from eight.
func BenchmarkPut(b *testing.B) {
	testenv.UsersKernels(b)
	logs := []struct {
		name  string
		fsync Fsync
	}{{"none", NoLog}, {"no", FsyncNever}, {"everysec", FsyncEverySecond}, {"always", FsyncAlways}}
	for _, rows := range []int{1, 1000, 100_000} {
		for _, clients := range []int{1, 8} {
			for _, l := range logs {
				b.Run(fmt.Sprintf("rows=%d/clients=%d/log=%s", rows, clients, l.name), func(b *testing.B) {
					benchPut(b, rows, clients, Options{Folder: b.TempDir(), Fsync: l.fsync})
				})
			}
		}
	}
}

func benchPut(b *testing.B, rows, clients int, o Options) {
	s := start(b, o)
	if err := s.Create(Spec{Name: "t", Columns: inline, Keys: []string{"id"}, Capacity: 1 << 21}); err != nil {
		b.Fatal(err)
	}
	e, _ := s.tables.get("t")
	schema, err := columnar.EncodeSchema(columnar.ArrowSchema(e.Schema().All(), nil))
	if err != nil {
		b.Fatal(err)
	}
	var batches []*wire.FlightData
	for range 16 {
		ids := make([]byte, 8*rows)
		for i := range rows {
			binary.LittleEndian.PutUint64(ids[8*i:], rand.Uint64N(1_000_000))
		}
		f := columnar.Encode(e.Schema().All(), columnar.Batch{Rows: rows, Columns: []columnar.Data{{Fixed: ids}, {Fixed: ids}}},
			func(n int) []byte { return make([]byte, n, n+1) })
		batches = append(batches, &wire.FlightData{DataHeader: f.Header, DataBody: f.Body})
	}
	send := func(c wire.Client, n int) error {
		x, err := c.DoPut(context.Background())
		if err != nil {
			return err
		}
		ahead, sent := make(chan struct{}, 16), make(chan error, 1)
		go func() {
			err := x.Send(&wire.FlightData{FlightDescriptor: path("t"), DataHeader: schema})
			for i := 0; i < n && err == nil; i++ {
				ahead <- struct{}{}
				err = x.Send(batches[i%len(batches)])
			}
			sent <- errors.Join(err, x.CloseSend())
		}()
		for {
			if _, err := x.Recv(); errors.Is(err, io.EOF) {
				return <-sent
			} else if err != nil {
				return err
			}
			<-ahead
		}
	}
	var all []wire.Client
	for range clients {
		c := s.client(grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec())))
		if err := send(c, 16); err != nil {
			b.Fatal(err)
		}
		all = append(all, c)
	}
	b.ResetTimer()
	cpu := testenv.CPUTime()
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() {
			if err := send(c, b.N/clients+min(1, max(0, b.N%clients-i))); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	done := float64(b.N) * float64(rows)
	b.ReportMetric(done/b.Elapsed().Seconds()/1e3, "krows/s")
	b.ReportMetric(float64((testenv.CPUTime()-cpu).Nanoseconds())/done, "cpu-ns/row")
	b.ReportMetric(0, "ns/op")
}

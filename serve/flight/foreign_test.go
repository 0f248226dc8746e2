package flight

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	wire "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/protobuf/proto"

	"github.com/warpmap/warpmap/internal/columnar"
	"github.com/warpmap/warpmap/internal/testenv"
)

// foreign sends the messages of its input by a call, and writes those that come, each behind its length. It is of the
// gRPC that pyarrow has, too.
const foreign = `
import grpc, struct, sys
def messages():
    while head := sys.stdin.buffer.read(4):
        yield sys.stdin.buffer.read(struct.unpack("<I", head)[0])
channel = grpc.insecure_channel("unix:" + sys.argv[1])
call = channel.stream_stream("/arrow.flight.protocol.FlightService/" + sys.argv[2])
try:
    for m in call(messages(), metadata=[("authorization", sys.argv[3])], timeout=60):
        sys.stdout.buffer.write(struct.pack("<I", len(m)) + m)
except grpc.RpcError as e:
    sys.exit(str(e.code()) + " " + e.details())
`

// by calls a method by Python.
func (s *served) by(method, token string, messages ...proto.Message) (replies [][]byte, err error) {
	s.t.Helper()
	var in, out, failed bytes.Buffer
	for _, m := range messages {
		b, err := proto.Marshal(m)
		if err != nil {
			s.t.Fatal(err)
		}
		in.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(b))))
		in.Write(b)
	}
	cmd := exec.Command("python3", "-c", foreign, s.socket, method, token)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, &failed
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, &failed)
	}
	for out.Len() > 0 {
		replies = append(replies, out.Next(int(binary.LittleEndian.Uint32(out.Next(4)))))
	}
	return replies, nil
}

// messages are a record's schema and the record, as Arrow's own library makes them.
func messages(t *testing.T, to *wire.FlightDescriptor, rec arrow.RecordBatch, times int) (all []proto.Message) {
	t.Helper()
	schema, err := columnar.EncodeSchema(rec.Schema())
	if err != nil {
		t.Fatal(err)
	}
	p, err := ipc.GetRecordBatchPayload(rec)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	var body bytes.Buffer
	if err := p.SerializeBody(&body); err != nil {
		t.Fatal(err)
	}
	all = append(all, &wire.FlightData{FlightDescriptor: to, DataHeader: schema})
	for i := range times {
		all = append(all, &wire.FlightData{DataHeader: bytes.Clone(p.Meta().Bytes()), DataBody: body.Bytes(), AppMetadata: []byte{byte(i)}})
	}
	return all
}

// The C core of gRPC, which clients in Python and C++ have, is understood, and understands.
func TestForeignClient(t *testing.T) {
	testenv.Require(t, "python3-grpcio", exec.Command("python3", "-c", "import grpc").Run())
	s := start(t, Options{Token: "token"})
	const token, n = "Bearer token", 100_000
	create := &wire.Action{Type: "create", Body: []byte(`{"table":"t","columns":"id:int64,n:int64","keys":["id"]}`)}
	if _, err := s.by("DoAction", token, create); err != nil {
		t.Fatal(err)
	}
	_, err := s.by("DoAction", "Bearer other", create)
	if err == nil || !strings.Contains(err.Error(), "UNAUTHENTICATED") {
		t.Errorf("another token: %v", err)
	}
	_, err = s.by("DoAction", token, create)
	if err == nil || !strings.Contains(err.Error(), "ALREADY_EXISTS") {
		t.Errorf("a second table: %v", err)
	}
	ids, values := make([]int64, n), make([]int64, n)
	for i := range ids {
		ids[i], values[i] = int64(2*i), int64(i)
	}
	said, err := s.by("DoPut", token, messages(t, path("t"), record(map[string][]int64{"id": ids, "n": values}, "id", "n"), 1)...)
	if err != nil || len(said) != 1 || !bytes.Contains(said[0], []byte(`{"rows":100000}`)) {
		t.Fatalf("%q, %v", said, err)
	}
	for i := range ids {
		ids[i] = int64(i)
	}
	replies, err := s.by("DoExchange", token, messages(t, path("t"), record(map[string][]int64{"id": ids}, "id"), 5)...)
	if err != nil || len(replies) != 6 {
		t.Fatalf("%d replies, %v", len(replies), err)
	}
	e, _ := s.tables.get("t")
	for i, r := range replies[1:] {
		var d wire.FlightData
		if err := proto.Unmarshal(r, &d); err != nil || !bytes.Equal(d.AppMetadata, []byte{byte(i)}) {
			t.Fatalf("reply %d has the metadata %v, %v", i, d.AppMetadata, err)
		}
		b, err := columnar.Decode(d.DataHeader, d.DataBody, e.Schema().Reply(), n)
		if err != nil || b.Rows != n {
			t.Fatalf("reply %d: %d rows, %v", i, b.Rows, err)
		}
		for k := range n {
			value, found := binary.LittleEndian.Uint64(b.Columns[0].Fixed[8*k:]), b.Columns[1].Fixed[k] == 1
			if found != (k%2 == 0) || found && value != uint64(k/2) {
				t.Fatalf("reply %d: key %d has %d, %v", i, k, value, found)
			}
		}
	}
	for method, ask := range map[string]proto.Message{"ListFlights": &wire.Criteria{}, "ListActions": &wire.Empty{},
		"GetSchema": path("t"), "DoGet": &wire.Ticket{Ticket: []byte("t")}} {
		if replies, err := s.by(method, token, ask); err != nil || len(replies) == 0 {
			t.Errorf("%s: %d replies, %v", method, len(replies), err)
		}
	}
}

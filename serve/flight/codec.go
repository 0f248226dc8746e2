package flight

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync"

	wire "github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // codec's own, for all other messages
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// codec reads and writes wire.FlightData with one copy of a body in, and none out: the generated code takes two and
// one, for bodies that are all of the work. All other messages are as they were.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Fields of FlightData in Flight.proto.
const (
	fieldDescriptor protowire.Number = 1
	fieldHeader     protowire.Number = 2
	fieldMetadata   protowire.Number = 3
	fieldBody       protowire.Number = 1000
)

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	d, is := v.(*wire.FlightData)
	if !is {
		return c.CodecV2.Marshal(v)
	}
	var b []byte
	bytes := func(n protowire.Number, v []byte) {
		if len(v) > 0 {
			b = protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
		}
	}
	if d.FlightDescriptor != nil {
		text, err := proto.Marshal(d.FlightDescriptor)
		if err != nil {
			return nil, err
		}
		bytes(fieldDescriptor, text)
	}
	bytes(fieldHeader, d.DataHeader)
	bytes(fieldMetadata, d.AppMetadata)
	if len(d.DataBody) == 0 {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, fieldBody, protowire.BytesType), uint64(len(d.DataBody)))
	body := d.DataBody
	return mem.BufferSlice{mem.SliceBuffer(b), mem.NewBuffer(&body, &bodies)}, nil
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	d, is := v.(*wire.FlightData)
	if !is {
		return c.CodecV2.Unmarshal(data, v)
	}
	r := data.Reader()
	defer r.Close()
	return decodeData(r, d)
}

// reader is what is left of a message.
type reader interface {
	io.Reader
	io.ByteReader
	Remaining() int
}

// decodeData reads a message. Its body is of bodies.
func decodeData(r reader, d *wire.FlightData) error {
	*d = wire.FlightData{}
	for r.Remaining() > 0 {
		tag, err := binary.ReadUvarint(r)
		if err != nil {
			return err
		}
		number, kind := protowire.DecodeTag(tag)
		n := uint64(0)
		switch kind {
		case protowire.BytesType:
			n, err = binary.ReadUvarint(r)
		case protowire.VarintType:
			_, err = binary.ReadUvarint(r)
		case protowire.Fixed32Type:
			n = 4
		case protowire.Fixed64Type:
			n = 8
		default:
			err = errors.New("a field of no known type")
		}
		if err == nil && n > uint64(r.Remaining()) {
			err = fmt.Errorf("a field of %d bytes where %d are left", n, r.Remaining())
		}
		if err != nil {
			return fmt.Errorf("no message of Flight: %w", err)
		}
		if err := decodeField(r, d, number, int(n)); err != nil {
			return err
		}
	}
	return nil
}

func decodeField(r reader, d *wire.FlightData, number protowire.Number, n int) error {
	b := []byte(nil)
	if number == fieldBody {
		release(d.DataBody) // of a message that has several, the last counts
		d.DataBody = (*bodies.Get(n))
		b = d.DataBody
	} else {
		b = make([]byte, n)
	}
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	switch number {
	case fieldDescriptor:
		d.FlightDescriptor = &wire.FlightDescriptor{}
		return proto.Unmarshal(b, d.FlightDescriptor)
	case fieldHeader:
		d.DataHeader = b
	case fieldMetadata:
		d.AppMetadata = b
	}
	return nil
}

// bodies are the bodies of messages that were used, to be used again.
var bodies bodyPool

// bodyPool has memory in sizes that are powers of two.
type bodyPool struct{ sizes [leastBody + 15]sync.Pool }

// Bodies of less than 2¹² bytes, and of more than 2²⁶, are Go's.
const leastBody, mostBody = 12, 26

// class is the power of two that has room for n bytes; 0: bodies are Go's.
func class(n int) int {
	if c := bits.Len(uint(max(0, n-1))); n >= 1<<leastBody && c <= mostBody {
		return c
	}
	return 0
}

// Get gives n bytes, in which there may be anything.
func (p *bodyPool) Get(n int) *[]byte {
	c := class(n)
	if c == 0 {
		b := make([]byte, n)
		return &b
	}
	b, is := p.sizes[c].Get().(*[]byte)
	if !is {
		fresh := make([]byte, 1<<c)
		b = &fresh
	}
	*b = (*b)[:n]
	return b
}

// Put takes bytes back that Get gave; others it leaves.
func (p *bodyPool) Put(b *[]byte) {
	if c := class(cap(*b)); c > 0 && cap(*b) == 1<<c {
		p.sizes[c].Put(b)
	}
}

// alloc is a columnar.Alloc of bodies.
func alloc(n int) []byte { return *bodies.Get(n) }

// release gives a body back.
func release(body []byte) {
	if body != nil {
		bodies.Put(&body)
	}
}

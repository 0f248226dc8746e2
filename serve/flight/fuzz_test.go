package flight

import (
	"bytes"
	"testing"

	wire "github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/warpmap/warpmap/internal/testenv"
)

// FuzzMessage: what the generated code takes for a message, this does, too, with the same fields, and writes it so that
// the generated code reads it.
func FuzzMessage(f *testing.F) {
	for _, d := range []*wire.FlightData{{}, {DataHeader: []byte("header"), DataBody: make([]byte, 100)},
		{FlightDescriptor: path("t"), AppMetadata: []byte("x"), DataHeader: []byte("y")}, {FlightDescriptor: commanded(`{"table":"t"}`)}} {
		text, err := proto.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	c := newCodec()
	f.Fuzz(func(t *testing.T, text []byte) {
		testenv.Bounded(t, len(text), func() {
			var own, other wire.FlightData
			half := len(text) / 2
			data := mem.BufferSlice{mem.SliceBuffer(text[:half]), mem.SliceBuffer(text[half:])}
			err := c.Unmarshal(data, &own)
			if proto.Unmarshal(text, &other) != nil {
				return // what is more than is known may be so in ways that only the generated code looks at
			}
			if err != nil {
				return
			}
			if !bytes.Equal(own.DataHeader, other.DataHeader) || !bytes.Equal(own.DataBody, other.DataBody) ||
				!bytes.Equal(own.AppMetadata, other.AppMetadata) || (own.FlightDescriptor == nil) != (other.FlightDescriptor == nil) {
				t.Fatalf("%v, and by the generated code %v", &own, &other)
			}
			wrote, err := c.Marshal(&own)
			if err != nil {
				t.Fatal(err)
			}
			var back wire.FlightData
			if err := proto.Unmarshal(wrote.Materialize(), &back); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(own.DataHeader, back.DataHeader) || !bytes.Equal(own.DataBody, back.DataBody) ||
				!bytes.Equal(own.AppMetadata, back.AppMetadata) || !proto.Equal(own.FlightDescriptor, back.FlightDescriptor) {
				t.Fatalf("%v is written as %v", &own, &back)
			}
		})
	})
}

// FuzzCommand: whatever a descriptor, a ticket or an action says, it is a command within bounds, or an error.
func FuzzCommand(f *testing.F) {
	for _, s := range []string{"prices", `{"table":"prices","mode":"add"}`, `{"table":"t","part":3,"parts":4}`, `{"table":`,
		`{"table":"t","columns":"id:int64","keys":["id"],"values":[],"family":"slab","capacity":5}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		testenv.Bounded(t, len(text), func() {
			if c, err := parseCommand(text); err == nil && (c.Parts < 1 || c.Parts > mostParts || c.Part < 0 || c.Part >= c.Parts) {
				t.Fatalf("%+v", c)
			}
			if o, err := parseOrder(text); err == nil && (o.Capacity < 0 || o.Capacity > mostCapacity) {
				t.Fatalf("%+v", o)
			}
		})
	})
}

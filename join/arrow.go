package join

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	flatbuffers "github.com/google/flatbuffers/go"
)

// The Arrow library makes slices as long as a file's metadata says, and follows its fields as deep as they go: one
// flipped bit can ask for more memory than there is, or for a field that contains itself, and neither ends in a panic
// that could be caught. So the metadata is walked before the library reads it. What does not lie in the file's bytes
// panics here, or is an error.

// Slots of the tables in Arrow's Message.fbs, Schema.fbs and File.fbs.
const (
	messageKind, messageHeader, messageBody, messageNotes = 6, 8, 10, 12
	schemaFields, schemaNotes                             = 6, 8
	fieldKind, fieldDictionary, fieldChildren, fieldNotes = 8, 12, 14, 16
	dictionaryID, dictionaryData                          = 4, 6
	batchBuffers, batchCompression, batchVariadic         = 8, 10, 12
	footerSchema, footerDictionaries, footerBatches       = 6, 8, 10

	kindBinaryView, kindStringView = 23, 24
)

// metadata is what was seen of a schema.
type metadata struct {
	fields       int           // how many may still come
	views        int           // columns of views: a batch says of how many buffers each is
	dictionaries map[int64]int // and such in each dictionary

	file     io.ReaderAt // where set, what batches take when they are unpacked is added up
	body     int64       // where that of the message begins
	unpacked int64
}

const deepest = 64 // fields within fields, as in the library

// list gives the place and length of a vector of elements of so many bytes.
func (m *metadata) list(t flatbuffers.Table, slot flatbuffers.VOffsetT, size int) (first flatbuffers.UOffsetT, n int) {
	o := flatbuffers.UOffsetT(t.Offset(slot))
	if o == 0 {
		return 0, 0
	}
	first, n = t.Vector(o), t.VectorLen(o)
	if int(first)+n*size > len(t.Bytes) {
		panic(fmt.Sprintf("a list of %d elements in %d bytes", n, len(t.Bytes)))
	}
	return first, n
}

// table follows a slot to another table.
func (m *metadata) table(t flatbuffers.Table, slot flatbuffers.VOffsetT) (flatbuffers.Table, bool) {
	o := flatbuffers.UOffsetT(t.Offset(slot))
	if o == 0 {
		return t, false
	}
	return flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(o + t.Pos)}, true
}

func (m *metadata) tables(t flatbuffers.Table, slot flatbuffers.VOffsetT, f func(flatbuffers.Table)) {
	first, n := m.list(t, slot, 4)
	for i := range n {
		f(flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(first + flatbuffers.UOffsetT(4*i))})
	}
}

func (m *metadata) field(t flatbuffers.Table, depth int, views *int) {
	if m.fields--; m.fields < 0 || depth > deepest {
		panic("fields that contain themselves, or too deep in one another")
	}
	m.list(t, fieldNotes, 4)
	if d, ok := m.table(t, fieldDictionary); ok {
		n := 0
		views = &n
		defer func() { m.dictionaries[d.GetInt64Slot(dictionaryID, 0)] = n }()
	}
	if kind := t.GetByteSlot(fieldKind, 0); kind == kindBinaryView || kind == kindStringView {
		*views++
	}
	m.tables(t, fieldChildren, func(c flatbuffers.Table) { m.field(c, depth+1, views) })
}

func (m *metadata) schema(t flatbuffers.Table) {
	m.fields, m.views, m.dictionaries = len(t.Bytes)/8, 0, map[int64]int{}
	m.list(t, schemaNotes, 4)
	m.tables(t, schemaFields, func(f flatbuffers.Table) { m.field(f, 1, &m.views) })
}

func (m *metadata) batch(t flatbuffers.Table, views int) {
	at, buffers := m.list(t, batchBuffers, 16)
	for i := range buffers {
		m.add(t, at+flatbuffers.UOffsetT(16*i), t.Offset(batchCompression) != 0)
	}
	first, n := m.list(t, batchVariadic, 8)
	if first != 0 && n < views {
		panic(fmt.Sprintf("%d numbers of buffers for %d columns of views", n, views))
	}
	for i := range n {
		if v := t.GetInt64(first + flatbuffers.UOffsetT(8*i)); v < 0 || v > int64(buffers) {
			panic(fmt.Sprintf("a column of %d buffers in a batch of %d", v, buffers))
		}
	}
}

// add adds up what a buffer takes. A packed one begins with that, or with -1 where it is as it is after all. A file
// that says what is not so is found out when it is read.
func (m *metadata) add(t flatbuffers.Table, at flatbuffers.UOffsetT, packed bool) {
	n := t.GetInt64(at + 8)
	var b [8]byte
	if packed && m.file != nil && n > int64(len(b)) {
		if _, err := m.file.ReadAt(b[:], m.body+t.GetInt64(at)); err == nil {
			n = max(n, int64(binary.LittleEndian.Uint64(b[:])))
		}
	}
	m.unpacked += min(max(0, n), math.MaxInt64/4-m.unpacked)
}

// message checks a message's metadata and gives the length of its body.
func (m *metadata) message(b []byte) (body int64) {
	t := root(b)
	m.list(t, messageNotes, 4)
	if header, ok := m.table(t, messageHeader); ok {
		switch kind := t.GetByteSlot(messageKind, 0); ipc.MessageType(kind) {
		case ipc.MessageSchema:
			m.schema(header)
		case ipc.MessageDictionaryBatch:
			if data, ok := m.table(header, dictionaryData); ok {
				m.batch(data, m.dictionaries[header.GetInt64Slot(dictionaryID, 0)])
			}
		case ipc.MessageRecordBatch:
			m.batch(header, m.views)
		}
	}
	return t.GetInt64Slot(messageBody, 0)
}

func root(b []byte) flatbuffers.Table {
	return flatbuffers.Table{Bytes: b, Pos: flatbuffers.GetUOffsetT(b)}
}

// checkArrowFile walks the metadata of a file in the file format, and gives what it takes unpacked.
func checkArrowFile(f io.ReaderAt, size int64) (unpacked int64, err error) {
	tail := int64(4 + len(ipc.Magic))
	b, err := readAt(f, size-tail, tail, size)
	if err != nil {
		return 0, err
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if b, err = readAt(f, size-tail-n, n, size); err != nil {
		return 0, err
	}
	m, t := &metadata{file: f}, root(b)
	schema, ok := m.table(t, footerSchema)
	if !ok {
		return 0, errors.New("no schema")
	}
	m.schema(schema)
	for _, slot := range []flatbuffers.VOffsetT{footerDictionaries, footerBatches} {
		first, n := m.list(t, slot, 24) // int64 offset, int32 metadata and 4 bytes of nothing, int64 body
		for i := range n {
			at := first + flatbuffers.UOffsetT(24*i)
			b, err := readAt(f, t.GetInt64(at), int64(t.GetInt32(at+8)), size)
			if err != nil {
				return 0, err
			}
			prefix := 4
			if binary.LittleEndian.Uint32(b) == continued {
				prefix = 8
			}
			m.body = t.GetInt64(at) + int64(t.GetInt32(at+8))
			m.message(b[prefix:])
		}
	}
	return m.unpacked, nil
}

// continued begins a message, but for those of the oldest writers.
const continued = 0xffffffff

// checkArrowStream walks the metadata of a file in the stream format, and gives what it takes unpacked.
func checkArrowStream(f io.ReaderAt, size int64) (unpacked int64, err error) {
	m := &metadata{file: f}
	for at := int64(0); at < size; {
		b, err := readAt(f, at, 4, size)
		if err != nil {
			return 0, err
		}
		at += 4
		n := binary.LittleEndian.Uint32(b)
		if n == continued {
			if b, err = readAt(f, at, 4, size); err != nil {
				return 0, err
			}
			at += 4
			n = binary.LittleEndian.Uint32(b)
		}
		if n == 0 {
			return m.unpacked, nil // the end's mark
		}
		if b, err = readAt(f, at, int64(n), size); err != nil {
			return 0, err
		}
		at += int64(n)
		m.body = at
		body := m.message(b)
		if body < 0 || body > size-at {
			return 0, fmt.Errorf("a message of %d bytes, where %d are left", body, size-at)
		}
		at += body
	}
	return m.unpacked, nil
}

// readAt reads n bytes of a file of so many.
func readAt(f io.ReaderAt, at, n, size int64) ([]byte, error) {
	if at < 0 || n < 0 || n > size || at > size-n {
		return nil, fmt.Errorf("metadata of %d bytes at %d, in a file of %d", n, at, size)
	}
	b := make([]byte, n)
	_, err := f.ReadAt(b, at)
	return b, err
}

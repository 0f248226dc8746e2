package columnar

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// magic begins a file of a table. Behind it stand blocks: see doc.go.
const magic = "warpmap columns 1\n"

// Kinds of blocks.
const (
	blockHead, blockRows, blockEnd = 'H', 'R', 'E'
)

// Bounds of blocks in files.
const (
	blockPrefix          = 1 + 4 + 8 + 4
	mostHeader, mostBody = 16 << 20, 1<<31 - 1
	readStep             = 1 << 20 // what is read before more memory is taken
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// head is what the first block says of a table, in JSON, beside the schema of its columns.
type head struct {
	Name   string       `json:"name"`
	Keys   int          `json:"keys"` // the first so many columns
	Family table.Family `json:"family,omitempty"`
	ID     uint64       `json:"id,omitempty"`      // of the table in logs; 0: it was never in one
	Number uint64       `json:"changes,omitempty"` // of the last change that the file has
}

// DamagedError says what is wrong with a file of a table.
type DamagedError struct{ What string }

func (e *DamagedError) Error() string { return "no table, or a damaged one: " + e.What }

// Save writes the table, with the number of its last change. Writes wait until it returns; look-ups go on. Errors:
// the writer's, the context's, the table's. Cost: all of the table is read.
func (t *Table) Save(ctx context.Context, to io.Writer) error {
	t.writing.RLock()
	defer t.writing.RUnlock()
	w := bufio.NewWriterSize(to, 1<<20)
	if _, err := w.WriteString(magic); err != nil {
		return err
	}
	schema, about, err := t.head()
	if err != nil {
		return err
	}
	if err := writeBlock(w, blockHead, schema, about); err != nil {
		return err
	}
	rows := uint64(0)
	err = t.export(ctx, 0, 1, func(f Frame) error {
		rows += uint64(f.Rows)
		return writeBlock(w, blockRows, f.Header, f.Body)
	})
	if err != nil {
		return err
	}
	if err := writeBlock(w, blockEnd, nil, binary.LittleEndian.AppendUint64(nil, rows)); err != nil {
		return err
	}
	return w.Flush()
}

func prefix(kind byte, header, body int) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{kind}, uint32(header))
	return binary.LittleEndian.AppendUint64(b, uint64(body))
}

func writeBlock(w io.Writer, kind byte, header, body []byte) error {
	b := prefix(kind, len(header), len(body))
	sum := crc32.Update(crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, header), castagnoli, body)
	b = binary.LittleEndian.AppendUint32(b, sum)
	for _, part := range [][]byte{b, header, body} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

func readBlock(r io.Reader) (kind byte, header, body []byte, err error) {
	b, err := readBytes(r, blockPrefix)
	if err != nil {
		return 0, nil, nil, err
	}
	headers, bodies := binary.LittleEndian.Uint32(b[1:]), binary.LittleEndian.Uint64(b[5:])
	if headers > mostHeader || bodies > mostBody {
		return 0, nil, nil, &DamagedError{fmt.Sprintf("a block of %d and %d bytes", headers, bodies)}
	}
	if header, err = readBytes(r, int(headers)); err != nil {
		return 0, nil, nil, err
	}
	if body, err = readBytes(r, int(bodies)); err != nil {
		return 0, nil, nil, err
	}
	sum := crc32.Update(crc32.Update(crc32.Checksum(b[:13], castagnoli), castagnoli, header), castagnoli, body)
	if sum != binary.LittleEndian.Uint32(b[13:]) {
		return 0, nil, nil, &DamagedError{"a checksum is wrong"}
	}
	return b[0], header, body, nil
}

// readBytes reads n bytes. Memory grows as they come: a length that is wrong takes none.
func readBytes(r io.Reader, n int) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(min(n, readStep))
	if m, err := io.CopyN(&b, r, int64(n)); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, &DamagedError{fmt.Sprintf("it ends where %d bytes more were wanted", int64(n)-m)}
		}
		return nil, err
	}
	return b.Bytes(), nil
}

// IsFile tells whether a file's first bytes are those of a table that Save wrote.
func IsFile(first []byte) bool { return bytes.HasPrefix(first, []byte(magic)) }

// MagicBytes is how many bytes IsFile wants.
const MagicBytes = len(magic)

// Load makes a table of what Save wrote, and reads r to its end. o.Name and o.Family, where they are not empty, go
// before the file's. Errors: *DamagedError; the reader's; those of New and Put; the context's. After an error there is
// no table.
func Load(ctx context.Context, r io.Reader, devices []*device.Device, o Options) (*Table, error) {
	in := bufio.NewReaderSize(r, 1<<20)
	first, err := readBytes(in, len(magic))
	if err != nil {
		return nil, err
	}
	if !IsFile(first) {
		return nil, &DamagedError{"it does not begin as one"}
	}
	kind, header, body, err := readBlock(in)
	if err != nil {
		return nil, err
	}
	s, h, err := decodeHead(kind, header, body)
	if err != nil {
		return nil, err
	}
	s.Name, o.Family = cmp.Or(o.Name, s.Name), cmp.Or(o.Family, h.Family)
	t, err := New(devices, s, o)
	if err != nil {
		return nil, err
	}
	if err := t.load(ctx, in); err != nil {
		t.Close()
		return nil, err
	}
	if h.ID != 0 {
		t.id, t.number = h.ID, h.Number
	}
	return t, nil
}

func decodeHead(kind byte, header, body []byte) (s Schema, h head, err error) {
	if kind != blockHead {
		return s, h, &DamagedError{fmt.Sprintf("it begins with a block %q", kind)}
	}
	columns, err := DecodeSchema(header)
	if err != nil {
		return s, h, &DamagedError{err.Error()}
	}
	if err := json.Unmarshal(body, &h); err != nil {
		return s, h, &DamagedError{err.Error()}
	}
	if h.Keys < 1 || h.Keys > len(columns) {
		return s, h, &DamagedError{fmt.Sprintf("%d key columns of %d", h.Keys, len(columns))}
	}
	s = Schema{h.Name, columns[:h.Keys:h.Keys], columns[h.Keys:]}
	if err := s.check(); err != nil {
		return s, h, &DamagedError{err.Error()}
	}
	return s, h, nil
}

func (t *Table) load(ctx context.Context, in io.Reader) error {
	rows := uint64(0)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		kind, header, body, err := readBlock(in)
		if err != nil {
			return err
		}
		switch kind {
		case blockRows:
			b, err := Decode(header, body, t.schema.All(), exportRows)
			if err != nil {
				return &DamagedError{err.Error()}
			}
			if _, err := t.Put(Insert, b); err != nil {
				return err
			}
			rows += uint64(b.Rows)
		case blockEnd:
			if len(body) != 8 || binary.LittleEndian.Uint64(body) != rows {
				return &DamagedError{fmt.Sprintf("%d rows, and its end says others", rows)}
			}
			if n, _ := io.CopyN(io.Discard, in, 1); n > 0 {
				return &DamagedError{"bytes behind its end"}
			}
			return nil
		default:
			return &DamagedError{fmt.Sprintf("a block %q", kind)}
		}
	}
}

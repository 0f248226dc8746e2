package snapshot

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"reflect"

	"github.com/warpmap/warpmap/table"
)

const (
	magic      = "warpmap\n"
	version    = 1
	mostHeader = 1 << 16
	mostRows   = 1 << 20  // of a block
	mostBytes  = 32 << 20 // of a block that Save writes, and of what goes in together; one entry may have more
	mostWidth  = 1 << 20  // of a key or a value, in bytes: more than any table takes
	mostText   = 1 << 40  // of all keys of a block, in bytes
	tagRows    = "rows"
	tagEnd     = "end\n"
	partBytes  = 4 + 8 // a tag and a number
	sumBytes   = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is what a file says of its table.
type Header struct {
	Kind   string       `json:"kind"`   // map, set, multimap, counter, filter, cache, strings, or of a sketch
	Family table.Family `json:"family"` // of the table that was saved
	// The types. They leave out the names of types and fields, so that these may change.
	Key        string            `json:"key"`
	Value      string            `json:"value,omitempty"` // for a counter, the type of its counts
	KeyBytes   int               `json:"key_bytes"`
	ValueBytes int               `json:"value_bytes,omitempty"`
	Len        int64             `json:"len"`            // entries when saving began; or the words of a Form
	Form       *table.FilterForm `json:"form,omitempty"` // for a filter or a sketch
	// Cache is a cache.Saved, for a cache: its policy, and what the lives of its pairs count from.
	Cache json.RawMessage `json:"cache,omitempty"`
}

// rowBytes is how many bytes an entry takes in the file.
func (h *Header) rowBytes() int64 {
	if h.Form != nil {
		return 8
	}
	return int64(h.KeyBytes + h.ValueBytes)
}

// blockRows is how many entries a block has at most.
func (h *Header) blockRows() int { return int(max(1, min(mostRows, mostBytes/h.rowBytes()))) }

// check tells what cannot be in any header.
func (h *Header) check() error {
	switch {
	case h.Len < 0 || h.Len > 1<<46:
		return fmt.Errorf("snapshot: a file of %d entries (want 0 to 2⁴⁶): it is damaged, or none of ours", h.Len)
	case h.KeyBytes <= 0 || h.KeyBytes > mostWidth || h.ValueBytes < 0 || h.ValueBytes > mostWidth:
		return fmt.Errorf("snapshot: a file of keys of %d bytes and values of %d: it is damaged, or none of ours",
			h.KeyBytes, h.ValueBytes)
	case h.Form != nil && h.Form.Words != h.Len:
		return fmt.Errorf("snapshot: a file of %d words of %d: it is damaged, or none of ours", h.Len,
			h.Form.Words)
	}
	return nil
}

// typeName is a type without the names that programs give to types and fields.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int:
		return "int64"
	case reflect.Uint:
		return "uint64"
	case reflect.Array:
		return fmt.Sprintf("[%d]%s", t.Len(), typeName(t.Elem()))
	case reflect.Struct:
		s := "struct{"
		for i := range t.NumField() {
			if i > 0 {
				s += ";"
			}
			s += typeName(t.Field(i).Type)
		}
		return s + "}"
	}
	return t.Kind().String()
}

// writer adds up the checksum of what it writes.
type writer struct {
	w   io.Writer
	sum uint32
}

func (w *writer) write(b []byte) error {
	w.sum = crc32.Update(w.sum, castagnoli, b)
	_, err := w.w.Write(b)
	return err
}

// seal writes the checksum, which is not added up itself: a checksum of bytes and their checksum is always the same.
func (w *writer) seal() error {
	_, err := w.w.Write(binary.LittleEndian.AppendUint32(nil, w.sum))
	return err
}

// header writes a file's beginning.
func (w *writer) header(h *Header) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if len(text) > mostHeader {
		return fmt.Errorf("a header of %d bytes (want %d at most): the types of keys and values have too many fields",
			len(text), mostHeader)
	}
	b := binary.LittleEndian.AppendUint32([]byte(magic), version)
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(text))), text...)
	return errors.Join(w.write(b), w.seal())
}

// part writes the head of a block, or the end.
func (w *writer) part(tag string, n int64) error {
	return errors.Join(w.write(binary.LittleEndian.AppendUint64([]byte(tag), uint64(n))), w.seal())
}

// reader checks the checksums of what it reads.
type reader struct {
	r   io.Reader
	sum uint32
	at  int64
}

// read reads all of b; what names it in an error.
func (r *reader) read(b []byte, what string) error {
	n, err := io.ReadFull(r.r, b)
	r.at += int64(n)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("snapshot: the file ends after %d bytes, in %s: it was cut off, or saving it did not end: %w",
			r.at, what, io.ErrUnexpectedEOF)
	} else if err != nil {
		return fmt.Errorf("snapshot: reading %s at byte %d: %w", what, r.at, err)
	}
	r.sum = crc32.Update(r.sum, castagnoli, b)
	return nil
}

// seal reads a checksum.
func (r *reader) seal(what string) error {
	want := r.sum
	var b [4]byte
	if err := r.read(b[:], "the checksum of "+what); err != nil {
		return err
	}
	r.sum = want
	if got := binary.LittleEndian.Uint32(b[:]); got != want {
		return fmt.Errorf("snapshot: %s, which ends at byte %d, has checksum %#08x, and the file says %#08x: it is "+
			"damaged; take another copy", what, r.at, want, got)
	}
	return nil
}

// header reads a file's beginning.
func (r *reader) header() (h Header, err error) {
	var b [len(magic) + 8]byte
	if err := r.read(b[:len(magic)], "its first bytes"); err != nil {
		return h, err
	}
	if string(b[:len(magic)]) != magic {
		return h, fmt.Errorf("snapshot: the file begins with %q, and not with %q: it is none that package snapshot "+
			"wrote", b[:len(magic)], magic)
	}
	if err := r.read(b[len(magic):], "the length of the header"); err != nil {
		return h, err
	}
	if v := binary.LittleEndian.Uint32(b[len(magic):]); v != version {
		return h, fmt.Errorf("snapshot: the file is of version %d of the format, and this warpmap reads version %d: "+
			"a newer one may read it", v, version)
	}
	n := binary.LittleEndian.Uint32(b[len(magic)+4:])
	if n > mostHeader {
		return h, fmt.Errorf("snapshot: a header of %d bytes (want %d at most): the file is damaged", n, mostHeader)
	}
	text := make([]byte, n)
	if err := r.read(text, "the header"); err != nil {
		return h, err
	}
	if err := r.seal("the header"); err != nil {
		return h, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&h); err != nil {
		return h, fmt.Errorf("snapshot: the header: %w", err)
	}
	return h, h.check()
}

// part reads the head of a block, or the end.
func (r *reader) part() (tag string, n uint64, err error) {
	var b [partBytes]byte
	if err := r.read(b[:], "the head of a block"); err != nil {
		return "", 0, err
	}
	if err := r.seal("the head of a block"); err != nil {
		return "", 0, err
	}
	return string(b[:4]), binary.LittleEndian.Uint64(b[4:]), nil
}

// over tells that nothing follows.
func (r *reader) over() error {
	var b [1]byte
	switch _, err := io.ReadFull(r.r, b[:]); err {
	case io.EOF:
		return nil
	case nil:
		return fmt.Errorf("snapshot: the table ends at byte %d, and more follows: give Load what Save wrote, and no "+
			"more (io.LimitReader cuts it out of a longer stream)", r.at)
	default:
		return fmt.Errorf("snapshot: reading the end of the file at byte %d: %w", r.at, err)
	}
}

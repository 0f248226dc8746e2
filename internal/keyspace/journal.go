package keyspace

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/internal/journal"
)

// kind is what a record of a file says.
type kind byte

const (
	kindPut    kind = iota + 1 // the key has this value, and expires then
	kindAppend                 // the key's value has this behind it: of older versions
	kindExpire                 // the key expires then
	kindDelete                 // the key is gone
	kindClear                  // all keys are gone
	kindPatch                  // the key's value has these bytes from expires on
	kindEnd                    // a snapshot is whole, with as many keys as expires says
	kindGroup                  // the value is records, of which all or none are done
	kindTail                   // the key's value has this from expires on, and nothing behind it
)

// A file begins with a word, and its records with their heads.
const (
	magic      = "warpmap keys 01\n"
	entryBytes = journal.HeadBytes // two checksums; kind, bytes of key and value, filter, expires
	mostGroup  = 256 << 20         // bytes of a group's records, but for its last
)

// entry is a record of a file.
type entry struct {
	kind       kind
	key, value []byte
	expires    int64
	filter     bool // the value of kindPut is a filter
}

// appendEntry appends a record of a file to b.
func appendEntry(b []byte, e entry) []byte {
	return e.appendTo(b, e.sealed())
}

// sealed is a record's head, with the checksums.
func (e entry) sealed() (head [entryBytes]byte) {
	head = e.head()
	journal.SealParts(head[:], e.key, e.value)
	return head
}

func (e entry) appendTo(b []byte, head [entryBytes]byte) []byte {
	return append(append(append(b, head[:]...), e.key...), e.value...)
}

// seal puts the checksums into records that appendOpen appended.
func seal(b []byte) {
	for len(b) > 0 {
		n := entryBytes + int(binary.LittleEndian.Uint32(b[12:])) + int(binary.LittleEndian.Uint32(b[16:]))
		journal.Seal(b[:n])
		b = b[n:]
	}
}

// appendOpen appends a record without its checksums, which take longer than the rest.
func appendOpen(b []byte, e entry) []byte { return e.appendTo(b, e.head()) }

// head is a record's head without its checksums.
func (e entry) head() (head [entryBytes]byte) {
	binary.LittleEndian.PutUint32(head[8:], uint32(e.kind))
	binary.LittleEndian.PutUint32(head[12:], uint32(len(e.key)))
	binary.LittleEndian.PutUint32(head[16:], uint32(len(e.value)))
	if e.filter {
		head[20] = 1
	}
	binary.LittleEndian.PutUint64(head[24:], uint64(e.expires))
	return head
}

// DamagedError says where a file is damaged.
type DamagedError = journal.DamagedError

// format is that of snapshots and logs.
var format = &journal.Format{Magic: magic, Holds: "keys", Body: func(head []byte) (int64, error) {
	_, key, value, err := headOf(head)
	return key + value, err
}}

// parsed has do get entries of records.
func parsed(do func(e entry) error) func(head, body []byte) error {
	return func(head, body []byte) error {
		e, key, _, err := headOf(head)
		if err != nil {
			return err
		}
		e.key, e.value = body[:key:key], body[key:]
		return do(e)
	}
}

// headOf reads a record's head, and tells how many bytes its key and its value have.
func headOf(head []byte) (e entry, key, value int64, err error) {
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(head[at:]) }
	k, more := u32(8), u32(20)
	key, value = int64(u32(12)), int64(u32(16))
	e = entry{kind: kind(k), filter: more == 1, expires: int64(binary.LittleEndian.Uint64(head[24:]))}
	if k < uint32(kindPut) || k > uint32(kindTail) || more > 1 || e.filter && e.kind != kindPut || key > mostKey ||
		value > mostBytes {
		err = fmt.Errorf("a record of kind %d with %d and %d bytes", k, key, value)
	}
	return e, key, value, err
}

// each gives the records of a group to do. The group's own checksum is that of all of them.
func each(b []byte, do func(e entry) error) error {
	wrong := errors.New("a group of records that are not whole")
	for len(b) > 0 {
		if len(b) < entryBytes {
			return wrong
		}
		e, key, value, err := headOf(b[:entryBytes])
		if err != nil {
			return err
		}
		if b = b[entryBytes:]; key+value > int64(len(b)) || e.kind == kindGroup {
			return wrong
		}
		e.key, e.value = b[:key:key], b[key:key+value:key+value]
		if err := do(e); err != nil {
			return err
		}
		b = b[key+value:]
	}
	return nil
}

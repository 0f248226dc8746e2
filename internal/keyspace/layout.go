package keyspace

import "encoding/binary"

// The hash of a key begins with the number of its shard.
const (
	shardBits = 10
	shards    = 1 << shardBits
)

// The bias of locks has places for so many readers. It is set for shards that were shared so often by their locks since
// a bias ended, for to end one costs as much as to take some locks.
const biasedReaders, leastAsked = 64, 16

// everyGroup are the bits of a reader's word that stand for 64 shards each; above them is how many came.
const everyGroup = 1<<(shards/64) - 1

// A slot of an index. An empty one has no place.
type slot struct{ hash, place uint64 }

const (
	slotBytes  = 16
	leastSlots = 8
	// An index grows where more than 3/4 of its slots are taken.
	fullNumerator, fullDenominator = 3, 4
)

// Offsets of a record's head, of 4 bytes each but for the last.
const (
	atKeyBytes   = 0 // with deadBit and filterBit
	atValueBytes = 4
	atRoom       = 8
	atUsed       = 12
	atExpires    = 16
	headBytes    = 24

	deadBit   = 1 << 31
	filterBit = 1 << 30 // the value is no string, but a filter
	grain     = 8       // records begin at multiples of it
)

// Bounds of keys and values: with their heads they are within what 4 bytes count, and keys leave two bits.
const mostKey, mostBytes = 1<<30 - 1, 1 << 30

// Segments have between these bytes, or are one record.
const leastSegment, mostSegment = 1 << 9, 1 << 20

// record is the bytes of a record, from its head on.
type record []byte

func (r record) u32(at int) uint32      { return binary.LittleEndian.Uint32(r[at:]) }
func (r record) set32(at int, v uint32) { binary.LittleEndian.PutUint32(r[at:], v) }
func (r record) keyBytes() int          { return int(r.u32(atKeyBytes) &^ (deadBit | filterBit)) }
func (r record) dead() bool             { return r.u32(atKeyBytes)&deadBit != 0 }
func (r record) filter() bool           { return r.u32(atKeyBytes)&filterBit != 0 }
func (r record) room() int              { return int(r.u32(atRoom)) }
func (r record) expires() int64         { return int64(binary.LittleEndian.Uint64(r[atExpires:])) }
func (r record) setExpires(at int64)    { binary.LittleEndian.PutUint64(r[atExpires:], uint64(at)) }
func (r record) size() int              { return headBytes + r.keyBytes() + r.room() }
func (r record) key() []byte            { return r[headBytes : headBytes+r.keyBytes()] }
func (r record) expired(now int64) bool { e := r.expires(); return e != 0 && e <= now }
func (r record) value() []byte {
	from := headBytes + r.keyBytes()
	return r[from : from+int(r.u32(atValueBytes))]
}

// text is the value if it is a string; else it is nil.
func (r record) text() []byte {
	if r.filter() {
		return nil
	}
	return r.value()
}

// filterValue is the value if it is a filter; else it is nil.
func (r record) filterValue() []byte {
	if r.filter() {
		return r.value()
	}
	return nil
}

// sizeOf is how large a record is, with room for a value of so many bytes or a few more.
func sizeOf(key, value int) int { return (headBytes + key + value + grain - 1) &^ (grain - 1) }

// segment is memory for records.
type segment struct {
	mem        []byte
	used, dead int // bytes of records, and of those that are dead
}

func placeOf(seg uint32, offset int) uint64 { return uint64(seg)<<32 | uint64(offset) }

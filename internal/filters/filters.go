package filters

import (
	"bytes"
	crand "crypto/rand"
	"encoding/binary"
	"errors"

	"github.com/warpmap/warpmap/internal/siphash"
	"github.com/warpmap/warpmap/kernel"
)

// Writer changes the bytes of a filter. What it returns is the filter then.
type Writer interface {
	Patch(at int, with []byte) []byte // replaces bytes
	Append(more []byte) []byte
}

// Value is a filter of either kind.
type Value []byte

// A value's head.
const (
	bloomKind, cuckooKind = "warpmap bloom 01", "warpmap cuckoo 1"

	atSeed      = 16 // of 16 bytes
	atRate      = 32 // of a Bloom filter; what was asked for
	atExpansion = 40 // 0: there is one link for good
	headBytes   = 48
)

// A link's head, of 8 bytes each.
const (
	atCapacity = 0
	atItems    = 8
	atDeleted  = 16
	atFirst    = 24 // blocks or windows
	atSecond   = 32 // hashes or buckets
	linkBytes  = 40
)

const wordBytes = 8

// tableSeed is the seed of the tables that have the same words: the seed of a filter is in its items' keys.
const tableSeed = 1

// mostLinks bounds the time that a filter takes: capacities double, or nearly so, in all but strange filters.
const mostLinks = 64

// Errors that are of what was asked for.
var (
	ErrFull    = errors.New("the filter is full")
	ErrTooMany = errors.New("an item is in the filter as often as it can be")
	ErrLarge   = errors.New("the filter would be too large")
	ErrWrong   = errors.New("the bytes are no filter")
)

func head(kind string, rate, expansion uint64) Value {
	v := make(Value, headBytes)
	copy(v, kind)
	crand.Read(v[atSeed:atRate]) // so that nobody can choose items that collide
	binary.LittleEndian.PutUint64(v[atRate:], rate)
	binary.LittleEndian.PutUint64(v[atExpansion:], expansion)
	return v
}

// IsBloom and IsCuckoo tell what a value is.
func (v Value) IsBloom() bool  { return bytes.HasPrefix(v, []byte(bloomKind)) }
func (v Value) IsCuckoo() bool { return bytes.HasPrefix(v, []byte(cuckooKind)) }

func (v Value) u64(at int) uint64 { return binary.LittleEndian.Uint64(v[at:]) }

// Expansion is what the next link's capacity is times that of the last; 0: there is none.
func (v Value) Expansion() uint64 { return v.u64(atExpansion) }

// hash is that of an item, by which a filter of 8-byte keys knows it.
func (v Value) hash(item []byte) uint64 {
	s := siphash.New(v.u64(atSeed), v.u64(atSeed+8))
	return kernel.Hash64(kernel.HashMurmur, s.Of(item), tableSeed)
}

// link is where a link begins, and its head.
type link struct {
	at                        int
	capacity, items, deleted  uint64
	first, second, wordsBytes uint64
}

func (l link) words() int { return l.at + linkBytes }

// links are those of a value. Error: ErrWrong.
func (v Value) links() (all []link, err error) {
	perSlot := uint64(blockBytes)
	if len(v) < headBytes || !v.IsBloom() && !v.IsCuckoo() {
		return nil, ErrWrong
	}
	for at := headBytes; at < len(v); {
		if len(v)-at < linkBytes || len(all) == mostLinks {
			return nil, ErrWrong
		}
		l := link{at: at, capacity: v.u64(at + atCapacity), items: v.u64(at + atItems), deleted: v.u64(at + atDeleted),
			first: v.u64(at + atFirst), second: v.u64(at + atSecond)}
		n := l.first
		if v.IsCuckoo() {
			if l.second < 2 || l.second%2 != 0 || l.second > windowBytes/bucketBytes {
				return nil, ErrWrong
			}
			perSlot = l.second * bucketBytes
		} else if l.second < 1 || l.second > mostHashes {
			return nil, ErrWrong
		}
		left := uint64(len(v) - at - linkBytes)
		if n < 1 || n > left/perSlot {
			return nil, ErrWrong
		}
		l.wordsBytes = n * perSlot
		all = append(all, l)
		at += linkBytes + int(l.wordsBytes)
	}
	if len(all) == 0 {
		return nil, ErrWrong
	}
	return all, nil
}

// newLink is the bytes of an empty link.
func newLink(capacity, first, second, words uint64) []byte {
	b := make([]byte, linkBytes+words)
	binary.LittleEndian.PutUint64(b[atCapacity:], capacity)
	binary.LittleEndian.PutUint64(b[atFirst:], first)
	binary.LittleEndian.PutUint64(b[atSecond:], second)
	return b
}

// set writes a number.
func set(w Writer, at int, n uint64) Value {
	return w.Patch(at, binary.LittleEndian.AppendUint64(nil, n))
}

// Info is what is known of a filter.
type Info struct {
	Capacity, Items, Deleted, Bytes, Links, Buckets uint64
}

// About tells it. Error: ErrWrong.
func (v Value) About() (i Info, err error) {
	all, err := v.links()
	for _, l := range all {
		i.Capacity += l.capacity
		i.Items += l.items
		i.Deleted += l.deleted
		if v.IsCuckoo() {
			i.Buckets += l.first * l.second
		}
	}
	i.Bytes, i.Links = uint64(len(v)), uint64(len(all))
	return i, err
}

package filters

import (
	"encoding/binary"
	"math"

	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

const (
	blockBytes = 32
	blockWords = blockBytes / wordBytes
	mostHashes = 16
	leastRate  = 1e-9 // warpcore tells no lower one
)

// NewBloom makes a Bloom filter for so many items with false positives at a rate, of no more than most bytes. With
// expansion 0 it does not grow. Error: ErrLarge.
func NewBloom(rate float64, capacity, expansion uint64, most int) (Value, error) {
	v := head(bloomKind, math.Float64bits(rate), expansion)
	first, err := bloomLink(v.rate(0), capacity, most-len(v))
	return append(v, first...), err
}

// rate is that of a link.
func (v Value) rate(link int) float64 {
	rate := math.Float64frombits(v.u64(atRate))
	if v.Expansion() > 0 {
		rate = math.Ldexp(rate, -1-link)
	}
	return max(rate, leastRate)
}

func bloomLink(rate float64, capacity uint64, most int) ([]byte, error) {
	if capacity > 1<<40 {
		return nil, ErrLarge
	}
	blocks, hashes, err := warpcore.FilterSize(warpcore.FilterOptions{Block: blockBytes,
		FilterOptions: table.FilterOptions{Capacity: int(capacity), FalsePositives: rate}})
	if err != nil {
		return nil, err
	}
	if blocks > int64(most-linkBytes)/blockBytes {
		return nil, ErrLarge
	}
	return newLink(capacity, uint64(blocks), uint64(hashes), uint64(blocks*blockBytes)), nil
}

// probe is where an item's bits are: those of the words of one block, from where that begins.
type probe struct {
	at   int
	bits [blockWords]uint64
}

// probeOf is the twin of FilterProbe in warpcore/filter.cuh, for blocks of 32 bytes.
func probeOf(l link, hash uint64) (p probe) {
	const wordIndex, wordChoice, bitIndex, firstBits, nextBits = 4, 9, 6, 8, 10
	p.at = l.words() + int(kernel.Reduce(hash, l.first))*blockBytes
	random := hash * 0x9e3779b97f4a7c15
	rest := random
	take := func(n int) uint64 { x := rest & (1<<n - 1); rest >>= n; return x }
	word := [2]uint64{take(wordIndex) % blockWords}
	spread := min(2, l.second)
	if spread > 1 {
		word[1] = word[0] ^ (1 + take(wordChoice)*(blockWords-1)>>wordChoice)
	}
	left := firstBits
	for i := range l.second {
		if left == 0 {
			random = (random ^ random>>32) * 0xff51afd7ed558ccd
			rest, left = random, nextBits
		}
		p.bits[word[i%spread]] |= 1 << take(bitIndex)
		left--
	}
	return p
}

// in tells whether all bits are set.
func (p probe) in(v Value) bool {
	for i, bits := range p.bits {
		if bits&^v.u64(p.at+i*wordBytes) != 0 {
			return false
		}
	}
	return true
}

// HasBloom tells whether an item may be in a Bloom filter. Error: ErrWrong.
func (v Value) HasBloom(item []byte) (bool, error) {
	all, err := v.links()
	if err != nil {
		return false, err
	}
	hash := v.hash(item)
	for i := len(all) - 1; i >= 0; i-- { // the newest has most
		if probeOf(all[i], hash).in(v) {
			return true, nil
		}
	}
	return false, nil
}

// AddBloom puts an item into a Bloom filter, which has no more than most bytes then, and tells whether it was not in.
// Errors: ErrFull, ErrLarge, ErrWrong.
func (v Value) AddBloom(w Writer, item []byte, most int) (added bool, err error) {
	if has, err := v.HasBloom(item); has || err != nil {
		return false, err
	}
	all, _ := v.links()
	last := all[len(all)-1]
	if last.items >= last.capacity {
		if v, err = v.growBloom(w, all, most); err != nil {
			return false, err
		}
		all, _ = v.links()
		last = all[len(all)-1]
	}
	p := probeOf(last, v.hash(item))
	from, to := blockWords, 0
	var words [blockBytes]byte
	for i, bits := range p.bits {
		binary.LittleEndian.PutUint64(words[i*wordBytes:], v.u64(p.at+i*wordBytes)|bits)
		if bits != 0 {
			from, to = min(from, i), i+1
		}
	}
	w.Patch(p.at+from*wordBytes, words[from*wordBytes:to*wordBytes])
	set(w, last.at+atItems, last.items+1)
	return true, nil
}

func (v Value) growBloom(w Writer, all []link, most int) (Value, error) {
	if v.Expansion() == 0 {
		return nil, ErrFull
	}
	more, err := v.nextBloom(all, most)
	if err != nil {
		return nil, err
	}
	return w.Append(more), nil
}

func (v Value) nextBloom(all []link, most int) ([]byte, error) {
	if len(all) == mostLinks {
		return nil, ErrLarge
	}
	capacity := all[len(all)-1].capacity
	if capacity > 1<<40/v.Expansion() {
		return nil, ErrLarge
	}
	return bloomLink(v.rate(len(all)), capacity*v.Expansion(), most-len(v))
}

// Grows is how many bytes a filter may grow by when so many items come.
func (v Value) Grows(items int) (n int64) {
	all, err := v.links()
	if err != nil || v.Expansion() == 0 {
		return 0
	}
	last := all[len(all)-1]
	bytes, capacity := last.wordsBytes, last.capacity
	room := int64(last.capacity) - int64(last.items)
	if v.IsCuckoo() {
		room = room * 9 / 10 // it may be full before
	}
	for left, links := int64(items), len(all); left > room && links < mostLinks; links++ {
		left -= max(room, 0)
		bytes, capacity = min(bytes, 1<<40)*v.Expansion()*3/2, min(capacity, 1<<40)*v.Expansion() // lower rates take more
		n += int64(min(bytes, 1<<41)) + linkBytes + 1<<10
		room = int64(min(capacity, 1<<40))
	}
	return n
}

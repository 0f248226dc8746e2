// Package unique counts, exactly and on all cores, the distinct keys among many, and how often each came: words of 8
// bytes, or texts with their hashes. It takes memory for the distinct ones alone.
//
//	hash of a word   │ part │ home slot │ … │
//	parts            256 hash tables, each with a lock: a batch is dealt out to them, and locks each once
//	slots of a part  words, 0 where a slot is empty; beside them counts, and of texts where they lie
//	texts of a part  length and bytes of each, one behind the other
//
// Invariants: a key stands in its home slot or in one of those behind it, all of which are taken, the first following
// the last; two slots of a part never have one key; at most five slots of eight are taken. The word 0 has a count of
// its own. Hashes have seeds that nobody can foretell, so nobody can choose words that share slots.
package unique

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	partBits  = 8
	firstSlot = 64      // slots of a part at first
	mostDealt = 1 << 14 // keys that are dealt out at once: their order has room in a core's cache
)

// Keys are the distinct keys so far. The methods may be called by several goroutines.
type Keys struct {
	all             sync.RWMutex // held for writing by Prune, and for reading by all others
	texts, counting bool
	seeds           [2]uint64
	parts           [1 << partBits]part
	bytes           atomic.Int64
	dealt           sync.Pool // of *deal
}

// New makes an empty Keys of words or of texts, which counts how often each comes if it is to.
func New(texts, counting bool) *Keys {
	return &Keys{texts: texts, counting: counting, seeds: [2]uint64{rand.Uint64(), rand.Uint64() | 1}}
}

type part struct {
	lock   sync.Mutex
	n      int
	words  []uint64
	counts []uint64 // nil where nobody counts
	places []uint64 // of texts
	text   []byte
	zeros  uint64 // how often the word 0 came
	_      [64]byte
}

// deal is the order of a batch by parts.
type deal struct {
	hashes []uint64
	order  []uint32
	ends   [1 << partBits]uint32
}

// hash spreads a word over parts, by its high bits, and over slots, by those behind.
func (k *Keys) hash(word uint64) uint64 {
	high, low := bits.Mul64(word^k.seeds[0], k.seeds[1])
	h := (high ^ low) * 0x9e3779b97f4a7c15
	return h ^ h>>32
}

// Add takes a batch in. Of texts, words are hashes: equal texts must have equal ones, and at gives the text. times
// tells how often each key came; nil is once each. Cost: two passes over the batch.
func (k *Keys) Add(words []uint64, at func(i int) []byte, times []uint64) {
	k.all.RLock()
	defer k.all.RUnlock()
	for from := 0; from < len(words); from += mostDealt {
		to, some, in := min(from+mostDealt, len(words)), times, at
		if times != nil {
			some = times[from:to]
		}
		if at != nil {
			in = func(i int) []byte { return at(from + i) }
		}
		k.add(words[from:to], in, some)
	}
}

// add is Add of a few.
func (k *Keys) add(words []uint64, at func(i int) []byte, times []uint64) {
	d, is := k.dealt.Get().(*deal)
	if !is {
		d = &deal{}
	}
	defer k.dealt.Put(d)
	d.hashes = slices.Grow(d.hashes[:0], len(words))[:len(words)]
	d.order = slices.Grow(d.order[:0], len(words))[:len(words)]
	clear(d.ends[:])
	for i, w := range words {
		if k.texts {
			w = max(1, w) // 0 is an empty slot
		}
		h := k.hash(w)
		d.hashes[i] = h
		d.ends[h>>(64-partBits)]++
	}
	all := uint32(0)
	for i, n := range d.ends {
		d.ends[i], all = all, all+n
	}
	for i, h := range d.hashes {
		p := h >> (64 - partBits)
		d.order[d.ends[p]] = uint32(i)
		d.ends[p]++
	}
	begin := rand.IntN(1 << partBits) // so that goroutines are not at one part
	for j := range k.parts {
		p := (begin + j) % len(k.parts)
		from := uint32(0)
		if p > 0 {
			from = d.ends[p-1]
		}
		if order := d.order[from:d.ends[p]]; len(order) > 0 {
			k.put(&k.parts[p], d.hashes, order, words, at, times)
		}
	}
}

// put takes those keys of a batch in that are of one part.
func (k *Keys) put(p *part, hashes []uint64, order []uint32, words []uint64, at func(i int) []byte, times []uint64) {
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, i := range order {
		n := uint64(1)
		if times != nil {
			n = times[i]
		}
		word := words[i]
		if word == 0 && !k.texts {
			p.zeros += n
			continue
		}
		var text []byte
		if k.texts {
			word, text = max(1, word), at(int(i))
		}
		k.enter(p, hashes[i], word, text, n)
	}
}

// enter counts a key, which came n times.
func (k *Keys) enter(p *part, hash, word uint64, text []byte, n uint64) {
	if 8*(p.n+1) > 5*len(p.words) {
		k.grow(p)
	}
	slot, there := k.find(p, hash, word, text)
	if !there {
		p.words[slot] = word
		p.n++
		if k.texts {
			p.places[slot] = uint64(len(p.text))
			room := cap(p.text)
			p.text = append(binary.AppendUvarint(p.text, uint64(len(text))), text...)
			k.bytes.Add(int64(cap(p.text) - room))
		}
	}
	if k.counting {
		p.counts[slot] += n
	}
}

// find gives the slot of a key, or the empty one that it would take.
func (k *Keys) find(p *part, hash, word uint64, text []byte) (slot uint64, there bool) {
	last := uint64(len(p.words) - 1)
	for slot = hash << partBits >> bits.LeadingZeros64(last); ; slot = (slot + 1) & last {
		switch w := p.words[slot]; {
		case w == 0:
			return slot, false
		case w == word && (!k.texts || bytes.Equal(p.at(slot), text)):
			return slot, true
		}
	}
}

// at is the text of a slot.
func (p *part) at(slot uint64) []byte {
	from := p.text[p.places[slot]:]
	n, head := binary.Uvarint(from)
	return from[head : head+int(n)]
}

// grow doubles a part's slots.
func (k *Keys) grow(p *part) {
	words, counts, places := p.words, p.counts, p.places
	slots := max(firstSlot, 2*len(words))
	each := 8
	p.words = make([]uint64, slots)
	if k.counting {
		p.counts = make([]uint64, slots)
		each += 8
	}
	if k.texts {
		p.places = make([]uint64, slots)
		each += 8
	}
	k.bytes.Add(int64(each * (slots - len(words))))
	last := uint64(slots - 1)
	for i, w := range words {
		if w == 0 {
			continue
		}
		slot := k.hash(w) << partBits >> bits.LeadingZeros64(last)
		for p.words[slot] != 0 {
			slot = (slot + 1) & last
		}
		p.words[slot] = w
		if k.counting {
			p.counts[slot] = counts[i]
		}
		if k.texts {
			p.places[slot] = places[i]
		}
	}
}

// Len returns the number of distinct keys.
func (k *Keys) Len() int64 {
	k.all.RLock()
	defer k.all.RUnlock()
	return k.len()
}

// len does what Len does, for a caller that holds k.all.
func (k *Keys) len() (n int64) {
	for i := range k.parts {
		p := &k.parts[i]
		p.lock.Lock()
		n += int64(p.n)
		if p.zeros > 0 {
			n++
		}
		p.lock.Unlock()
	}
	return n
}

// Bytes is the memory that the keys take, but for what a part's growth takes in passing.
func (k *Keys) Bytes() int64 { return k.bytes.Load() }

// Count is a key and how often it came.
type Count struct {
	Word  uint64 // of a text, its hash
	Text  []byte
	Times uint64
}

// Top returns the n keys that came most often, or all if there are fewer, the most frequent first. Keys that came equally
// often are in the order of less, which compares texts or words. The Keys must be counting. Cost: a pass over all keys.
func (k *Keys) Top(n int, less func(a, b Count) int) []Count {
	k.all.RLock()
	defer k.all.RUnlock()
	var top []Count
	order := func(a, b Count) int { return cmp.Or(cmp.Compare(b.Times, a.Times), less(a, b)) }
	last := Count{} // where n are known, none behind it is among them
	keep := func(c Count) {
		if last.Times > 0 && (c.Times < last.Times || order(c, last) > 0) {
			return
		}
		if top = append(top, c); len(top) >= 2*n+1024 {
			slices.SortFunc(top, order)
			if top = top[:n]; n > 0 {
				last = top[n-1]
			}
		}
	}
	for i := range k.parts {
		p := &k.parts[i]
		p.lock.Lock()
		if p.zeros > 0 {
			keep(Count{Times: p.zeros})
		}
		for slot, w := range p.words {
			if w == 0 {
				continue
			}
			c := Count{Word: w, Times: p.counts[slot]}
			if k.texts {
				c.Text = p.at(uint64(slot))
			}
			keep(c)
		}
		p.lock.Unlock()
	}
	slices.SortFunc(top, order)
	return top[:min(n, len(top))]
}

// Prune keeps no more than most keys, those that came most often, and gives by how much it makes the counts of all
// less: by the count of the first key that has no place, so that equal ones have none either. It is the step of
// Misra-Gries summaries in P. Agarwal and others, Mergeable Summaries (PODS 2012): all calls together give no more than
// a share of 1/(most+1) of all that was added. Where there are no more keys, it does nothing and gives 0. Cost: a pass
// over all keys, and memory for those that stay. The Keys must be counting.
func (k *Keys) Prune(most int) (less uint64) {
	k.all.Lock()
	defer k.all.Unlock()
	if k.len() <= int64(most) {
		return 0
	}
	less = k.threshold(most)
	k.bytes.Store(0)
	for i := range k.parts {
		p := &k.parts[i]
		old := part{n: p.n, words: p.words, counts: p.counts, places: p.places, text: p.text}
		p.n, p.words, p.counts, p.places, p.text = 0, nil, nil, nil, nil
		p.zeros -= min(p.zeros, less)
		for slot, w := range old.words {
			if w == 0 || old.counts[slot] <= less {
				continue
			}
			var text []byte
			if k.texts {
				text = old.at(uint64(slot))
			}
			k.enter(p, k.hash(w), w, text, old.counts[slot]-less)
		}
	}
	return less
}

// threshold is the count of key number most, from 0, in the order of counts, the largest first.
func (k *Keys) threshold(most int) uint64 {
	const small = 1 << 16 // counts below are counted, and others sorted
	var large []uint64
	times := make([]int, small)
	note := func(n uint64) {
		if n >= small {
			large = append(large, n)
		} else {
			times[n]++
		}
	}
	for i := range k.parts {
		p := &k.parts[i]
		if p.zeros > 0 {
			note(p.zeros)
		}
		for slot, w := range p.words {
			if w != 0 {
				note(p.counts[slot])
			}
		}
	}
	if most < len(large) {
		slices.Sort(large)
		return large[len(large)-1-most]
	}
	most -= len(large)
	n := small - 1
	for ; most >= times[n]; n-- {
		most -= times[n]
	}
	return uint64(n)
}

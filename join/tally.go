package join

import (
	"math/bits"
	"slices"
	"sync"

	"github.com/warpmap/warpmap/internal/huge"
)

// tally is how many build rows each key has, for joins that are counted on the cores of a CPU. It is a hash table in
// parts, each of which fits a core's cache while it is filled.
//
//	hash of a key    │ part │ home bucket, as a fraction of the part's buckets │ … │ mark │ tag │
//	bucket           7 tags and 8 marks, then the 7 words of the tags: one line of the cache
//
// A key stands in its home bucket or in one of those behind it, if all between have its mark; the first bucket follows
// the last. The tags tell nearly always which word to compare, and whether there is one: a look-up reads one line of
// the cache, and has few branches that nobody can foresee. Of keys of two words, the second ones stand apart.
// The table takes half of what own takes, which has a row number for each key. The hash has seeds that nobody can
// foretell.
type tally struct {
	seeds
	bits    uint // of a hash, that name the part
	parts   []tallyPart
	buckets []bucket
	seconds []uint64 // of each slot; nil for keys of one word

	lock   sync.Mutex
	pieces []tallyPiece // what was taken, until it is filled in
}

// tallyPart is where a part's buckets begin, and how many it uses.
type tallyPart struct {
	from, n uint64
	more    []uint32 // of each slot, the rows beyond the first; nil where no key comes twice
}

const (
	bucketWords = 7
	bucketSlots = 8 // slots are counted as if there were so many
	bucketFill  = 5 // words of a bucket on average, at most
	tallyFirst  = 128
	tallyBlock  = 512 // keys whose home buckets are read before any is compared, so that the cache misses overlap
)

// bucket has the tag of its i-th word in the i-th byte of tags, 0 where there is none, and in the last byte the marks
// of the words that went on to the next bucket.
type bucket struct {
	tags  uint64
	words [bucketWords]uint64
}

const everyTag = 0x00_01_01_01_01_01_01_01

// tagOf is a hash's tag. It is not 1, which matching may take for the 0 of a slot without a word.
func tagOf(h uint64) uint64 { return max(2, h&0xff) }

// markOf is a hash's mark.
func markOf(h uint64) uint64 { return 1 << (56 + h>>8&7) }

// matching has the highest bit of the bytes that equal a tag set, and perhaps those of bytes behind them that differ
// from it in the lowest bit alone.
func matching(tags, tag uint64) uint64 {
	x := tags ^ tag*everyTag
	return (x - everyTag) &^ x & (everyTag << 7)
}

// newTally makes a tally for about so many rows, which come in so many pieces.
func newTally(rows, pieces int64, two bool) *tally {
	t := &tally{seeds: newSeeds()}
	// Parts are larger where a piece would have few rows of each.
	most := min(rows/ownRows, ownParts-1, rows/max(1, pieces)/bucketSlots)
	t.bits = uint(bits.Len64(uint64(max(0, most))))
	t.parts = make([]tallyPart, 1<<t.bits)
	if two {
		t.seconds = []uint64{}
	}
	return t
}

// hashOf is the hash of a key of one word or two.
func (t *tally) hashOf(word, second uint64) uint64 {
	if t.seconds == nil {
		return t.hash(word)
	}
	return t.hash(t.hash(word) ^ second)
}

// tallyPiece is some rows' keys in the order of their parts.
type tallyPiece struct {
	words, seconds []uint64
	ends           []uint32 // of each part
}

func (p *tallyPiece) part(i int) (from, to uint32) {
	if i > 0 {
		from = p.ends[i-1]
	}
	return from, p.ends[i]
}

// take takes a copy of the keys of at most pieceRows rows. Several goroutines may call it.
func (t *tally) take(words, seconds []uint64) {
	parts := grab[uint32](len(words))
	defer spare(parts)
	next := make([]uint32, len(t.parts))
	for i, w := range words {
		second := uint64(0)
		if seconds != nil {
			second = seconds[i]
		}
		p := uint32(t.hashOf(w, second) >> (64 - t.bits))
		parts[i] = p
		next[p]++
	}
	all := uint32(0)
	for i, n := range next {
		next[i], all = all, all+n
	}
	piece := tallyPiece{words: grab[uint64](len(words)), ends: next}
	for i, w := range words {
		at := &next[parts[i]]
		piece.words[*at] = w
		*at++
	}
	if seconds != nil {
		piece.takeSeconds(seconds, parts)
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	t.pieces = append(t.pieces, piece)
}

// takeSeconds puts the second words where the first ones are.
func (p *tallyPiece) takeSeconds(seconds []uint64, parts []uint32) {
	next := make([]uint32, len(p.ends))
	copy(next[1:], p.ends)
	p.seconds = grab[uint64](len(seconds))
	for i, s := range seconds {
		at := &next[parts[i]]
		p.seconds[*at] = s
		*at++
	}
}

// fill makes the table of what was taken.
func (t *tally) fill() {
	all := uint64(0)
	for i := range t.parts {
		rows := uint64(0)
		for _, p := range t.pieces {
			from, to := p.part(i)
			rows += uint64(to - from)
		}
		t.parts[i] = tallyPart{from: all, n: rows}
		all += rows/bucketFill + 1
	}
	t.buckets = huge.Slice[bucket](int(all))
	if t.seconds != nil {
		t.seconds = huge.Slice[uint64](int(all) * bucketSlots)
	}
	inParallel(len(t.parts), func(i int) { t.fillPart(i, t.parts[i].n) })
	for _, p := range t.pieces {
		spare(p.words)
		spare(p.seconds)
	}
	t.pieces = nil
}

// fillPart puts a part's rows into its buckets: a few at first, and as many as its keys seem to need once it is known
// how many of the rows bring another. Buckets that are not used take no memory.
func (t *tally) fillPart(i int, rows uint64) {
	p := &t.parts[i]
	most := rows/bucketFill + 1
	p.n = 0
	t.use(p, min(most, tallyFirst))
	different, done := uint64(0), 0
	for _, piece := range t.pieces {
		from, to := piece.part(i)
		for r := from; r < to; r++ {
			if different == p.n*bucketFill && p.n < most {
				expected := uint64(float64(different) / float64(done) * float64(rows))
				t.use(p, min(most, max(4*p.n, 2*expected/bucketFill)))
			}
			second := uint64(0)
			if piece.seconds != nil {
				second = piece.seconds[r]
			}
			slot, added := t.put(p, piece.words[r], second)
			if done++; added {
				different++
			} else {
				p.add(slot, 1)
			}
		}
	}
}

// add counts rows of a slot beyond the first.
func (p *tallyPart) add(slot uint64, rows uint32) {
	if p.more == nil {
		p.more = make([]uint32, p.n*bucketSlots)
	}
	p.more[slot-p.from*bucketSlots] += rows
}

// use gives a part n buckets, and puts what there was into them.
func (t *tally) use(p *tallyPart, n uint64) {
	before, more := slices.Clone(t.buckets[p.from:p.from+p.n]), p.more
	var seconds []uint64
	if t.seconds != nil {
		seconds = slices.Clone(t.seconds[p.from*bucketSlots : (p.from+p.n)*bucketSlots])
	}
	p.n, p.more = n, nil
	clear(t.buckets[p.from : p.from+n]) // memory that is written to before it is read costs one page fault, not two
	for i, b := range before {
		for s, w := range b.words[:b.used()] {
			old, second := i*bucketSlots+s, uint64(0)
			if seconds != nil {
				second = seconds[old]
			}
			slot, _ := t.put(p, w, second)
			if more != nil && more[old] > 0 {
				p.add(slot, more[old])
			}
		}
	}
}

// used is how many words a bucket has.
func (b *bucket) used() int { return (bits.Len64(b.tags&^(0xff<<56)) + 7) / 8 }

// home is the part of a hash, and the number of its first bucket.
func (t *tally) home(h uint64) (*tallyPart, uint64) {
	p := &t.parts[h>>(64-t.bits)]
	at, _ := bits.Mul64(h<<t.bits, p.n)
	return p, p.from + at
}

// put enters a key if it is not there, and gives its slot.
func (t *tally) put(p *tallyPart, word, second uint64) (slot uint64, added bool) {
	h := t.hashOf(word, second)
	_, at := t.home(h)
	if slot, found := t.search(p, h, at, word, second); found {
		return slot, false
	}
	b := &t.buckets[at]
	n := b.used()
	for ; n == bucketWords; n = b.used() {
		b.tags |= markOf(h)
		at = p.after(at)
		b = &t.buckets[at]
	}
	b.words[n] = word
	b.tags |= tagOf(h) << (8 * n)
	slot = at*bucketSlots + uint64(n)
	if t.seconds != nil {
		t.seconds[slot] = second
	}
	return slot, true
}

// after is the bucket behind one.
func (p *tallyPart) after(at uint64) uint64 {
	if at++; at == p.from+p.n {
		return p.from
	}
	return at
}

// search looks for a key from its home bucket on.
func (t *tally) search(p *tallyPart, h, at, word, second uint64) (slot uint64, found bool) {
	for {
		b := &t.buckets[at]
		for m := matching(b.tags, tagOf(h)); m != 0; m &= m - 1 {
			s := uint64(bits.TrailingZeros64(m)) / 8
			slot = at*bucketSlots + s
			if b.words[s] == word && (t.seconds == nil || t.seconds[slot] == second) {
				return slot, true
			}
		}
		if b.tags&markOf(h) == 0 {
			return 0, false
		}
		at = p.after(at)
	}
}

// asked is a block of keys that are looked up together: those that differ from the one before them.
type asked struct {
	n              int
	words, seconds [tallyBlock]uint64
	ends           [tallyBlock]int32 // of the rows with each key
	hashes, at     [tallyBlock]uint64
	tags           [tallyBlock]uint64
	times          [tallyBlock]uint32 // what was found
}

// count looks the keys of some rows up: how many of the rows have a match, and how many matches they have together.
func (t *tally) count(words, seconds []uint64) (found, pairs int64) {
	var a asked
	for len(words) > 0 {
		n := min(len(words), tallyBlock)
		if seconds == nil {
			a.take(words[:n])
		} else {
			a.takeTwo(words[:n], seconds[:n])
			seconds = seconds[n:]
		}
		words = words[n:]
		t.look(&a)
		last := int32(0)
		for i, x := range a.times[:a.n] {
			rows := int64(a.ends[i] - last)
			last = a.ends[i]
			pairs += rows * int64(x)
			found += rows & -int64(min(x, 1))
		}
	}
	return found, pairs
}

// timesOf tells how many build rows each key has.
func (t *tally) timesOf(words, seconds []uint64, times []uint32) []uint32 {
	var a asked
	times = slices.Grow(times[:0], len(words))
	for from := 0; from < len(words); from += tallyBlock {
		a.n = copy(a.words[:], words[from:])
		if seconds != nil {
			copy(a.seconds[:], seconds[from:])
		}
		t.look(&a)
		times = append(times, a.times[:a.n]...)
	}
	return times
}

// take takes the keys of at most tallyBlock rows.
func (a *asked) take(words []uint64) {
	n, last := 0, ^words[0]
	for i, w := range words {
		if w != last {
			n++
		}
		at := (n - 1) % tallyBlock
		a.words[at], a.ends[at] = w, int32(i+1)
		last = w
	}
	a.n = n
}

// takeTwo is take for keys of two words.
func (a *asked) takeTwo(words, seconds []uint64) {
	n, word, second := 0, ^words[0], uint64(0)
	for i, w := range words {
		s := seconds[i]
		if (w^word)|(s^second) != 0 {
			n++
		}
		at := (n - 1) % tallyBlock
		a.words[at], a.seconds[at], a.ends[at] = w, s, int32(i+1)
		word, second = w, s
	}
	a.n = n
}

// look looks a block up.
func (t *tally) look(a *asked) {
	n := a.n
	if t.seconds == nil {
		for i, w := range a.words[:n] {
			a.hashes[i] = t.hash(w)
		}
	} else {
		for i, w := range a.words[:n] {
			a.hashes[i] = t.hash(t.hash(w) ^ a.seconds[i])
		}
	}
	for i, h := range a.hashes[:n] {
		_, a.at[i] = t.home(h)
	}
	for i, at := range a.at[:n] {
		a.tags[i] = t.buckets[at].tags
	}
	if t.seconds != nil {
		for i, tags := range a.tags[:n] { // brings the second words into the cache, too
			s := bits.TrailingZeros64(matching(tags, tagOf(a.hashes[i]))) / 8
			a.times[i] = uint32(t.seconds[a.at[i]*bucketSlots+uint64(s)%bucketSlots])
		}
	}
	for i, tags := range a.tags[:n] {
		h := a.hashes[i]
		a.times[i] = 0
		if matching(tags, tagOf(h)) == 0 && tags&markOf(h) == 0 {
			continue
		}
		p := &t.parts[h>>(64-t.bits)]
		if slot, found := t.search(p, h, a.at[i], a.words[i], a.seconds[i]); found {
			a.times[i] = 1
			if p.more != nil {
				a.times[i] += p.more[slot-p.from*bucketSlots]
			}
		}
	}
}

package filters

import (
	"math"

	"github.com/warpmap/warpmap/kernel"
)

// The shape of package cuckoo with tags of 16 bits: see its doc.go.
const (
	tagBits     = 16
	tagMask     = 1<<tagBits - 1
	slotsInWord = 4
	bucketWords = 4
	bucketBytes = bucketWords * wordBytes
	windowBytes = 64 << 10
	load        = 0.95
	spare       = 2
	chain       = 4   // tags that move for one item at most
	looks       = 256 // buckets that are looked at for room along chains
)

// Slots is how many slots a bucket has, and Looks how many buckets an item looks at for room.
const Slots, Looks = bucketWords*slotsInWord - 1, looks

// lastSlots are those of a bucket's last word, which has marks, too.
const lastSlots = slotsInWord - 1

// NewCuckoo makes a cuckoo filter for so many items, of no more than most bytes. With expansion 0 it does not grow.
// Error: ErrLarge.
func NewCuckoo(capacity, expansion uint64, most int) (Value, error) {
	v := head(cuckooKind, 0, expansion)
	first, err := cuckooLink(capacity, most-len(v))
	return append(v, first...), err
}

// cuckooLink has windows as geometryOf of package cuckoo makes them.
func cuckooLink(capacity uint64, most int) ([]byte, error) {
	if capacity > 1<<40 {
		return nil, ErrLarge
	}
	const perWindow = windowBytes / bucketBytes
	buckets := uint64(math.Ceil(float64(capacity)/load/Slots)) + spare
	windows := (buckets + perWindow - 1) / perWindow
	buckets = max(2, ((buckets+windows-1)/windows+1)&^1)
	return windowsLink(capacity, windows, buckets, most)
}

func windowsLink(capacity, windows, buckets uint64, most int) ([]byte, error) {
	n := windows * buckets * bucketBytes
	if n > uint64(max(0, most-linkBytes)) {
		return nil, ErrLarge
	}
	return newLink(capacity, windows, buckets, n), nil
}

// place is where an item's tag goes: the twin of Place in cuckoo/cuckoo.cuh.
type place struct {
	window  int // where it begins
	buckets uint32
	bucket  uint32
	tag     uint32
}

func placeOf(l link, hash uint64) place {
	random := hash * 0x9e3779b97f4a7c15
	bucket := uint32((random >> 32) * l.second >> 32)
	random = (random ^ random>>32) * 0xff51afd7ed558ccd
	window := int(kernel.Reduce(hash, l.first)) * int(l.second) * bucketBytes
	return place{l.words() + window, uint32(l.second), bucket, 1 + uint32((random>>32)*tagMask>>32)}
}

func (p place) at(bucket uint32) int { return p.window + int(bucket)*bucketBytes }

// other is the other bucket of a tag.
func (p place) other(bucket, tag uint32) uint32 {
	sum := 2*uint32(uint64(kernel.Fmix32(tag))*uint64(p.buckets/2)>>32) + 1
	if sum < bucket {
		sum += p.buckets
	}
	return sum - bucket
}

// slots gives the slots of a bucket that hold a tag to do, until it returns false.
func (v Value) slots(at int, tag uint32, do func(word, shift int) bool) {
	for i := range bucketWords {
		w, n := v.u64(at+i*wordBytes), slotsInWord
		if i == bucketWords-1 {
			n = lastSlots
		}
		for s := range n {
			if uint32(w>>(s*tagBits))&tagMask == tag && !do(at+i*wordBytes, s*tagBits) {
				return
			}
		}
	}
}

func (v Value) count(at int, tag uint32) (n int) {
	v.slots(at, tag, func(int, int) bool { n++; return true })
	return n
}

// swap replaces a tag in a bucket by another, and tells whether it was there.
func (v Value) swap(w Writer, at int, tag, by uint32) (ok bool) {
	v.slots(at, tag, func(word, shift int) bool {
		set(w, word, v.u64(word)^uint64(tag^by)<<shift)
		ok = true
		return false
	})
	return ok
}

func markOf(tag uint32) uint64 { return 1 << (lastSlots*tagBits + tag%tagBits) }

// mark says that a tag of a bucket may be in its other one.
func (v Value) mark(w Writer, at int, tag uint32) {
	word := at + (bucketWords-1)*wordBytes
	if was := v.u64(word); was&markOf(tag) == 0 {
		set(w, word, was|markOf(tag))
	}
}

func (v Value) marked(at int, tag uint32) bool {
	return v.u64(at+(bucketWords-1)*wordBytes)&markOf(tag) != 0
}

// CountCuckoo is how often an item may be in a cuckoo filter. Error: ErrWrong.
func (v Value) CountCuckoo(item []byte) (n int, err error) {
	all, err := v.links()
	if err != nil {
		return 0, err
	}
	hash := v.hash(item)
	for _, l := range all {
		n += v.countIn(placeOf(l, hash))
	}
	return n, nil
}

func (v Value) countIn(p place) int {
	home := p.at(p.bucket)
	n := v.count(home, p.tag)
	if v.marked(home, p.tag) {
		n += v.count(p.at(p.other(p.bucket, p.tag)), p.tag)
	}
	return n
}

// AddCuckoo puts an item into a cuckoo filter, which has no more than most bytes then; with onlyNew only if it is not in
// yet. Errors: ErrFull, ErrTooMany, ErrLarge, ErrWrong.
func (v Value) AddCuckoo(w Writer, item []byte, onlyNew bool, most int) (added bool, err error) {
	all, err := v.links()
	if err != nil {
		return false, err
	}
	hash := v.hash(item)
	if onlyNew {
		if n, _ := v.CountCuckoo(item); n > 0 {
			return false, nil
		}
	}
	last := all[len(all)-1]
	p := placeOf(last, hash)
	if v.put(w, p) {
		set(w, last.at+atItems, last.items+1)
		return true, nil
	}
	if v.countIn(p) >= 2*Slots { // a larger filter would be as full of it
		return false, ErrTooMany
	}
	for _, older := range all[:len(all)-1] { // from which items may be deleted since
		if older.hasRoom() && v.put(w, placeOf(older, hash)) {
			set(w, older.at+atItems, older.items+1)
			return true, nil
		}
	}
	if v, err = v.growCuckoo(w, all, most); err != nil {
		return false, err
	}
	all, _ = v.links()
	last = all[len(all)-1]
	if !v.put(w, placeOf(last, hash)) {
		return false, ErrFull
	}
	set(w, last.at+atItems, last.items+1)
	return true, nil
}

// hasRoom tells whether so many slots of a link are free that a tag finds room.
func (l link) hasRoom() bool { return float64(l.items+1) <= 0.9*load*float64(l.first*l.second*Slots) }

func (v Value) growCuckoo(w Writer, all []link, most int) (Value, error) {
	if v.Expansion() == 0 {
		return nil, ErrFull
	}
	last := all[len(all)-1]
	if len(all) == mostLinks || last.first > 1<<40/v.Expansion() || last.capacity > 1<<40/v.Expansion() {
		return nil, ErrLarge
	}
	more, err := windowsLink(last.capacity*v.Expansion(), last.first*v.Expansion(), last.second, most-len(v))
	if err != nil {
		return nil, err
	}
	return w.Append(more), nil
}

// put puts a tag in, as insert_tag of package cuckoo does, or tells that there is no room.
func (v Value) put(w Writer, p place) bool {
	if v.swap(w, p.at(p.bucket), 0, p.tag) {
		return true
	}
	second := p.other(p.bucket, p.tag)
	v.mark(w, p.at(p.bucket), p.tag)
	return v.swap(w, p.at(second), 0, p.tag) || v.moveOne(w, p, second) || v.moveChain(w, p, second)
}

// step is a tag that moves to its other bucket.
type step struct{ bucket, tag uint32 }

// run moves the tags of a chain, the last first, and puts the new one where the first was.
func (v Value) run(w Writer, p place, steps []step, tag uint32) bool {
	for _, s := range steps {
		v.mark(w, p.at(s.bucket), s.tag)
	}
	last := steps[len(steps)-1]
	v.swap(w, p.at(p.other(last.bucket, last.tag)), 0, last.tag)
	for i := len(steps) - 1; i >= 0; i-- {
		by := tag
		if i > 0 {
			by = steps[i-1].tag
		}
		v.swap(w, p.at(steps[i].bucket), steps[i].tag, by)
	}
	return true
}

func (v Value) moveOne(w Writer, p place, second uint32) bool {
	for _, bucket := range []uint32{p.bucket, second} {
		for i := range Slots {
			tag := v.tagAt(p.at(bucket), i)
			if v.count(p.at(p.other(bucket, tag)), 0) > 0 {
				return v.run(w, p, []step{{bucket, tag}}, p.tag)
			}
		}
	}
	return false
}

func (v Value) tagAt(at, slot int) uint32 {
	return uint32(v.u64(at+slot/slotsInWord*wordBytes)>>(slot%slotsInWord*tagBits)) & tagMask
}

func (v Value) moveChain(w Writer, p place, second uint32) bool {
	random := kernel.Fmix32(p.tag<<tagBits ^ p.bucket)
	for look := 0; look < looks; {
		var steps []step
		bucket := []uint32{p.bucket, second}[random&1]
		for range chain {
			look++
			random = random*1664525 + 1013904223
			tag := v.tagAt(p.at(bucket), int(uint64(random)*Slots>>32))
			steps = append(steps, step{bucket, tag})
			if bucket = p.other(bucket, tag); v.count(p.at(bucket), 0) > 0 && apart(steps) {
				return v.run(w, p, steps, p.tag)
			}
		}
		random = kernel.Fmix32(random)
	}
	return false
}

// apart tells whether a chain goes through no tag of a bucket twice: it would be there once alone.
func apart(steps []step) bool {
	for i, s := range steps {
		for _, t := range steps[:i] {
			if s == t {
				return false
			}
		}
	}
	return true
}

// DeleteCuckoo takes an item out of a cuckoo filter once, and tells whether it was in. Error: ErrWrong.
//
// If several links have a tag that may be the item's, the one that is taken out, of the newest, may be another item's.
// That item has the same tag, the same window and the same two buckets, and so it has in all older links, since their
// windows are as large and each is of some windows of the newer link. So what is left there is as good for it, as soon
// as both buckets have the mark.
func (v Value) DeleteCuckoo(w Writer, item []byte) (bool, error) {
	all, err := v.links()
	if err != nil {
		return false, err
	}
	hash := v.hash(item)
	for i := len(all) - 1; i >= 0; i-- {
		l := all[i]
		p := placeOf(l, hash)
		home := p.at(p.bucket)
		if v.swap(w, home, p.tag, 0) || v.marked(home, p.tag) &&
			v.swap(w, p.at(p.other(p.bucket, p.tag)), p.tag, 0) {
			set(w, l.at+atItems, l.items-1)
			set(w, l.at+atDeleted, l.deleted+1)
			for _, older := range all[:i] {
				v.markBoth(w, placeOf(older, hash))
			}
			return true, nil
		}
	}
	return false, nil
}

// markBoth marks both buckets of a tag that is in one.
func (v Value) markBoth(w Writer, p place) {
	home, away := p.at(p.bucket), p.at(p.other(p.bucket, p.tag))
	if v.count(home, p.tag)+v.count(away, p.tag) > 0 {
		v.mark(w, home, p.tag)
		v.mark(w, away, p.tag)
	}
}

// Check goes through a filter and compares it with the invariants: for tests.
func (v Value) Check() error {
	all, err := v.links()
	if err != nil {
		return err
	}
	for i, l := range all {
		if v.IsBloom() {
			if l.items > l.capacity || i < len(all)-1 && l.items < l.capacity {
				return ErrWrong
			}
			continue
		}
		tags := uint64(0)
		for at := l.words(); at < l.words()+int(l.wordsBytes); at += bucketBytes {
			for s := range Slots {
				if v.tagAt(at, s) != 0 {
					tags++
				}
			}
		}
		if tags != l.items {
			return ErrWrong
		}
	}
	return nil
}

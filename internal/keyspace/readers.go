package keyspace

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Who shares many shards would write to as many locks, which all who share them fight for. So the locks of shards that
// nobody has changed for a while are biased towards readers, as those of Dice and Kogan are (BRAVO: Biased Locking for
// Reader-Writer Locks, 2019): who shares such shards only says so in a line of memory of its own, once for all of them.
// Who locks one ends its bias, and waits for the readers that have said so.
//
//	bias     │ a bit for each shard │
//	readers  │ how many came │ the bits of 64 shards each that the last has, or 0: it has gone │ … │
//
// A reader says what it has, and then looks at the bias; a writer, who has the shard's lock, ends the bias, and then
// looks at the readers. So one of the two sees the other, and the writer need not wait for those who come later. A
// reader that sees no bias takes the locks of all its shards. It waits for none of them while it says that it has some.
// The bias is set by who has a shard's lock, shared.
type bias struct {
	_       [64]byte
	shards  Several                    // read and written atomically
	asked   [shards / 64]atomic.Uint32 // how often 64 shards were shared by their locks since a bias of theirs ended
	_       [64]byte
	readers [biasedReaders]Reader
}

// Reader is who shares shards by their bias.
type Reader struct {
	has atomic.Uint64
	_   [120]byte // processors fetch two lines at once
}

// leave ends what share gave.
func (r *Reader) leave() { r.has.Store(r.has.Load() &^ everyGroup) }

// groups is the bits of 64 shards each.
func (t *Several) groups() (bits uint64) {
	for w, word := range t {
		if word != 0 {
			bits |= 1 << w
		}
	}
	return bits
}

// share gives the reader as which a caller has shards now, or nil: then it has to take their locks.
func (b *bias) share(t *Several, near int) *Reader {
	if !b.towards(t) {
		return nil
	}
	r := &b.readers[uint(near)%biasedReaders]
	was := r.has.Load()
	if was&everyGroup != 0 || !r.has.CompareAndSwap(was, was+everyGroup+1|t.groups()) {
		return nil
	}
	if !b.towards(t) {
		r.leave()
		return nil
	}
	return r
}

// towards tells whether all of the shards are biased towards readers.
func (b *bias) towards(t *Several) bool {
	for w, word := range t {
		if word != 0 && word&^atomic.LoadUint64(&b.shards[w]) != 0 {
			return false
		}
	}
	return true
}

// ask says that the caller shares the shards by their locks, which may set their bias.
func (b *bias) ask(t *Several) {
	for w, word := range t {
		if word != 0 && (b.asked[w].Load() >= leastAsked || b.asked[w].Add(1) >= leastAsked) {
			atomic.OrUint64(&b.shards[w], word)
		}
	}
}

// end ends the bias of those of 64 shards for which word has a bit, which the caller has locked, and waits for their
// readers.
func (b *bias) end(w int, word uint64) {
	if atomic.LoadUint64(&b.shards[w])&word == 0 {
		return
	}
	atomic.AndUint64(&b.shards[w], ^word)
	b.asked[w].Store(0)
	var had [biasedReaders]uint64
	for i := range b.readers {
		had[i] = b.readers[i].has.Load()
	}
	for i, had := range had {
		for tries := 0; had&(1<<w) != 0 && b.readers[i].has.Load() == had; tries++ {
			if tries < 64 {
				runtime.Gosched()
			} else {
				time.Sleep(20 * time.Microsecond)
			}
		}
	}
}

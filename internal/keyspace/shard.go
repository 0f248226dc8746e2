package keyspace

import (
	"bytes"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Shard is the keys of some hashes. All methods are called between Lock and Unlock of it, and Look also between Share
// and Unshare; what they return of the shard's memory is the caller's until it changes the shard or unlocks it.
type Shard struct {
	mu       sync.RWMutex
	slots    []slot    // with mu and what leads to segments in one line of memory
	segments []segment // the first is none, so that no place is 0
	space    *Space
	number   int      // of the shard
	spare    []uint32 // numbers of segments that are no more
	current  uint32   // where records are put; 0: nowhere yet
	moving   bool
	left     uint32              // the segment that was current when records began to be moved, and is no more; or 0
	group    *Group              // of what is logged together; nil: each by itself
	watches  map[string][]*Watch // by their keys
	records  int64               // bytes of live records
	counted  int64               // bytes of records and slots that the space does not know yet
	expiring atomic.Int64        // keys that expire
	at       int                 // the slot where the sweep goes on
	keys     atomic.Int64

	hits, misses, expired, evicted, changes uint64
	_                                       [32]byte // to a multiple of lineBytes
}

// Who locks or shares a shard tries for about two microseconds before it gives the thread away: most have a shard for
// less, and who waits by the lock's own means is told several microseconds after it is free, or tens in a virtual
// machine.
func (s *Shard) lock() {
	s.lockForReaders()
	s.space.bias.end(s.number/64, 1<<(s.number%64))
}

// lockForReaders does what lock does, but that there may still be readers without the lock.
func (s *Shard) lockForReaders() {
	for range tries {
		if s.mu.TryLock() {
			return
		}
		s.linger()
	}
	s.mu.Lock()
}

func (s *Shard) share() {
	for range tries {
		if s.mu.TryRLock() {
			return
		}
		s.linger()
	}
	s.mu.RLock()
}

// linger waits some tens of nanoseconds, and leaves the line of memory that has the lock to who wants to give it back.
func (s *Shard) linger() {
	for range lingers {
		s.space.policy.Load()
	}
}

const tries, lingers = 32, 64

// Unlock ends what Lock began.
func (s *Shard) Unlock() { s.mu.Unlock() }

// Unshare ends what Share began.
func (s *Shard) Unshare() { s.mu.RUnlock() }

// home is the slot where the search for a hash begins.
func (s *Shard) home(hash uint64) int {
	return int(hash << shardBits >> (64 - uint(bits.TrailingZeros(uint(len(s.slots))))))
}

func (s *Shard) record(place uint64) record {
	return record(s.segments[place>>32].mem[uint32(place):])
}

// find is the slot of a key, or −1.
func (s *Shard) find(hash uint64, key []byte) int {
	if len(s.slots) == 0 {
		return -1
	}
	return s.findFrom(s.home(hash), hash, key)
}

// findFrom does what find does, from a slot on before which the hash is not.
func (s *Shard) findFrom(i int, hash uint64, key []byte) int {
	for ; ; i = (i + 1) & (len(s.slots) - 1) {
		switch at := &s.slots[i]; {
		case at.place == 0:
			return -1
		case at.hash == hash && bytes.Equal(s.record(at.place).key(), key):
			return i
		}
	}
}

// there is the slot of a key that has not expired, or −1.
func (s *Shard) there(hash uint64, key []byte, now int64) int {
	i := s.find(hash, key)
	if i >= 0 && s.record(s.slots[i].place).expired(now) {
		s.expired++
		s.remove(i)
		return -1
	}
	return i
}

// Get is a key's value, and when it expires, in milliseconds since 1970; 0 for never. The value of a key that holds a
// filter is nil, and no other is.
func (s *Shard) Get(hash uint64, key []byte, now int64) (value []byte, expires int64, ok bool) {
	i := s.there(hash, key, now)
	if i < 0 {
		s.misses++
		return nil, 0, false
	}
	s.hits++
	r := s.record(s.slots[i].place)
	if t := clock(now); r.u32(atUsed) != t {
		r.set32(atUsed, t)
	}
	return r.text(), r.expires(), true
}

// Look does what Get does, for those who share the shard. It counts nothing: see Space.Looked. A key that has expired
// stays where it is until somebody asks with the lock.
func (s *Shard) Look(hash uint64, key []byte, now int64) (value []byte, there, expired bool) {
	return s.look(s.find(hash, key), now)
}

// LookFrom does what Look does, from where Warm says, while the shard is as Warm found it.
func (s *Shard) LookFrom(at int, hash uint64, key []byte, now int64) (value []byte, there, expired bool) {
	if at < 0 {
		return nil, false, false
	}
	return s.look(s.findFrom(at, hash, key), now)
}

func (s *Shard) look(i int, now int64) (value []byte, there, expired bool) {
	if i < 0 {
		return nil, false, false
	}
	r := s.record(s.slots[i].place)
	if r.expired(now) {
		return nil, false, true
	}
	used := (*uint32)(unsafe.Pointer(&r[atUsed])) // records begin at multiples of grain
	if t := clock(now); atomic.LoadUint32(used) != t {
		atomic.StoreUint32(used, t)
	}
	return r.text(), true, false
}

// Peek does what Get does, and leaves no trace of it.
func (s *Shard) Peek(hash uint64, key []byte, now int64) (value []byte, expires int64, ok bool) {
	i := s.there(hash, key, now)
	if i < 0 {
		return nil, 0, false
	}
	r := s.record(s.slots[i].place)
	return r.text(), r.expires(), true
}

// Filter is what Peek is for a key that holds a filter; the value of another is nil.
func (s *Shard) Filter(hash uint64, key []byte, now int64) (value []byte, expires int64, ok bool) {
	i := s.there(hash, key, now)
	if i < 0 {
		return nil, 0, false
	}
	r := s.record(s.slots[i].place)
	return r.filterValue(), r.expires(), true
}

// Used is how many bytes a key's record takes with its slot, and since how many milliseconds it was not used.
func (s *Shard) Used(hash uint64, key []byte, now int64) (bytes, idle int64, ok bool) {
	i := s.there(hash, key, now)
	if i < 0 {
		return 0, 0, false
	}
	r := s.record(s.slots[i].place)
	return int64(r.size() + slotBytes), int64(clock(now)-r.u32(atUsed)) << clockBits, true
}

// clock counts 64 ms each. It goes round in nine years.
func clock(now int64) uint32 { return uint32(now >> clockBits) }

const clockBits = 6

// Put puts or replaces a value. Neither key nor value may be of the shard's memory.
func (s *Shard) Put(hash uint64, key, value []byte, expires, now int64) {
	s.changed(entry{kind: kindPut, key: key, value: value, expires: expires})
	s.put(s.find(hash, key), hash, key, value, false, expires, now)
}

// PutFilter does what Put does, for a value that is a filter.
func (s *Shard) PutFilter(hash uint64, key, value []byte, expires, now int64) {
	s.changed(entry{kind: kindPut, key: key, value: value, filter: true, expires: expires})
	s.put(s.find(hash, key), hash, key, value, true, expires, now)
}

// changed says that something is done to a key: it is logged, and those are told who watch the key.
func (s *Shard) changed(e entry) {
	s.changes++
	if s.watches != nil {
		s.touch(e.key)
	}
	s.note(e)
}

// note logs.
func (s *Shard) note(e entry) {
	if s.group != nil {
		s.group.add(e)
		return
	}
	logEntry(s.space.log, e)
}

func (s *Shard) put(i int, hash uint64, key, value []byte, filter bool, expires, now int64) {
	if i >= 0 {
		r := s.record(s.slots[i].place)
		if size, wanted := r.size(), sizeOf(len(key), len(value)); wanted <= size && (size <= 64 || 2*wanted >= size) {
			s.expireMore(expiring(expires) - expiring(r.expires()))
			r.set32(atKeyBytes, keyWord(len(key), filter))
			r.set32(atValueBytes, uint32(len(value)))
			r.set32(atUsed, clock(now))
			r.setExpires(expires)
			copy(r.value(), value)
			return
		}
	}
	place := s.write(key, value, filter, len(value), expires, now)
	if i >= 0 {
		s.replace(i, place)
	} else {
		s.insert(hash, place)
	}
	s.settle()
}

// replace has a slot lead to another record.
func (s *Shard) replace(i int, place uint64) {
	old := s.slots[i].place
	s.slots[i].place = place
	s.release(old)
}

// expireMore says that so many more keys expire.
func (s *Shard) expireMore(n int64) {
	if n != 0 {
		s.expiring.Add(n)
	}
}

func expiring(at int64) int64 {
	if at != 0 {
		return 1
	}
	return 0
}

// write makes a record with room for so many bytes of a value.
func (s *Shard) write(key, value []byte, filter bool, room int, expires, now int64) uint64 {
	size := sizeOf(len(key), room)
	place := s.reserve(size)
	r := s.record(place)
	r.set32(atKeyBytes, keyWord(len(key), filter))
	r.set32(atValueBytes, uint32(len(value)))
	r.set32(atRoom, uint32(size-headBytes-len(key)))
	r.set32(atUsed, clock(now))
	r.setExpires(expires)
	copy(r[headBytes:], key)
	copy(r[headBytes+len(key):], value)
	s.expireMore(expiring(expires))
	s.records += int64(size)
	s.counted += int64(size)
	return place
}

// keyWord is the first word of a record that lives.
func keyWord(bytes int, filter bool) uint32 {
	if filter {
		return uint32(bytes) | filterBit
	}
	return uint32(bytes)
}

// Append appends to a value, or puts it, and gives its length. A value with more than most bytes is left as it was.
func (s *Shard) Append(hash uint64, key, more []byte, most int, now int64) (n int, ok bool) {
	i := s.there(hash, key, now)
	if i < 0 {
		s.Put(hash, key, more, 0, now)
		return len(more), true
	}
	r := s.record(s.slots[i].place)
	before := len(r.value())
	if n = before + len(more); n > most {
		return before, false
	}
	s.changed(entry{kind: kindTail, key: key, value: more, expires: int64(before)})
	s.extend(i, key, more, now)
	return n, true
}

func (s *Shard) extend(i int, key, more []byte, now int64) {
	r := s.record(s.slots[i].place)
	before := len(r.value())
	n := before + len(more)
	if n > r.room() {
		place := s.write(key, nil, r.filter(), min(n+min(n, 1<<20), max(n, mostBytes)), r.expires(), now)
		old := s.record(s.slots[i].place) // which may have moved
		to := s.record(place)
		to.set32(atValueBytes, uint32(before))
		copy(to.value(), old.value())
		s.replace(i, place)
		r = s.record(s.slots[i].place)
	}
	r.set32(atValueBytes, uint32(n))
	r.set32(atUsed, clock(now))
	copy(r.value()[before:], more)
	s.settle()
}

// Patch replaces bytes of a key's value, which has so many and has not expired, by others.
func (s *Shard) Patch(hash uint64, key []byte, from int, with []byte) {
	v := s.record(s.slots[s.find(hash, key)].place).value()
	s.changed(entry{kind: kindPatch, key: key, value: with, expires: int64(from)})
	copy(v[from:], with)
}

// Delete removes a key, and tells whether it was there.
func (s *Shard) Delete(hash uint64, key []byte, now int64) bool {
	i := s.there(hash, key, now)
	if i >= 0 {
		s.remove(i)
	}
	return i >= 0
}

// Expire sets when a key expires, 0 for never, and tells whether the key was there.
func (s *Shard) Expire(hash uint64, key []byte, at, now int64) bool {
	i := s.there(hash, key, now)
	if i < 0 {
		return false
	}
	s.changed(entry{kind: kindExpire, key: key, expires: at})
	s.expire(i, at)
	return true
}

func (s *Shard) expire(i int, at int64) {
	r := s.record(s.slots[i].place)
	s.expireMore(expiring(at) - expiring(r.expires()))
	r.setExpires(at)
}

// remove takes the key of a slot out.
func (s *Shard) remove(i int) {
	place := s.slots[i].place
	s.changed(entry{kind: kindDelete, key: s.record(place).key()})
	s.unlink(i)
	s.release(place)
	s.settle()
}

// insert gives a hash that is not there a slot.
func (s *Shard) insert(hash, place uint64) {
	if n := int(s.keys.Add(1)); n*fullDenominator > len(s.slots)*fullNumerator {
		s.resize(max(leastSlots, 2*len(s.slots)))
	}
	s.link(hash, place)
}

func (s *Shard) link(hash, place uint64) {
	i := s.home(hash)
	for s.slots[i].place != 0 {
		i = (i + 1) & (len(s.slots) - 1)
	}
	s.slots[i] = slot{hash, place}
}

func (s *Shard) resize(n int) {
	old := s.slots
	s.slots = make([]slot, n)
	s.counted += int64(slotBytes * (n - len(old)))
	for _, at := range old {
		if at.place != 0 {
			s.link(at.hash, at.place)
		}
	}
}

// unlink empties a slot, and moves up what would not be found behind it.
func (s *Shard) unlink(i int) {
	mask := len(s.slots) - 1
	for j := (i + 1) & mask; s.slots[j].place != 0; j = (j + 1) & mask {
		if home := s.home(s.slots[j].hash); (j-home)&mask >= (j-i)&mask {
			s.slots[i] = s.slots[j]
			i = j
		}
	}
	s.slots[i] = slot{}
	n := int(s.keys.Add(-1))
	switch {
	case n == 0 && s.space.most.Load() > 0: // indexes without keys could take all that a small bound allows
		s.resize(0)
	case len(s.slots) > leastSlots && 8*n < len(s.slots):
		s.resize(len(s.slots) / 2)
	}
}

// reserve finds place for a record.
func (s *Shard) reserve(size int) uint64 {
	if s.current != 0 {
		if c := &s.segments[s.current]; c.used+size <= len(c.mem) {
			c.used += size
			return placeOf(s.current, c.used-size)
		}
	}
	full := s.current
	usual := s.usual()
	if size > usual/4 {
		seg := s.segment(size)
		s.segments[seg].used = size
		return placeOf(seg, 0)
	}
	s.current = s.segment(usual)
	s.segments[s.current].used = size
	place := placeOf(s.current, 0)
	switch {
	case full == 0:
	case !s.moving:
		s.thin(full)
	case s.left == 0: // those that come behind it while records are moved have nothing that is dead
		s.left = full
	}
	return place
}

// usual is how large segments are made, by what lives in the shard. Those of all shards that are nearly empty fit a
// small bound.
func (s *Shard) usual() int {
	least := min(leastSegment, int(s.space.unsettled.Load()))
	return min(mostSegment, max(least, 1<<bits.Len(uint(s.records/8))))
}

// segment makes a segment, and gives its number.
func (s *Shard) segment(size int) uint32 {
	s.space.allocated.Add(int64(size))
	made := segment{mem: make([]byte, size)}
	if n := len(s.spare); n > 0 {
		seg := s.spare[n-1]
		s.spare = s.spare[:n-1]
		s.segments[seg] = made
		return seg
	}
	if len(s.segments) == 0 {
		s.segments = append(s.segments, segment{})
	}
	s.segments = append(s.segments, made)
	return uint32(len(s.segments) - 1)
}

// release ends a record, to which no slot leads any more.
func (s *Shard) release(place uint64) {
	r := s.record(place)
	size := r.size()
	s.expireMore(-expiring(r.expires()))
	r.set32(atKeyBytes, r.u32(atKeyBytes)|deadBit)
	s.records -= int64(size)
	s.counted -= int64(size)
	seg := uint32(place >> 32)
	s.segments[seg].dead += size
	s.thin(seg)
}

// thin frees a segment in which there is too little that lives.
func (s *Shard) thin(seg uint32) {
	g := &s.segments[seg]
	switch {
	case s.moving || g.mem == nil:
	case g.dead == g.used && seg == s.current:
		if len(g.mem) > s.usual() { // it was made when more lived here
			s.drop(seg)
			s.current = 0
			return
		}
		g.used, g.dead = 0, 0
	case seg == s.current:
	case g.dead == g.used:
		s.drop(seg)
	case s.space.deadParts()*g.dead > g.used:
		s.move(seg)
	}
}

func (s *Shard) drop(seg uint32) {
	s.space.allocated.Add(-int64(len(s.segments[seg].mem)))
	s.segments[seg] = segment{}
	s.spare = append(s.spare, seg)
}

// move brings the records of a segment elsewhere, and frees it.
func (s *Shard) move(seg uint32) {
	s.moving = true
	from := s.segments[seg]
	for at := 0; at < from.used; {
		r := record(from.mem[at:])
		size := r.size()
		if !r.dead() {
			old, hash := placeOf(seg, at), s.space.Hash(r.key())
			place := s.reserve(size)
			copy(s.record(place), r[:size])
			for i := s.home(hash); ; i = (i + 1) & (len(s.slots) - 1) {
				if s.slots[i].place == old {
					s.slots[i].place = place
					break
				}
			}
		}
		at += size
	}
	s.moving = false
	s.drop(seg)
	if left := s.left; left != 0 {
		s.left = 0
		s.thin(left)
	}
}

// settle tells the space of the bytes that came and went, now and then.
func (s *Shard) settle() {
	if most := s.space.unsettled.Load(); s.counted > most || s.counted < -most {
		s.space.live.Add(s.counted)
		s.counted = 0
	}
}

// clear takes all keys out, and logs nothing.
func (s *Shard) clear() {
	s.touchAll()
	for i := range s.segments {
		s.space.allocated.Add(-int64(len(s.segments[i].mem)))
	}
	s.space.live.Add(s.counted - s.bytes())
	s.slots, s.segments, s.spare, s.current = nil, nil, nil, 0
	s.at, s.records, s.counted = 0, 0, 0
	s.expiring.Store(0)
	s.keys.Store(0)
	s.changes++
}

// bytes are those of live records and of slots.
func (s *Shard) bytes() int64 { return s.records + int64(slotBytes*len(s.slots)) }

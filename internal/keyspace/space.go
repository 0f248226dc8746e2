package keyspace

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/journal"
)

// Policy is what goes out where memory is full.
type Policy int

const (
	NoEviction Policy = iota // nothing: Admit refuses
	LRU                      // keys that were not used for long, of those that are looked at
)

// Sync is when the log goes to the disk.
type Sync = journal.Sync

// They are those of package journal.
const (
	NoLog           = journal.NoLog
	SyncNever       = journal.SyncNever
	SyncEverySecond = journal.SyncEverySecond
	SyncAlways      = journal.SyncAlways
)

// Options are those of a space. The zero value is one in memory without bounds.
type Options struct {
	Most   int64     // bytes of memory for keys, values and indexes; 0: no bound
	Policy Policy    // what happens at the bound
	Folder string    // for snapshots and logs; empty: none
	Sync   Sync      // of the log in Folder
	Repair bool      // cut a log at what is damaged, even if more stands behind it
	Log    io.Writer // gets a line for what was cut and what went wrong; nil: none
}

// Space is keys and values: see the package's comment. Its methods are safe for use by several goroutines.
type Space struct {
	o         Options
	seed      maphash.Seed
	shards    []Shard
	opened    int64         // when, in milliseconds
	disk      *disk         // nil: there is none
	log       *journal.File // to which what is done is added; nil: none. Changed by who has locked all shards
	_         [64]byte      // what is above changes next to never
	allocated atomic.Int64  // bytes of segments
	live      atomic.Int64  // bytes of live records and of indexes, nearly
	unsettled atomic.Int64  // how nearly, for a shard
	flushes   atomic.Int64  // how often all was cleared

	most   atomic.Int64 // bytes, as in Options.Most
	policy atomic.Int64

	_            [64]byte
	hits, misses atomic.Uint64 // of Look
	bias         bias

	stop    chan struct{}
	workers sync.WaitGroup
	closing sync.Once
}

// Open makes a space, of what Folder holds. Cost: reading that. Errors: the system's; a folder that another process
// uses; *DamagedError.
func Open(o Options) (*Space, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Most < 0 || o.Sync != NoLog && o.Folder == "" {
		return nil, fmt.Errorf("a space of %d bytes, with a log in folder %q: want no negative size, and a folder for "+
			"a log", o.Most, o.Folder)
	}
	s := &Space{o: o, seed: maphash.MakeSeed(), shards: make([]Shard, shards),
		opened: time.Now().UnixMilli(), stop: make(chan struct{})}
	s.Bound(o.Most, o.Policy, false)
	for i := range s.shards {
		s.shards[i].space, s.shards[i].number = s, i
	}
	if o.Folder != "" {
		var err error
		if s.disk, err = openDisk(s, o); err != nil {
			return nil, err
		}
	}
	crash.Beside(&s.workers, s.sweeping)
	return s, nil
}

// Close ends a space. What was logged is on the disk then, where the log is synced at all. It is idempotent. Nobody may
// use the space any more. Errors: the system's.
func (s *Space) Close() (err error) {
	s.closing.Do(func() {
		close(s.stop)
		s.workers.Wait()
		if s.disk != nil {
			err = s.disk.close()
		}
	})
	return err
}

// Bound changes Options.Most and Options.Policy. held says that the caller has locked all shards.
func (s *Space) Bound(most int64, policy Policy, held bool) {
	s.policy.Store(int64(policy))
	s.unsettled.Store(mostUnsettled)
	if most > 0 { // all shards together less than an eighth of it
		s.unsettled.Store(min(mostUnsettled, most/(8*shards)))
	}
	if s.most.Swap(most) > 0 && most == 0 {
		s.tidy(held)
	}
}

const mostUnsettled = 1 << 10

// Bounds tells what they are.
func (s *Space) Bounds() (most int64, policy Policy) { return s.most.Load(), Policy(s.policy.Load()) }

// Hash is what the space knows a key by.
func (s *Space) Hash(key []byte) uint64 { return maphash.Bytes(s.seed, key) }

// Lock locks the shard of a hash.
func (s *Space) Lock(hash uint64) *Shard {
	sh := &s.shards[hash>>(64-shardBits)]
	sh.lock()
	return sh
}

// Share locks the shard of a hash for those who change nothing, and so do not wait for one another.
func (s *Space) Share(hash uint64) *Shard {
	sh := &s.shards[hash>>(64-shardBits)]
	sh.share()
	return sh
}

// Several is the shards of several keys. The zero value is none.
type Several [shards / 64]uint64

// Every is all shards.
var Every = func() (t Several) {
	for i := range t {
		t[i] = ^uint64(0)
	}
	return t
}()

// Add adds the shard of a hash.
func (t *Several) Add(hash uint64) { i := hash >> (64 - shardBits); t[i/64] |= 1 << (i % 64) }

// LockAll locks shards, in one order, so that what is done to several keys happens at once for everybody else.
func (s *Space) LockAll(t *Several) {
	for w, word := range t {
		for ; word != 0; word &= word - 1 {
			s.shards[w*64+bits.TrailingZeros64(word)].lockForReaders()
		}
	}
	for w, word := range t {
		if word != 0 {
			s.bias.end(w, word)
		}
	}
}

// UnlockAll ends what LockAll began.
func (s *Space) UnlockAll(t *Several) {
	for w, word := range t {
		for ; word != 0; word &= word - 1 {
			s.shards[w*64+bits.TrailingZeros64(word)].mu.Unlock()
		}
	}
}

// ShareAll is to Share what LockAll is to Lock. near is a number that callers on different processors do not have in
// common, and r is for UnshareAll.
func (s *Space) ShareAll(t *Several, near int) (r *Reader) {
	if r = s.bias.share(t, near); r != nil {
		return r
	}
	for w, word := range t {
		for ; word != 0; word &= word - 1 {
			s.shards[w*64+bits.TrailingZeros64(word)].share()
		}
	}
	s.bias.ask(t)
	return nil
}

// UnshareAll ends what ShareAll began.
func (s *Space) UnshareAll(t *Several, r *Reader) {
	if r != nil {
		r.leave()
		return
	}
	for w, word := range t {
		for ; word != 0; word &= word - 1 {
			s.shards[w*64+bits.TrailingZeros64(word)].mu.RUnlock()
		}
	}
}

// Looked counts what Look found, and what it did not.
func (s *Space) Looked(hits, misses uint64) {
	if hits > 0 {
		s.hits.Add(hits)
	}
	if misses > 0 {
		s.misses.Add(misses)
	}
}

// Warm reads what a look-up of each hash will read, so that the processor waits for all of that at once, and not for
// one after the other: first the slots where the searches begin, then the records that the hashes have, of which most
// lie in two lines of memory. from, of as many, is where LookFrom begins. The caller has locked the shards, or shares
// them.
func (s *Space) Warm(hashes []uint64, from []int) (sum uint64) {
	for _, hash := range hashes {
		if sh := s.Of(hash); len(sh.slots) > 0 {
			sum += sh.slots[sh.home(hash)].place
		}
	}
	for k, hash := range hashes {
		sh := s.Of(hash)
		from[k] = -1
		if len(sh.slots) == 0 {
			continue
		}
		i := sh.home(hash)
		for sh.slots[i].place != 0 && sh.slots[i].hash != hash {
			i = (i + 1) & (len(sh.slots) - 1)
		}
		if place := sh.slots[i].place; place != 0 {
			from[k] = i
			mem, at := sh.segments[place>>32].mem, int(uint32(place))
			// The second line may have the last use of another record, which others who share the shard write.
			second := min(at+lineBytes, len(mem)) - 4
			sum += uint64(mem[at]) + uint64(atomic.LoadUint32((*uint32)(unsafe.Pointer(&mem[second&^3]))))
		}
	}
	return sum
}

// lineBytes is what a processor reads of its memory at once.
const lineBytes = 64

// Of is the shard of a hash, which the caller has locked by LockAll, or shares.
func (s *Space) Of(hash uint64) *Shard { return &s.shards[hash>>(64-shardBits)] }

// Len counts the keys, those among them that have expired and were not removed yet. Cost: some microseconds.
func (s *Space) Len() (n int64) {
	for i := range s.shards {
		n += s.shards[i].keys.Load()
	}
	return n
}

// Clear takes all keys out. held says that the caller has locked all shards: see Every.
func (s *Space) Clear(held bool) {
	if !held {
		s.LockAll(&Every)
		defer s.UnlockAll(&Every)
	}
	s.flushes.Add(1)
	s.shards[0].note(entry{kind: kindClear})
	for i := range s.shards {
		s.shards[i].clear()
	}
}

// deadParts says when a segment is cleared of what is dead: when that is one of so many parts of it, or more.
func (s *Space) deadParts() int {
	if most := s.most.Load(); most > 0 && s.allocated.Load() > most-most/4 {
		return 8
	}
	return 2
}

// Admit tells whether there is room for so many more bytes. With LRU it makes room. The caller has locked nothing.
func (s *Space) Admit(more, now int64) bool {
	all, policy := s.Bounds()
	if all == 0 {
		return true
	}
	most := all - all/4
	if s.allocated.Load()+more > all {
		s.tidy(false)
	}
	for vain := 0; s.live.Load()+more > most; {
		if policy == NoEviction || more > most || vain > mostVain {
			return false
		}
		if vain++; s.evict(now) {
			vain = 0
		}
	}
	return true
}

// Fits tells whether there is room for so many more bytes, and makes none. The caller may have locked any shards.
func (s *Space) Fits(more int64) bool {
	all, _ := s.Bounds()
	return all == 0 || s.live.Load()+more <= all-all/4
}

// mostVain is how often in turn no key may be found to go before Admit gives up.
const mostVain = 64

// evict takes out the key that was not used for longest, of some that random shards have, and tells whether it did.
func (s *Space) evict(now int64) bool {
	var oldest *Shard
	var what slot
	age := uint32(0)
	at, looks := rand.Uint64(), uint64(0)
	for seen := 0; seen < evictedOf && looks < shards; looks++ {
		if looks%8 == 7 { // shards that stand side by side are as good as any, but for the next eviction
			at = rand.Uint64()
		}
		sh := &s.shards[(at+looks)%shards]
		if sh.keys.Load() == 0 {
			continue
		}
		sh.lock()
		n, p, a := sh.oldest(now)
		if seen += n; n > 0 && (oldest == nil || a > age) {
			oldest, what, age = sh, p, a
		}
		sh.mu.Unlock()
	}
	if oldest == nil {
		return false
	}
	oldest.lock()
	defer oldest.mu.Unlock()
	i := oldest.slotOf(what)
	if i >= 0 { // else another has changed it meanwhile
		oldest.evicted++
		oldest.remove(i)
		s.live.Add(oldest.counted)
		oldest.counted = 0
	}
	return i >= 0
}

// tidy has all segments cleared in which an eighth is dead, or more.
func (s *Space) tidy(held bool) {
	for i := range s.shards {
		sh := &s.shards[i]
		if !held {
			sh.lock()
		}
		for seg := range sh.segments {
			sh.thin(uint32(seg))
		}
		if !held {
			sh.mu.Unlock()
		}
	}
}

// evictedOf is how many keys are looked at to find one that was not used for long, and evictedEach how many of a shard.
const evictedOf, evictedEach = 16, 4

// oldest looks at some keys that stand side by side, for their hashes are random.
func (s *Shard) oldest(now int64) (seen int, what slot, age uint32) {
	mask := len(s.slots) - 1
	if s.keys.Load() == 0 {
		return 0, what, 0
	}
	for i := int(rand.Uint64()) & mask; seen < min(evictedEach, int(s.keys.Load())); i = (i + 1) & mask {
		if s.slots[i].place == 0 {
			continue
		}
		seen++
		a := clock(now) - s.record(s.slots[i].place).u32(atUsed)
		if a >= 1<<31 { // used since now
			a = 0
		}
		if what.place == 0 || a > age {
			what, age = s.slots[i], a
		}
	}
	return seen, what, age
}

// slotOf finds a slot again, or gives −1 where it has changed.
func (s *Shard) slotOf(what slot) int {
	if len(s.slots) == 0 {
		return -1
	}
	for i := s.home(what.hash); s.slots[i].place != 0; i = (i + 1) & (len(s.slots) - 1) {
		if s.slots[i] == what {
			return i
		}
	}
	return -1
}

// Counts are what has happened to a space, and what it takes.
type Counts struct {
	Keys, Expiring                 int64
	Watched                        int64 // keys that are watched
	Hits, Misses, Expired, Evicted uint64
	Changes                        uint64 // how often something was put, changed or removed
	Live, Allocated                int64  // bytes of live records and indexes, and of all memory
}

// Counts counts. held says that the caller has locked all shards. Cost: some ten microseconds.
func (s *Space) Counts(held bool) (c Counts) {
	c.Allocated, c.Hits, c.Misses = s.allocated.Load(), s.hits.Load(), s.misses.Load()
	for i := range s.shards {
		sh := &s.shards[i]
		if !held {
			sh.lock()
		}
		c.Keys += sh.keys.Load()
		c.Expiring += sh.expiring.Load()
		c.Watched += int64(len(sh.watches))
		c.Hits += sh.hits
		c.Misses += sh.misses
		c.Expired += sh.expired
		c.Evicted += sh.evicted
		c.Changes += sh.changes
		c.Live += sh.bytes()
		c.Allocated += int64(slotBytes * len(sh.slots))
		if !held {
			sh.mu.Unlock()
		}
	}
	return c
}

// Forget sets what Counts counts of events back to 0, but for Changes.
func (s *Space) Forget(held bool) {
	s.hits.Store(0)
	s.misses.Store(0)
	for i := range s.shards {
		sh := &s.shards[i]
		if !held {
			sh.lock()
		}
		sh.hits, sh.misses, sh.expired, sh.evicted = 0, 0, 0, 0
		if !held {
			sh.mu.Unlock()
		}
	}
}

// Scan gives keys from a cursor on, 0 at first, until there were about n, and tells where to go on; 0 is the end. Keys
// that are there all the time come once, others once or not at all. key, and filter where it holds one, are do's until
// it returns; do locks nothing. held says that the caller has locked all shards.
func (s *Space) Scan(cursor uint64, n int, now int64, held bool, do func(key, filter []byte)) (next uint64) {
	at := cursor << 1
	found, looked := 0, 0
	for at>>(64-shardBits) < shards {
		number := at >> (64 - shardBits)
		sh := &s.shards[number]
		behind := (number + 1) << (64 - shardBits) // 0 behind the last
		if sh.keys.Load() == 0 {
			if at = behind; at == 0 {
				return 0
			}
			continue
		}
		if !held {
			sh.lock()
		}
		for len(sh.slots) > 0 {
			home := sh.home(at)
			found += sh.at0(home, at, now, do)
			looked++
			if home++; home == len(sh.slots) {
				at = behind
				break
			}
			at = number<<(64-shardBits) | uint64(home)<<(64-uint(bits.TrailingZeros(uint(len(sh.slots)))))>>shardBits
			if found >= n || looked >= 10*n+leastLooked {
				break
			}
		}
		if len(sh.slots) == 0 {
			at = behind
		}
		if !held {
			sh.mu.Unlock()
		}
		if at == 0 {
			return 0
		}
		if found >= n || looked >= 10*n+leastLooked {
			return at >> 1
		}
	}
	return 0
}

// leastLooked is how many slots a scan looks at before it gives up for now, beside ten for each key that is wanted.
const leastLooked = 512

// at0 gives the keys whose home a slot is, with hashes from one on: those before it were given when the index was
// larger.
func (s *Shard) at0(home int, from uint64, now int64, do func(key, filter []byte)) (n int) {
	s.homed(home, from, func(r record) {
		if !r.expired(now) {
			do(r.key(), r.filterValue())
			n++
		}
	})
	return n
}

// homed gives the records of these keys.
func (s *Shard) homed(home int, from uint64, do func(r record)) {
	mask := len(s.slots) - 1
	for i := home; s.slots[i].place != 0; i = (i + 1) & mask {
		if hash := s.slots[i].hash; hash >= from && s.home(hash) == home {
			do(s.record(s.slots[i].place))
		}
	}
}

// Random gives a key that is there, by chance, to do, or tells that it found none. Cost: that of a look-up, or of as
// many looks as there are shards where there are few keys.
func (s *Space) Random(now int64, held bool, do func(key []byte)) bool {
	from := rand.Uint64()
	for i := range uint64(shards) {
		sh := &s.shards[(from+i)%shards]
		if sh.keys.Load() > 0 && sh.random(now, held, do) {
			return true
		}
	}
	return false
}

func (s *Shard) random(now int64, held bool, do func(key []byte)) bool {
	if !held {
		s.lock()
		defer s.mu.Unlock()
	}
	if len(s.slots) == 0 {
		return false
	}
	mask, from := len(s.slots)-1, int(rand.Uint64()>>1)
	for i := range s.slots {
		if p := s.slots[(from+i)&mask].place; p != 0 {
			if r := s.record(p); !r.expired(now) {
				do(r.key())
				return true
			}
		}
	}
	return false
}

// What expires and is not asked for goes in steps: so often, so many slots at once.
const (
	sweepEvery = 100 * time.Millisecond
	sweepSlots = 1 << 10
	sweepTime  = 10 * time.Millisecond // of each sweepEvery at most
)

func (s *Space) sweeping() {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for next := 0; ; {
		select {
		case <-t.C:
			next = s.sweep(next)
		case <-s.stop:
			return
		}
	}
}

// sweep removes what has expired, from a shard on, until nothing much is found or the time is over.
func (s *Space) sweep(from int) (next int) {
	began := time.Now()
	for i := range shards {
		sh := &s.shards[(from+i)%shards]
		for more := sh.expiring.Load() > 0; more; { // the lock has those wait who share shards
			sh.lock()
			more = sh.sweep(began.UnixMilli())
			sh.mu.Unlock()
			if time.Since(began) > sweepTime {
				return (from + i) % shards
			}
		}
	}
	return from
}

// sweep looks at some slots, and tells whether it should go on.
func (s *Shard) sweep(now int64) (more bool) {
	seen, expired := 0, 0
	for range min(sweepSlots, len(s.slots)) {
		if s.at >= len(s.slots) {
			s.at = 0
		}
		if len(s.slots) == 0 { // the last key has gone
			break
		}
		if p := s.slots[s.at].place; p != 0 {
			if r := s.record(p); r.expires() != 0 {
				if seen++; r.expired(now) {
					expired++
					s.expired++
					s.remove(s.at) // what moves up is looked at, too
					continue
				}
			}
		}
		s.at++
	}
	return 10*expired > seen
}

// Check goes through everything and compares it with the invariants: for tests.
func (s *Space) Check() error {
	var all int64
	for n := range s.shards {
		sh := &s.shards[n]
		sh.lock()
		err := sh.check(uint64(n))
		all += sh.bytes() - sh.counted
		sh.mu.Unlock()
		if err != nil {
			return fmt.Errorf("shard %d: %w", n, err)
		}
	}
	if live := s.live.Load(); live != all {
		return fmt.Errorf("%d bytes are live, and %d are counted", all, live)
	}
	return nil
}

func (s *Shard) check(number uint64) error {
	keys, expires, live, slots := 0, int64(0), map[uint64]bool{}, len(s.slots)
	for i, at := range s.slots {
		if at.place == 0 {
			continue
		}
		r := s.record(at.place)
		keys++
		expires += expiring(r.expires())
		live[at.place] = true
		switch hash := s.space.Hash(r.key()); {
		case r.dead():
			return fmt.Errorf("slot %d leads to a dead record", i)
		case hash != at.hash || hash>>(64-shardBits) != number:
			return fmt.Errorf("slot %d has hash %x, its key %x", i, at.hash, hash)
		case s.find(hash, r.key()) != i:
			return fmt.Errorf("the key of slot %d is not found there", i)
		case len(r.value()) > r.room():
			return fmt.Errorf("slot %d has a value of %d bytes in %d", i, len(r.value()), r.room())
		}
	}
	n := int(s.keys.Load())
	if n != keys || expires != s.expiring.Load() || keys*fullDenominator > slots*fullNumerator {
		return fmt.Errorf("%d keys and %d that expire in %d slots, of which %d and %d are known", keys,
			expires, slots, n, s.expiring.Load())
	}
	records := int64(0)
	for seg, g := range s.segments {
		dead, at := 0, 0
		for at < g.used {
			r := record(g.mem[at:])
			if r.dead() == live[placeOf(uint32(seg), at)] {
				return fmt.Errorf("the record at %d of segment %d is lost", at, seg)
			}
			if r.dead() {
				dead += r.size()
			} else {
				records += int64(r.size())
			}
			at += r.size()
		}
		if at != g.used || dead != g.dead || uint32(seg) != s.current && s.space.most.Load() == 0 && 2*dead > g.used {
			return fmt.Errorf("segment %d has %d bytes, %d of them dead; %d and %d are known", seg, at, dead,
				g.used, g.dead)
		}
	}
	if records != s.records {
		return errors.New("the bytes of records are not what is counted")
	}
	return nil
}

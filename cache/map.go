package cache

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Policy says what a pair is worth to a cache: its score, a number of 32 bits. The pair with the least score of its
// bucket goes when another needs the slot.
type Policy int

// The policies.
const (
	// LRU keeps what was used last. A score is the number of the batch that used the pair last.
	LRU Policy = iota
	// LFU keeps what is used most. A score is the number of uses since the pair came in, up to 2³¹. Of pairs with the
	// least, the first in turn goes.
	LFU
	// Aged is LFU that forgets: all scores are halved each time that ten keys a slot were looked up or inserted.
	Aged
	// Scored keeps what the caller says: InsertScored gives scores. Look-ups do not change them. A pair that is worth
	// less than all others of its bucket does not go in.
	Scored
)

func (p Policy) String() string {
	return frame.NameOf("Policy", int(p), "lru", "lfu", "aged", "scored")
}

// Options are the options of New. The size must be set: Capacity, or Bytes, or HostBytes, or the last two together.
type Options struct {
	// Capacity is how many pairs the cache holds, rounded up to whole buckets of 12.
	Capacity int
	// Bytes is how much memory the cache may take, and with HostValues how much of the device's. It never takes more.
	Bytes int64
	// HostValues puts the values into pinned host memory, which kernels read and write across the bus: keys and scores
	// stay in the device's memory, 11 to 22 bytes a pair. V must have more than 8 bytes, because shorter values lie
	// beside their keys. On the CPU device all memory is the host's.
	HostValues bool
	// HostBytes is how much pinned host memory the values may take, with HostValues. Zero means as much as they need.
	HostBytes int64
	// Policy says which pairs stay. The zero value is LRU.
	Policy Policy
	// TimeToLive is how long a pair is there from when it was inserted or replaced, at least, and an eighth of a
	// second more at most. Zero means for ever. 8 years after a cache was made, its time stands still.
	TimeToLive time.Duration
	// Lives says that pairs may have a time to live of their own: see InsertFor.
	Lives bool
	// Hash is one of kernel.HashMurmur (the default), HashMueller, or the degenerate ones meant for tests.
	Hash int
	// Seed chooses the hash function. Zero means a random one, so that nobody can choose keys that collide.
	Seed uint64

	// Score, if it is not empty, is a CUDA C++ expression that gives the score of a pair, of a cache that is Scored:
	// when the pair is put, and each time that a look-up finds it that is not quiet. It has the names
	//
	//	key    the key, a number of K; of a struct its bits
	//	value  the value, if V has up to 8 bytes: the one that is put, or the one that was found
	//	old    u32: the score of the pair before this batch, or behind the look-up before; 0 of a pair that is not there
	//	time   u32: the number of this batch
	//	hit    bool: the pair is there
	//
	// What it gives is cut off to a whole number from 0 to 2³²-1: "old + 1" counts uses, "time" makes an LRU cache, and
	// "value * 100 + (hit ? 10 : 0)" something else. It runs for the rows of a batch in no order. As in all caches that
	// are Scored, a new pair that is worth less than all others of its bucket does not go in. Such a cache has no Mixed,
	// FindOrInsert or Update, and InsertScored takes no scores. Cost: that of compiling it, when the cache is made, and
	// a second look-up for each row.
	Score string

	scoring     scoring
	group, tile int  // of tests: lanes that copy a value, and rows that are covered; else as the device
	early       bool // of tests: look-ups of any size mark, and batches of any size come in order
}

// Cache is a table of fixed size that holds the pairs that are worth most. An insert never fails for want of room: a
// pair of the same bucket goes instead. All operations take whole batches, as those of table.Map do, whose comment
// says what holds of batches, streams, the order of calls, and errors. Every bit pattern of K can be a key. All
// methods are safe for use by several goroutines.
type Cache[K, V any] struct{ handle }

// New makes an empty cache on the device. K has 4 or 8 bytes. V has 4 bytes to 4,096, in steps of 4, or is struct{} for a
// cache of keys alone. Cost: filling the memory. The first call of a method on a machine compiles its kernels.
//
// Errors: a Score that does not compile (*device.CompileError); K or V of another width, or with pointers or padding;
// options out of range; *device.OutOfMemoryError, also of host memory. If kernels must be compiled:
// device.ErrNoCompiler (CPU device) or device.ErrNoNVRTC (GPU), if there is nothing to compile them with. A compiler's
// own words, in a *device.CompileError, come from the method that needs the kernel.
func New[K, V any](d *device.Device, o Options) (*Cache[K, V], error) {
	cfg, err := widths[K, V]()
	if err != nil {
		return nil, err
	}
	if o.Score != "" {
		o.scoring.header = scoreHeader(cfg, o.Score, reflect.TypeFor[K](), reflect.TypeFor[V]())
	}
	c, err := newCore(d, cfg, o)
	if err != nil {
		return nil, err
	}
	return &Cache[K, V]{handle{c}}, nil
}

// Insert puts or replaces n pairs. If a batch holds a key several times, one of its values stays, if any: a pair may go
// out again in the batch that brought it. In a cache that is Scored, new pairs have
// the score 0, and others keep theirs. Cost a pair: the lock of its
// bucket, a read and a write of the bucket, and of the value where that lies apart.
func (m *Cache[K, V]) Insert(keys []K, values []V) error { return m.InsertScored(keys, values, nil) }

// InsertScored does what Insert does, in a cache that is Scored. scores may be nil. A pair whose key is there gets its
// new score; a new pair with a score below all others of its bucket does not go in. Errors: also scores in a cache with
// another policy.
func (m *Cache[K, V]) InsertScored(keys []K, values []V, scores []uint32) error {
	c := m.made()
	if err := c.checkBatch(len(keys), len(values), frame.OptionalLen(scores)); err != nil {
		return err
	}
	return c.insert(len(keys), frame.In(keys), frame.In(values), frame.In(scores), frame.In([]uint32(nil)))
}

// InsertFor does what Insert does, in a cache with Options.Lives, and says how long each pair is to be there. A life
// of 0 is the TimeToLive of the options. Errors: also lives below 0, and a cache without Lives.
func (m *Cache[K, V]) InsertFor(keys []K, values []V, lives []time.Duration) error {
	c := m.made()
	if err := c.checkBatch(len(keys), len(values), -1); err != nil {
		return err
	}
	if err := c.frame.Usable(); err != nil {
		return err
	}
	ticks, err := c.ticksOf(len(keys), lives)
	if err != nil {
		return err
	}
	return c.insert(len(keys), frame.In(keys), frame.In(values), frame.In([]uint32(nil)), frame.In(ticks))
}

// Sweep removes the pairs whose time has ended, and returns how many. Look-ups do not find them anyway, and inserts
// take their slots. But Len counts them until then. Cost: the heads of all buckets are read, and the times.
func (h *handle) Sweep() (int, error) { return h.made().sweepNow(h.made().time) }

// InsertOn does what Insert does, with device slices. It queues its work and returns.
func (m *Cache[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return m.InsertOutOn(st, keys, values, device.Slice[uint32]{}, Out[K, V]{})
}

// Out is where InsertOutOn writes what goes out: in Keys, Values and Scores the pairs, in no order, and in Count's one
// element their number. Values and Scores may be zero Slices. All others must have room for as many pairs as the batch
// has: each insert sends one out at most.
type Out[K, V any] struct {
	Keys   device.Slice[K]
	Values device.Slice[V]
	Scores device.Slice[uint32]
	Count  device.Slice[uint64]
}

// InsertOutOn does what InsertScored does, with device slices, and tells what went out: each pair that gave way to
// another, with the value and the score that it had, and each pair of the batch that did not go in. scores may be the
// zero Slice, and so may out's. A pair whose value was replaced did not go out. It queues its work and returns. Errors:
// also an out that is too short, or that has some columns and lacks Keys or Count.
func (m *Cache[K, V]) InsertOutOn(st *device.Stream, keys device.Slice[K], values device.Slice[V],
	scores device.Slice[uint32], out Out[K, V]) error {
	c := m.made()
	if err := c.frame.CheckOn("values scores", st, keys, m.given(values),
		frame.Optional(scores)); err != nil {
		return err
	}
	o := outColumns{Keys: out.Keys, Values: out.Values, Scores: out.Scores, Count: out.Count}
	return c.insertOn(st, putParams{Keys: keys.Addr(), Values: values.Addr(), Scores: scores.Addr(),
		N: uint64(keys.Len())}, o,
		func(st *device.Stream) error { return out.Count.Fill(st, 0) })
}

// given is the values of a batch; a cache of keys alone has none.
func (m *Cache[K, V]) given(values device.Slice[V]) frame.DeviceSlice {
	if m.made().cfg.valueBytes == 0 {
		return frame.Optional(device.Slice[V]{})
	}
	return values
}

// InsertOut does what InsertScored does, and gives what went out: see InsertOutOn. It brings a million pairs at a time
// to the device, or as many as there is memory for, in memory that it makes and frees. If an error comes behind the first
// of these parts, what went out until then is given with it.
func (m *Cache[K, V]) InsertOut(keys []K, values []V, scores []uint32) (outKeys []K, outValues []V,
	outScores []uint32, err error) {
	c := m.made()
	err = c.checkBatch(len(keys), len(values), frame.OptionalLen(scores))
	if err == nil {
		err = c.frame.Usable() // which a closed cache refuses
	}
	if err != nil || len(keys) == 0 {
		return nil, nil, nil, err
	}
	most := min(len(keys), mostOut)
	mem, err := c.outMemory(most)
	for device.IsOutOfMemory(err) && most > 1 {
		most = (most + 1) / 2
		mem, err = c.outMemory(most)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { err = frame.OneLine(errors.Join(err, mem.Free())) }()
	for first := 0; first < len(keys) && err == nil; first += most {
		end := min(first+most, len(keys))
		var part []uint32
		if scores != nil {
			part = scores[first:end]
		}
		err = m.insertOut(mem, keys[first:end], valuesOf(values, first, end), part, func(k []K, v []V, s []uint32) {
			outKeys, outValues, outScores = append(outKeys, k...), append(outValues, v...), append(outScores, s...)
		})
	}
	return outKeys, outValues, outScores, err
}

// Find writes each key's value, or the zero value, and whether it was found; values or found may be nil. What is found
// counts as used. Cost a key: a read of the 64 bytes that its bucket begins with, and, if it is there, of its word,
// and of its value where that lies apart; and a write of its score, if that changes.
func (m *Cache[K, V]) Find(keys []K, values []V, found []bool) error {
	if err := m.made().keep(family.CheckNamed("values found", len(keys), frame.OptionalLen(values),
		frame.OptionalLen(found))); err != nil {
		return err
	}
	return frame.Find(&m.made().frame, keys, values, found, m.made().finding(0))
}

// FindOn does what Find does, with device slices. It queues its work and returns. Errors: also device.ErrCapturing on a
// stream that is captured into a CUDA graph, because each run of the graph would have the time of its making: of a cache
// whose pairs end, and of one whose look-ups touch pairs by the number of a batch (LRU, and a Score). FindQuietOn of a
// cache whose pairs do not end may be captured, and so may FindOn by LFU and Aged, which then age by other batches
// alone.
func (m *Cache[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V],
	found device.Slice[bool]) error {
	if err := m.made().keep(m.made().frame.CheckOn("values found", st, keys, frame.Optional(values),
		frame.Optional(found))); err != nil {
		return err
	}
	return frame.FindOn(&m.made().frame, st, keys, values, found, m.made().finding(0))
}

// FindQuiet does what Find does, but what it finds does not count as used.
func (m *Cache[K, V]) FindQuiet(keys []K, values []V, found []bool) error {
	return frame.Find(&m.made().frame, keys, values, found, m.made().finding(1))
}

// FindQuietOn does what FindQuiet does, with device slices. It queues its work and returns. See FindOn.
func (m *Cache[K, V]) FindQuietOn(st *device.Stream, keys device.Slice[K], values device.Slice[V],
	found device.Slice[bool]) error {
	return frame.FindOn(&m.made().frame, st, keys, values, found, m.made().finding(1))
}

// Delete removes keys. deleted[i] tells whether position i removed one; deleted may be nil. If a batch holds a key
// several times, exactly one position removes it. Delete returns how many it removed, and 0 after an error, though
// some keys may be removed.
func (m *Cache[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	return frame.Delete(&m.made().frame, keys, deleted, m.made().erase)
}

// DeleteOn does what Delete does, with device slices, and returns no count. It queues its work and returns.
func (m *Cache[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return frame.DeleteOn(&m.made().frame, st, keys, deleted, m.made().erase)
}

// All exports every pair, in no order, and sweeps before. It waits for what is queued.
func (m *Cache[K, V]) All() ([]K, []V, error) {
	if m.made().cfg.expires {
		if _, err := m.Sweep(); err != nil {
			return nil, nil, err
		}
	}
	return frame.All[K, V](&m.made().frame, m.made().cfg.valueBytes == 0, m.made().exporting)
}

// Chunks gives every pair to do, in chunks, as Chunks of table.Map does, and sweeps before. Look-ups meanwhile are
// allowed.
func (m *Cache[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	if m.made().cfg.expires {
		if _, err := m.Sweep(); err != nil {
			return err
		}
	}
	return frame.Chunks(ctx, &m.made().frame, m.made().exporting, do)
}

// Export gives every pair with a score of least or more, and its score, in no order, and sweeps before. It waits for
// what is queued.
func (m *Cache[K, V]) Export(least uint32) (keys []K, values []V, scores []uint32, err error) {
	c := m.made()
	do := c.frame.Alone // it counts in the cache's counters
	if c.cfg.expires {
		do = c.frame.Writing
	}
	err = do(nil, func(st *device.Stream) error {
		if err := c.sweep(st, c.time()); err != nil {
			return err
		}
		all := slotsParams{N: c.t.Count, Least: uint64(least)}
		n, err := c.each(st, c.kernel.export, all)
		if err != nil {
			return err
		}
		mem, err := frame.Make[byte](&c.frame, rowBytes(c.cfg, int64(n)))
		if err != nil {
			return err
		}
		defer c.frame.Free(mem)
		k, v, s := rowsIn[K, V](c.cfg, mem, int(n))
		all.Keys, all.Values, all.Scores, all.Limit = k.Addr(), v.Addr(), s.Addr(), n
		again, err := c.each(st, c.kernel.export, all)
		if err != nil {
			return err
		}
		if err := family.Exported(int64(again), int64(n)); err != nil {
			return err
		}
		keys, values, scores, err = hostRows(st, k, v, s, int(n))
		return err
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return keys, values, scores, nil
}

// Stats is what a cache measures of itself.
type Stats struct {
	table.Stats
	Hits      uint64 `json:"hits"`      // keys that look-ups found, since the cache was made or cleared; and so below
	Misses    uint64 `json:"misses"`    // keys that they did not find
	Added     uint64 `json:"added"`     // pairs that took an empty slot
	Updated   uint64 `json:"updated"`   // pairs whose key was there
	Evictions uint64 `json:"evictions"` // pairs that gave way to others
	Refused   uint64 `json:"refused"`   // pairs that were worth less than those there
	Expired   uint64 `json:"expired"`   // pairs whose time had ended when they were swept, or others took their slots
	// LeastScore is the least score of a pair, and Clock the present time in batches. In an LRU cache, the oldest pair
	// was last used Clock - LeastScore batches ago. LeastScore is 0 if the cache is empty.
	LeastScore uint32 `json:"least_score"`
	Clock      uint32 `json:"clock"`
}

// String tells the policy and the size.
func (h *handle) String() string {
	return fmt.Sprintf("%v cache of %d pairs", h.made().cfg.policy, h.made().slots())
}

// Package cache implements a table of fixed size that holds the pairs that are worth most: a cache in a device's
// memory. An insert never fails for want of room, and the table never grows. Cache is that table.
//
// Source: HierarchicalKV (NVIDIA, arXiv 2603.17168) keeps embeddings in buckets of 128 slots with digests, keys and
// scores apart, at a load factor of 1. The buckets here are of our own design: they are smaller, and a look-up of a
// small pair reads two places of one bucket. No code is taken from there.
//
// # Memory
//
// A cache is an array of buckets of 12 slots. With keys and values of 8 bytes, a bucket has 256 bytes:
//
//	bucket   ┌ version 4 B │ 12 tags, 1 B each │ 12 scores, 4 B each ┐  the head: 64 bytes, one read
//	         │ 12 × ( key 8 B │ value 8 B )                         │  a slot's word, read where its tag matches
//	         └──────────────────────────────────────────────────────┘
//
// A pair of a key and a value of up to 8 bytes each is one word of 4, 8 or 16 bytes. Where values have more than 8
// bytes, a slot's word is the key alone, and the values of all buckets lie in an array of their own:
//
//	buckets  │ head │ 12 keys │ head │ 12 keys │ …
//	values   │ 12 values      │ 12 values      │ …     a value to a slot, 12 to 4,096 bytes
//
// With Options.HostValues, that array is in pinned host memory, which kernels reach across the bus. A look-up then
// crosses it once for each key that it finds, and an insert once for each value.
//
// Where pairs have a time to live, 12 times of 4 bytes each follow the words. Buckets begin at multiples of 64 bytes,
// and what is behind the last word or time means nothing.
//
// # Look-up
//
//  1. The high bits of the key's hash name its one bucket, and the low bits its tag, 1 to 255.
//  2. A lane reads the version and the tags with one load of 16 bytes, and compares all tags at once.
//  3. It reads the word of each slot whose tag matches. If the key is that of the word, it has found the pair. Of
//     absent keys, one in 21 reads a word in vain.
//  4. It writes the score, where the policy says so, and where the score is another already. A pair that a whole batch
//     asks for is written once.
//
// On a GPU such a score lies anywhere in memory, and to write it costs as much as to read the pair. So a large batch of
// look-ups in an LRU cache sets a mark instead, of which there is a bit a slot, 16 a bucket, in an array that fits the L2
// cache. Behind the look-ups a kernel goes through the marks, takes them away, and writes the scores in the order of
// buckets (order.go). All pairs of a batch get the same score, so nothing is lost by that.
//
// # Insert
//
// A lane locks the bucket and looks for the key. If the key is there, its value is replaced. Else the pair takes an
// empty slot, or that of a pair whose time has ended. If there is none, it takes that of the pair with the least
// score, which goes out. Of several pairs with the least score the next one goes, counted from a slot that the version
// names. The version moves on with each change of the bucket, so pairs of equal scores go in turn. Without that, an
// LFU cache would throw out each new pair for the next one, and keep old pairs that were used once: its hit rate is a
// point lower so, by simulation.
//
// A pair never leaves its slot, except to go out. In a Scored cache a new pair with a score less than all others goes
// out itself. In others a new pair always goes in, because it was just used.
//
// Rows of a batch that have one key take turns with its bucket, and most batches have keys that come often. So on a GPU a
// kernel first looks through each tile of 2,048 rows: one row comes for all of the tile that have its key, and counts as
// many times (cover.cu). In a cache that is Scored all rows come, because each has a score of its own. An insert-new and a
// deletion look before they take the lock.
//
// A batch on a GPU that is large for its cache, of values of up to 8 bytes, goes in stretch by stretch (order.go,
// stretch.cu). Its rows are brought in the order of stretches of 64 to 256 buckets in two passes. A block takes the
// buckets of a stretch into shared memory, does all of the above there, and writes them back. Rows with scores or lives
// of their own go in as they come, and so do all rows of a cache with Options.Bytes, for what brings rows in order takes
// memory: twice the batch. All rows of a stretch are one block's, by tiles of 1,024: so a key that many rows have costs
// most where all have it. An H200 overwrites 3.7 G pairs of 8+8 bytes a second by Zipf's law, exponent 0.99.
//
// # Why one bucket, and 12 slots
//
// With two buckets to choose from, a cache of 12 slots a bucket gains 0.3 points of its hit rate, and each look-up of
// an absent key reads twice as much. More slots a bucket gain a tenth of a point at most up to 16, and the head would
// no longer be one read. The comment of `ways` in layout.go has the figures.
//
// # Invariants
//
//  1. A pair is in the bucket that its key's hash names, and the slot's tag is the key's. A tag of 0 says that the slot
//     is empty, whatever the rest of it holds. So no key is reserved.
//  2. No key is twice in its bucket.
//  3. A version is even between operations: no bucket is locked.
//  4. Of two pairs in one bucket, the one that goes out has a score that is not larger.
//  5. The counters say how many pairs there are: those that took an empty slot, less those that were
//     erased or swept.
//  6. Scores of an LRU cache are not larger than the clock, and those of an LFU cache are at least 1.
//  7. No mark is set between operations, but for those of look-ups that failed, which the next large batch takes away.
//
// # Concurrency
//
// The host orders operations: inserts and deletions run alone, look-ups beside look-ups, which change nothing but
// scores. So a look-up takes no lock, and reads the version for nothing. A batch of Mixed has all operations beside
// one another.
//
// Inserts of one batch run beside each other. The low bit of the version is the lock of the bucket. A lane tries to
// take it with one atomic operation, and if another lane has it, it comes back when the other lanes of its warp have
// had their turn. It never waits while it holds a lock, and the lanes of a warp go around together. So a lock's holder
// is never behind a lane that waits for it. Taking the lock acquires what was written under it before, and giving it
// back releases it. Everything of a bucket that is not a score is written under its lock: word, value and tag change
// together for whoever comes next, and no key is shown with the value of another.
//
// A look-up of Mixed takes no lock either. Where a pair is one word, it reads that word whole, and the word itself
// says whose value it has. A tag is written behind its word, and read before it. So a look-up sees the pair as it was
// at some moment of its time, or does not see it, because at some moment it was not there. The time at which a pair
// ends is written behind its word, and read before it. Where values lie apart, the version tells: a look-up that finds
// it odd, or another one when it has copied the value, begins again. The lane that has the lock makes the version odd
// before it changes anything, and even again behind that.
//
// Where values lie apart, the lanes of a tile copy them together: the values of its lanes one after the other. They
// meet after the locks are taken and before any is given back.
//
// # Tiers
//
// Tiered puts a cache before a slower store, such as a map in host memory, a file or a service. It fetches what the
// cache lacks, once for all look-ups that come to want a key while it is fetched, and writes through, or behind: then
// pairs wait in host memory, where look-ups find them, also when the cache has let them go or they have ended there. So a
// pair that goes out need not be written at that moment, and cannot be lost by it. InsertOut gives what went out of a
// cache, for a tier below.
//
// # Time and scores
//
// A pair with a time to live ends at a tick, of which there are 16 in a second. From then on a look-up does not find
// it, and an insert into its bucket takes its slot before it would send another pair out. Sweep empties the slots of
// all such pairs.
//
// Where an expression of the user's gives the scores (Options.Score), a kernel of its own computes those of a batch
// before the batch is put, and new ones behind a look-up: see score.cu.
//
// The clock of a cache counts batches: look-ups that touch, and inserts. It has 32 bits. Shortly before they are used
// up, all scores of an LRU cache are lowered by half of the clock, and so is the clock; what was not used since then
// has the score 0. The counts of LFU end at 2³¹. In an Aged cache all are halved whenever ten keys a slot were looked
// up or inserted.
package cache

package classify

import (
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/warpmap/warpmap/device"
)

// resident is a database in the CPU's memory. A chunk of a file is brought there when a read first has a feature that
// may be in it. So the first read waits for some chunks alone, and what nobody asks for takes no memory: the system
// gives none to pages that nobody has written to.
//
// The first features of the chunks tell which chunk a feature is in. The chunk is a table there, of buckets that each
// take a line of the cache. A feature's number tells the bucket, and where that is full, the feature is in the next
// that has room. A read takes a little less time by that than by one table for all, which took 32 bytes a feature, and
// a fifth less than by a search in the features as the file has them.
type resident struct {
	db        *Database
	buckets   device.Host[bucket]
	locations device.Host[uint64]
	heads     device.Host[chunkHead] // of each chunk, and one that begins with noFeature
	starts    device.Host[uint32]    // how many chunks begin below each multiple of 65,536
	filter    device.Host[uint32]    // a bit for the highest filterBits bits of features: 0 where there are none
	wanted    device.Host[uint32]    // 1 for a chunk that a kernel has asked for
	mu        sync.Mutex             // of those that bring chunks
	left      atomic.Int64
}

func (r *resident) params() residentParams {
	return residentParams{r.buckets.Mapped().Addr(), r.heads.Mapped().Addr(), r.starts.Mapped().Addr(),
		r.filter.Mapped().Addr(), r.wanted.Mapped().Addr()}
}

// residentBytes is what a database takes that is there whole: about 20 bytes a feature, and the locations.
func residentBytes(features, locations int) int64 {
	const bucketBytes = int64(unsafe.Sizeof(bucket{}))
	return int64(chunksOf(features))*chunkBuckets*bucketBytes + int64(locations)*8
}

// newResident makes room for a database, and brings all of it if it is in memory. There must be room for all, although
// the system gives none before it is used, and then ends processes where there is none.
func newResident(d *device.Device, db *Database) (r *resident, err error) {
	r = &resident{db: db}
	features, locations := db.lengths()
	free, total, err := d.Memory()
	if err != nil {
		return nil, err
	}
	if need := residentBytes(features, locations); total > 0 && need > free {
		return nil, &device.OutOfMemoryError{Device: d.Info().Name, Asked: need, Free: free}
	}
	n := chunksOf(features)
	if db.stored != nil && n > 0 {
		db.stored.use()
	}
	r.left.Store(int64(n))
	for _, x := range []struct {
		to *device.Host[uint32]
		n  int
	}{{&r.starts, 1<<16 + 1}, {&r.filter, 1 << filterBits / 32}, {&r.wanted, n}} {
		if *x.to, err = device.MakeMapped[uint32](d, x.n); err != nil {
			r.close()
			return nil, err
		}
	}
	if r.heads, err = device.MakeMapped[chunkHead](d, n+1); err == nil {
		r.begin(n)
		r.buckets, err = device.MakeMapped[bucket](d, n*chunkBuckets)
	}
	if err == nil {
		r.locations, err = device.MakeMapped[uint64](d, locations)
	}
	if err == nil && db.stored == nil {
		err = r.all()
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// begin tells where the chunks begin. All features may be in the first, or in one of those behind it.
func (r *resident) begin(chunks int) {
	heads, starts, filter := r.heads.Slice(), r.starts.Slice(), r.filter.Slice()
	from := 0
	for c := range chunks {
		if c > 0 {
			heads[c].first = r.db.first(c)
		}
		for to := int(heads[c].first>>16) + 1; from < to; from++ {
			starts[from] = uint32(c)
		}
	}
	heads[chunks].first = noFeature
	for i := range filter {
		filter[i] = ^uint32(0)
		if chunks == 0 {
			filter[i] = 0
		}
	}
	for ; from < len(starts); from++ {
		starts[from] = uint32(chunks)
	}
}

func (r *resident) close() {
	if r.db.stored != nil && r.left.Swap(0) > 0 {
		r.db.stored.release()
	}
	for _, h := range []device.Host[uint32]{r.starts, r.filter, r.wanted} {
		if h.Len() > 0 {
			h.Free()
		}
	}
	if r.heads.Len() > 0 {
		r.heads.Free()
	}
	if r.buckets.Len() > 0 {
		r.buckets.Free()
	}
	if r.locations.Len() > 0 {
		r.locations.Free()
	}
}

// all brings all chunks that are not there.
func (r *resident) all() error { return r.bring(true) }

// bring brings the chunks that kernels have asked for, or all.
func (r *resident) bring(all bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	heads, wanted := r.heads.Slice(), r.wanted.Slice()
	var chunks []int
	for c := range wanted {
		if atomic.LoadUint32(&wanted[c]) != 0 {
			atomic.StoreUint32(&wanted[c], 0)
		} else if !all {
			continue
		}
		if heads[c].there == 0 {
			chunks = append(chunks, c)
		}
	}
	pool := sync.Pool{New: func() any { return new(chunk) }}
	var filled atomic.Int64
	err := ranges(len(chunks), 1, func(i, _ int) error {
		x := pool.Get().(*chunk)
		defer pool.Put(x)
		err := r.fill(chunks[i], x)
		if err == nil {
			filled.Add(1)
		}
		return err
	})
	if n := filled.Load(); n > 0 && r.left.Add(-n) == 0 && r.db.stored != nil {
		err = errors.Join(err, r.db.stored.release())
	}
	return err
}

// fill brings a chunk, by way of x.
func (r *resident) fill(c int, x *chunk) error {
	if s := r.db.stored; s != nil {
		if _, err := r.db.read(c, x, r.locations.Slice()[s.places[c]:]); err != nil {
			return err
		}
	} else {
		if err := r.db.chunk(c, x); err != nil {
			return err
		}
		copy(r.locations.Slice()[x.place:], x.locations)
	}
	r.put(c, x)
	r.sift(c, x.features)
	atomic.StoreUint32(&r.heads.Slice()[c].there, 1)
	return nil
}

// sift clears the bits of the filter that are of a chunk's numbers alone, and of none of its features. A bit of numbers
// of two chunks stays, for the second begins with a feature.
func (r *resident) sift(c int, features []uint32) {
	const width = 32 - filterBits
	filter, heads := r.filter.Slice(), r.heads.Slice()
	next := heads[c].first >> width
	clear := func(to uint32) {
		for ; next < to; next++ {
			atomic.AndUint32(&filter[next/32], ^uint32(1<<(next%32)))
		}
	}
	for _, f := range features {
		clear(f >> width)
		next = max(next, f>>width+1)
	}
	if c+1 < len(heads)-1 {
		clear(heads[c+1].first >> width)
	} else {
		clear(1 << filterBits)
	}
}

// put makes the table of a chunk.
func (r *resident) put(c int, x *chunk) {
	buckets := (*[chunkBuckets]bucket)(r.buckets.Slice()[c*chunkBuckets:])
	var filled [chunkBuckets]uint8
	for i, f := range x.features {
		hash := f * bucketFactor
		at := uint32(uint64(hash) * chunkBuckets >> 32)
		for filled[at] == bucketItems {
			buckets[at].passed |= 1 << (hash % 32)
			at = (at + 1) % chunkBuckets
		}
		b, n := &buckets[at], filled[at]
		b.features[n], b.entries[n] = f+1, x.entries[i]
		filled[at]++
	}
}

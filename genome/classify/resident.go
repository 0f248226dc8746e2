package classify

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/warpmap/warpmap/device"
)

// resident is a database in the CPU's memory: features in order, each with its entry, and the locations. A chunk of a
// file is brought there when a read first has a feature that may be in it. So the first read waits for some chunks
// alone, and what nobody asks for takes no memory: the system gives none to pages that nobody has written to.
//
// A feature is looked up by the first features of the chunks, and in its chunk by the index. The index cuts the numbers
// from the chunk's first feature to the next chunk's into ranges, of which each has two to four features where they are
// as dense everywhere in the chunk.
type resident struct {
	db        *Database
	records   device.Host[record]
	index     device.Host[uint16] // where each range's features begin in the chunk, and the end of the last
	locations device.Host[uint64]
	firsts    device.Host[uint32] // of each chunk, and noFeature
	starts    device.Host[uint32] // how many chunks begin below each multiple of 65,536
	loaded    device.Host[uint32] // 1 for a chunk that is there
	wanted    device.Host[uint32] // 1 for a chunk that a kernel has asked for
	mu        sync.Mutex          // of those that bring chunks
	left      atomic.Int64
}

const (
	slotBits   = 12
	chunkSlots = 1 << slotBits // the most ranges of a chunk
)

// record is a feature and its entry, which would lie at a multiple of 8 bytes, and take 16 bytes, as a u64.
type record struct{ feature, low, high uint32 }

// lookUpParams: the entries of n features, or 0. Of features whose chunks are not there, the chunks become wanted.
type lookUpParams struct {
	Features, Entries, N    uint64
	Records, Index          uint64
	Firsts, Starts, Chunks  uint64
	Loaded, Wanted, Missing uint64 // Missing: address of how many features had no chunk
}

// resides tells whether a device's databases are resident; those of others are in tables.
func resides(d *device.Device) bool { return !d.Info().CUDA() && !d.Info().Stress }

// residentBytes is what a database takes that is there whole.
func residentBytes(features, locations int) int64 {
	const chunkBytes = chunkItems*12 + chunkSlots*2 + 16
	return int64(chunksOf(features))*chunkBytes + int64(locations)*8
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
	if db.stored != nil {
		db.stored.use()
	}
	r.left.Store(int64(n))
	for _, x := range []struct {
		to *device.Host[uint32]
		n  int
	}{{&r.firsts, n + 1}, {&r.starts, 1<<16 + 1}, {&r.loaded, n}, {&r.wanted, n}} {
		if *x.to, err = device.MakeMapped[uint32](d, x.n); err != nil {
			r.close()
			return nil, err
		}
	}
	r.begin(n)
	if r.records, err = device.MakeMapped[record](d, features); err == nil {
		r.locations, err = device.MakeMapped[uint64](d, locations)
	}
	if err == nil {
		r.index, err = device.MakeMapped[uint16](d, n*(chunkSlots+1))
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

// begin tells where the chunks begin.
func (r *resident) begin(chunks int) {
	firsts, starts := r.firsts.Slice(), r.starts.Slice()
	from := 0
	for c := range chunks {
		firsts[c] = r.db.first(c)
		for to := int(firsts[c]>>16) + 1; from < to; from++ {
			starts[from] = uint32(c)
		}
	}
	firsts[chunks] = noFeature
	for ; from < len(starts); from++ {
		starts[from] = uint32(chunks)
	}
}

func (r *resident) close() {
	if r.db.stored != nil && r.left.Swap(0) > 0 {
		r.db.stored.release()
	}
	for _, h := range []device.Host[uint32]{r.firsts, r.starts, r.loaded, r.wanted} {
		if h.Len() > 0 {
			h.Free()
		}
	}
	if r.index.Len() > 0 {
		r.index.Free()
	}
	if r.records.Len() > 0 {
		r.records.Free()
	}
	if r.locations.Len() > 0 {
		r.locations.Free()
	}
}

// find gives the entries of features, and 0 for those that the database does not have.
func (r *resident) find(w *partWorker, features device.Slice[uint32], entries device.Slice[uint64]) error {
	n := features.Len()
	p := lookUpParams{Features: features.Addr(), Entries: entries.Addr(), N: uint64(n),
		Records: r.records.Mapped().Addr(), Index: r.index.Mapped().Addr(), Firsts: r.firsts.Mapped().Addr(),
		Starts: r.starts.Mapped().Addr(), Chunks: uint64(r.loaded.Len()), Loaded: r.loaded.Mapped().Addr(),
		Wanted: r.wanted.Mapped().Addr(), Missing: w.next.Addr()}
	for {
		if err := w.next.Fill(w.st, 0); err != nil {
			return err
		}
		grid := device.Grid{Blocks: max(1, (int64(n)+lookUpItems-1)/lookUpItems), Threads: readLanes}
		if err := w.k.lookUp.Launch(w.st, grid, &p); err != nil || r.left.Load() == 0 {
			return err
		}
		missing, err := w.next.Host(w.st)
		if err != nil || missing[0] == 0 {
			return err
		}
		if err := r.bring(false); err != nil {
			return err
		}
	}
}

// lookUpItems is how many features a core looks up before it takes the next.
const lookUpItems = 1 << 13

// all brings all chunks that are not there.
func (r *resident) all() error { return r.bring(true) }

// bring brings the chunks that kernels have asked for, or all.
func (r *resident) bring(all bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	loaded, wanted := r.loaded.Slice(), r.wanted.Slice()
	var chunks []int
	for c := range loaded {
		if atomic.LoadUint32(&wanted[c]) != 0 {
			atomic.StoreUint32(&wanted[c], 0)
		} else if !all {
			continue
		}
		if loaded[c] == 0 {
			chunks = append(chunks, c)
		}
	}
	pool := sync.Pool{New: func() any { return new(chunk) }}
	err := ranges(len(chunks), 1, func(i, _ int) error {
		x := pool.Get().(*chunk)
		defer pool.Put(x)
		return r.fill(chunks[i], x)
	})
	if err != nil {
		return err
	}
	if r.left.Add(int64(-len(chunks))) == 0 && r.db.stored != nil && len(chunks) > 0 {
		return r.db.stored.release()
	}
	return nil
}

// fill brings a chunk, by way of x.
func (r *resident) fill(c int, x *chunk) error {
	first := c * chunkItems
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
	records := r.records.Slice()[first:]
	for i, e := range x.entries {
		records[i] = record{x.features[i], uint32(e), uint32(e >> 32)}
	}
	r.fillIndex(c, x.features)
	atomic.StoreUint32(&r.loaded.Slice()[c], 1)
	return nil
}

// fillIndex tells where the ranges of a chunk begin. It shifts as classify.cu does.
func (r *resident) fillIndex(c int, features []uint32) {
	first, index := r.firsts.Slice()[c], r.index.Slice()[c*(chunkSlots+1):][:chunkSlots+1]
	shift := max(0, bits.Len32(r.firsts.Slice()[c+1]-first-1)-slotBits)
	next := 0
	for i, f := range features {
		for slot := int(f-first) >> shift; next <= slot; next++ {
			index[next] = uint16(i)
		}
	}
	for ; next <= chunkSlots; next++ {
		index[next] = uint16(len(features))
	}
}

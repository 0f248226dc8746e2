package frame

import (
	"errors"
	"math"

	"github.com/warpmap/warpmap/device"
)

// Sorted says that the rows of a batch are sorted by the regions of their keys' hashes, as package shard leaves them
// when it splits rows among tables. The region of a key is
//
//	(hash64<HASH_MURMUR>(key, seed) >> 32) · Regions >> 32
//
// with kernel/hash.cuh and the seed of the table's Ordering. A table that keeps keys in the order of their hashes need
// not sort such a batch by regions again.
//
// The rows come in chunks, each of which has all rows of a range of regions. The rows of a chunk may be in any order; a
// few runs in the order of regions are best. A key in another chunk than its own makes the table's memory wrong. A part
// of a batch has no chunks.
type Sorted struct {
	Regions int64
	Largest int64 // rows of the region that has most
	Paired  bool  // rows are pairs (kernel/pairs.cuh), at Rows.Keys, as the table's Ordering asks for
	Chunks  []SortedChunk
}

// ErrPairs says that a table takes pairs only as columns now: it has no room for all of them, or too little memory. It
// is as it was.
var ErrPairs = errors.New("pairs that must come as columns: this is a defect of warpmap")

// IsPaired reports whether rows are pairs.
func (o *Sorted) IsPaired() bool { return o != nil && o.Paired }

// SortedChunk is the next Rows rows of a batch, which have the keys of the next Regions regions. They are there after
// Ready, which may be nil.
type SortedChunk struct {
	Rows    int64
	Regions int64
	Ready   *device.Event
}

// Ordering says how a table wants the rows of a large batch sorted.
type Ordering struct {
	Regions int    // 0: as they come
	Seed    uint64 // 0: the table has no such order
	Paired  bool   // pairs are best, and the table has room for all of them
}

// Wait makes a stream wait for all chunks. Without chunks, or a nil o, all rows are there.
func (o *Sorted) Wait(st *device.Stream) error {
	if o == nil {
		return nil
	}
	for _, c := range o.Chunks {
		if c.Ready != nil {
			if err := st.Wait(c.Ready); err != nil {
				return err
			}
		}
	}
	return nil
}

// Of makes an operation one on sorted rows, which are all there; without o it is the operation.
func (o *Sorted) Of(queue func(st *device.Stream, b Rows) error) func(st *device.Stream, b Rows) error {
	if o == nil {
		return queue
	}
	return func(st *device.Stream, b Rows) error {
		b.Sorted = o
		return InTurn(func() error { return o.Wait(st) }, func() error { return queue(st, b) })
	}
}

// Sorted makes a Put whose rows are sorted; without o it is x.
func (x Insertion) Sorted(o *Sorted) Insertion {
	if o == nil {
		return x
	}
	put := x.Put
	x.Put = func(st *device.Stream, b Rows) ([]int, error, error) {
		b.Sorted = o
		return put(st, b)
	}
	return x
}

// ByChunks does what InFineOrder does, for a batch that comes in the chunks of b.Sorted: it sorts each chunk in one
// pass once its rows are there, and calls insert once, with all rows. done is false if there is too little memory, or
// if a region has many more rows than others: then nothing is queued. ByChunks does not wait.
func (k Partitioner) ByChunks(f *Frame, st *device.Stream, c ChunkSorter, x Placement, b Rows, parts int64,
	insert func(o Ordered, starts device.Slice[uint64], spare Rows) error) (done bool, err error) {
	if len(b.Sorted.Chunks) == 0 || b.N > math.MaxUint32 || b.Sorted.Largest > x.mostOf(b.N, b.Sorted.Regions) {
		return false, nil
	}
	if err := errors.Join(b.Sorted.check(b.N), c.Ahead()); err != nil {
		return false, err
	}
	columns := [3]int64{int64(x.KeyBytes), int64(x.ValueBytes)}
	if x.Positions {
		columns[2] = 4
	}
	words := chunkWords(parts, len(b.Sorted.Chunks))
	var at [6]uint64 // keys, values and positions in order; columns to spare
	place := func(rows int64) (end int64) {
		end = Align(8 * words)
		for i := range at {
			at[i] = uint64(end)
			end += Align(rows * columns[i%3])
		}
		return end
	}
	rule := *x.Regions
	rule.RegionRows = 0
	piece, mem, ok := f.reserveOrdered(&rule, b.N, 1, b.N, 2*(columns[0]+columns[1]+columns[2]), place)
	if !ok {
		return false, nil
	}
	defer mem.Done()
	if piece < b.N {
		return false, nil
	}
	place(b.N)
	for i := range at {
		at[i] += mem.Mem.Addr()
	}
	counters := device.View[uint64](mem.Mem, 0, int(words))
	o := Ordered{Rows: Rows{Keys: at[0], Values: at[1], Flags: b.Flags, N: b.N}}
	r := Partition{OutKeys: at[0], OutValues: at[1], Parts: uint64(parts), Regions: uint64(b.Sorted.Regions)}
	r.Cursors = counters.Addr()
	r.Starts = r.Cursors + 8*r.Parts
	r.Counts = r.Starts + 8*(r.Parts+1)
	if x.Positions {
		o.Positions, o.Spare = at[2], at[5]
		r.OutPositions = at[2]
	} else {
		o.Rows.Flags = 0
	}
	if x.paired(b) {
		r.Paired, o.Paired = PairedOut, PairedIn
	}
	keyBytes := x.KeyBytes
	if b.Sorted.Paired {
		r.Paired |= PairedIn
		keyBytes *= 2
	}
	if err := counters.Slice(int(2*parts+1), counters.Len()).Fill(st, 0); err != nil {
		return true, err
	}
	for _, chunk := range b.Sorted.Chunks {
		part := b.Part(Part{First: r.First, N: uint64(chunk.Rows)}, keyBytes, x.ValueBytes)
		r.Keys, r.Values, r.N, r.ToRegion = part.Keys, part.Values, uint64(part.N), r.FromRegion+uint64(chunk.Regions)
		if err := k.chunk(st, c, r, chunk.Ready, x.Params); err != nil {
			return true, err
		}
		r.First, r.FromRegion = r.First+r.N, r.ToRegion
		r.Counts += 8
	}
	starts := counters.Slice(int(parts), int(2*parts+1))
	return true, insert(o, starts, Rows{Keys: at[3], Values: at[4], N: b.N})
}

// chunk queues sorting a chunk.
func (k Partitioner) chunk(st *device.Stream, c ChunkSorter, r Partition, ready *device.Event,
	params func(Partition) any) error {
	p := params(r)
	rows := func(kernel device.AnyKernel) error {
		if r.N == 0 {
			return nil
		}
		return kernel.Launch(st, k.grid(r, kernel), p)
	}
	// A chunk has parts as it has regions, and a part of them on each side.
	scans := (int64((r.ToRegion-r.FromRegion)*r.Parts/r.Regions)+2)/int64(c.scan.Threads()) + 1
	return InTurn(
		func() error {
			if ready == nil {
				return nil
			}
			return st.Wait(ready)
		},
		func() error { return rows(c.count) },
		func() error { return c.scan.Launch(st, device.Grid{Blocks: scans, Threads: c.scan.Threads()}, p) },
		func() error { return rows(c.scatter) },
	)
}

var errNoOrder = errors.New("a batch in chunks that have not all of its rows and regions: this is a defect of warpmap")

// check reports whether the chunks have n rows and all regions.
func (o *Sorted) check(n int64) error {
	regions := int64(0)
	for _, c := range o.Chunks {
		n -= c.Rows
		regions += c.Regions
	}
	if n != 0 || regions != o.Regions {
		return errNoOrder
	}
	return nil
}

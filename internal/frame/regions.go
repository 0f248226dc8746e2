package frame

import (
	"math"
	"math/bits"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/quick"
)

// Regions says when a batch is brought in the order of the table's regions before it is inserted, and how. A region is so
// much of a table that the L2 cache of a GPU holds it beside the pairs that stream by: a compare-and-swap there is
// five times as fast as one in memory.
type Regions struct {
	MinBytes    int64 // the least size of the table: one that the L2 cache holds mostly gains nothing
	RegionBytes int64 // the size of a region
	MinRows     int64 // the least rows of a batch
	RegionRows  int64 // the least rows of a batch for each region, or the region is read and written for too few
	PieceRows   int64 // the most rows that are brought in order at once, which bounds scratch memory
	Larger      int64 // one pass, instead of two, brings so many times PieceRows in order at once; 0 is 1
	MemoryShare int64 // bounds scratch memory, too: it takes one in so many bytes of the device's free memory
	PowerOfTwo  bool  // the number of regions is a power of two
	Span        int64 // how many rows in a row a block of the insert takes, so that blocks go through the regions in order
}

// LargeFrom returns the least number of rows of a large batch, which is taken in another way than others: n on a GPU, and
// few on a CPU device of quick.Bulk. On other CPU devices no batch is large, because their caches do what shared memory does.
func LargeFrom(info device.Info, n int64) int64 {
	switch {
	case quick.Bulk(info.Name):
		return bulkRows
	case !info.CUDA():
		return math.MaxInt64
	}
	return n
}

// On a device of quick.Bulk, a large batch has bulkRows. It is sorted in pieces of bulkPiece rows, by regions of bulkRegion
// bytes, so that a small table has several.
const bulkRows, bulkPiece, bulkRegion = 256, 512, 4 << 10

// RegionsFor returns the rule for a device. minShare is MinBytes, in L2 caches. The shares were found by trial on an H200,
// whose driver reports 50 MB.
func RegionsFor(info device.Info, minShare float64, regionRows int64) Regions {
	r := Regions{
		MinBytes: int64(minShare * float64(info.L2)), RegionBytes: info.L2 * 16 / 25, MinRows: LargeFrom(info, 1<<22), RegionRows: regionRows,
		PieceRows: 1 << 27, Larger: largerPiece, MemoryShare: 8, Span: 16 * Threads,
	}
	if quick.Bulk(info.Name) {
		r.MinBytes, r.RegionBytes, r.RegionRows, r.PieceRows, r.Larger, r.Span = 0, bulkRegion, 1, bulkPiece, 1, Threads
	} else if info.L2 == 0 {
		r.MinRows = math.MaxInt64 // where fibers cost more than memory
	}
	return r
}

// Count is how many parts a batch of n rows is brought into before it goes into a table of the given size, or 0 if the
// batch is inserted as it is.
func (r *Regions) Count(n, bytes int64) int64 {
	if n < r.MinRows || bytes < r.MinBytes {
		return 0
	}
	count := (bytes + r.RegionBytes - 1) / r.RegionBytes
	if r.PowerOfTwo {
		count = 1 << bits.Len64(uint64(count-1))
	}
	if count < 2 || count > MaxParts || min(n, r.onePass())/count < r.RegionRows {
		return 0
	}
	return count
}

// largerPiece is how much larger pieces are that are brought in order in one pass. With each, all of the table goes from memory to the cache and back: on an
// H200, 1 G pairs of 4+4 bytes are inserted at 13.9, 15.1, 16.3 and 16.7 G/s with 1, 2, 4 and 8.
const largerPiece = 4

// onePass is how many rows are brought in order at once in one pass, at most.
func (r *Regions) onePass() int64 { return max(1, r.Larger) * r.PieceRows }

// Ordered is a piece of a batch in the order of regions, to be inserted by a grid of Spanned(Rows.N, Span).
type Ordered struct {
	Rows      Rows
	Positions uint64 // u32: where in the batch, or for InFineOrder in its piece, each row was; 0 if not asked for
	Spare     uint64 // of InFineOrder: another column for positions; 0 if not asked for
	Paired    uint64 // of InFineOrder: not 0: the rows are pairs (kernel/pairs.cuh), at Keys
	Span      int64
}

// Placement says how a table's inserts are queued.
type Placement struct {
	Regions              *Regions
	Bytes                int64 // of the table, or of its part that regions are stretches of
	KeyBytes, ValueBytes int
	Positions            bool                                       // rows in order need to know where in the batch they were
	Pairs                bool                                       // of InFineOrder and InSmallParts: the kernel behind it reads pairs, where keys and values are as wide
	OnePass              int64                                      // of InSmallParts: so many parts or fewer are made in one pass
	Params               func(rows Partition) any                   // the address of the parameters of a partition's kernels
	Launch               func(grid device.Grid, rows Placing) error // the insert
	Grid                 func(n int64) device.Grid                  // of an insert that goes in strides
}

// Place queues an insert of rows. Where that is faster, it first brings them in the order of the table's regions, but
// not if each position is told what became of it, or if some are left out. It does not wait. The caller is in Writing.
func (k Partitioner) Place(f *Frame, st *device.Stream, x Placement, p Placing, b Rows) error {
	if b.Sorted != nil {
		return x.Launch(Spanned(b.N, x.Regions.Span), p.Of(Ordered{Rows: b, Span: x.Regions.Span}))
	}
	if regions := x.Regions.Count(b.N, x.Bytes); regions > 0 && b.Flags == 0 && b.Out == 0 && b.When == 0 && p.Attempt == 0 {
		done, err := k.InOrder(f, st, x, b, regions, func(o Ordered) error { return x.Launch(Spanned(o.Rows.N, o.Span), p.Of(o)) })
		if done || err != nil {
			return err
		}
	}
	return x.Launch(x.Grid(b.N), p.Of(Ordered{Rows: b}))
}

// InOrder brings a batch in the order of so many regions, piece by piece, and calls insert for each piece. done is
// false if there is too little memory: then nothing was queued. InOrder does not wait. The caller is in Writing, so
// that the operations that use the memory are one behind the other, on whatever streams they are.
func (k Partitioner) InOrder(f *Frame, st *device.Stream, x Placement, b Rows, regions int64, insert func(o Ordered) error) (done bool, err error) {
	positionBytes := 0
	if x.Positions {
		positionBytes = 4
	}
	columns := [3]int64{int64(x.KeyBytes), int64(x.ValueBytes), int64(positionBytes)}
	words := PartitionWords(int(regions))
	place := func(piece int64) (at [3]uint64, end int64) {
		end = Align(8 * int64(words))
		for i, bytes := range columns {
			at[i] = uint64(end)
			end += Align(piece * bytes)
		}
		return at, end
	}
	piece, mem, ok := f.reserveOrdered(x.Regions, b.N, regions, x.Regions.onePass(), columns[0]+columns[1]+columns[2], func(piece int64) int64 { _, end := place(piece); return end })
	if !ok {
		return false, nil
	}
	defer mem.Done()
	at, _ := place(piece)
	for i := range at {
		at[i] += mem.Mem.Addr()
	}
	counters := device.View[uint64](mem.Mem, 0, words)
	for first := int64(0); first < b.N; first += piece {
		n := min(piece, b.N-first)
		rows := Partition{Keys: b.Keys + uint64(first*columns[0]), N: uint64(n), First: uint64(first), OutKeys: at[0], Parts: uint64(regions)}
		if b.Values != 0 {
			rows.Values, rows.OutValues = b.Values+uint64(first*columns[1]), at[1]
		}
		o := Ordered{Rows: Rows{Keys: at[0], Values: rows.OutValues, N: n}, Span: x.Regions.Span}
		if x.Positions {
			rows.OutPositions, o.Positions = at[2], at[2]
		}
		if err := k.Run(st, counters, rows, x.Params); err != nil {
			return true, err
		}
		if err := insert(o); err != nil {
			return true, err
		}
	}
	return true, nil
}

// slackShare: memory for rows in order has so much more than they need.
const slackShare = 32

// reserveOrdered lends memory for a piece of a batch of n rows in order, of no more than most; false where there is too little.
func (f *Frame) reserveOrdered(rule *Regions, n, regions, most, rowBytes int64, bytes func(piece int64) int64) (piece int64, mem Lease, ok bool) {
	equal := func(most int64) int64 { // pieces of a batch, of no more than most rows
		pieces := (n + most - 1) / most
		return (n + pieces - 1) / pieces
	}
	piece = equal(most)
	have := int64(f.ordered.Len())
	if bytes(piece) <= have {
		return piece, f.lend(&f.ordered), true
	}
	free, _, err := f.Device.Memory()
	if err != nil {
		return 0, mem, false
	}
	free = max(free/rule.MemoryShare, have)
	fit := (free - bytes(0) - 4*256) / rowBytes // less what aligning may add
	if fit < max(1, rule.RegionRows*regions) {
		return 0, mem, false
	}
	piece = equal(min(fit, most))
	if need := bytes(piece); have < need {
		// Twice what there was, so that batches that grow little by little leave few behind; and a little more than is needed, for equal batches need
		// more counters once the table has grown.
		s, err := device.MakePooled[byte](f.Device, int(max(need, min(max(2*have, need+need/slackShare), free))))
		if err != nil {
			return 0, mem, false
		}
		if f.release(&f.ordered) != nil {
			f.Free(s)
			return 0, mem, false
		}
		f.ordered = s
	}
	return piece, f.lend(&f.ordered), true
}

// unevenShare: rows of which so many times the mean lie in one of the larger parts are not brought into small ones.
const unevenShare = 2

// InFineOrder brings the front of a batch in the order of many small parts, as many as regions·within, piece by piece,
// in two passes. It calls insert for each piece, of at least Regions.RegionRows a small part, with where the piece's
// parts begin, one more than there are parts, and with columns that as many rows may be written to. If x asks for
// positions, those of a piece begin with 0, and it has the flags of the batch's rows, in the batch's order. taken is how
// many rows it took, a multiple of 32 or all. It takes fewer than all if memory is short, or if a part has many more rows
// than others, as keys that come again and again make. In the second pass, Params of x is asked with rows that have
// Within. InFineOrder waits for the stream once a piece. The caller is in Writing.
func (k Partitioner) InFineOrder(f *Frame, st *device.Stream, w Within, x Placement, b Rows, regions, within int64, insert func(o Ordered, starts device.Slice[uint64], spare Rows) error) (taken int64, err error) {
	piece, mem, ok := f.reserveFine(x, b.N, regions, within, 0, 0)
	if !ok {
		return 0, nil
	}
	defer mem.Done()
	if piece < b.N {
		if piece &^= 31; piece == 0 {
			return 0, nil
		}
	}
	at, large, small := mem.at, mem.large, mem.small
	for ; taken < b.N; taken += min(piece, b.N-taken) {
		part := b.Part(Part{First: uint64(taken), N: uint64(min(piece, b.N-taken))}, x.KeyBytes, x.ValueBytes)
		first := Partition{Keys: part.Keys, Values: part.Values, N: uint64(part.N), OutKeys: at[0], OutValues: at[1], Parts: uint64(regions)}
		second := Partition{Keys: at[0], N: first.N, OutKeys: at[2], Parts: uint64(regions * within), Within: uint64(within)}
		if part.Values != 0 {
			second.Values, second.OutValues = at[1], at[3]
		}
		o := Ordered{Rows: Rows{Keys: at[2], Values: at[3], N: part.N}}
		if x.paired(part) {
			first.Paired, second.Paired, o.Paired = PairedOut, PairedIn|PairedOut, PairedIn
		}
		if x.Positions {
			first.OutPositions, second.Positions, second.OutPositions = at[4], at[4], at[5]
			o.Positions, o.Spare, o.Rows.Flags = at[5], at[4], part.Flags
		}
		asked := func() (bool, error) {
			starts, err := mem.starts(st)
			return err == nil && even(starts, x.mostOf(part.N, regions)), err
		}
		if done, err := k.inTwoPasses(st, w, large, small, first, second, x.Params, asked); !done || err != nil {
			return taken, err
		}
		if err := insert(o, small.Slice(int(second.Parts), small.Len()), Rows{Keys: at[0], Values: at[1], N: part.N}); err != nil {
			return taken, err
		}
	}
	return b.N, nil
}

// fineMemory is where rows come in the order of small parts.
type fineMemory struct {
	Lease
	at           [6]uint64            // keys and values in the order of the larger parts, and of the small ones; positions of both
	large, small device.Slice[uint64] // counters of both
}

// reserveFine is reserveOrdered for small parts. The columns of the first pass, and of the second, have so many rows more than a piece.
func (f *Frame) reserveFine(x Placement, n, regions, within, first, second int64) (piece int64, mem fineMemory, ok bool) {
	columns := [6]int64{int64(x.KeyBytes), int64(x.ValueBytes), int64(x.KeyBytes), int64(x.ValueBytes)}
	if x.Positions {
		columns[4], columns[5] = 4, 4
	}
	more := [6]int64{first, first, second, second, first, second}
	words := [2]int{PartitionWords(int(regions)), PartitionWords(int(regions * within))}
	place := func(piece int64) (at [6]uint64, end int64) {
		end = Align(8*int64(words[0])) + Align(8*int64(words[1]))
		for i, bytes := range columns {
			at[i] = uint64(end)
			end += Align((piece + more[i]) * bytes)
		}
		return at, end
	}
	rowBytes := 2 * (columns[0] + columns[1] + columns[4])
	piece, mem.Lease, ok = f.reserveOrdered(x.Regions, n, regions*within, x.Regions.PieceRows, rowBytes, func(piece int64) int64 {
		_, end := place(piece)
		return end
	})
	if !ok {
		return 0, mem, false
	}
	mem.at, _ = place(piece)
	for i := range mem.at {
		mem.at[i] += mem.Mem.Addr()
	}
	mem.large = device.View[uint64](mem.Mem, 0, words[0])
	mem.small = device.View[uint64](mem.Mem, int(Align(8*int64(words[0]))), words[1])
	return piece, mem, true
}

// starts waits for the stream, and tells where the larger parts begin, and how many rows there are.
func (m *fineMemory) starts(st *device.Stream) ([]uint64, error) {
	return m.large.Slice(m.large.Len()/2, m.large.Len()).Host(st)
}

// mostOf is how many rows one of the larger parts may have, of n in all.
func (x *Placement) mostOf(n, regions int64) int64 {
	return unevenShare*n/regions + x.Regions.MinRows/regions
}

// even tells whether no part has more rows than that.
func even(starts []uint64, most int64) bool {
	for i := range starts[1:] {
		if starts[i+1]-starts[i] > uint64(most) {
			return false
		}
	}
	return true
}

// PartRange is the rows of some of the small parts, in their order.
type PartRange struct {
	Ordered
	Starts       device.Slice[uint64] // where each part begins, one more than there are parts
	First, Parts int64                // of the small parts
	Last         bool                 // no other range comes behind
	Spare        Rows                 // columns that so many rows may be written to; those of InRanges stay for the ranges behind
}

// spareShare: one row in so many has a place in the Spare of a PartRange.
const spareShare = 16

// InRanges is InFineOrder for a table that wants all rows of a part at once, where the batch does not fit memory in order: range by range, it takes
// the rows of some of the larger parts out of all rows. It calls insert for each range, in their order, and waits for the stream once before each. done is
// false if memory is short for mostRanges ranges, or if a part has many more rows than others: then nothing was inserted. Positions are not told.
// Cost: all keys are read once, and once a range; values mostly where rows are taken; then as in InFineOrder.
func (k Partitioner) InRanges(f *Frame, st *device.Stream, w Ranges, x Placement, b Rows, regions, within int64, insert func(PartRange) error) (done bool, err error) {
	rule := *x.Regions
	rule.RegionRows = b.N / (mostRanges * regions * within)
	x.Regions = &rule
	most, spare := x.mostOf(b.N, regions), b.N/spareShare+1
	piece, mem, ok := f.reserveFine(x, b.N, regions, within, most+spare, most)
	if !ok {
		return false, nil
	}
	defer mem.Done()
	if err := device.Ahead(k.count, k.scan, w.some, w.count, w.scatter); err != nil {
		return false, err
	}
	all := Partition{Keys: b.Keys, Values: b.Values, N: uint64(b.N), OutKeys: mem.at[0], OutValues: mem.at[1], Parts: uint64(regions)}
	if err := k.countOnly(st, k.count, mem.large, all, x.Params); err != nil {
		return false, err
	}
	starts, err := mem.starts(st)
	if err != nil || !even(starts, most) {
		return false, err
	}
	for first, last := int64(0), int64(0); first < regions; first = last {
		last++
		for last < regions && starts[last]-starts[first] < uint64(piece) {
			last++ // more than a piece by less than a part
		}
		some, parts := all, last-first
		some.From, some.Parts = uint64(first), uint64(parts)
		fine := Partition{
			Keys: some.OutKeys, N: starts[last] - starts[first], OutKeys: mem.at[2], OutValues: mem.at[3], Parts: some.Parts * uint64(within), Within: uint64(within),
			From: some.From * uint64(within), Larger: mem.large.Addr() + 8*some.Parts,
		}
		if b.Values != 0 {
			fine.Values = some.OutValues
		}
		begin := make([]uint64, 2*parts+1) // cursors, and starts
		for i := range parts {
			begin[i] = starts[first+i] - starts[first]
		}
		copy(begin[parts:], begin[:parts])
		begin[2*parts] = fine.N
		small := mem.small.Slice(0, PartitionWords(int(fine.Parts)))
		if err := InTurn(
			func() error { return mem.large.Write(st, begin) },
			func() error { return k.scatterOnly(st, w.some, mem.large, some, x.Params) },
			func() error { return k.RunWithin(st, w.Within, small, fine, x.Params) },
			func() error {
				return insert(PartRange{
					Ordered: Ordered{Rows: Rows{Keys: fine.OutKeys, Values: fine.OutValues, N: int64(fine.N)}}, Starts: small.Slice(int(fine.Parts), small.Len()),
					First: first * within, Parts: int64(fine.Parts), Last: last == regions,
					Spare: Rows{Keys: mem.at[0] + uint64((piece+most)*int64(x.KeyBytes)), Values: mem.at[1] + uint64((piece+most)*int64(x.ValueBytes)), N: spare},
				})
			},
		); err != nil {
			return true, err
		}
	}
	return true, nil
}

// inTwoPasses sorts rows by the parts of first, and then within these by the parts of second. large and small are the
// counters of both passes. If even is not nil, it is called once the beginnings of the larger parts are known; false ends
// the sort.
func (k Partitioner) inTwoPasses(st *device.Stream, w Within, large, small device.Slice[uint64], first, second Partition, params func(rows Partition) any,
	even func() (bool, error)) (done bool, err error) {
	second.Larger = large.Addr() + 8*first.Parts
	all := second
	all.Keys, all.Values, all.Paired = first.Keys, 0, 0
	counted, err := k.counts(st, w, all, large, small, params)
	if !counted && err == nil {
		err = k.Run(st, large, first, params)
	}
	if err == nil && even != nil {
		if done, err = even(); !done {
			return false, err
		}
	}
	switch {
	case err != nil:
		return true, err
	case counted:
		return true, InTurn(
			func() error { return k.scatterOnly(st, k.scatter, large, first, params) },
			func() error { return k.scatterOnly(st, w.scatter, small, second, params) },
		)
	}
	return true, k.RunWithin(st, w, small, second, params)
}

// paired tells whether rows become pairs.
func (x *Placement) paired(b Rows) bool {
	return x.Pairs && b.Values != 0 && x.KeyBytes == x.ValueBytes && (x.KeyBytes == 4 || x.KeyBytes == 8)
}

// PartsOf is for InSmallParts: so many parts that they have so many rows on average.
func PartsOf(partRows int64) func(rows int64) int64 {
	return func(rows int64) int64 { return (rows + partRows - 1) / partRows }
}

// InSmallParts brings a batch in the order of so many parts of the table, or a few more, piece by piece, in two passes, or in one where x says that
// they are few enough. Then all rows of a key are in one part. It calls last for each piece, with the rows in that order, Starts, and other columns to
// write to; there is a column for values of outBytes even if the batch has no values. Pairs, if x asks for them, are at Keys, and Paired says so. done
// is false if there is too little memory: then nothing was queued. InSmallParts does not wait. The caller is in Writing. Cost: keys are read three or
// four times, and all columns are read and written twice, in streams; in one pass, keys twice, and columns once.
func (k Partitioner) InSmallParts(f *Frame, st *device.Stream, w Within, x Placement, b Rows, outBytes int64, parts func(rows int64) int64, last func(rows Partition) error) (done bool, err error) {
	columns := [3]int64{int64(x.KeyBytes), max(int64(x.ValueBytes), outBytes), 0}
	if x.Positions {
		columns[2] = 4
	}
	passes := func(rows int64) (larger, within int64) { // parts of the first pass, and of each of them in the second, if there is one
		n := max(parts(rows), 1)
		if n <= x.OnePass {
			return n, 0
		}
		n = min(int64(math.Ceil(math.Sqrt(float64(n)))), MaxParts)
		return n, n
	}
	place := func(piece int64) (at [2][3]uint64, few, many int, end int64) {
		larger, within := passes(piece)
		few, many = PartitionWords(int(larger)), PartitionWords(int(larger*within))
		end = Align(8*int64(few)) + Align(8*int64(many))
		for side := range at {
			for i, bytes := range columns {
				at[side][i] = uint64(end)
				end += Align(piece * bytes)
			}
		}
		return at, few, many, end
	}
	piece, mem, ok := f.reserveOrdered(x.Regions, b.N, 1, x.Regions.PieceRows, 2*(columns[0]+columns[1]+columns[2])+1, func(piece int64) int64 { _, _, _, end := place(piece); return end })
	if !ok {
		return false, nil
	}
	defer mem.Done()
	at, few, many, _ := place(piece)
	large := device.View[uint64](mem.Mem, 0, few)
	small := device.View[uint64](mem.Mem, int(Align(8*int64(few))), many)
	most, inTwo := passes(piece)
	for first := int64(0); first < b.N; first += piece {
		part := b.Part(Part{First: uint64(first), N: uint64(min(piece, b.N-first))}, x.KeyBytes, x.ValueBytes)
		n := most
		if part.N < piece { // the last one, in as many passes
			if n = max(min(parts(part.N), most), 1); inTwo > 0 {
				n = min(int64(math.Ceil(math.Sqrt(float64(max(parts(part.N), 1))))), most)
			}
		}
		r := Partition{Keys: part.Keys, Values: part.Values, N: uint64(part.N), First: uint64(first), Parts: uint64(n)}
		to := func(side int) {
			r.OutKeys = mem.Mem.Addr() + at[side][0]
			if r.OutValues = 0; columns[1] > 0 {
				r.OutValues = mem.Mem.Addr() + at[side][1]
			}
			if x.Positions {
				r.OutPositions = mem.Mem.Addr() + at[side][2]
			}
		}
		from := func() {
			r.Keys, r.Positions = r.OutKeys, r.OutPositions
			if r.Values != 0 {
				r.Values = r.OutValues
			}
			if x.paired(part) {
				r.Paired = PairedIn
			}
		}
		to(0)
		if x.paired(part) {
			r.Paired = PairedOut
		}
		counters := large
		if inTwo == 0 {
			err = k.Run(st, large, r, x.Params)
			from()
			to(1)
		} else {
			first := r
			from()
			to(1)
			r.Parts, r.Within, counters = uint64(n*n), uint64(n), small
			if x.paired(part) {
				r.Paired |= PairedOut
			}
			_, err = k.inTwoPasses(st, w, large, small, first, r, x.Params, nil)
			from()
			to(0)
		}
		if err != nil {
			return true, err
		}
		r.Starts = counters.Addr() + 8*r.Parts
		if err := last(r); err != nil {
			return true, err
		}
	}
	return true, nil
}

// InOnePart calls last with a batch as it is, for kernels that take rows in the order of parts. The caller is in Writing.
func (f *Frame) InOnePart(st *device.Stream, b Rows, last func(rows Partition) error) error {
	mem, err := f.Scratch(16)
	if err != nil {
		return err
	}
	defer mem.Done()
	starts := device.View[uint64](mem.Mem, 0, 2)
	if err := starts.Write(st, []uint64{0, uint64(b.N)}); err != nil {
		return err
	}
	return last(Partition{Keys: b.Keys, Values: b.Values, N: uint64(b.N), Parts: 1, Starts: starts.Addr()})
}

// groupRows is how many rows the parts have whose rows Grouped orders by keys, on average: so that few parts are more than a tile.
const groupRows = 1400

// Grouped does what Place does, but first brings the rows in an order in which most rows with equal keys are beside one
// another, and all are in the order of the table's regions: see InSmallParts. Additional cost: all columns are read and
// written once more.
func (k Partitioner) Grouped(f *Frame, st *device.Stream, g Grouper, x Placement, p Placing, b Rows) (done bool, err error) {
	return k.InSmallParts(f, st, g.Within, x, b, int64(x.ValueBytes), PartsOf(groupRows), func(r Partition) error {
		if err := g.group.Launch(st, k.grid(r, g.group), x.Params(r)); err != nil {
			return err
		}
		o := Ordered{Rows: Rows{Keys: r.OutKeys, Values: r.OutValues, N: int64(r.N)}, Positions: r.OutPositions, Span: x.Regions.Span}
		return x.Launch(Spanned(o.Rows.N, o.Span), p.Of(o))
	})
}

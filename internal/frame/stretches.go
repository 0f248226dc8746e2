package frame

import (
	"math"
	"math/bits"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/quick"
)

// Stretches says when a batch goes into a table stretch by stretch: the batch is brought in the order of the table's
// stretches in two passes (InFineOrder), and each is read, filled and written back by a block, in its shared memory. This is
// the one place where that is chosen. Each family says how many rows it takes: one for SlotShare slots of its table, because
// each piece of a batch has the whole table read and written.
//
// Bytes a pair of 4+4, into an empty table at a load factor of 0.8: to count 4, each pass 16, the stretch 8 and 10. As it
// comes, or in the order of regions that the L2 cache holds, a pair takes a sector of 32 or 64 bytes to read and to write, and
// a compare-and-swap. Measured on an H200, 100 million pairs, G/s so and by stretches; stadium and dycuckoo, whose pairs of
// 4+4 and 8+8 bytes went in by stretches before, with those and with these:
//
//	warpcore   4+4 at 0.533, 0.8, 0.9   21.3, 17.8, 15.2  ──►  34.7, 32.4, 26.0
//	           8+8                      14.9, 12.0, 10.6  ──►  19.5, 18.4, 16.5
//	           set of 4 bytes           26.6, 24.3, 19.2  ──►  46.4, 43.9, 36.7
//	           the same, with flags     15.3, 15.0, 14.2  ──►  30.4, 30.3, 26.6
//	           MultiMap of 1, 8, 64 values a key, at 0.8
//	                                    16.5, 11.6, 8.8   ──►  25.6, 21.6, 16.9
//	           BucketList of 1, 8, 64   2.6, 12.9, 14.8   ──►  17.9, 22.3, 22.1
//	slab       4+4, 8+8 at 0.7          16.5, 12.7        ──►  38.7, 22.6
//	gph.Build  4+4 at 0.8, 0.95         5.1, 3.2          ──►  21.6, 14.7
//	           8+8 at 0.8               4.0               ──►  13.8
//	stadium    4+4 at 0.8, 0.95         14.1, 8.8         ──►  33.9, 16.8
//	           8+8; 16+64 at 0.8        10.4; 4.2         ──►  22.2; 8.9
//	dycuckoo   4+4, 8+8 at 0.75         27.1, 13.6        ──►  36.1, 17.7
//	           16+8 at 0.85             2.7               ──►  10.1
type Stretches struct {
	MinRows   int64 // of a batch: how small one may be was not measured
	SlotShare int64
	Blocks    int64 // a table has so many stretches at least, each of which is a block's
}

// StretchesFor returns the rule for a device.
func StretchesFor(info device.Info, slotShare, blocks int64) Stretches {
	if quick.Bulk(info.Name) { // for few rows, tables with few slots
		slotShare, blocks = math.MaxInt64, 2
	}
	return Stretches{MinRows: LargeFrom(info, 1<<22), SlotShare: slotShare, Blocks: blocks}
}

// Fine is how a batch is brought in the order of stretches: Large·Within of them, or a few more than there are.
type Fine struct {
	Regions       Regions // the rule, but that a piece has rows enough for all stretches
	Large, Within int64
}

// mostRanges is into how many ranges of stretches a table is cut, at most, that is built of all pairs at once where these do not fit memory in order
// (InRanges). Pairs of 8+8 bytes take 32 bytes of scratch memory in order; with 64 ranges, 1.5, a byte of it for those that are left over. Where even
// that is too much, pairs go in as they come. Estimated, not measured, for an H200 and 2.2 G such pairs at a load factor of 0.8, in ps a pair: what each
// range adds, 6 with 2 ranges, 3 to 5 with 10, 2 to 4 with 64; all else, 66; as they come, 690 to 710 (measured: 1.4 G/s). So 2 ranges build at 12 G/s,
// 10 at 8.5 to 10, 64 at 3 to 5, and with some 150 to 300 nothing would be gained.
const mostRanges = 64

// mostPiece is how many rows are brought in order at once, at most: kernels number them with 32 bits.
const mostPiece = 1 << 31

// Fine says how a batch of n rows goes into a table of so many slots and stretches; false: not by stretches. Pieces are as
// large as those of one pass, for with each all of the table is read and written; where they have too few rows for all
// stretches, they have as many as that takes, but no more than most.
func (s *Stretches) Fine(rule Regions, n, slots, stretches, most int64) (f Fine, ok bool) {
	least := slots / s.SlotShare
	f.Within = max(1, int64(math.Ceil(math.Sqrt(float64(stretches)))))
	if rule.PowerOfTwo {
		f.Within = 1 << (bits.Len64(uint64(max(stretches, 1)-1)) / 2)
	}
	f.Large = (stretches + f.Within - 1) / f.Within
	f.Regions = rule
	f.Regions.PieceRows = max(rule.PieceRows, min(rule.onePass(), mostPiece), min(least, most, mostPiece))
	f.Regions.RegionRows = max(1, least/(f.Large*f.Within))
	fits := stretches >= max(2, s.Blocks) && max(f.Large, f.Within) <= MaxParts
	return f, fits && n >= s.MinRows && min(n, f.Regions.PieceRows) >= least
}

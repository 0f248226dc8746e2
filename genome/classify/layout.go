package classify

import "fmt"

// Options say how sequences are sketched. A database keeps them. The zero value has MetaCache's values.
type Options struct {
	K      int `json:"k"`      // letters of a k-mer, 4 to 16; 0: 16
	Sketch int `json:"sketch"` // features of a window, 1 to 64; 0: 16
	Window int `json:"window"` // letters of a window, K to 65535; 0: 127
	Stride int `json:"stride"` // letters from one window to the next, up to Window; 0: Window − K + 1
	// MaxLocations is how many locations a feature has at most, 1 to 32767. The first in the order of targets and
	// windows are kept. 0: 254
	MaxLocations int `json:"max_locations"`
}

func (o *Options) complete() error {
	for _, f := range []struct {
		value    *int
		standard int
	}{{&o.K, 16}, {&o.Sketch, 16}, {&o.Window, 127}, {&o.MaxLocations, 254}} {
		if *f.value == 0 {
			*f.value = f.standard
		}
	}
	if o.Stride == 0 {
		o.Stride = o.Window - o.K + 1
	}
	switch {
	case o.K < 4 || o.K > 16:
		return fmt.Errorf("k-mers of %d letters: want 4 to 16", o.K)
	case o.Sketch < 1 || o.Sketch > 64:
		return fmt.Errorf("sketches of %d features: want 1 to 64", o.Sketch)
	case o.Window < o.K || o.Window > 65535:
		return fmt.Errorf("windows of %d letters: want %d, the letters of a k-mer, to 65535", o.Window, o.K)
	case o.Stride < 1 || o.Stride > o.Window:
		return fmt.Errorf("a stride of %d letters: want 1 to %d, the letters of a window", o.Stride, o.Window)
	case o.MaxLocations < 1 || o.MaxLocations > mostLocations:
		return fmt.Errorf("%d locations a feature: want 1 to %d", o.MaxLocations, mostLocations)
	}
	return nil
}

const (
	mostLocations = 1<<15 - 1 // of a feature, as an entry can say
	mostTargets   = 1 << 30
	noFeature     = ^uint32(0)
	oneBit        = 62
	manyBit       = 63
	countShift    = 48

	// filterBits are those of features that the filter of residentParams knows, which takes 128 KiB.
	filterBits = 20
	// A chunk in a CPU's memory has so many buckets of so many features. With 2,048 buckets, one feature in ten would
	// be in a next bucket, and reads would take a twentieth longer.
	chunkBuckets, bucketItems = 2560, 5
	// bucketFactor: the high bits of a feature times this tell its bucket.
	bucketFactor = 0x9e3779b1
	// firstScratch is how many places a block has at first: for reads of some windows.
	firstScratch = 1 << 14

	// readLanes are the lanes of a warp that decide on a read together, on a GPU and in stress mode.
	readLanes = 32
)

// bucket has some features of a chunk, each plus one, and their entries. Behind them there is 0, as in memory that
// nobody has written to.
type bucket struct {
	features [bucketItems]uint32
	passed   uint32 // one of 32 bits for each feature that has gone on to the next bucket
	entries  [bucketItems]uint64
}

// chunkHead is where a chunk begins, and whether it is there: then there is 1.
type chunkHead struct{ first, there uint32 }

// residentParams is what the kernel of reads.cu looks features up in.
type residentParams struct{ Buckets, Heads, Starts, Filter, Wanted uint64 }

// window is a stretch of a block's text that is sketched.
type window struct {
	Start, Letters uint32
}

// sketchParams: the features of n windows, Sketch places for each; those that are left over hold noFeature.
type sketchParams struct {
	Text, Windows, N uint64 // windows: of window
	Features         uint64 // u32
}

// pairParams: features that are there, each with its window's location, one after the other in no order.
type pairParams struct {
	Features, Places, N uint64 // places: u64, the location of each of n windows
	Keys, Values, Next  uint64 // u32, u64; how many there are, u64
}

// sortParams: lists of locations that are to be sorted.
type sortParams struct {
	Offsets, Values, N uint64 // u64; list i is values offsets[i] to offsets[i+1]
}

// query is a read, or a pair of mates: its windows reach to the next query's First.
type query struct {
	First uint32 // window of the batch
	Mate  uint32 // window that the second mate begins with
	Range uint32 // windows of a reference that it may span
}

// candidate is a target, or the best of a taxon, and its hits.
type candidate struct {
	Target uint32
	Hits   uint32
	Second uint32 // hits of the second mate among them
}

// verdict is what a read is told to be.
type verdict struct {
	Taxon uint32 // index+1; 0 if it is unclassified
	Best  [2]candidate
	_     uint32
}

// decideParams: the verdicts of n queries.
type decideParams struct {
	Queries, N    uint64 // query, n+1 of them
	Entries       uint64 // u64 for each place of a feature
	Locations     uint64 // u64: lists of locations
	Scratch, Room uint64 // u64, so many
	Next          uint64 // address of how many of them were asked for
	Taxa          uint64 // u32: taxon of each target, a row of lineages
	Lineages      uint64 // u32: rows of RANKS, index+1 or 0
	Indices       uint64 // u32: index of each row's taxon
	Verdicts      uint64
	HitMin        uint32
	Lowest        uint32
	Highest       uint32
	HitDiff       float32
}

// readsParams: the verdicts on reads, of texts and windows at once. Each block has Decide.Room places of Scratch, and
// Decide.Next becomes how many some read wanted, if those are too few. Decide.Entries is room for the entries.
type readsParams struct {
	Decide        decideParams
	Resident      residentParams
	Text, Windows uint64
	Missing       uint64 // address of how many features had no chunk; then the verdicts are not to be used
}

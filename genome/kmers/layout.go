package kmers

import (
	_ "embed"

	"github.com/warpmap/warpmap/device"
)

//go:embed kmers.cu
var kmersCU string

//go:embed cores.cu
var coresCU string

//go:embed bins.cu
var binsCU string

//go:embed kmer.cuh
var kmerCUH string

//go:embed letters.cuh
var lettersCUH string

const (
	// MaxK is the length of the longest k-mer, which takes two words of packed letters; up to wordK letters take one.
	MaxK, wordK = 64, 32
	// partBits: the k-mers of a part lie together in the file, and are sorted at once. 50 million k-mers have parts of
	// 300 KB, which a core's cache holds.
	partBits, parts = 11, 1 << partBits
	// bucketBits: a part is dealt out to so many buckets at most before it is sorted.
	bucketBits = 13
	// few is how many k-mers of a bucket are sorted by insertion.
	few = 32
	// each is how many letters a lane takes that appends k-mers to a list.
	each = 64
	// textBytes is how much text is brought to the device at a time: or less, so that its k-mers are a share of the
	// memory. A table takes more at once where there is much memory.
	textBytes, textShare     = 16 << 20, 32
	tabledBytes, tabledShare = 64 << 20, 256
	// leastText is how much a table that has nothing to do is given.
	leastText   = 4 << 20
	leastMemory = 8 << 20
	// bytesOfKmer: of so many bytes of inputs a table has room for one k-mer from the beginning. That is what reads
	// with qualities have that cover a genome eight times; of letters that come once there are many more, for which it
	// grows. Room that is not needed costs less than a hundredth of bringing the text.
	bytesOfKmer = 16
	// aheadShare of the memory is the most that it takes.
	aheadShare = 8
	// textOfByte is how many letters a byte of inputs has, at most about: they may be packed.
	textOfByte = 8
	// Stretches of text whose k-mers have one minimizer, a word of so many letters or of a k-mer's, go to the
	// minimizer's bin together.
	minimizerLetters, bins = 9, 1 << 9
	// mostOfStretch is how many k-mers a packed stretch has at most: a byte says it.
	mostOfStretch = 255
	// On cores, bins are so many that 50 million k-mers have tables of a megabyte, which a core's cache holds; or fewer
	// with little memory, because each core has a chunk of each bin.
	mostBins, leastBins = 1 << 11, 1 << 6
	chunkBytes          = 1 << 10
	// K-mers of so many letters are counted where their letters say, which takes 2 MB for each core.
	shortLetters = 9
	// coreBytes of the memory are there for each core that counts, or fewer cores do.
	coreBytes = 4 << 20
	// passageLetters is how many letters a core takes at a time at most.
	passageLetters = 1 << 18
	// So many stretches of up to 40 bytes wait for equal ones on each core.
	together, waitingBytes = 1 << 11, 64
	// If of 16 k-mers more than so many are distinct, k-mers are sorted, and not counted in tables: those of a bin
	// whose list takes less than a share of the memory, for each comes into it as often as it stands in the text.
	distinctOf16, bypassShare = 12, 64
	// Of so many bins, one is counted in a table all the same, to see how many are distinct.
	tableEach = 16
	// bypassSlab is how large slabs are at least where k-mers are only sorted: each may need a chunk.
	bypassSlab = 1 << 20
	// waitBytes of stretches wait at least before they are counted, if there is memory.
	waitBytes = 256 << 20
	// stretchLetters is how many letters a lane takes that packs stretches: each begins anew there.
	stretchLetters = 1 << 9
)

// wordsOf is how many words of 64 bits a packed k-mer takes.
func wordsOf(k int) int { return (k + wordK - 1) / wordK }

// aheadBytes is what a k-mer of so many words takes in a table with room for many, about: its slot, and of those that
// stay free.
func aheadBytes(words int) int64 { return 15*int64(words) + 5 }

// minimizerOf is how many letters the minimizer of a k-mer has that is dealt out to bins on cores. Those of short
// k-mers have fewer, so that neighbours have the same one.
func minimizerOf(k int) int { return min(minimizerLetters, max(7, k/2)) }

// The bytes of a k-mer, and of one that is counted.
func rawBytes(words int) int64     { return 8 * int64(words) }
func countedBytes(words int) int64 { return rawBytes(words) + 4 }

// placeBytes is what a k-mer takes in a core's table, and where a part is sorted.
func placeBytes(words int) int { return 8*words + 8 }

// textParams are the parameters of the kernel that lists the k-mers of text.
type textParams struct {
	Text, N    uint64
	K          uint64
	Canonical  uint64
	First, End uint64 // parts that are wanted
	Cursors    uint64 // address of the list's length
	Mixes      uint64 // address of mixes
}

// packedParams are those of the kernel that makes the k-mers First … First+N-1 of packed letters.
type packedParams struct {
	Letters   uint64 // address of u64
	First, N  uint64
	K         uint64
	Canonical uint64
	Mixes     uint64
}

// bin is a bin's newest chunk, where its next stretch or entry goes, and how many k-mers it has.
type bin struct{ Chunk, At, Kmers uint64 }

// dealParams are the parameters of kernels that take a piece of text on a core.
type dealParams struct {
	Text, N   uint64
	To        uint64 // the piece ends there
	K         uint64
	Canonical uint64
	Minimizer uint64 // its letters
	Mask      uint64 // how many bins there are, less one
	Bins      uint64 // address of the core's bins; or of counts of short k-mers
	State     uint64
}

// dealState: k-mers that end in letters before Next are done.
type dealState struct{ Next, Slab, End uint64 }

// tableParams are those of kernels that count a bin in a table.
type tableParams struct {
	K            uint64
	Canonical    uint64
	First, End   uint64 // parts that are wanted
	Seed         uint64
	Table, Bits  uint64 // of 2^Bits places
	Old, OldBits uint64
	Bin          uint64
	Bins, Cores  uint64 // address of the address of each core's bins
	List         uint64 // address of the bins of lists
	State        uint64
	Least        uint64 // k-mers that come less often are left out of a list
	Waiting      uint64 // address of stretches that wait for equal ones: none at first
}

// tableState: what is done of the stretches and of the list, and how many places are taken.
type tableState struct {
	Core, Chunk, At uint64
	Used            uint64
	Waits           uint64 // 1 where k-mers wait for more room
	Place           uint64
	Slab, End       uint64
}

// partParams are those of the kernel that brings a part in order.
type partParams struct {
	Part, N       uint64
	Lists, Cores  uint64 // address of the address of each core's lists
	Pairs         uint64
	Mixes, Counts uint64
	Least         uint64
	Number        uint64 // address of how many k-mers there are
}

// binParams are those of the kernels that pack stretches.
type binParams struct {
	Text, N   uint64
	K         uint64
	Minimizer uint64 // its letters
	Bytes     uint64 // address of u64: of each bin, its bytes, then where they go
	Kmers     uint64 // address of u64: of each bin
	Out       uint64
}

// program has the kernels that list k-mers of so many words on a GPU.
func program(words int) *device.Program {
	return &device.Program{
		Name: "kmers",
		Files: []device.File{{Name: "kmers.cu", Text: kmersCU}, {Name: "kmer.cuh", Text: kmerCUH},
			{Name: "letters.cuh", Text: lettersCUH}},
		Defines: []device.Define{{Name: "KMERS_WORDS", Value: words}, {Name: "KMERS_PART_BITS", Value: partBits},
			{Name: "KMERS_PARTS", Value: parts}, {Name: "KMERS_EACH", Value: each}},
		Layouts: []any{textParams{}, packedParams{}},
	}
}

// coresProgram has those that count k-mers of so many words on cores.
func coresProgram(words int) *device.Program {
	return &device.Program{
		Name: "kmers-cores",
		Files: []device.File{{Name: "cores.cu", Text: coresCU}, {Name: "kmer.cuh", Text: kmerCUH},
			{Name: "letters.cuh", Text: lettersCUH}},
		Defines: []device.Define{{Name: "KMERS_WORDS", Value: words}, {Name: "KMERS_PART_BITS", Value: partBits},
			{Name: "KMERS_PARTS", Value: parts}, {Name: "KMERS_BUCKET_BITS", Value: bucketBits},
			{Name: "KMERS_BUCKETS", Value: 1 << bucketBits}, {Name: "KMERS_FEW", Value: few},
			{Name: "KMERS_CHUNK", Value: chunkBytes}, {Name: "KMERS_MOST", Value: mostOfStretch},
			{Name: "KMERS_ENTRY", Value: countedBytes(words)},
			{Name: "KMERS_TOGETHER", Value: together}, {Name: "KMERS_WAITING", Value: waitingBytes},
			{Name: "KMERS_PLACE", Value: placeBytes(words)}},
		Layouts: []any{bin{}, dealParams{}, dealState{}, tableParams{}, tableState{}, partParams{}},
	}
}

// binProgram has those that pack stretches into bins.
func binProgram() *device.Program {
	return &device.Program{
		Name:  "kmers-bins",
		Files: []device.File{{Name: "bins.cu", Text: binsCU}, {Name: "letters.cuh", Text: lettersCUH}},
		Defines: []device.Define{{Name: "KMERS_BINS", Value: bins}, {Name: "KMERS_MOST", Value: mostOfStretch},
			{Name: "KMERS_STRETCH", Value: stretchLetters},
			{Name: "KMERS_LONGEST", Value: MaxK}},
		Layouts: []any{binParams{}},
	}
}

// The file: see file.go. It is of version 3; those of 0.1.0 are of version 1, or with two words of version 2.
const (
	plainVersion, fileVersion = 1, 3
	headerBytes               = 64 << 10
)

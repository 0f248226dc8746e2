package kmers

import (
	_ "embed"

	"github.com/warpmap/warpmap/device"
)

//go:embed kmers.cu
var kmersCU string

//go:embed bins.cu
var binsCU string

//go:embed letters.cuh
var lettersCUH string

const (
	// MaxK is the length of the longest k-mer, which takes two words of packed letters; up to wordK letters take one.
	MaxK, wordK = 64, 32
	// partBits: the k-mers of a part lie together in the file, and are counted at once. 50 million k-mers have parts of
	// 200 KB, which a core's cache holds.
	partBits, parts = 11, 1 << partBits
	// bucketBits: a part is dealt out to so many buckets before it is sorted.
	bucketBits = 12
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
	// stretchLetters is how many letters a lane takes that packs stretches: each begins anew there.
	stretchLetters = 1 << 9
)

// wordsOf is how many words of 64 bits a packed k-mer takes.
func wordsOf(k int) int { return (k + wordK - 1) / wordK }

// aheadBytes is what a k-mer of so many words takes in a table with room for many, about: its slot, and of those that
// stay free.
func aheadBytes(words int) int64 { return 15*int64(words) + 5 }

// textParams are the parameters of the kernels that make k-mers of text.
type textParams struct {
	Text, N    uint64
	K          uint64
	Canonical  uint64
	First, End uint64 // parts that are wanted
	Segment    uint64 // letters of a block
	Cursors    uint64 // address of u64: of each segment and part; of a list, its length
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

// run is the k-mers of some text in the order of their parts.
type run struct{ Mixes, Starts uint64 }

// sortParams are those of the kernel that counts parts.
type sortParams struct {
	Runs, N       uint64
	First         uint64 // part of the first block
	Offsets       uint64 // of each block's part in Mixes and Counts
	Mixes, Counts uint64
	Numbers       uint64 // how many k-mers a part has
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

// program has the kernels that count k-mers of so many words.
func program(words int) *device.Program {
	return &device.Program{
		Name:  "kmers",
		Files: []device.File{{Name: "kmers.cu", Text: kmersCU}, {Name: "letters.cuh", Text: lettersCUH}},
		Defines: []device.Define{{Name: "KMERS_WORDS", Value: words}, {Name: "KMERS_PART_BITS", Value: partBits},
			{Name: "KMERS_PARTS", Value: parts},
			{Name: "KMERS_BUCKET_BITS", Value: bucketBits}, {Name: "KMERS_BUCKETS", Value: 1 << bucketBits},
			{Name: "KMERS_FEW", Value: few}, {Name: "KMERS_EACH", Value: each}},
		Layouts: []any{textParams{}, packedParams{}, run{}, sortParams{}},
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

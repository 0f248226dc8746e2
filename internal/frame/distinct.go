package frame

import (
	_ "embed"
	"math"
	"math/rand/v2"

	"github.com/warpmap/warpmap/device"
)

//go:embed distinct.cu
var distinctCU string

// distinctBits: a sketch has 2^distinctBits registers of 32 bits. Its standard error is 1.04/√2^distinctBits, 1.6%.
const distinctBits = 12

// distinctAsked: one row in so many is compared with another; fewer than leastSame that have the same key tell nothing.
const distinctAsked, leastSame = 256, 16

// distinctChunk: where not all keys are read, so many in a row are, or not.
const distinctChunk = 1 << 10

// blockKeys: a block has no fewer keys, for what it finds it must bring together with what all others have.
const blockKeys = 1 << 14

// distinctParams are the parameters of the kernel distinct.
type distinctParams struct {
	Keys, N   uint64
	Registers uint64 // address of u32
	Seed      uint64
	Share     uint64 // one chunk of keys in so many is read
}

func distinctProgram(keyBytes int) *device.Program {
	return &device.Program{
		Name:  "distinct",
		Files: []device.File{{Name: "distinct.cu", Text: distinctCU}},
		Defines: []device.Define{{Name: "DISTINCT_BITS", Value: distinctBits}, {Name: "DISTINCT_KEY_BYTES", Value: keyBytes},
			{Name: "DISTINCT_ASKED", Value: distinctAsked}, {Name: "DISTINCT_CHUNK", Value: distinctChunk}},
		Layouts: []any{distinctParams{}},
	}
}

// CanCount tells whether Distinct counts keys of so many bytes.
func CanCount(keyBytes int) bool {
	return keyBytes == 4 || keyBytes == 8 || keyBytes == 16 || keyBytes == 32
}

// Distinct estimates how many distinct keys there are among n keys of 4, 8, 16 or 32 bytes at a device address. It is
// HyperLogLog's estimate, mostly within 3%, or 0 if its kernel cannot be compiled. crowd is about how many rows have
// the key of a row, on average over all rows, if that is many, and else 0: one key that half of the rows have makes it
// large, however many keys there are. Distinct waits for the stream. Cost: the keys are read once. The caller is in
// Writing.
func (f *Frame) Distinct(st *device.Stream, keys uint64, keyBytes int, n int64) (distinct, crowd int64, err error) {
	distinct, crowd, _, err = f.DistinctOf(st, keys, keyBytes, n, 1)
	return distinct, crowd, err
}

// DistinctOf is Distinct of one key in so many, drawn at random by chunks: it gives how many distinct keys there are among those that it read. If there
// are few, it reads all.
func (f *Frame) DistinctOf(st *device.Stream, keys uint64, keyBytes int, n, share int64) (distinct, crowd, read int64, err error) {
	if n < share*distinctChunk {
		share = 1
	}
	read = (n + share - 1) / share
	k, err := f.distinctOf(keyBytes)
	if err != nil {
		return 0, 0, read, err
	}
	if k.Compile() != nil {
		return 0, 0, read, nil // who inserts can do without
	}
	mem, err := f.Scratch(4<<distinctBits + 4)
	if err != nil {
		return 0, 0, read, err
	}
	defer mem.Done()
	registers := device.View[uint32](mem.Mem, 0, 1<<distinctBits+1)
	if err := registers.Fill(st, 0); err != nil {
		return 0, 0, read, err
	}
	grid := f.Grid(read/int64(max(1, 16/keyBytes))+1, 8)
	grid.Blocks = min(grid.Blocks, read/blockKeys+1)
	if !f.Device.Info().CUDA() { // each block goes over its registers twice
		grid.Blocks = min(grid.Blocks, int64(f.Device.Info().Multiprocessors))
	}
	if err := k.Launch(st, grid, &distinctParams{keys, uint64(n), registers.Addr(), rand.Uint64(), uint64(share)}); err != nil {
		return 0, 0, read, err
	}
	ranks, err := registers.Host(st)
	if err != nil {
		return 0, 0, read, err
	}
	if same := ranks[1<<distinctBits]; same >= leastSame {
		crowd = int64(same) * distinctAsked * share
	}
	return min(read, estimate(ranks[:1<<distinctBits])), crowd, read, nil
}

// distinctOf is the kernel for keys of so many bytes.
func (f *Frame) distinctOf(keyBytes int) (k device.Kernel[distinctParams], err error) {
	if k, ok := f.distincts[keyBytes]; ok {
		return k, nil
	}
	m, err := f.Device.CompileApart(distinctProgram(keyBytes))
	if err == nil {
		k, err = device.KernelOf[distinctParams](m, "distinct")
	}
	if err == nil {
		if f.distincts == nil {
			f.distincts = map[int]device.Kernel[distinctParams]{}
		}
		f.distincts[keyBytes] = k
	}
	return k, err
}

// AheadOfDistinct begins to compile what Distinct launches for keys of so many bytes. The caller is in Writing.
func (f *Frame) AheadOfDistinct(keyBytes int) {
	if k, err := f.distinctOf(keyBytes); err == nil {
		k.Ahead()
	}
}

// estimate is HyperLogLog's, from the registers.
func estimate(ranks []uint32) int64 {
	sum, m := 0.0, float64(len(ranks))
	var of [64]int // how many registers have a rank; to add a power of 2 for each takes 100 µs
	for _, r := range ranks {
		of[min(r, uint32(len(of)-1))]++
	}
	for r, n := range of {
		sum += math.Ldexp(float64(n), -r)
	}
	zeros := of[0]
	e := 0.7213 / (1 + 1.079/m) * m * m / sum
	if e <= 2.5*m && zeros > 0 { // few keys: count the registers that none has named
		e = m * math.Log(m/float64(zeros))
	}
	return int64(e + 0.5)
}

package bench

import (
	_ "embed"

	"github.com/warpmap/warpmap/device"
)

// limitParams are the parameters of the kernels that measure the machine.
type limitParams struct {
	Keys    uint64 // u32, read in order
	Out     uint64 // u32, written in order (of swap64: read)
	Memory  uint64 // read and written at random
	Buckets uint64
	N       uint64
}

// verifyParams are the parameters of the kernels that count wrong answers, for the bytes of key and value: verify4_4 … verify32_32
// of maps, verify_set of sets, verify_all44 … verify_all88 of multimaps.
type verifyParams struct {
	Keys, Expect  uint64
	Values, Found uint64 // not of sets, and not of multimaps
	Offsets       uint64 // u64, of multimaps, as Each and Most
	Each          uint64 // values that a key has
	Most          uint64 // values that it can have; 0: any multiple of Each, for different rows may have one key
	Wrong         uint64 // u64 counter
	N             uint64
}

//go:embed bench.cu
var benchCU string

func program() *device.Program {
	return &device.Program{
		Name:    "bench",
		Files:   []device.File{{Name: "bench.cu", Text: benchCU}},
		Layouts: []any{limitParams{}, verifyParams{}},
	}
}

package bench

import (
	_ "embed"

	"github.com/warpmap/warpmap/device"
)

// limitParams are the parameters of the kernels that measure the machine.
type limitParams struct {
	Keys    uint64 // u32, read in order
	Out     uint64 // u32, written in order (of swap64: read); of copy_lines: where to
	Memory  uint64 // read and written at random; of copy_lines: where from
	Buckets uint64
	N       uint64 // accesses, or of copy_lines: lines of 64 bytes
}

// verifyParams are the parameters of the kernels that count wrong answers, for the bytes of key and value: verify4_4 … verify32_32
// of maps, verify_sums44 … verify_sums88 of maps that add up, verify_set of sets and filters, verify_all44 … verify_all88, or where keys
// have many values, verify_many44 … verify_many88, and verify_count of multimaps, verify_counts4 and verify_counts8 of counters.
type verifyParams struct {
	Keys, Expect  uint64 // of sets, Expect may be 0: no key is to be there
	Values, Found uint64 // not of sets, and not of multimaps; Values of verify_count and verify_counts are counts
	Offsets       uint64 // u64, of multimaps, as Each and Most
	Each          uint64 // values that a key has
	Most          uint64 // values that it can have; 0: any multiple of Each, for different rows may have one key
	Came          uint64 // u32, where keys were drawn: how often the key came that is looked up, in place of Each and Most
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

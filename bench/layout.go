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

// verifyParams are the parameters of verify44 … verify88, by the bytes of key and value.
type verifyParams struct {
	Keys, Values, Found, Expect uint64
	Wrong                       uint64 // u64 counter
	N                           uint64
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

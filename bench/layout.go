package bench

import (
	_ "embed"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
)

// LimitParams are the parameters of the kernels that measure the machine.
type LimitParams struct {
	Keys    uint64 // u32, read in order
	Out     uint64 // u32, written in order (of swap64: read)
	Memory  uint64 // read and written at random
	Buckets uint64
	N       uint64
}

// VerifyParams are the parameters of verify44 … verify88, by the bytes of key and value.
type VerifyParams struct {
	Keys, Values, Found, Expect uint64
	Wrong                       uint64 // u64 counter
	N                           uint64
}

// LookupParams are the parameters of gph_lookup.cu.
type LookupParams struct {
	Table               gph.Table
	Keys, Values, Found uint64
	N                   uint64
	Slots               uint64 // the table with two buckets a key: Buckets of them
	Buckets             uint64
	Failed              uint64 // u64 counter: pairs that found no place there
}

var (
	//go:embed bench.cu
	benchCU string
	//go:embed gph_lookup.cu
	gphLookupCU string
)

func program() *device.Program {
	return &device.Program{
		Name:    "bench",
		Files:   []device.File{{Name: "bench.cu", Text: benchCU}},
		Layouts: []any{LimitParams{}, VerifyParams{}},
	}
}

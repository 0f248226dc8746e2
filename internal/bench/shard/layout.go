package shard

import (
	_ "embed"

	"github.com/warpmap/warpmap/device"
)

//go:embed drawn.cu
var drawnCU string

// drawParams are the parameters of the kernels that make batches and check answers: the rows from First on of Total.
type drawParams struct {
	Keys, Values, Found uint64 // columns: u32, u32 and bytes
	Wrong               uint64 // a counter, u64
	First, N, Total     uint64
	Misses              uint64 // how many indices from Total on are asked for in vain
	Hits                uint64 // of 2²⁴ look-ups
}

func program() *device.Program {
	return &device.Program{Name: "shard drawn", Files: []device.File{{Name: "drawn.cu", Text: drawnCU}}, Layouts: []any{drawParams{}}}
}

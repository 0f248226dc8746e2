package shard

import (
	_ "embed"

	"github.com/warpmap/warpmap/device"
)

//go:embed drawn.cu
var drawnCU string

// drawParams are the parameters of the kernels that make batches and check answers. They are about the rows of one
// part, from First on, of Total rows of all parts.
type drawParams struct {
	Keys, Values, Found uint64 // columns: keys, values of the same width, bytes; Values and Offsets may be 0
	Offsets             uint64 // u64, where the list of each key begins in Values
	Counts              uint64 // u32, rows of each key; 0: each key has one
	Wrong               uint64 // u64, a counter
	First, N, Total     uint64
	Distinct            uint64 // different keys of all rows
	Asks                uint64 // 1: the rows are look-ups
	Hits                uint64 // of 2²⁴ look-ups
	Counted             uint64 // 1: values are numbers of rows
}

// program returns the kernels for keys and values of that many bytes.
func program(bytes int) *device.Program {
	return &device.Program{Name: "shard drawn", Files: []device.File{{Name: "drawn.cu", Text: drawnCU}},
		Defines: []device.Define{{Name: "KEY_BYTES", Value: bytes}}, Layouts: []any{drawParams{}}}
}

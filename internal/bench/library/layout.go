package library

import (
	_ "embed"

	"github.com/warpmap/warpmap/device"
)

//go:embed aging.cu
var agingCU string

// agingParams are the parameters of the kernels that make the batches of tables that age, and that check answers. Keys
// have indices, of which those from First to End are the present window.
type agingParams struct {
	Keys, Values, Found uint64 // columns: u32, u32 and bytes. Values may be 0, where there are none
	In                  uint64 // u8: how many values the key of an index has, at index modulo Ring
	Wrong               uint64 // u64 counter
	First, End, Ring    uint64
	N, Distinct         uint64 // rows, and the keys that they have
	Draw                uint64 // of the look-ups
}

func agingProgram() *device.Program {
	return &device.Program{Name: "library aging", Files: []device.File{{Name: "aging.cu", Text: agingCU}},
		Layouts: []any{agingParams{}}}
}

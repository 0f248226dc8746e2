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

// AgingProgram has the kernels of the studies of tables that age.
func AgingProgram() *device.Program {
	return &device.Program{Name: "library aging", Files: []device.File{{Name: "aging.cu", Text: agingCU}},
		Layouts: []any{agingParams{}}}
}

//go:embed hot.cu
var hotCU string

// hotParams are the parameters of the kernels that make streams of which some keys come often, and that check what is
// said of these. Keys have ranks.
type hotParams struct {
	Keys     uint64 // u32 or u64, N of them
	Came     uint64 // u32 of each rank: how often it came
	Shares   uint64 // u64 of each segment of ranks: the share of all keys that comes before it, times 2⁶⁴
	Firsts   uint64 // u64 of each segment: its first rank; and behind them how many ranks there are
	Segments uint64
	Seed     uint64
	First, N uint64

	Least, Most  uint64 // u64 of each key; Least may be 0
	Bound, Often uint64
	Told         uint64 // three u64: see check
}

// A rank times hotFactor is its key, and that times hotInverse the rank, modulo 2³² and 2⁶⁴.
const (
	hotFactor  = 0x9e3779b97f4a7c15
	hotInverse = 0xf1de83e19937733d
)

// HotProgram has the kernels of the study of sketches that count.
func HotProgram() *device.Program {
	return &device.Program{Name: "library hot", Files: []device.File{{Name: "hot.cu", Text: hotCU}},
		Defines: []device.Define{{Name: "HOT_FACTOR", Value: "0x9e3779b97f4a7c15ull"},
			{Name: "HOT_INVERSE", Value: "0xf1de83e19937733dull"}},
		Layouts: []any{hotParams{}}}
}

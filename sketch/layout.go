package sketch

import (
	_ "embed"

	"github.com/warpmap/warpmap/device"
)

const (
	leastPrecision, mostPrecision = 4, 18
	defaultPrecision              = 14

	hashBits  = 64
	wordBytes = 8 // registers go in and out by words of so many
)

//go:embed hyperloglog.cu
var hyperLogLogCU string

// addParams are the parameters of the kernel hyperloglog_add.
type addParams struct {
	Keys, N   uint64
	Registers uint64 // address of 2^Precision bytes
	Seed      uint64
	Precision uint64
	Own       uint64 // 1: each block has registers of its own, and merges them at the end
}

// mergeParams are the parameters of the kernel hyperloglog_merge: the registers at From, in words, raise those of To.
type mergeParams struct {
	To, From, Words uint64
}

// hyperLogLogProgram is the kernels for keys of so many bytes.
func hyperLogLogProgram(keyBytes int) *device.Program {
	return &device.Program{
		Name:    "hyperloglog",
		Files:   []device.File{{Name: "hyperloglog.cu", Text: hyperLogLogCU}},
		Defines: []device.Define{{Name: "SKETCH_KEY_BYTES", Value: keyBytes}},
		Layouts: []any{addParams{}, mergeParams{}},
	}
}

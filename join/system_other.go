//go:build !linux

package join

import (
	"math"
	"os"
	"unsafe"
)

// machineMemory bounds nothing: a file's broken length ends the process.
func machineMemory() uint64 { return math.MaxUint64 }

func beginWriting(*os.File, int64, int64) {}

const hugePage = 2 << 20

func adviseHuge(unsafe.Pointer, uintptr) {}

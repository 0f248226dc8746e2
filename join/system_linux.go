package join

import (
	"math"
	"syscall"
)

// machineMemory is how much memory the machine has, in bytes.
func machineMemory() uint64 {
	var s syscall.Sysinfo_t
	if syscall.Sysinfo(&s) != nil {
		return math.MaxUint64
	}
	return uint64(s.Totalram) * uint64(s.Unit)
}

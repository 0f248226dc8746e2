package join

import (
	"math"
	"os"
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

// beginWriting lets the system begin to write a part of the file to the disk, so that less is left for the end, when
// all has to be there. Where that cannot be done, nothing is lost.
func beginWriting(f *os.File, at, n int64) {
	const start = 2 // SYNC_FILE_RANGE_WRITE
	syscall.SyncFileRange(int(f.Fd()), at, n, start)
}

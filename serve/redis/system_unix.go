//go:build unix

package redis

import (
	"math"
	"syscall"
)

// mostFiles is how many files this process may have open, or 0 where the system does not say.
func mostFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Cur, math.MaxInt32))
}

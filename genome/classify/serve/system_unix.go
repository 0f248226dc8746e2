//go:build unix

package serve

import (
	"math"
	"net"
	"sync"
	"syscall"
)

var umask sync.Mutex

// listenAlone makes a socket with a mode such that there is no moment in which other users could connect.
func listenAlone(name string) (net.Listener, error) {
	umask.Lock()
	defer umask.Unlock()
	defer syscall.Umask(syscall.Umask(0o177))
	return net.Listen("unix", name)
}

// mostFiles is how many files this process may have open, or 0 where the system does not say.
func mostFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Cur, math.MaxInt32))
}

package device

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// memoryFile makes a file that is in memory alone, whose name leads to it as long as it is open; nil where there is none.
func memoryFile() *os.File {
	fd, err := unix.MemfdCreate("warpmap", unix.MFD_CLOEXEC)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("/proc/self/fd/%d", fd))
}

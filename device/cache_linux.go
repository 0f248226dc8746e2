package device

import (
	"io"
	"os"
	"syscall"
)

// atOnce opens no link and waits for nobody.
const atOnce = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// ours tells that a file belongs to this user or to root.
func ours(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (st.Uid == 0 || int(st.Uid) == os.Geteuid())
}

// lockedElsewhere locks a byte of the file until the file is closed, and tells whether another has it, so that it is to
// be tried again.
func lockedElsewhere(f *os.File, at int64) bool {
	const setOpenFileLock = 37 // F_OFD_SETLK: unlike others, it is not lost when this process closes the file elsewhere
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: at, Len: 1}
	err := syscall.FcntlFlock(f.Fd(), setOpenFileLock, &lock)
	return err == syscall.EAGAIN || err == syscall.EACCES || err == syscall.EINTR
}

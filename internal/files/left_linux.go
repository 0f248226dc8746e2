package files

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// noLink opens no link, and waits for nobody.
const noLink = unix.O_NOFOLLOW | unix.O_NONBLOCK

// tryLock locks a file or a folder until all descriptors of this opening are closed, as they are when a process ends,
// however it ends. It tells whether it could: others may have the lock, and some file systems have none.
func tryLock(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	locked := false
	err = raw.Control(func(fd uintptr) {
		err := syscall.EINTR
		for err == syscall.EINTR {
			err, _ = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB).(syscall.Errno)
		}
		locked = err == 0
	})
	return locked && err == nil
}

// unnamed opens a new file in a folder that never has a name, so that a process that is killed cannot leave it; nil
// where the file system has no such files.
func unnamed(dir string) *os.File {
	f, err := os.OpenFile(dir, os.O_RDWR|os.O_EXCL|unix.O_TMPFILE, 0o600)
	if err != nil {
		return nil
	}
	return f
}

// again is another descriptor of the same opening: its lock lasts as long as one of both is open.
func again(f *os.File) (other *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	raw.Control(func(fd uintptr) {
		if n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			other = os.NewFile(uintptr(n), f.Name())
		}
	})
	return other
}

//go:build linux || darwin || freebsd

package testenv

import (
	"syscall"
	"time"
)

// Mkfifo makes a named pipe.
func Mkfifo(name string, mode uint32) error { return syscall.Mkfifo(name, mode) }

// Umask sets the process's umask, and returns what it was.
func Umask(mask int) (was int) { return syscall.Umask(mask) }

// cpuTime is how long this process has computed, for itself and in the system.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

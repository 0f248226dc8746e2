//go:build linux || darwin || freebsd

package testenv

import "syscall"

// Mkfifo makes a named pipe.
func Mkfifo(name string, mode uint32) error { return syscall.Mkfifo(name, mode) }

// Umask sets the process's umask, and returns what it was.
func Umask(mask int) (was int) { return syscall.Umask(mask) }

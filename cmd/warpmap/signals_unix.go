//go:build unix

package main

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// ends are the signals that end a command, without those that nohup or a shell's & keep from it.
var ends = heard(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)

// heard are those signals that the process does not ignore from its start on.
func heard(all ...os.Signal) []os.Signal { return slices.DeleteFunc(all, signal.Ignored) }

// dieOf ends the process by a signal.
func dieOf(s os.Signal) {
	signal.Reset(s)
	syscall.Kill(syscall.Getpid(), s.(syscall.Signal))
	time.Sleep(time.Second) // until it has come
}

// ignoreFileLimit makes a file that may not grow an error of the write, not a crash.
func ignoreFileLimit() { signal.Ignore(syscall.SIGXFSZ) }

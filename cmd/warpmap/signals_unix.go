//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// ends are the signals that end a command.
var ends = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

// ignoreFileLimit makes a file that may not grow an error of the write, not a crash.
func ignoreFileLimit() { signal.Ignore(syscall.SIGXFSZ) }

//go:build !unix

package main

import (
	"os"
	"syscall"
)

// ends are the signals that end a command.
var ends = []os.Signal{os.Interrupt, syscall.SIGTERM}

func dieOf(os.Signal) {}

func ignoreFileLimit() {}

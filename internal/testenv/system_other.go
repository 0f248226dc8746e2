//go:build !linux && !darwin && !freebsd

package testenv

import (
	"errors"
	"time"
)

// Mkfifo is for systems that have named pipes.
func Mkfifo(string, uint32) error { return errors.ErrUnsupported }

// Umask changes nothing.
func Umask(int) (was int) { return 0 }

var began = time.Now()

// cpuTime is the time that has gone by, where the system does not tell how much of it the process computed.
func cpuTime() time.Duration { return time.Since(began) }

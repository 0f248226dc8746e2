//go:build !linux && !darwin && !freebsd

package testenv

import "errors"

// Mkfifo is for systems that have named pipes.
func Mkfifo(string, uint32) error { return errors.ErrUnsupported }

// Umask changes nothing.
func Umask(int) (was int) { return 0 }

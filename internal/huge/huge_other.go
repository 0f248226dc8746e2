//go:build !linux

package huge

// Advise does nothing: the system decides by itself.
func Advise(at, bytes uintptr) {}

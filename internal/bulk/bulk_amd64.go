//go:build !race

package bulk

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// Past tells whether Copy does more than copy does. Go's copy writes past the caches, too, but from 1 MiB on only, and
// not at all on Intel's processors from Ice Lake on. Where the race detector looks, copy is what it knows.
var Past = cpu.X86.HasAVX

// copyPast copies n bytes, a positive multiple of two lines, to where a line begins.
//
//go:noescape
func copyPast(dst, src unsafe.Pointer, n uintptr)

// Package bulk copies much memory, which nobody reads soon, from place to place.
package bulk

import "unsafe"

// least is how many bytes there must be for it to pay to begin and to end.
const least = 4 << 10

// Copy copies as many bytes as both have, which must not overlap, and leaves the caches to others. What goes to memory
// by way of a cache is first read from there, which takes up to half of a core's time, and the memory's: see Past. What
// is copied is in memory when Copy returns, so that a device can read it. A fault in either is as one in copy.
func Copy(dst, src []byte) {
	n := min(len(dst), len(src))
	if n < least || !Past {
		copy(dst, src)
		return
	}
	head := int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) & (line - 1))
	body := (n - head) &^ (2*line - 1)
	copy(dst[:head], src)
	copyPast(unsafe.Pointer(&dst[head]), unsafe.Pointer(&src[head]), uintptr(body))
	copy(dst[head+body:n], src[head+body:n])
}

// line is the bytes of a cache's line.
const line = 64

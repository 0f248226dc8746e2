// Package huge lets large memory lie on huge pages, where random accesses miss the TLB less often.
package huge

import "unsafe"

// Page is how large the pages are that the system has for large memory, on amd64 and on arm64 with pages of 4 KiB.
const Page = 2 << 20

// Slice makes a slice, on huge pages where it is large and the system has some.
func Slice[T any](n int) []T {
	s := make([]T, n)
	var one T
	if bytes := uintptr(n) * unsafe.Sizeof(one); bytes >= 2*Page {
		Advise(uintptr(unsafe.Pointer(unsafe.SliceData(s))), bytes)
	}
	return s
}

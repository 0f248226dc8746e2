package join

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/warpmap/warpmap/internal/huge"
)

// Columns come and go by the hundred, each of some megabytes. Memory that is new has to be brought in and zeroed by the
// system, page by page, while other threads do the same: so what one column had is kept for the next.

// kept is memory by size: that in kept[k] has 2^k bytes or more.
var kept [48]sync.Pool

// leastKept is how small memory may be that is kept, and spoiled whether what is given back is written over: tests
// change them, to see that nobody goes on reading it.
var (
	leastKept = 1 << 15
	spoiled   = false
)

type plainData interface {
	~uint8 | ~bool | ~int32 | ~uint32 | ~uint64 | ~int64 | ~int
}

// grab makes room for n values, which are any.
func grab[T plainData](n int) []T {
	var zero T
	size := n * int(unsafe.Sizeof(zero))
	if size < leastKept {
		return make([]T, n)
	}
	k := max(3, bits.Len(uint(size-1)))
	if at, _ := kept[k].Get().(*uint64); at != nil {
		return unsafe.Slice((*T)(unsafe.Pointer(at)), 1<<k/int(unsafe.Sizeof(zero)))[:n]
	}
	// On huge pages: they are brought in, and at the end given back, by the system in a five-hundredth of the steps.
	at := unsafe.SliceData(huge.Slice[uint64](1 << k / 8))
	return unsafe.Slice((*T)(unsafe.Pointer(at)), 1<<k/int(unsafe.Sizeof(zero)))[:n]
}

// spare gives room back that nothing refers to any more. It need not be grab's.
func spare[T plainData](s []T) {
	var zero T
	size := cap(s) * int(unsafe.Sizeof(zero))
	if size < leastKept || uintptr(unsafe.Pointer(unsafe.SliceData(s)))%8 != 0 {
		return
	}
	if spoiled {
		b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), size)
		for i := range b {
			b[i] = 0xa5
		}
	}
	kept[bits.Len(uint(size))-1].Put((*uint64)(unsafe.Pointer(unsafe.SliceData(s))))
}

// widen is slices.Grow with memory that is kept. Nothing else may refer to s.
func widen[T plainData](s []T, n int) []T {
	if len(s)+n <= cap(s) {
		return s
	}
	out := append(grab[T](max(len(s)+n, 2*cap(s)))[:0], s...)
	spare(s)
	return out
}

// spare gives a vec's memory back, but not its dictionary's, which others may have.
func (v *vec) spare() {
	spare(v.fixed)
	spare(v.codes)
	spare(v.text)
	spare(v.ends)
	spare(v.valid)
	*v = vec{}
}

// pageMemory is the memory of pages, as they are read. What is in it was copied when the next page is read.
type pageMemory struct{ bounded }

var pageAllocator memory.Allocator = pageMemory{allocator}

func (p pageMemory) Allocate(size int) []byte {
	p.check(size)
	return grab[byte](size)
}

func (p pageMemory) Reallocate(size int, old []byte) []byte {
	p.check(size)
	if size <= cap(old) {
		return old[:size]
	}
	return widen(old, size-len(old))[:size]
}

func (pageMemory) Free(b []byte) { spare(b) }

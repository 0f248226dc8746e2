package frame_test

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/warpmap/warpmap/internal/frame"
)

// A fault in the caller's memory is a panic in the caller's goroutine, though another one copies.
func TestStageFault(t *testing.T) {
	d := openCPU(t)
	frame.TuneStaging(d, 1<<20, 0, 16<<10, 2)
	s := newStage(t, d)
	const size, n = 4 << 20, 4 << 20 / 4
	mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	must(t, err)
	defer syscall.Munmap(mem)
	zeros := unsafe.Slice((*uint32)(unsafe.Pointer(&mem[0])), n)
	in, out := oddNumbers(n), odd[uint32](n)
	fault := func(n int, cols ...frame.Column) {
		t.Helper()
		defer func() {
			x := recover()
			e, ok := x.(interface{ Addr() uintptr })
			if from := uintptr(unsafe.Pointer(&mem[0])); !ok || e.Addr() < from || e.Addr() >= from+size {
				t.Errorf("recovered %v", x)
			}
			if made, idle := frame.StagingSlots(d); made != idle {
				t.Errorf("of %d slots, %d are given back", made, idle)
			}
		}()
		t.Errorf("Run returns %v", s.Run(n, cols, double))
	}
	fault(n, frame.In(in), frame.Out(zeros))          // cannot be written
	fault(100, frame.In(in[:100]), frame.Out(zeros))  // nor at once
	must(t, syscall.Mprotect(mem, syscall.PROT_NONE)) // nor read
	fault(n, frame.In(zeros), frame.Out(out))         //
	fault(100, frame.In(zeros[:100]), frame.Out(out)) //
	must(t, s.Run(n, []frame.Column{frame.In(in), frame.Out(out)}, double))
	isDouble(t, in, out)
	nothingLeft(t, d)
}

//go:build amd64 || arm64

package dl

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is the kernel's struct of that name.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

const (
	signals   = 64
	ignored   = 1          // SIG_DFL is 0, SIG_IGN 1; what is greater is a function
	onStack   = 0x08000000 // SA_ONSTACK
	maskBytes = 8
)

var kept struct {
	sync.Mutex
	calls  int // that run now
	before [signals + 1]sigaction
}

// KeepSignals calls a function that calls a library which may set handlers of signals, and sets back Go's own. A library
// that takes a signal for itself, and gives it back by signal(2), leaves Go's handler without SA_ONSTACK: the next signal
// then comes on the stack of a goroutine, on which the runtime throws. Several may run at once.
func KeepSignals(f func()) {
	kept.Lock()
	if kept.calls == 0 {
		for s := 1; s <= signals; s++ {
			rtSigaction(s, nil, &kept.before[s])
		}
	}
	kept.calls++
	kept.Unlock()
	defer func() {
		kept.Lock()
		defer kept.Unlock()
		kept.calls--
		for s := 1; s <= signals; s++ {
			var now sigaction
			before := &kept.before[s]
			rtSigaction(s, nil, &now)
			if before.handler > ignored && before.flags&onStack != 0 && now.handler > ignored && now.flags&onStack == 0 {
				rtSigaction(s, before, nil)
			}
		}
	}()
	f()
}

func rtSigaction(signal int, set, get *sigaction) {
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(signal), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)),
		maskBytes, 0, 0)
}

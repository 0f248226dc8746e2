package syscalls

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

var older map[uint64]form

// skip has the system make no call, at its entry.
func skip(tid int) error {
	const systemCall = 0x404 // NT_ARM_SYSTEM_CALL
	none := int32(-1)
	iov := unix.Iovec{Base: (*byte)(unsafe.Pointer(&none)), Len: 4}
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SETREGSET, uintptr(tid), systemCall,
		uintptr(unsafe.Pointer(&iov)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// answer sets what a call returns, at its exit.
func answer(tid int, errno unix.Errno) error {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &r); err != nil {
		return err
	}
	r.Regs[0] = -uint64(errno)
	return unix.PtraceSetRegs(tid, &r)
}

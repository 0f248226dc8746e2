package device

import "syscall"

const anonymous = syscall.MAP_PRIVATE | syscall.MAP_ANON | syscall.MAP_NORESERVE

// mmap maps memory that can be used, or addresses alone, which mprotect makes memory of.
func mmap(n int64, used bool) (uintptr, error) {
	prot := syscall.PROT_NONE
	if used {
		prot = syscall.PROT_READ | syscall.PROT_WRITE
	}
	return mmapAt(0, n, prot, anonymous)
}

// forget makes mapped memory zeros, and gives it back.
func forget(p uintptr, n int64) error {
	if _, _, e := syscall.Syscall(syscall.SYS_MADVISE, p, uintptr(n), syscall.MADV_DONTNEED); e != 0 {
		return e
	}
	return nil
}

// mmapAnew makes addresses alone of what is mapped.
func mmapAnew(p uintptr, n int64) error {
	_, err := mmapAt(p, n, syscall.PROT_NONE, anonymous|syscall.MAP_FIXED)
	return err
}

func mmapAt(p uintptr, n int64, prot, flags int) (uintptr, error) {
	p, _, e := syscall.Syscall6(syscall.SYS_MMAP, p, uintptr(n), uintptr(prot), uintptr(flags), ^uintptr(0), 0)
	if e != 0 {
		return 0, e
	}
	return p, nil
}

func munmap(p uintptr, n int64) error {
	if _, _, e := syscall.Syscall(syscall.SYS_MUNMAP, p, uintptr(n), 0); e != 0 {
		return e
	}
	return nil
}

func mprotect(p, n uintptr) error {
	if _, _, e := syscall.Syscall(syscall.SYS_MPROTECT, p, n, syscall.PROT_READ|syscall.PROT_WRITE); e != 0 {
		return e
	}
	return nil
}

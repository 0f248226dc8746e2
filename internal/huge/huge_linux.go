package huge

import "syscall"

// Advise asks for huge pages for those that lie within memory whole.
func Advise(at, bytes uintptr) {
	from, to := (at+Page-1)&^(Page-1), (at+bytes)&^(Page-1)
	if from < to {
		syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_HUGEPAGE)
	}
}

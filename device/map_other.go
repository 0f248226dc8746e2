//go:build !linux

package device

func mmap(int64, bool) (uintptr, error) { return 0, errSystem }
func forget(uintptr, int64) error       { return errSystem }
func mmapAnew(uintptr, int64) error     { return errSystem }
func munmap(uintptr, int64) error       { return errSystem }
func mprotect(uintptr, uintptr) error   { return errSystem }

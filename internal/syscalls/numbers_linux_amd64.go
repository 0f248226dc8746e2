package syscalls

import "golang.org/x/sys/unix"

// Calls that newer systems do by others.
var older = map[uint64]form{
	unix.SYS_OPEN:   {name: "open", path: 1, flags: 2},
	unix.SYS_CREAT:  {name: "open", path: 1},
	unix.SYS_RENAME: {name: "rename", path: 1},
	unix.SYS_LINK:   {name: "link", path: 1},
	unix.SYS_UNLINK: {name: "unlink", path: 1},
	unix.SYS_MKDIR:  {name: "mkdir", path: 1},
	unix.SYS_RMDIR:  {name: "rmdir", path: 1},
}

// skip has the system make no call, at its entry.
func skip(tid int) error {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &r); err != nil {
		return err
	}
	r.Orig_rax = ^uint64(0)
	return unix.PtraceSetRegs(tid, &r)
}

// answer sets what a call returns, at its exit.
func answer(tid int, errno unix.Errno) error {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &r); err != nil {
		return err
	}
	r.Rax = -uint64(errno)
	return unix.PtraceSetRegs(tid, &r)
}

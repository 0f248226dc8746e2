//go:build amd64 || arm64

package syscalls

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// form says which arguments of a call name a file, counted from 1: a path, the folder that it begins in, or a
// descriptor.
type form struct {
	name              string
	path, folder, fd  int
	flags, protection int  // of an open; of a mapping, whose flags come behind
	reads             bool // changes no file
}

var forms = map[uint64]form{
	unix.SYS_OPENAT:    {name: "open", folder: 1, path: 2, flags: 3},
	unix.SYS_RENAMEAT:  {name: "rename", folder: 1, path: 2},
	unix.SYS_RENAMEAT2: {name: "rename", folder: 1, path: 2},
	unix.SYS_LINKAT:    {name: "link", folder: 1, path: 2},
	unix.SYS_UNLINKAT:  {name: "unlink", folder: 1, path: 2},
	unix.SYS_MKDIRAT:   {name: "mkdir", folder: 1, path: 2},

	unix.SYS_READ:            {name: "read", fd: 1, reads: true},
	unix.SYS_PREAD64:         {name: "read", fd: 1, reads: true},
	unix.SYS_READV:           {name: "read", fd: 1, reads: true},
	unix.SYS_WRITE:           {name: "write", fd: 1},
	unix.SYS_PWRITE64:        {name: "write", fd: 1},
	unix.SYS_WRITEV:          {name: "write", fd: 1},
	unix.SYS_PWRITEV:         {name: "write", fd: 1},
	unix.SYS_SENDFILE:        {name: "write", fd: 1},
	unix.SYS_COPY_FILE_RANGE: {name: "write", fd: 3},
	unix.SYS_FTRUNCATE:       {name: "truncate", fd: 1},
	unix.SYS_FALLOCATE:       {name: "allocate", fd: 1},
	unix.SYS_FCHMOD:          {name: "chmod", fd: 1},
	unix.SYS_FSYNC:           {name: "sync", fd: 1},
	unix.SYS_FDATASYNC:       {name: "sync", fd: 1},
	unix.SYS_MMAP:            {name: "map", fd: 5, protection: 3},
}

// stop is what the system tells of a call where it stops: struct ptrace_syscall_info.
type stop struct {
	op   uint8
	_    [3]uint8
	arch uint32
	_    [2]uint64
	nr   uint64
	args [6]uint64
	_    [3]uint64
}

const (
	callInfo  = 0x420e // PTRACE_GET_SYSCALL_INFO
	atEntry   = 1
	callStops = unix.SIGTRAP | 0x80
)

func (t *Trace) run(cmd *exec.Cmd) error {
	runtime.LockOSThread() // a thread traces, not a process
	defer runtime.UnlockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// By its group its threads are told from other processes of the caller's.
	cmd.SysProcAttr.Ptrace, cmd.SysProcAttr.Setpgid = true, true
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("ptrace: %w", err)
	}
	defer cmd.Process.Release()
	pid := cmd.Process.Pid
	kill := func() { unix.Kill(pid, unix.SIGKILL) }
	if _, err := wait(pid, &t.State); err != nil {
		return err
	}
	err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL)
	if err == nil {
		err = unix.PtraceSyscall(pid, 0)
	}
	if err != nil {
		kill()
		return fmt.Errorf("ptrace: %w", err)
	}
	failing, born := 0, map[int]bool{pid: true}
	for {
		tid, err := wait(-pid, &t.State)
		if err != nil {
			return err
		}
		if !t.State.Stopped() {
			if tid == pid {
				return nil
			}
			continue
		}
		deliver := t.State.StopSignal()
		switch {
		case deliver == callStops:
			deliver = 0
			if failing == tid {
				failing = 0
				err = answer(tid, t.Errno)
				break
			}
			c, ok := at(pid, tid)
			if !ok || !t.counts(c) {
				break
			}
			t.Seen = append(t.Seen, c)
			switch len(t.Seen) {
			case t.Kill:
				kill()
				continue
			case t.Fail:
				failing = tid
				err = skip(tid)
			}
		case deliver == unix.SIGTRAP: // a new thread, or an exec
			deliver = 0
		case deliver == unix.SIGSTOP && !born[tid]: // that of a thread that begins
			born[tid] = true
			deliver = 0
		}
		if err == nil {
			err = unix.PtraceSyscall(tid, int(deliver))
		}
		if err != nil && err != unix.ESRCH { // which is dead
			kill()
			return fmt.Errorf("ptrace: %w", err)
		}
	}
}

func wait(pid int, state *syscall.WaitStatus) (tid int, err error) {
	for {
		tid, err = syscall.Wait4(pid, state, unix.WALL, nil)
		if err != unix.EINTR {
			return tid, err
		}
	}
}

// at tells of the call at whose entry a thread has stopped; false: it is at an exit, or of no file.
func at(pid, tid int) (c Call, ok bool) {
	var s stop
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, callInfo, uintptr(tid), unsafe.Sizeof(s),
		uintptr(unsafe.Pointer(&s)), 0, 0)
	if errno != 0 || s.op != atEntry {
		return c, false
	}
	f, ok := forms[s.nr]
	if !ok {
		f, ok = older[s.nr]
	}
	if !ok {
		return c, false
	}
	arg := func(i int) uint64 { return s.args[i-1] }
	c = Call{Name: f.name, Reads: f.reads}
	if f.flags > 0 {
		c.Reads = arg(f.flags)&(unix.O_CREAT|unix.O_TRUNC|unix.O_TMPFILE&^unix.O_DIRECTORY) == 0
	}
	if f.protection > 0 && (arg(f.protection)&unix.PROT_WRITE == 0 || arg(f.protection+1)&unix.MAP_SHARED == 0) {
		return c, false
	}
	descriptor := func(i int) string {
		path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, int32(arg(i))))
		return strings.TrimSuffix(path, " (deleted)")
	}
	if f.path == 0 {
		c.Path = descriptor(f.fd)
		return c, strings.HasPrefix(c.Path, "/")
	}
	c.Path = text(pid, arg(f.path))
	if !filepath.IsAbs(c.Path) {
		folder := ""
		if f.folder > 0 && int32(arg(f.folder)) != unix.AT_FDCWD {
			folder = descriptor(f.folder)
		} else {
			folder, _ = os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		}
		c.Path = filepath.Join(folder, c.Path)
	}
	return c, true
}

// text reads a C string of the program.
func text(pid int, addr uint64) string {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return ""
	}
	defer f.Close()
	buffer := make([]byte, unix.PathMax)
	n, _ := f.ReadAt(buffer, int64(addr))
	name, _, _ := bytes.Cut(buffer[:n], []byte{0})
	return string(name)
}

package main

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// limitFiles has the system refuse to let files of this process grow beyond so many bytes.
func limitFiles(bytes uint64) error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
		return err
	}
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: l.Max})
}

// moreRoom ends the bound of files of another process.
func moreRoom(pid int) error {
	var l unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &l); err != nil {
		return err
	}
	l.Cur = l.Max
	return unix.Prlimit(pid, unix.RLIMIT_FSIZE, &l, nil)
}

// ownGroup gives the command a group of processes, which killAll ends: the command and what it started.
func ownGroup(cmd *exec.Cmd) (killAll func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

package main

import (
	"os/exec"
	"syscall"
)

// limitFiles has the system refuse to let files of this process grow beyond so many bytes.
func limitFiles(bytes uint64) error {
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: bytes})
}

// ownGroup gives the command a group of processes, which killAll ends: the command and what it started.
func ownGroup(cmd *exec.Cmd) (killAll func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

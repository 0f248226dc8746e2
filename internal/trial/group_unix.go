//go:build linux || darwin || freebsd

package main

import (
	"os/exec"
	"syscall"
)

// apart has a command, and all that it starts, be a group of its own: Ctrl-C does not reach it.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// askStacks has a Go program print the stacks of all goroutines, and end.
func askStacks(cmd *exec.Cmd) { cmd.Process.Signal(syscall.SIGQUIT) }

// endGroup ends the command and all that it has started.
func endGroup(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

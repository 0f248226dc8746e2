package shard

import (
	"os/exec"
	"syscall"
)

// endWithThread has the command get a signal to end when the thread that starts it ends.
func endWithThread(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}

// Package syscalls is how tests kill a program at the n-th system call by which it changes files, or make that call
// fail: they run it under ptrace. So all moments at which a program can be killed come in turn, and every file of
// every library fails in one place, the system. It is for Linux on amd64 and arm64.
package syscalls

import (
	"os/exec"
	"strings"
	"syscall"
)

// Call is a system call on a file.
type Call struct {
	Name  string // "rename"
	Path  string // of the file, or of the open one; of a rename the old name
	Reads bool   // it opens or reads a file, and changes none
}

// Trace says what becomes of a program. Calls are counted from 1. The zero value counts only.
type Trace struct {
	Under string             // only calls on files in this folder count
	Kill  int                // the program is killed at this call, which is not made
	Fail  int                // this call is not made, and returns
	Errno syscall.Errno      // this error
	Which func(c Call) bool  // only these calls count; nil: those that do not read
	Seen  []Call             // the calls that counted, in order
	State syscall.WaitStatus // how the program ended
}

// counts tells whether a call is one to count.
func (t *Trace) counts(c Call) bool {
	if !strings.HasPrefix(c.Path, t.Under) {
		return false
	}
	if t.Which != nil {
		return t.Which(c)
	}
	return !c.Reads
}

// Run starts the command and returns when it has ended. What the command writes must go to files. Errors: ptrace is not
// permitted, or not there.
func (t *Trace) Run(cmd *exec.Cmd) error { return t.run(cmd) }

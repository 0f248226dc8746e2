package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// inGroup starts a shell as the leader of a process group, with more in its environment. out ends when all processes
// of the group have ended.
func inGroup(t *testing.T, script string, env ...string) (leader *exec.Cmd, out *os.File) {
	t.Helper()
	p := exec.Command("sh", "-c", script)
	p.Env = append(p.Environ(), env...)
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stdout = w
	if err := errors.Join(p.Start(), w.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-p.Process.Pid, syscall.SIGKILL); out.Close() })
	return p, out
}

// The number of a rank that has ended may be another process's now, which gets no signal. What the rank has left in its
// group gets it, and so does the group of a rank that goes on.
func TestNoSignalToStrangers(t *testing.T) {
	const mark = "WARPMAP_TOKEN=of this test"
	stranger, _ := inGroup(t, "exec sleep 60")
	running, _ := inGroup(t, "exec sleep 60", mark)
	leaver, out := inGroup(t, "while :; do sleep 1; done & exit 0", mark) // no exec, in which a process has no environment
	if err := leaver.Wait(); err != nil {
		t.Fatal(err)
	}
	left := leaver.Process.Pid // the group of its loop
	if err := syscall.Kill(-left, 0); err != nil {
		t.Fatalf("nothing is left of the group: %v", err)
	}
	r := newRanks(mark, nil)
	r.started = []*exec.Cmd{stranger, running, leaver}
	r.ended(0) // as if its number had gone to a stranger
	r.ended(2)
	r.tell(syscall.SIGKILL)
	if err := running.Wait(); err == nil || !killed(err) {
		t.Errorf("a rank that goes on got no signal: %v", err)
	}
	if err := out.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a process that a rank has left got no signal: %v", err)
	}
	if err := stranger.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("the stranger is gone: %v", err)
	}
	if err, status := stranger.Wait(), stranger.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
		t.Errorf("the stranger ended by %v, not by this test's SIGTERM: %v", status.Signal(), err)
	}
}

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/warpmap/warpmap/internal/crash"
)

// lastWord is how long a process has to end after a signal, before it is killed: less than the command's own patience.
// What is left over is for the kill itself on a busy machine.
const lastWord = patience / 2

// run starts the processes, and returns when all have ended, with the error of the one that failed first.
func (l *launched) run(cmd *cobra.Command, args []string) error {
	mark := "WARPMAP_TOKEN=" + rand.Text()
	env, err := l.environment(mark)
	if err != nil {
		return err
	}
	// The kernel kills the ranks when the thread that started them ends: with this process, and not before.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, heard(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGQUIT)...)
	defer signal.Stop(signals)

	out, errs := shared(cmd.OutOrStdout()), shared(cmd.ErrOrStderr())
	processes := newRanks(mark, cmd.InOrStdin())
	type end struct {
		rank int
		err  error
	}
	ends := make(chan end, l.n)
	var wg crash.WaitGroup
	defer wg.Wait()
	running := 0
	defer func() {
		if running > 0 { // a panic, or a process that could not be started
			processes.tell(syscall.SIGKILL)
		}
	}()
	for rank := range l.n {
		p := exec.Command(args[0], args[1:]...)
		p.Env = append(env, "RANK="+strconv.Itoa(rank), "LOCAL_RANK="+strconv.Itoa(rank))
		p.Stdout, p.Stderr = out, errs
		// Signals of the terminal come through here, once.
		p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
		if rank == 0 {
			p.Stdin = cmd.InOrStdin()
			p.SysProcAttr.Setpgid = processes.terminal == nil // who reads a terminal must be in the group that has it
		}
		if rank == 1 { // ranks behind the first inherit this: a terminal would stop who writes and is not in front
			signal.Ignore(syscall.SIGTTOU)
			defer signal.Reset(syscall.SIGTTOU)
		}
		if err := p.Start(); err != nil {
			return fmt.Errorf("starting rank %d: %w", rank, err)
		}
		processes.started = append(processes.started, p)
		running++
		wg.Go(func() { ends <- end{rank, p.Wait()} })
	}

	var first error
	var grace, last <-chan time.Time
	signaled, ending := false, false // first is of a signal; signals of this process have gone to all
	var told, early []os.Signal      // these, and those that have yet to come through the channel
	interrupted := cmd.Context().Done()
	for running > 0 {
		select {
		case e := <-ends:
			running--
			processes.ended(e.rank)
			// One that was killed may be waited for only after others have ended because of it.
			if e.err != nil && (first == nil || !signaled && !ending && killed(e.err)) {
				first, signaled = fmt.Errorf("rank %d: %s: %w", e.rank, args[0], e.err), killed(e.err)
				if grace == nil {
					grace = time.After(l.grace)
				}
			}
		case s := <-signals:
			if ending = true; slices.Contains(early, s) {
				early = nil
				continue
			}
			told = append(told, s)
			processes.tell(s.(syscall.Signal))
		case <-interrupted: // by a signal, which the ranks are to have before they are told to end, or otherwise
			interrupted, ending = nil, true
			cause, by := context.Cause(cmd.Context()), (*signalError)(nil)
			if errors.As(cause, &by) && !slices.Contains(told, by.Signal) {
				early = []os.Signal{by.Signal}
				processes.tell(by.Signal.(syscall.Signal))
			}
			first = cmp.Or(first, cause)
			processes.tell(syscall.SIGTERM)
			last = time.After(lastWord)
		case <-grace:
			ending = true
			processes.tell(syscall.SIGTERM)
			last = time.After(lastWord)
		case <-last:
			processes.tell(syscall.SIGKILL)
		}
	}
	if first != nil {
		processes.tell(syscall.SIGKILL) // what ranks have left behind
	}
	return first
}

// killed tells whether a process ended by a signal.
func killed(err error) bool {
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}

// turns lets several write to one writer.
type turns struct {
	mu sync.Mutex
	w  io.Writer
}

func (t *turns) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.w.Write(p)
}

// shared is a writer for several processes; they write to a file themselves.
func shared(w io.Writer) io.Writer {
	switch w := w.(type) {
	case *os.File:
		return w
	case *stdout:
		return w.to
	}
	return &turns{w: w}
}

// ranks are the processes of a job, each with a group of its own, but for rank 0 where it reads a terminal: that is in
// this process's group.
type ranks struct {
	started  []*exec.Cmd
	gone     map[int]bool // ranks that have been waited for, whose numbers may be other processes' by now
	terminal *os.File     // that rank 0 reads; nil: none
	mark     string       // in the environment of all, and of what they start
}

// newRanks returns the ranks of a job whose rank 0 reads from in. None is started.
func newRanks(mark string, in io.Reader) *ranks {
	r := &ranks{mark: mark, gone: map[int]bool{}}
	if f, ok := in.(*os.File); ok && terminal(f) {
		r.terminal = f
	}
	return r
}

// ended notes that a rank has been waited for.
func (r *ranks) ended(rank int) { r.gone[rank] = true }

// tell sends a signal to the processes and all that they started: to rank 0 last, which may take a walk through /proc.
func (r *ranks) tell(s syscall.Signal) {
	for rank, p := range slices.Backward(r.started) {
		switch {
		case rank == 0 && r.terminal != nil:
			r.tellFirst(p, s)
		case !r.gone[rank]:
			syscall.Kill(-p.Process.Pid, s)
		case syscall.Kill(-p.Process.Pid, 0) == nil:
			r.tellMarked(p.Process.Pid, s)
		}
	}
}

// tellFirst tells rank 0 and what it started, where it is in this process's group, in which there may be others.
func (r *ranks) tellFirst(p *exec.Cmd, s syscall.Signal) {
	own := syscall.Getpgrp()
	if s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGHUP {
		front, err := unix.IoctlGetUint32(int(r.terminal.Fd()), unix.TIOCGPGRP)
		if err == nil && int(front) == own {
			return // the terminal has told the whole group
		}
	}
	p.Process.Signal(s)
	r.tellMarked(own, s, p.Process.Pid, os.Getpid())
}

// tellMarked sends a signal to those processes of a group that have the job's mark, but to none of the others.
func (r *ranks) tellMarked(group int, s syscall.Signal, others ...int) {
	processes, _ := os.ReadDir("/proc")
	for _, e := range processes {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || slices.Contains(others, pid) {
			continue
		}
		if of, err := syscall.Getpgid(pid); err != nil || of != group {
			continue
		}
		env, _ := os.ReadFile("/proc/" + e.Name() + "/environ")
		if slices.Contains(strings.Split(string(env), "\x00"), r.mark) {
			syscall.Kill(pid, s)
		}
	}
}

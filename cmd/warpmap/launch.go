package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
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

// launched is a job on this host.
type launched struct {
	n     int
	grace time.Duration // how long the others may take to end by themselves when one failed
}

func launchCommand() *cobra.Command {
	var l launched
	cmd := &cobra.Command{
		Use:   "launch -n N -- COMMAND [ARGUMENT …]",
		Short: "Start a process for each GPU of this host, as members of one job",
		Long: `Start a command N times, with the variables of torchrun set: RANK and LOCAL_RANK from 0 on, WORLD_SIZE,
and MASTER_ADDR and MASTER_PORT, where rank 0 is to listen; and a token in WARPMAP_TOKEN that keeps others out. Go
programs join by shard.Join.

Signals go to all. When one process fails, the others may end by themselves, for they say which rank is gone; those that
have not after --grace are ended, with what they have started. If launch itself is killed (kill -9) so are all ranks,
but not what they have started. The exit code is 0 if all processes end with 0.

Rank 0 has launch's standard input. If that is a terminal, Ctrl-Z stops rank 0, too, and other members of a job take it
for gone after a few seconds.`,
		Example: "  warpmap launch -n 4 -- warpmap bench --devices joined --n 250000000 --load 0.8\n  warpmap launch " +
			"-n 2 -- env",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if l.n < 1 || l.n > 1024 {
				return fmt.Errorf("-n %d: want 1 to 1024 processes", l.n)
			}
			if l.grace < 0 {
				return fmt.Errorf("--grace %v: want 0s or more", l.grace)
			}
			return l.run(cmd, args)
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().IntVarP(&l.n, "processes", "n", 1, "how many processes to start")
	cmd.Flags().DurationVar(&l.grace, "grace", 10*time.Second, "how long processes may go on when one has failed")
	return cmd
}

// lastWord is how long a process has to end after a signal, before it is killed: less than the command's own patience.
// What is left over is for the kill itself on a busy machine.
const lastWord = patience / 2

// onItsWay is how long a signal may take from the context that it ends to the channel that it comes through.
const onItsWay = 20 * time.Millisecond

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
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGQUIT)
	defer signal.Stop(signals)

	out, errs := shared(cmd.OutOrStdout()), shared(cmd.ErrOrStderr())
	processes := ranks{mark: mark}
	if f, ok := cmd.InOrStdin().(*os.File); ok && terminal(f) {
		processes.terminal = f
	}
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
	interrupted := cmd.Context().Done()
	for running > 0 {
		select {
		case e := <-ends:
			running--
			if e.err != nil && first == nil {
				first = fmt.Errorf("rank %d: %s: %w", e.rank, args[0], e.err)
				grace = time.After(l.grace)
			}
		case s := <-signals:
			processes.tell(s.(syscall.Signal))
		case <-interrupted: // by a signal, which the ranks are to have before they are told to end, or otherwise
			interrupted = nil
			select {
			case s := <-signals:
				processes.tell(s.(syscall.Signal))
			case <-time.After(onItsWay):
			}
			first = cmp.Or(first, context.Cause(cmd.Context()))
			processes.tell(syscall.SIGTERM)
			last = time.After(lastWord)
		case <-grace:
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
	if f, ok := w.(*os.File); ok {
		return f
	}
	return &turns{w: w}
}

// ranks are the processes of a job, each with a group of its own, but for rank 0 where it reads a terminal: that is in
// this process's group.
type ranks struct {
	started  []*exec.Cmd
	terminal *os.File // that rank 0 reads; nil: none
	mark     string   // in the environment of all, and of what they start
}

// tell sends a signal to the processes and all that they started: to rank 0 last, which may take a walk through /proc.
func (r *ranks) tell(s syscall.Signal) {
	for rank, p := range slices.Backward(r.started) {
		if rank == 0 && r.terminal != nil {
			r.tellFirst(p, s)
			continue
		}
		syscall.Kill(-p.Process.Pid, s) // one that has ended is no harm
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
	processes, _ := os.ReadDir("/proc")
	for _, e := range processes {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == p.Process.Pid || pid == os.Getpid() {
			continue
		}
		if group, err := syscall.Getpgid(pid); err != nil || group != own {
			continue
		}
		env, _ := os.ReadFile("/proc/" + e.Name() + "/environ")
		if slices.Contains(strings.Split(string(env), "\x00"), r.mark) {
			syscall.Kill(pid, s)
		}
	}
}

// environment is what all processes have, with the job's mark.
func (l *launched) environment(mark string) ([]string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err = errors.Join(err, listener.Close()); err != nil {
		return nil, err
	}
	env := append(os.Environ(), "WORLD_SIZE="+strconv.Itoa(l.n), "LOCAL_WORLD_SIZE="+strconv.Itoa(l.n),
		"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port, mark)
	if _, set := os.LookupEnv("NCCL_NVLS_ENABLE"); !set {
		env = append(env, "NCCL_NVLS_ENABLE=0")
	}
	return env, nil
}

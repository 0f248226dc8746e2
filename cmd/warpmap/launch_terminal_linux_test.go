package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/warpmap/warpmap/internal/testenv"
)

// pty opens a terminal: what is written to keys is typed there.
func pty(t *testing.T) (keys, screen *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	testenv.Require(t, "a terminal", err)
	t.Cleanup(func() { keys.Close() })
	n, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	testenv.Require(t, "a terminal", err)
	t.Cleanup(func() { screen.Close() })
	return keys, screen
}

// launches is the command in a process of its own, at a terminal if there is one.
func launches(t *testing.T, screen *os.File, script string, flags ...string) (*exec.Cmd, chan error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append(append([]string{"launch"}, flags...), "--", "sh", "-c", script)...)
	cmd.Env = append(os.Environ(), "WARPMAP_TEST_COMMAND=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if screen != nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr.Setctty = screen, screen, screen, true
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, ended
}

// number is what a process has written to a file: a process, which is ended when the test is.
func number(t *testing.T, name string) int {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if text, err := os.ReadFile(name); err == nil && strings.HasSuffix(string(text), "\n") {
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
			return pid
		}
	}
	t.Fatalf("no process has written %s", name)
	return 0
}

// gone waits until a process has ended, whether somebody has asked how or not.
func gone(pid int) bool {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, state, _ := bytes.Cut(stat, []byte(") ")); err != nil || bytes.HasPrefix(state, []byte("Z")) {
			return true
		}
	}
	return false
}

// A launch that is killed takes its ranks with it.
func TestLaunchKilled(t *testing.T) {
	dir := t.TempDir()
	cmd, ended := launches(t, nil, "echo $$ >"+dir+"/$RANK; exec sleep 60", "-n", "3")
	var ranks []int
	for rank := range 3 {
		ranks = append(ranks, number(t, filepath.Join(dir, strconv.Itoa(rank))))
	}
	cmd.Process.Kill()
	<-ended
	for rank, pid := range ranks {
		if !gone(pid) {
			t.Errorf("rank %d runs on", rank)
		}
	}
}

// Rank 0 reads the terminal, and the others read nothing.
func TestLaunchReadsTerminal(t *testing.T) {
	dir := t.TempDir()
	keys, screen := pty(t)
	_, ended := launches(t, screen, "read x; echo $RANK: $x >"+dir+"/$RANK", "-n", "2", "--grace", "30s")
	if _, err := keys.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("launch waits")
	}
	for rank, want := range []string{"0: hello\n", "1:\n"} {
		if text, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(rank))); err != nil || string(text) != want {
			t.Errorf("rank %d: %q, %v", rank, text, err)
		}
	}
}

// A terminal at which only those in front may write (stty tostop) stops no rank.
func TestLaunchWritesToTerminal(t *testing.T) {
	_, screen := pty(t)
	modes, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
	if err == nil {
		modes.Lflag |= unix.TOSTOP
		err = unix.IoctlSetTermios(int(screen.Fd()), unix.TCSETS, modes)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, ended := launches(t, screen, "echo $$ >"+dir+"/$RANK; echo I am rank $RANK", "-n", "2")
	for _, rank := range []string{"0", "1"} {
		number(t, filepath.Join(dir, rank))
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("launch waits")
	}
}

// Ranks have a signal before they are told to end, and once, also where it comes to the command's context first, and to
// launch much later, when the thread that brings it has a core again.
func TestLaunchIsToldLate(t *testing.T) {
	came := make(chan os.Signal, 1) // it must not end this test
	signal.Notify(came, os.Interrupt)
	defer signal.Stop(came)
	ctx, cancel := context.WithCancelCause(t.Context())
	dir := t.TempDir()
	go func() {
		waitForFiles(dir, "0.runs", "1.runs")
		cancel(&signalError{os.Interrupt})
		time.Sleep(300 * time.Millisecond)
		syscall.Kill(os.Getpid(), syscall.SIGINT)
	}()
	_, err := launch(ctx, `cd `+dir+`
		for s in INT TERM; do trap "echo $s >>$RANK" $s; done
		>$RANK.runs
		while :; do sleep 0.02; done`, "-n", "2")
	if err == nil {
		t.Error("it was interrupted, and ended well")
	}
	for _, rank := range []string{"0", "1"} {
		if told, err := os.ReadFile(filepath.Join(dir, rank)); err != nil || string(told) != "INT\nTERM\n" {
			t.Errorf("rank %s was told %q, %v", rank, told, err)
		}
	}
	<-came
}

// An interrupt of the terminal reaches each rank, and ends what ranks have started, also what ignores it.
func TestLaunchInterruptedAtTerminal(t *testing.T) {
	dir := t.TempDir()
	keys, screen := pty(t)
	_, ended := launches(t, screen, `
		trap 'echo >>`+dir+`/$RANK.int' INT
		trap 'exit 1' TERM
		sh -c 'trap "" INT TERM; echo $$ >`+dir+`/$RANK.child; while :; do sleep 60; done' &
		echo $$ >`+dir+`/$RANK
		while :; do sleep 0.02; done`, "-n", "2")
	var all []int
	for _, name := range []string{"0", "1", "0.child", "1.child"} {
		all = append(all, number(t, filepath.Join(dir, name)))
	}
	if _, err := keys.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it was interrupted, and ended well")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("launch waits")
	}
	for i, pid := range all {
		if !gone(pid) {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			t.Errorf("process %d of 4 runs on: %s", i, stat)
		}
	}
	for _, rank := range []string{"0", "1"} {
		if told, err := os.ReadFile(filepath.Join(dir, rank+".int")); err != nil || string(told) != "\n" {
			t.Errorf("rank %s was interrupted %d times, %v", rank, len(told), err)
		}
	}
}

package device

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

var signalPrograms = [2]*Program{signalProgram("signals1"), signalProgram("signals2")}

// signalProgram has a kernel that says that it runs, and waits for leave to end; and one that writes where nothing is.
func signalProgram(name string) *Program {
	return &Program{Name: name, Files: []File{{Name: name + ".cu", Text: `
#include "warpmap.cuh"
#include "layout.h"
WARPMAP_KERNEL(waits, device::HostLaunch) {
    store_relaxed(at<u32>(p.params), 1u);
    while (!load_relaxed(at<u32>(p.params + 4))) pause();
}
WARPMAP_KERNEL(writes, device::HostLaunch) { store_relaxed(at<u32>(p.params), 1u); }
`}}}
}

func signalKernel(t *testing.T, d *Device, p *Program, name string) Kernel[HostLaunch] {
	t.Helper()
	m, err := d.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	k, err := KernelOf[HostLaunch](m, name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// A signal that somebody sends to a thread is none of the kernel that the thread runs: it goes to the program.
func TestSentSignalsAreNoFaults(t *testing.T) {
	d := openHere(t)
	flags, err := MakeMapped[uint32](d, 2)
	if err != nil {
		t.Fatal(err)
	}
	running, leave := &flags.Slice()[0], &flags.Slice()[1]
	k := signalKernel(t, d, signalPrograms[0], "waits")
	came := make(chan os.Signal, 1)
	signal.Notify(came, syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE)
	defer signal.Stop(came)
	thread, done := make(chan int, 1), make(chan error)
	go func() {
		runtime.LockOSThread() // which runs the only block
		thread <- unix.Gettid()
		done <- k.Launch(nil, Grid{Blocks: 1, Threads: 32}, &HostLaunch{Params: flags.Mapped().Addr()})
	}()
	id := <-thread
	for atomic.LoadUint32(running) == 0 {
		time.Sleep(time.Millisecond)
		select {
		case err := <-done:
			t.Fatal(err)
		default:
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE} {
		if err := unix.Tgkill(unix.Getpid(), id, sig); err != nil {
			t.Error(err)
		}
		select {
		case got := <-came:
			if got != sig {
				t.Errorf("%v came in the place of %v", got, sig)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%v does not come", sig)
		}
	}
	atomic.StoreUint32(leave, 1)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// handlerOf is the address of the function that handles a signal.
func handlerOf(t *testing.T, sig syscall.Signal) uint64 {
	t.Helper()
	var action [4]uint64 // the kernel's struct sigaction
	if _, _, e := unix.Syscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&action)), 8, 0, 0); e != 0 {
		t.Fatal(e)
	}
	return action[0]
}

// However many modules there are, one handles the faults of all, and Go's own come behind that one.
func TestOneModuleHandlesFaults(t *testing.T) {
	var handler uint64
	kept := WithCache(t.TempDir())
	for _, p := range signalPrograms {
		d := openHere(t, kept)
		err := signalKernel(t, d, p, "writes").Launch(nil, Grid{Blocks: 1, Threads: 32}, &HostLaunch{Params: 64})
		if !errors.As(err, new(*FaultError)) {
			t.Errorf("%s: %v", p.Name, err)
		}
		now := handlerOf(t, syscall.SIGSEGV)
		if handler != 0 && now != handler {
			t.Errorf("%s has put its handler before another's", p.Name)
		}
		handler = now
	}
	defer func() {
		if recover() == nil {
			t.Error("a nil pointer is no panic")
		}
	}()
	var none *Device
	none.closed = true
}

// A program is loaded although neither the cache nor TMPDIR is where files may be executed. It runs in a process that mounts
// such a folder for itself.
func TestModulesWhereNoFileMayRun(t *testing.T) {
	const env = "WARPMAP_TEST_NOEXEC"
	dir := os.Getenv(env)
	if dir == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestModulesWhereNoFileMayRun$", "-test.v")
		cmd.Env = append(os.Environ(), env+"="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		if os.Geteuid() != 0 {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
		}
		out, err := cmd.CombinedOutput()
		if began := err == nil || errors.As(err, new(*exec.ExitError)); !began || bytes.Contains(out, []byte("--- SKIP")) {
			t.Skipf("needs to mount: %v\n%s", err, out)
		}
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") // others see nothing of it
	if err == nil {
		err = unix.Mount("none", dir, "tmpfs", unix.MS_NOEXEC, "mode=0700")
	}
	if err != nil {
		t.Skip(err)
	}
	t.Setenv("TMPDIR", dir)
	for range 2 { // compiled, and then of the cache
		runCached(t, dir+"/cache")
	}
	runCached(t, "")
}

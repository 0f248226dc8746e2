package nvrtc_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Signals that a program waits for come to it after the first compilation of the process, on whatever thread: NVRTC's
// handlers of SIGINT and SIGTERM are gone, and Go's are as they were.
func TestSignalsAfterCompilation(t *testing.T) {
	l, target := find(t, "sm_90")
	const inChild = "WARPMAP_TEST_SIGNALS"
	if os.Getenv(inChild) == "" { // another test may have been the first to compile
		cmd := exec.Command(os.Args[0], "-test.run=^TestSignalsAfterCompilation$")
		cmd.Env = append(os.Environ(), inChild+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%.1500s", err, out)
		}
		return
	}
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			if _, err := l.Compile("a.cu", fmt.Sprintf("__global__ void a%d() {}", i), nil, target); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		came := make(chan os.Signal, 1)
		signal.Notify(came, sig)
		for range 20 { // the thread sends it to itself, so that it comes while a goroutine runs
			if err := unix.Tgkill(unix.Getpid(), unix.Gettid(), sig); err != nil {
				t.Fatal(err)
			}
			select {
			case <-came:
			case <-time.After(10 * time.Second):
				t.Fatalf("%v does not come", sig)
			}
		}
		signal.Stop(came)
	}
}

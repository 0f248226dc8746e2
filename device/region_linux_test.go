package device

import (
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Who waits for regions that others were to make hears of it if these cannot be made. It runs in a process of its own,
// which gets no more addresses.
func TestRegionsThatCannotBeMade(t *testing.T) {
	const env = "WARPMAP_TEST_REGIONS"
	if os.Getenv(env) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRegionsThatCannotBeMade$", "-test.timeout=30s")
		cmd.Env = append(os.Environ(), env+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%.1500s", err, out)
		}
		return
	}
	debug.SetGCPercent(10) // Go's heap finds no more addresses either
	var have, all sync.WaitGroup
	have.Add(1)
	for range 8 {
		all.Go(func() {
			have.Wait()
			for range 10000 {
				if r, err := takeRegions(nil, hostMaxRegions, 32); err == nil {
					t.Error("a region was made")
					releaseRegions(r)
				}
			}
		})
	}
	time.Sleep(10 * time.Millisecond) // the threads are there
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, size, _ := strings.Cut(string(status), "VmSize:")
	kib, err := strconv.ParseUint(strings.Fields(size)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: kib<<10 + hostRegionBytes, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_AS, &few); err != nil {
		t.Fatal(err)
	}
	have.Done()
	all.Wait()
}

// Where no file can be opened, nobody can tell how much memory is free: then the system decides.
func TestMemoryWithoutDescriptors(t *testing.T) {
	d := openHere(t)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	s, err := Make[byte](d, 4<<20)
	if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); e != nil {
		t.Fatal(e)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Free(); err != nil {
		t.Error(err)
	}
}

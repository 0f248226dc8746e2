package device

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Who waits for regions that others were to make hears of it if these cannot be made. It runs in a process of its own,
// where nobody else wants regions.
func TestRegionsThatCannotBeMade(t *testing.T) {
	const env = "WARPMAP_TEST_REGIONS"
	if os.Getenv(env) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRegionsThatCannotBeMade$", "-test.timeout=60s")
		cmd.Env = append(os.Environ(), env+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%.1500s", err, out)
		}
		return
	}
	newRegion = func() (*region, error) {
		runtime.Gosched() // others come to wait meanwhile
		return nil, unix.ENOMEM
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if _, err := takeRegions(nil, hostMaxRegions, 32); !errors.Is(err, unix.ENOMEM) {
					t.Errorf("error %v", err)
				}
			}
		})
	}
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

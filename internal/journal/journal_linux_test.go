package journal

import (
	"io"
	"log"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A log whose name may not be on the disk is none: what is written to it could be gone after a crash, with its name.
func TestLogWithoutName(t *testing.T) {
	j, err := Open(t.TempDir(), SyncAlways, plain, log.New(io.Discard, "", 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Start(); err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	free, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(free)
	one := unix.Rlimit{Cur: uint64(free + 1), Max: was.Max} // one file more may be open, and not the folder beside it
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &one); err != nil {
		t.Fatal(err)
	}
	err = j.Begin()
	unix.Setrlimit(unix.RLIMIT_NOFILE, &was)
	if n := len(j.Logs()); err == nil || n != 1 {
		t.Errorf("%d logs, and the error is %v", n, err)
	}
	if _, err := os.Stat(j.Name(LogName, 2)); !os.IsNotExist(err) {
		t.Error(err)
	}
	if err := j.Begin(); err != nil || j.Number != 2 {
		t.Error(j.Number, err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

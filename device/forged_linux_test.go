package device_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/warpmap/warpmap/device"
)

// A text that Export has not made maps no file that a process of this user has open: neither one of a disk, nor another
// program's memory.
func TestImportForged(t *testing.T) {
	d := openCPU(t)
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "journal"), os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	defer file.Close()
	other, err := unix.MemfdCreate("other", unix.MFD_CLOEXEC)
	must(t, err)
	defer unix.Close(other)
	files := map[string]int{"a file": int(file.Fd()), "another program's memory": other}
	if f, err := os.CreateTemp("/dev/shm", "warpmap"); err == nil {
		defer f.Close()
		must(t, os.Remove(f.Name()))
		files["a file in memory"] = int(f.Fd())
	}
	for what, fd := range files {
		must(t, unix.Ftruncate(fd, 4096))
		var about unix.Stat_t
		must(t, unix.Fstat(fd, &about))
		text, err := json.Marshal(map[string]any{"device": "cpu", "memory": []byte(fmt.Sprintf("%d %d %d", os.Getpid(), fd, about.Ino)), "bytes": 4096})
		must(t, err)
		s, err := device.Import[uint64](d, text)
		if err == nil {
			t.Errorf("%s was mapped", what)
			must(t, s.Free())
			continue
		}
		contains(t, err, "no shared memory of warpmap")
	}
	s, err := device.MakeShared[uint64](d, 512) // and what Export has made is
	must(t, err)
	defer s.Free()
	text, err := device.Export(s)
	must(t, err)
	same, err := device.Import[uint64](d, text)
	must(t, err)
	must(t, same.Free())
}

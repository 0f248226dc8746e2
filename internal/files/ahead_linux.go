package files

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/warpmap/warpmap/internal/crash"
)

// aheadEvery is how often the system is asked to begin to write what a file has got. It is short beside the time in
// which a disk takes what memory holds, and long beside the call.
const aheadEvery = 20 * time.Millisecond

// ahead has the system write a file to the disk while it grows, because all of it must be there when the output is
// closed: a system left alone begins half a minute later. What it returns ends that, and may be called again; its error
// is a panic. Where it cannot be done, nothing is lost.
func ahead(f *os.File) (rest func() error) {
	const begin = unix.SYNC_FILE_RANGE_WRITE // which waits for nothing
	raw, err := f.SyscallConn()
	if err != nil {
		return func() error { return nil }
	}
	stop := make(chan struct{})
	var writer crash.WaitGroup
	writer.Go(func() {
		tick := time.NewTicker(aheadEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			failed := false
			err := raw.Control(func(fd uintptr) { failed = unix.SyncFileRange(int(fd), 0, 0, begin) != nil })
			if err != nil || failed {
				return
			}
		}
	})
	return sync.OnceValue(func() error {
		close(stop)
		return crash.Catch(func() error {
			writer.Wait()
			return nil
		})
	})
}

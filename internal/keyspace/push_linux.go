package keyspace

import (
	"os"

	"golang.org/x/sys/unix"
)

// push has the system begin to bring a part of a file to the disk, and waits for the part before it. So little of a
// large file is left when a sync comes, of this file or of another. Where it does not work, the last sync takes longer.
func push(f *os.File, before, from, to int64) {
	fd := int(f.Fd())
	unix.SyncFileRange(fd, from, to-from, unix.SYNC_FILE_RANGE_WRITE)
	if from > before {
		const done = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
		unix.SyncFileRange(fd, before, from-before, done)
		unix.Fadvise(fd, before, from-before, unix.FADV_DONTNEED) // nobody reads it before the next start
	}
}

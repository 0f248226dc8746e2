package journal

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// mostPending is how many bytes of a log wait for the disk before those that add more wait, too.
const mostPending = 64 << 20

// mostHeld is how many bytes are written at once: they fit into a core's cache.
const mostHeld = 256 << 10

// leastWhole is from how many bytes on the end of a record is written from where it is, and not copied.
const leastWhole = 64 << 10

// File is a log that is written. A nil one takes nothing.
type File struct {
	sync.Mutex
	Disk *os.File // guarded; tests put another in its place

	turn   sync.Cond
	whole  [][]byte // what is to be written first, in pieces
	buf    []byte   // what is to be written behind that
	waits  int      // bytes of both
	other  []byte   // memory for what is written
	bytes  int64    // of all records
	wrote  int64    // how many of these are in the file
	synced int64    // how many of these are on the disk
	busy   bool     // somebody writes
	sync   bool     // somebody brings to the disk what was written before
	err    error    // why writing failed the last time
	broken bool     // syncing failed
	wake   chan struct{}
	failed *atomic.Bool // of all logs
}

// createFile makes a file that is there after a crash, or none.
func createFile(name, magic string, wake chan struct{}, failed *atomic.Bool) (*File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	l := &File{Disk: f, wake: wake, failed: failed}
	l.turn.L = l
	l.add(func(b []byte) []byte { return append(b, magic...) })
	if err = l.commit(true); err == nil {
		err = SyncFolder(filepath.Dir(name))
	}
	if err != nil { // the next try wants the same name
		return nil, errors.Join(err, f.Close(), os.Remove(name))
	}
	return l, nil
}

// wait waits for room. The log is locked, but not meanwhile.
func (l *File) wait() {
	for l.waits > mostPending && l.err == nil && !l.broken && !l.failed.Load() {
		l.signal()
		l.turn.Wait()
	}
}

// add adds the records that add appends to b, to a log that is locked.
func (l *File) add(add func(b []byte) []byte) {
	before := len(l.buf)
	l.buf = add(l.buf)
	l.added(len(l.buf) - before)
}

// addWhole adds bytes that are the log's from now on, and does not copy many.
func (l *File) addWhole(b []byte) {
	if len(b) < leastWhole {
		l.buf = append(l.buf, b...)
	} else {
		l.whole, l.buf = append(l.whole, l.buf, b), nil
	}
	l.added(len(b))
}

func (l *File) added(n int) {
	l.bytes += int64(n)
	if l.waits += n; l.waits >= mostHeld && l.waits-n < mostHeld {
		l.signal()
	}
}

func (l *File) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// commit has everything that was appended before in the file, and on the disk if it is to be synced. Those who come
// while another writes, or syncs, go together behind that one; others may write while one syncs.
func (l *File) commit(sync bool) error {
	l.Lock()
	defer l.Unlock()
	for all := l.bytes; ; {
		var err error
		switch {
		case l.broken:
			return l.err
		case l.synced >= all || !sync && l.wrote >= all:
			return nil
		case l.wrote < all && !l.busy:
			err = l.write()
		case l.wrote >= all && !l.sync:
			err = l.toDisk()
		default:
			l.turn.Wait()
		}
		if err != nil {
			return err
		}
	}
}

// write writes what there is, without the lock meanwhile. What was not written stays, and a part of it is cut off.
func (l *File) write() error {
	l.busy = true
	disk, all, last, from, waits := l.Disk, l.whole, l.buf, l.wrote, l.waits
	l.whole, l.buf, l.waits, l.other = nil, l.other[:0], 0, nil
	l.Unlock()
	var err error
	at := from
	for _, data := range append(all, last) {
		if _, err = disk.WriteAt(data, at); err != nil {
			disk.Truncate(from)
			break
		}
		at += int64(len(data))
	}
	l.Lock()
	l.busy = false
	defer l.turn.Broadcast()
	if err != nil {
		l.failed.Store(true)
		if len(l.whole) == 0 {
			l.whole, l.buf = all, append(last, l.buf...)
		} else {
			l.whole = append(append(all, last), l.whole...)
		}
		l.waits += waits
	} else {
		l.wrote = at
		if cap(last) <= 4<<20 {
			l.other = last[:0]
		}
	}
	if !l.broken {
		l.err = err
	}
	return err
}

// toDisk brings to the disk what was written, without the lock meanwhile.
func (l *File) toDisk() error {
	l.sync = true
	disk, wrote := l.Disk, l.wrote
	l.Unlock()
	err := disk.Sync()
	l.Lock()
	l.sync = false
	defer l.turn.Broadcast()
	if err != nil {
		l.failed.Store(true)
		l.err, l.broken = err, true
		return err
	}
	l.synced = max(l.synced, wrote)
	return nil
}

// why is why the log cannot be written, or nil.
func (l *File) why() error {
	l.Lock()
	defer l.Unlock()
	return l.err
}

// isBroken tells whether syncing failed, so that the log is never whole again.
func (l *File) isBroken() bool {
	l.Lock()
	defer l.Unlock()
	return l.broken
}

// replaced says that snapshots hold what the log does, and nobody adds to it any more. So all is as good as synced.
func (l *File) replaced() {
	l.Lock()
	defer l.Unlock()
	for l.busy || l.sync {
		l.turn.Wait()
	}
	l.wrote, l.synced = l.bytes, l.bytes
	l.whole, l.buf, l.waits, l.err, l.broken = nil, nil, 0, nil, false
	l.turn.Broadcast()
}

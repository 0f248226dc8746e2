package journal

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warpmap/warpmap/internal/crash"
)

// Sync is when a log goes to the disk.
type Sync int

const (
	NoLog           Sync = iota // there is no log
	SyncNever                   // when the system likes
	SyncEverySecond             // within a second or two
	SyncAlways                  // when Commit returns
)

// Journal is the log of a folder. Make one with Open, call Replay, and then Start. Its methods are safe for use by
// several goroutines, but those that begin and end files are called by one at a time.
type Journal struct {
	Folder string
	Sync   Sync
	Number uint64 // of the newest file; guarded by who begins and ends files

	format *Format
	log    *log.Logger
	lock   *os.File
	wake   chan struct{}
	stop   chan struct{}
	work   sync.WaitGroup
	closed sync.Once
	failed atomic.Bool // a file was not written, and not all were since then

	mu   sync.Mutex
	logs []*File // those that are written: the newest last, and the one before it while a snapshot is made
	old  int64   // bytes of files that are not written any more, and that no snapshot has replaced yet
}

// LogName begins the names of log files.
const LogName = "log."

const lockName = "lock"

// Open makes the folder, if it is not there, and keeps other processes out of it. Errors: the system's; another process
// uses it.
func Open(folder string, s Sync, f *Format, l *log.Logger) (*Journal, error) {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, err
	}
	lock, err := lockFolder(filepath.Join(folder, lockName))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	return &Journal{Folder: folder, Sync: s, format: f, log: l, lock: lock, wake: make(chan struct{}, 1),
		stop: make(chan struct{})}, nil
}

// Name is the name of a file.
func (j *Journal) Name(kind string, number uint64) string {
	return filepath.Join(j.Folder, kind+strconv.FormatUint(number, 10))
}

// Numbers are those of a kind's files, in their order.
func (j *Journal) Numbers(kind string) (out []uint64, err error) {
	entries, err := os.ReadDir(j.Folder)
	for _, e := range entries {
		if text, is := strings.CutPrefix(e.Name(), kind); is {
			n, err := strconv.ParseUint(text, 10, 64)
			if err == nil && strconv.FormatUint(n, 10) == text {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return out, err
}

// Replay reads the logs from a number on, and gives their records to do, whose they are until it returns. It cuts the
// torn tail of the last that has records, and with repair what is damaged and all behind it in its file. Errors:
// *DamagedError; the system's; those that do gave to Stop. All other errors of do say that the record is damaged.
func (j *Journal) Replay(from uint64, repair bool, do func(head, body []byte) error) error {
	all, err := j.Numbers(LogName)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(n uint64) bool { return n < from })
	j.Number = from
	for i, n := range all {
		if n != j.Number+1 && n != from {
			return &DamagedError{j.Name(LogName, j.Number+1), 0, "it is missing, and there are later ones"}
		}
		bytes, err := j.replay(j.Name(LogName, n), repair, j.haveRecords(all[i+1:]), do)
		if err != nil {
			return err
		}
		j.old += bytes
		j.Number = n
	}
	return nil
}

// haveRecords tells whether any of these logs has records.
func (j *Journal) haveRecords(all []uint64) bool {
	return slices.ContainsFunc(all, func(n uint64) bool {
		about, err := os.Stat(j.Name(LogName, n))
		return err == nil && about.Size() > int64(len(j.format.Magic))
	})
}

// replay gives the bytes of a log that are sound, and cuts off the rest where it may. Others go on behind it: then none
// of it can be missing, for they were not written before all of it was there.
func (j *Journal) replay(name string, repair, others bool, do func(head, body []byte) error) (sound int64, err error) {
	sound, err = j.format.ReadFile(name, do)
	if stop := (*stopError)(nil); errors.As(err, &stop) {
		return sound, fmt.Errorf("%s, at byte %d: %w", name, sound, stop.error)
	}
	if err == nil {
		return sound, syncName(name)
	}
	if errors.As(err, new(*os.PathError)) {
		return sound, err
	}
	if errors.As(err, new(*unknownError)) && repair {
		err = fmt.Errorf("%w, and that is not repaired", err)
		return sound, &DamagedError{name, sound, err.Error()}
	}
	if err == errTorn && others {
		err = fmt.Errorf("%w, and there are later ones", err)
	}
	if err != errTorn && !repair {
		return sound, &DamagedError{name, sound, err.Error()}
	}
	j.log.Printf("%s: cut to its first %d bytes: %v", name, sound, err)
	if sound == 0 {
		err = os.WriteFile(name, []byte(j.format.Magic), 0o666)
	} else {
		err = os.Truncate(name, sound)
	}
	if err != nil {
		return sound, err
	}
	return sound, syncName(name)
}

// syncName brings a file to the disk. Who is killed may have written what it did not sync; what is done now goes on from
// there, and must not be on the disk without it.
func syncName(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// ReadFile is Read of a file.
func (f *Format) ReadFile(name string, do func(head, body []byte) error) (sound int64, err error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	about, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return f.Read(file, about.Size(), do)
}

// Start begins the first log behind those that there are, and writes logs from then on. With NoLog it does nothing.
func (j *Journal) Start() error {
	if j.Sync == NoLog {
		return nil
	}
	if err := j.next(); err != nil {
		return err
	}
	crash.Beside(&j.work, j.flush)
	if j.Sync >= SyncEverySecond {
		crash.Beside(&j.work, j.syncEverySecond)
	}
	return nil
}

// next begins the next log.
func (j *Journal) next() error {
	l, err := createFile(j.Name(LogName, j.Number+1), j.format.Magic, j.wake, &j.failed)
	if err != nil {
		return err
	}
	j.Number++
	if last := j.Last(); last != nil { // while others add to it: what is added to the new one waits for that
		last.commit(true)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.logs = append(j.logs, l)
	return nil
}

// Begin begins the log of a snapshot: the next one. But if an older one is kept, since the last snapshot failed and that
// log cannot be written, it is the newest that is there, because else there would be one more each time.
func (j *Journal) Begin() error {
	logs := j.Logs()
	if len(logs) > 1 && !logs[len(logs)-1].isBroken() {
		return nil
	}
	return j.next()
}

// Logs are those that are written, the newest last; none with NoLog.
func (j *Journal) Logs() []*File {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.logs
}

// Last is the log to which is added; nil: there is none.
func (j *Journal) Last() *File {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.logs) == 0 {
		return nil
	}
	return j.logs[len(j.logs)-1]
}

// Add adds a record in parts to the newest log, and waits for nobody: callers that may add much call Wait before. Begin
// is between two calls of it. The parts are the log's from then on.
func (j *Journal) Add(parts ...[]byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := len(j.logs); n > 0 {
		l := j.logs[n-1]
		l.Lock()
		defer l.Unlock()
		for _, part := range parts {
			l.addWhole(part)
		}
	}
}

// Wait waits where the disk does not keep up, but not for a log that cannot be written.
func (j *Journal) Wait() {
	if l := j.Last(); l != nil {
		l.Lock()
		defer l.Unlock()
		l.wait()
	}
}

// flush writes the logs every second, and when there is much to write.
func (j *Journal) flush() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	said := false
	for {
		select {
		case <-t.C:
		case <-j.wake:
		case <-j.stop:
			return
		}
		if err := j.commit(false); err != nil && !said {
			j.log.Printf("the log cannot be written, so writes are refused: %v", err)
			said = true
		} else if err == nil && said {
			j.log.Print("the log is written again")
			said = false
		}
	}
}

// syncEverySecond brings the logs to the disk beside flush, which goes on meanwhile. flush says if that fails.
func (j *Journal) syncEverySecond() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			j.commit(true)
		case <-j.stop:
			return
		}
	}
}

// Commit has everything that was added before it on the disk, if the log is always synced; else it does nothing.
// Errors: the system's. Then nothing that was done may be acknowledged.
func (j *Journal) Commit() error {
	if j.Sync != SyncAlways {
		return nil
	}
	return j.commit(true)
}

// Flush has everything that was added before it on the disk, however the log is synced. Errors: the system's.
func (j *Journal) Flush() error { return j.commit(true) }

// commit has all logs written, the older one first. None is written while one before it, to which nobody adds any more,
// is not on the disk: so neither a process that is killed nor a machine that stops leaves what came later without what
// came before.
func (j *Journal) commit(sync bool) error {
	logs := j.Logs()
	for i, l := range logs {
		if err := l.commit(sync || i < len(logs)-1); err != nil {
			for _, l := range logs { // nobody waits for those behind it
				l.Lock()
				l.turn.Broadcast()
				l.Unlock()
			}
			return err
		}
	}
	if j.failed.Load() {
		j.failed.Store(false)
	}
	return nil
}

// Err is why the log cannot be written, or nil.
func (j *Journal) Err() error {
	if !j.failed.Load() {
		return nil
	}
	for _, l := range j.Logs() {
		if err := l.why(); err != nil {
			return err
		}
	}
	return nil
}

// Logged is how many bytes the logs hold: what was done behind the last snapshot, also before this process began.
func (j *Journal) Logged() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := j.old
	for _, l := range j.logs {
		l.Lock()
		n += l.bytes
		l.Unlock()
	}
	return n
}

// End closes the logs before the newest, to which nobody adds any more. Where snapshots have replaced them, it does not
// matter what became of them. Else those that cannot be written stay, so that nothing behind them is acknowledged, and
// so do those behind one that may be written yet.
func (j *Journal) End(replaced bool) (err error) {
	logs := j.Logs()
	if len(logs) < 2 {
		if replaced {
			j.mu.Lock()
			j.old = 0
			j.mu.Unlock()
		}
		return nil
	}
	var stay []*File
	ended, wait := int64(0), false
	for _, l := range logs[:len(logs)-1] {
		if replaced {
			l.replaced()
		} else if !wait {
			if failed := l.commit(true); failed != nil {
				err = errors.Join(err, failed)
				stay, wait = append(stay, l), !l.isBroken()
				continue
			}
		}
		if wait {
			stay = append(stay, l)
			continue
		}
		ended += l.bytes // to which nobody adds any more
		if failed := l.Disk.Close(); !replaced {
			err = errors.Join(err, failed)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.logs = append(stay, logs[len(logs)-1])
	if j.old += ended; replaced {
		j.old = 0
	}
	return err
}

// Remove removes a kind's files before a number, the newest last.
func (j *Journal) Remove(kind string, before uint64) error {
	all, err := j.Numbers(kind)
	if err != nil {
		return err
	}
	for _, n := range all {
		if n < before {
			if err := os.Remove(j.Name(kind, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Last does what must be done before a process ends that has something no file has: again, where it fails, as long as
// retry says so. With nil it is done once.
func Last(retry func(error) bool, do func() error) error {
	for {
		if err := do(); err == nil || retry == nil || !retry(err) {
			return err
		}
	}
}

// Close has everything on the disk that was added, where the log is synced at all, and lets others into the folder.
// It is idempotent. Nobody may use the journal any more. Errors: the system's.
func (j *Journal) Close() (err error) {
	j.closed.Do(func() {
		close(j.stop)
		j.work.Wait()
		err = j.commit(j.Sync >= SyncEverySecond)
		for _, l := range j.Logs() {
			err = errors.Join(err, l.Disk.Close())
		}
		err = errors.Join(err, j.lock.Close())
	})
	return err
}

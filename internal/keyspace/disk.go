package keyspace

import (
	"bufio"
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

	"github.com/warpmap/warpmap/internal/files"
)

// disk is the folder of a space.
type disk struct {
	folder string
	sync   Sync
	log    *log.Logger
	lock   *os.File
	wake   chan struct{}

	saving  sync.Mutex  // held by who makes a snapshot
	busy    atomic.Bool // one is being made
	number  uint64      // of the newest file; guarded by saving
	saved   atomic.Int64
	unsaved atomic.Bool // the last snapshot failed
	failed  atomic.Bool // a log was not written, and not all were since then

	mu   sync.Mutex
	logs []*logFile // those that are written: the newest last, and the one before it while a snapshot is made
	old  int64      // bytes of logs that are not written any more, and that no snapshot has replaced yet
}

const (
	snapshotName, logName = "snapshot.", "log."
	lockName              = "lock"
)

func (d *disk) name(kind string, number uint64) string {
	return filepath.Join(d.folder, kind+strconv.FormatUint(number, 10))
}

// numbers are those of a kind's files, in their order.
func (d *disk) numbers(kind string) (out []uint64, err error) {
	entries, err := os.ReadDir(d.folder)
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

// openDisk reads what a folder holds, and begins a log.
func openDisk(s *Space, o Options) (d *disk, err error) {
	d = &disk{folder: o.Folder, sync: o.Sync, log: log.New(o.Log, "", log.LstdFlags), wake: make(chan struct{}, 1)}
	if err := os.MkdirAll(o.Folder, 0o777); err != nil {
		return nil, err
	}
	if d.lock, err = lockFolder(filepath.Join(o.Folder, lockName)); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Folder, err)
	}
	if err := d.recover(s, o.Repair); err != nil {
		d.lock.Close()
		return nil, err
	}
	d.saved.Store(time.Now().Unix())
	if d.sync == NoLog {
		return d, nil
	}
	l, err := d.next()
	if err != nil {
		d.lock.Close()
		return nil, err
	}
	for i := range s.shards {
		s.shards[i].log = l
	}
	return d, nil
}

// next begins the next log.
func (d *disk) next() (*logFile, error) {
	l, err := createLog(d.name(logName, d.number+1), d.wake, &d.failed)
	if err != nil {
		return nil, err
	}
	d.number++
	d.mu.Lock()
	d.logs = append(d.logs, l)
	d.mu.Unlock()
	return l, syncFolder(d.folder)
}

// recover reads the newest snapshot and the logs behind it.
func (d *disk) recover(s *Space, repair bool) error {
	snapshots, err := d.numbers(snapshotName)
	if err != nil {
		return err
	}
	logs, err := d.numbers(logName)
	if err != nil {
		return err
	}
	from := uint64(0)
	if n := len(snapshots); n > 0 {
		from = snapshots[n-1]
		if err := d.readSnapshot(s, d.name(snapshotName, from)); err != nil {
			return err
		}
	}
	d.number = from
	for _, n := range logs {
		if n < from {
			continue
		}
		if n != d.number+1 && n != from {
			return &DamagedError{d.name(logName, d.number+1), 0, "it is missing, and there are later ones"}
		}
		bytes, err := d.readLog(s, d.name(logName, n), repair)
		if err != nil {
			return err
		}
		d.old += bytes
		d.number = n
	}
	return nil
}

func (d *disk) readSnapshot(s *Space, name string) error {
	count, whole := int64(0), false
	sound, err := d.read(name, func(e entry) error {
		switch {
		case e.kind == kindEnd && e.expires == count:
			whole = true
		case e.kind != kindPut || whole:
			return fmt.Errorf("a record of kind %d, where a key should be, or the number of keys", e.kind)
		default:
			count++
			s.apply(e)
		}
		return nil
	})
	switch {
	case err == nil && !whole:
		err = errTorn
		fallthrough
	case err != nil && !errors.As(err, new(*os.PathError)):
		return &DamagedError{name, sound, err.Error()}
	}
	return err
}

// readLog gives the bytes of a log that are sound, and cuts off the rest where it may.
func (d *disk) readLog(s *Space, name string, repair bool) (sound int64, err error) {
	sound, err = d.read(name, func(e entry) error {
		if e.kind == kindEnd {
			return errors.New("a record that only snapshots have")
		}
		s.apply(e)
		return nil
	})
	if err == nil || errors.As(err, new(*os.PathError)) {
		return sound, err
	}
	if err == errUnknown && repair {
		err = fmt.Errorf("%w, and that is not repaired", err)
		return sound, &DamagedError{name, sound, err.Error()}
	}
	if err != errTorn && !repair {
		return sound, &DamagedError{name, sound, err.Error()}
	}
	d.log.Printf("%s: cut to its first %d bytes: %v", name, sound, err)
	if sound == 0 {
		return sound, os.WriteFile(name, []byte(magic), 0o666)
	}
	return sound, os.Truncate(name, sound)
}

func (d *disk) read(name string, do func(e entry) error) (sound int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	about, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return entries(f, about.Size(), do)
}

// apply does again what a record says. Nothing is logged yet.
func (s *Space) apply(e entry) {
	if e.kind == kindClear {
		for i := range s.shards {
			s.shards[i].clear()
		}
		return
	}
	hash := s.Hash(e.key)
	sh := s.Lock(hash)
	defer sh.Unlock()
	i := sh.find(hash, e.key)
	switch {
	case e.kind == kindPut:
		sh.put(i, hash, e.key, e.value, e.expires, s.opened)
	case i < 0 && e.kind == kindAppend:
		sh.put(i, hash, e.key, e.value, 0, s.opened)
	case i < 0:
	case e.kind == kindAppend:
		if len(sh.record(sh.slots[i].place).value())+len(e.value) <= mostBytes {
			sh.extend(i, e.key, e.value, s.opened)
		}
	case e.kind == kindPatch:
		if v := sh.record(sh.slots[i].place).value(); e.expires >= 0 && e.expires <= int64(len(v)-len(e.value)) {
			copy(v[e.expires:], e.value)
		}
	case e.kind == kindExpire:
		sh.expire(i, e.expires)
	case e.kind == kindDelete:
		sh.remove(i)
	}
}

// flush writes the logs every second, and when there is much to write.
func (d *disk) flush(stop chan struct{}) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	said := false
	for {
		sync := false
		select {
		case <-t.C:
			sync = d.sync >= SyncEverySecond
		case <-d.wake:
		case <-stop:
			return
		}
		if err := d.commit(sync); err != nil && !said {
			d.log.Printf("the log cannot be written, so writes are refused: %v", err)
			said = true
		} else if err == nil && said {
			d.log.Print("the log is written again")
			said = false
		}
	}
}

// commit has all logs written, the older one first.
func (d *disk) commit(sync bool) error {
	d.mu.Lock()
	logs := d.logs
	d.mu.Unlock()
	for _, l := range logs {
		if err := l.commit(sync); err != nil {
			for _, l := range logs { // nobody waits for those behind it
				l.mu.Lock()
				l.turn.Broadcast()
				l.mu.Unlock()
			}
			return err
		}
	}
	if d.failed.Load() {
		d.failed.Store(false)
	}
	return nil
}

// Commit has everything that was logged before it on the disk, if the log is always synced; else it does nothing.
// Errors: the system's. Then nothing that was done may be acknowledged.
func (s *Space) Commit() error {
	if s.disk == nil || s.disk.sync != SyncAlways {
		return nil
	}
	return s.disk.commit(true)
}

// Err is why the log cannot be written, or nil.
func (s *Space) Err() error {
	if s.disk == nil || !s.disk.failed.Load() {
		return nil
	}
	s.disk.mu.Lock()
	logs := s.disk.logs
	s.disk.mu.Unlock()
	for _, l := range logs {
		if err := l.why(); err != nil {
			return err
		}
	}
	return nil
}

// Logged is how many bytes the logs hold: what was done behind the last snapshot, also before the space was opened.
func (s *Space) Logged() (n int64) {
	if s.disk == nil {
		return 0
	}
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	n = s.disk.old
	for _, l := range s.disk.logs {
		l.mu.Lock()
		n += l.bytes
		l.mu.Unlock()
	}
	return n
}

// Syncs tells whether Commit has anything to do.
func (s *Space) Syncs() bool { return s.disk != nil && s.disk.sync == SyncAlways }

// cleared logs that all keys go. All shards are locked. A snapshot that is being made begins again: its first shards
// are from before.
func (d *disk) cleared(s *Space) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.logs) == 0 {
		return
	}
	last := d.logs[len(d.logs)-1]
	for i := range s.shards {
		s.shards[i].log = last
	}
	last.append(kindClear, nil, nil, 0)
}

// ErrNoFolder is what Save returns for a space that has none.
var ErrNoFolder = errors.New("there is no folder for snapshots")

// ErrSaving is what Save returns while another snapshot is made.
var ErrSaving = errors.New("a snapshot is being made")

// errCleared has a snapshot begin again.
var errCleared = errors.New("all keys were taken out meanwhile")

// Save makes a snapshot, while others go on. Cost: all bytes are written; each shard is locked while it is copied, a
// few milliseconds for 10 GB in all. Errors: ErrNoFolder, ErrSaving, the system's; then the logs before it stay.
func (s *Space) Save() error {
	if s.disk == nil {
		return ErrNoFolder
	}
	d := s.disk
	if !d.saving.TryLock() {
		return ErrSaving
	}
	defer d.saving.Unlock()
	d.busy.Store(true)
	defer d.busy.Store(false)
	err := errCleared
	for errors.Is(err, errCleared) {
		err = d.save(s)
	}
	d.unsaved.Store(err != nil)
	if err != nil {
		d.log.Printf("no snapshot was made: %v", err)
		return err
	}
	d.saved.Store(time.Now().Unix())
	return nil
}

// Saved tells when the last snapshot was made, or when the space was opened; whether one is being made; and whether the
// last one failed.
func (s *Space) Saved() (at time.Time, saving, failed bool) {
	if s.disk == nil {
		return time.Unix(0, 0), false, false
	}
	return time.Unix(s.disk.saved.Load(), 0), s.disk.busy.Load(), s.disk.unsaved.Load()
}

func (d *disk) save(s *Space) (err error) {
	flushes := s.flushes.Load()
	var to *logFile
	if d.sync != NoLog {
		if to, err = d.next(); err != nil {
			return err
		}
	} else {
		d.number++
	}
	switched, made := 0, false
	defer func() { // whatever happened, all go on in the new log
		for ; switched < shards; switched++ {
			sh := &s.shards[switched]
			sh.mu.Lock()
			sh.log = to
			sh.mu.Unlock()
		}
		err = errors.Join(err, d.endLogs(made))
	}()
	err = files.WriteFile(d.name(snapshotName, d.number), func(f *os.File) error {
		w := bufio.NewWriterSize(f, 1<<20)
		if _, err := w.WriteString(magic); err != nil {
			return err
		}
		var b []byte
		keys := int64(0)
		for ; switched < shards; switched++ {
			sh := &s.shards[switched]
			sh.mu.Lock()
			b = b[:0]
			now := time.Now().UnixMilli()
			for _, at := range sh.slots {
				if at.place == 0 {
					continue
				}
				if r := sh.record(at.place); !r.expired(now) {
					b = appendEntry(b, entry{kindPut, r.key(), r.value(), r.expires()})
					keys++
				}
			}
			sh.log = to
			sh.mu.Unlock()
			if s.flushes.Load() != flushes {
				return errCleared
			}
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		if _, err := w.Write(appendEntry(nil, entry{kind: kindEnd, expires: keys})); err != nil {
			return err
		}
		return w.Flush()
	})
	if err != nil {
		return err
	}
	made = true
	return d.removeBefore(d.number)
}

// endLogs closes the logs before the newest, to which no shard writes any more. Where a snapshot has replaced them, it
// does not matter what became of them. Else those that cannot be written stay, so that nothing behind them is
// acknowledged, and so do those behind one that may be written yet.
func (d *disk) endLogs(replaced bool) (err error) {
	d.mu.Lock()
	logs := d.logs
	d.mu.Unlock()
	if len(logs) < 2 {
		return nil
	}
	var stay []*logFile
	ended, wait := int64(0), false
	for _, l := range logs[:len(logs)-1] {
		if replaced {
			l.replaced()
		} else if !wait {
			if failed := l.commit(d.sync >= SyncEverySecond); failed != nil {
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
		if failed := l.file.Close(); !replaced {
			err = errors.Join(err, failed)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.logs = append(stay, logs[len(logs)-1])
	if d.old += ended; replaced {
		d.old = 0
	}
	return err
}

// removeBefore removes the files that a snapshot replaces. The newest goes last: where this is broken off, the rest is
// ignored the next time. What processes that were killed have left of their snapshots goes, too: the folder is locked.
func (d *disk) removeBefore(number uint64) error {
	for _, kind := range []string{logName, snapshotName} {
		all, err := d.numbers(kind)
		if err != nil {
			return err
		}
		for _, n := range all {
			if n < number {
				if err := os.Remove(d.name(kind, n)); err != nil {
					return err
				}
			}
		}
	}
	entries, err := os.ReadDir(d.folder)
	for _, e := range entries {
		if of, is := files.HiddenOf(e.Name()); is && strings.HasPrefix(of, snapshotName) {
			err = errors.Join(err, os.Remove(filepath.Join(d.folder, e.Name())))
		}
	}
	return err
}

func (d *disk) close() error {
	d.saving.Lock()
	defer d.saving.Unlock()
	d.mu.Lock()
	logs := d.logs
	d.mu.Unlock()
	var err error
	for _, l := range logs {
		err = errors.Join(err, l.close(d.sync >= SyncEverySecond))
	}
	return errors.Join(err, d.lock.Close())
}

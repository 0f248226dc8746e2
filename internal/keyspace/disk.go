package keyspace

import (
	"errors"
	"fmt"
	"log"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warpmap/warpmap/internal/files"
	"github.com/warpmap/warpmap/internal/journal"
)

// disk is the folder of a space.
type disk struct {
	*journal.Journal
	log *log.Logger

	saving  sync.Mutex  // held by who makes a snapshot, and guards Journal.Number
	busy    atomic.Bool // one is being made
	hurry   atomic.Bool // all are made with haste
	said    time.Time   // when a failed snapshot was told of; guarded by saving
	saved   atomic.Int64
	unsaved atomic.Bool // the last snapshot failed
}

const snapshotName = "snapshot."

// openDisk reads what a folder holds, and begins a log.
func openDisk(s *Space, o Options) (d *disk, err error) {
	d = &disk{log: log.New(o.Log, "", log.LstdFlags)}
	if d.Journal, err = journal.Open(o.Folder, o.Sync, format, d.log); err != nil {
		return nil, err
	}
	if err := d.recover(s, o.Repair); err != nil {
		d.Close()
		return nil, err
	}
	d.saved.Store(time.Now().Unix())
	if err := d.Start(); err != nil {
		d.Close()
		return nil, err
	}
	s.log = d.Last()
	return d, nil
}

// logEntry adds an entry to a log, if there is one.
func logEntry(l *journal.File, e entry) {
	if l == nil {
		return
	}
	head := e.sealed() // before the log's lock, which all threads want
	l.Append(func(b []byte) []byte { return e.appendTo(b, head) })
}

// recover reads the newest snapshot and the logs behind it.
func (d *disk) recover(s *Space, repair bool) error {
	snapshots, err := d.Numbers(snapshotName)
	if err != nil {
		return err
	}
	from := uint64(0)
	if n := len(snapshots); n > 0 {
		from = snapshots[n-1]
		if err := d.readSnapshot(s, d.Name(snapshotName, from)); err != nil {
			return err
		}
	}
	return d.Replay(from, repair, parsed(s.again))
}

func (d *disk) readSnapshot(s *Space, name string) error {
	count, whole := int64(0), false
	sound, err := format.ReadFile(name, parsed(func(e entry) error {
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
	}))
	switch {
	case err == nil && !whole:
		err = journal.ErrTorn
		fallthrough
	case err != nil && !errors.As(err, new(*os.PathError)):
		return &DamagedError{Name: name, At: sound, Why: err.Error()}
	}
	return err
}

// again does again what a record of a log says.
func (s *Space) again(e entry) error {
	switch e.kind {
	case kindEnd:
		return errors.New("a record that only snapshots have")
	case kindGroup:
		return each(e.value, s.again)
	}
	s.apply(e)
	return nil
}

// apply does again what a record of a change says. Nothing is logged yet.
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
		sh.put(i, hash, e.key, e.value, e.filter, e.expires, s.opened)
	case i < 0 && (e.kind == kindAppend || e.kind == kindTail && e.expires == 0):
		sh.put(i, hash, e.key, e.value, false, 0, s.opened)
	case i < 0:
	case e.kind == kindTail:
		r := sh.record(sh.slots[i].place)
		if n := len(r.value()); e.expires < 0 || e.expires > int64(n) || e.expires+int64(len(e.value)) > mostBytes {
			return // a later record says what the value is
		}
		r.set32(atValueBytes, uint32(e.expires))
		sh.extend(i, e.key, e.value, s.opened)
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

// Commit has everything that was logged before it on the disk, if the log is always synced; else it does nothing.
// Errors: the system's. Then nothing that was done may be acknowledged.
func (s *Space) Commit() error {
	if s.disk == nil {
		return nil
	}
	return s.disk.Commit()
}

// Flush has everything that was logged before it on the disk, however the log is synced. Errors: the system's.
func (s *Space) Flush() error {
	if s.disk == nil {
		return nil
	}
	return s.disk.Flush()
}

// Err is why the log cannot be written, or nil.
func (s *Space) Err() error {
	if s.disk == nil {
		return nil
	}
	return s.disk.Err()
}

// Logged is how many bytes the logs hold: what was done behind the last snapshot, also before the space was opened.
func (s *Space) Logged() int64 {
	if s.disk == nil {
		return 0
	}
	return s.disk.Logged()
}

// Syncs tells whether Commit has anything to do.
func (s *Space) Syncs() bool { return s.disk != nil && s.disk.Sync == SyncAlways }

// turn has all that is done from now on logged in another log.
func (s *Space) turn(to *journal.File, add func()) {
	s.LockAll(&Every)
	defer s.UnlockAll(&Every)
	s.log = to
	add()
}

// ErrNoFolder is what Save returns for a space that has none.
var ErrNoFolder = errors.New("there is no folder for snapshots")

// ErrSaving is what Save returns while another snapshot is made.
var ErrSaving = errors.New("a snapshot is being made")

// errCleared has a snapshot begin again: its first shards are from before. With a log there is no need, for the log
// says so.
var errCleared = errors.New("all keys were taken out meanwhile")

// Save makes a snapshot, while others go on. Cost: all bytes are copied and written; a shard is locked while some ten
// KiB of it are copied. With haste this takes a core; without, a tenth of the cores' time, and at most half of a core.
// Errors: ErrNoFolder, ErrSaving, the system's; then the logs before it stay.
func (s *Space) Save(haste bool) error {
	save, err := s.BeginSave(haste)
	if err == nil {
		err = save()
	}
	return err
}

// BeginSave begins what Save does, so that no other snapshot can begin. The caller calls save, which makes it, once.
// Errors: ErrNoFolder, ErrSaving; then there is no save.
func (s *Space) BeginSave(haste bool) (save func() error, err error) {
	d := s.disk
	if d == nil {
		return nil, ErrNoFolder
	}
	if !d.saving.TryLock() {
		return nil, ErrSaving
	}
	d.busy.Store(true)
	return func() error {
		defer d.saving.Unlock()
		defer d.busy.Store(false)
		return d.saveAgain(s, haste)
	}, nil
}

// saveAgain makes a snapshot, and begins again where all keys were taken out meanwhile.
func (d *disk) saveAgain(s *Space, haste bool) error {
	err := errCleared
	for tries := 0; errors.Is(err, errCleared) && tries < mostTries; tries++ {
		err = d.save(s, haste)
	}
	d.unsaved.Store(err != nil)
	if err != nil {
		if time.Since(d.said) >= sayAgain { // clients may ask for one again and again
			d.said = time.Now()
			d.log.Printf("no snapshot was made: %v", err)
		}
		return err
	}
	d.saved.Store(time.Now().Unix())
	d.said = time.Time{}
	return nil
}

// Hurry has snapshots made with haste from now on, and what is left of one that is being made.
func (s *Space) Hurry() {
	if s.disk != nil {
		s.disk.hurry.Store(true)
	}
}

// sayAgain is how often it is told at most that no snapshot was made.
const sayAgain = 10 * time.Second

// mostTries is how often a snapshot begins again before it gives up.
const mostTries = 8

// Saved tells when the last snapshot was made, or when the space was opened; whether one is being made; and whether the
// last one failed.
func (s *Space) Saved() (at time.Time, saving, failed bool) {
	if s.disk == nil {
		return time.Unix(0, 0), false, false
	}
	return time.Unix(s.disk.saved.Load(), 0), s.disk.busy.Load(), s.disk.unsaved.Load()
}

func (d *disk) save(s *Space, haste bool) (err error) {
	flushes := s.flushes.Load()
	var to *journal.File
	if d.Sync != NoLog {
		if to, err = d.Begin(s.turn); err != nil { // to do again what an older one holds already leads to the same
			return err
		}
	} else {
		d.Number++
	}
	made := false
	defer func() { err = errors.Join(err, d.End(made)) }()
	err = files.WriteFile(d.Name(snapshotName, d.Number), func(f *os.File) error {
		w := &paced{file: f, haste: haste, hurry: &d.hurry, began: time.Now()}
		if err := w.write([]byte(magic)); err != nil {
			return err
		}
		var b []byte
		keys := int64(0)
		for i := range shards {
			for next, more := uint64(i)<<(64-shardBits), true; more; {
				b = b[:0]
				next, more = s.copyShard(i, next, &b, &keys)
				seal(b)
				if to == nil && s.flushes.Load() != flushes {
					return errCleared
				}
				if err := w.write(b); err != nil {
					return err
				}
			}
		}
		if err := w.write(appendEntry(nil, entry{kind: kindEnd, expires: keys})); err != nil {
			return err
		}
		if err := w.flush(); err != nil {
			return err
		}
		// What is in the snapshot is in the log: else a crash could leave older records of a key that it has anew. An
		// older log that cannot be written is one that the snapshot replaces.
		if d.Flush() == nil {
			return nil
		}
		if err := f.Sync(); err != nil { // before older logs are given up
			return err
		}
		return d.Alone()
	})
	if err != nil {
		return err
	}
	made = true
	return d.removeBefore(d.Number)
}

// copiedBytes is about how many bytes of a shard are copied while it is locked.
var copiedBytes = 64 << 10 // tests have fewer

// expiredFor is how long a key has expired before a snapshot leaves it out: who changes it has a clock that is behind,
// and may have it expire later, or never, in the new log.
const expiredFor = time.Minute

// copyShard appends records of a shard from a hash on, and tells where to go on. What is done meanwhile is in the new
// log, though some keys are copied later, and with that: to do it again leads to the same.
func (s *Space) copyShard(number int, from uint64, b *[]byte, keys *int64) (next uint64, more bool) {
	sh := &s.shards[number]
	sh.lock()
	defer sh.mu.Unlock()
	if len(sh.slots) == 0 {
		return 0, false
	}
	now := time.Now().Add(-expiredFor).UnixMilli()
	for home, looked := sh.home(from), 0; home < len(sh.slots); home, looked = home+1, looked+1 {
		if len(*b) >= copiedBytes || looked >= copiedBytes/slotBytes {
			shift := 64 - uint(bits.TrailingZeros(uint(len(sh.slots))))
			return uint64(number)<<(64-shardBits) | uint64(home)<<shift>>shardBits, true
		}
		sh.homed(home, from, func(r record) {
			if !r.expired(now) {
				*b = appendOpen(*b, entry{kindPut, r.key(), r.value(), r.expires(), r.filter()})
				*keys++
			}
		})
	}
	return 0, false
}

// paced writes a snapshot, and lets others go on meanwhile.
type paced struct {
	file   *os.File
	haste  bool
	hurry  *atomic.Bool
	began  time.Time // of what is not slept for yet
	buf    []byte
	wrote  int64 // bytes in the file
	pushed int64 // how many of these are on their way to the disk
	landed int64 // and how many are there
}

// writeBytes are written at once, and pushBytes go to the disk at once: so no sync of a log waits for much of them.
const writeBytes, pushBytes = 256 << 10, 4 << 20

// leastPause is how long a pause is at least: shorter ones are not kept by systems.
const leastPause = 2 * time.Millisecond

func (p *paced) write(b []byte) error {
	if p.buf = append(p.buf, b...); len(p.buf) >= writeBytes {
		if err := p.flush(); err != nil {
			return err
		}
	}
	p.pause()
	return nil
}

func (p *paced) flush() error {
	n, err := p.file.Write(p.buf)
	p.wrote += int64(n)
	if p.buf = p.buf[:0]; cap(p.buf) > 4*writeBytes {
		p.buf = nil
	}
	if err == nil && p.wrote-p.pushed >= pushBytes {
		push(p.file, p.landed, p.pushed, p.wrote)
		p.landed, p.pushed = p.pushed, p.wrote
	}
	return err
}

// pause sleeps so long that no more of the cores' time goes to the snapshot than should.
func (p *paced) pause() {
	if p.haste || p.hurry.Load() {
		return
	}
	share := min(0.5, 0.1*float64(runtime.GOMAXPROCS(0)))
	if d := time.Duration(float64(time.Since(p.began)) * (1/share - 1)); d >= leastPause {
		time.Sleep(d)
		p.began = time.Now()
	}
}

// removeBefore removes the files that a snapshot replaces. The newest goes last: where this is broken off, the rest is
// ignored the next time. What processes that were killed have left of their snapshots goes, too: the folder is locked.
func (d *disk) removeBefore(number uint64) error {
	for _, kind := range []string{journal.LogName, snapshotName} {
		if err := d.Remove(kind, number); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(d.Folder)
	for _, e := range entries {
		if of, is := files.HiddenOf(e.Name()); is && strings.HasPrefix(of, snapshotName) {
			err = errors.Join(err, os.Remove(filepath.Join(d.Folder, e.Name())))
		}
	}
	return err
}

func (d *disk) close() error {
	d.saving.Lock()
	defer d.saving.Unlock()
	return d.Close()
}

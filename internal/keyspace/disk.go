package keyspace

import (
	"errors"
	"fmt"
	"log"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
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
	hurry   atomic.Bool // all are made with haste
	number  uint64      // of the newest file; guarded by saving
	said    time.Time   // when a failed snapshot was told of; guarded by saving
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

// newest is the log of a snapshot that begins: the next one. But where an older one is kept, since the last snapshot
// failed and that log cannot be written, it is the newest that is there, for else there would be one more each time. To
// do again what it holds already leads to the same.
func (d *disk) newest() (*logFile, error) {
	d.mu.Lock()
	n := len(d.logs)
	last := d.logs[n-1]
	d.mu.Unlock()
	if n > 1 && !last.isBroken() {
		return last, nil
	}
	return d.next()
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
	sound, err = d.read(name, s.again)
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

// flush writes the logs every second, and when there is much to write.
func (d *disk) flush(stop chan struct{}) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	said := false
	for {
		select {
		case <-t.C:
		case <-d.wake:
		case <-stop:
			return
		}
		if err := d.commit(false); err != nil && !said {
			d.log.Printf("the log cannot be written, so writes are refused: %v", err)
			said = true
		} else if err == nil && said {
			d.log.Print("the log is written again")
			said = false
		}
	}
}

// syncEverySecond brings the logs to the disk beside flush, which goes on meanwhile. flush says if that fails.
func (d *disk) syncEverySecond(stop chan struct{}) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			d.commit(true)
		case <-stop:
			return
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

// cleared logs that all keys go. All shards are locked, and go on in the newest log.
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
	s.shards[0].note(entry{kind: kindClear})
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
	var to *logFile
	if d.sync != NoLog {
		if to, err = d.newest(); err != nil {
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
		w := &paced{file: f, haste: haste, hurry: &d.hurry, began: time.Now()}
		if err := w.write([]byte(magic)); err != nil {
			return err
		}
		var b []byte
		keys := int64(0)
		for ; switched < shards; switched++ {
			for next, more := uint64(switched)<<(64-shardBits), true; more; {
				b = b[:0]
				next, more = s.copyShard(switched, next, to, &b, &keys)
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
		return w.flush()
	})
	if err != nil {
		return err
	}
	made = true
	return d.removeBefore(d.number)
}

// copiedBytes is about how many bytes of a shard are copied while it is locked.
var copiedBytes = 64 << 10 // tests have fewer

// expiredFor is how long a key has expired before a snapshot leaves it out: who changes it has a clock that is behind,
// and may have it expire later, or never, in the new log.
const expiredFor = time.Minute

// copyShard appends records of a shard from a hash on, and tells where to go on. From the first call on, what is done
// to the shard is in the new log, though some keys are copied later, and with that: to do it again leads to the same.
func (s *Space) copyShard(number int, from uint64, to *logFile, b *[]byte, keys *int64) (next uint64, more bool) {
	sh := &s.shards[number]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.log = to
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

package keyspace

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
	"sync/atomic"
)

// kind is what a record of a file says.
type kind byte

const (
	kindPut    kind = iota + 1 // the key has this value, and expires then
	kindAppend                 // the key's value has this behind it: of older versions
	kindExpire                 // the key expires then
	kindDelete                 // the key is gone
	kindClear                  // all keys are gone
	kindPatch                  // the key's value has these bytes from expires on
	kindEnd                    // a snapshot is whole, with as many keys as expires says
	kindGroup                  // the value is records, of which all or none are done
	kindTail                   // the key's value has this from expires on, and nothing behind it
)

// A file begins with a word, and its records with their heads.
const (
	magic       = "warpmap keys 01\n"
	entryBytes  = 32 // crcs of the rest of the head and of key and value; kind, bytes of key and value, filter, expires
	mostPending = 64 << 20
	mostHeld    = 256 << 10 // bytes that are written at once: they fit into a core's cache
	mostGroup   = 256 << 20 // bytes of a group's records, but for its last
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entry is a record of a file.
type entry struct {
	kind       kind
	key, value []byte
	expires    int64
	filter     bool // the value of kindPut is a filter
}

// appendEntry appends a record of a file to b.
func appendEntry(b []byte, e entry) []byte {
	head := e.sealed()
	return append(append(append(b, head[:]...), e.key...), e.value...)
}

// sealed is a record's head, with the checksums.
func (e entry) sealed() (head [entryBytes]byte) {
	head = e.head()
	binary.LittleEndian.PutUint32(head[4:], crc32.Update(crc32.Update(0, castagnoli, e.key), castagnoli, e.value))
	binary.LittleEndian.PutUint32(head[:], crc32.Update(0, castagnoli, head[4:]))
	return head
}

// seal puts the checksums into records that appendOpen appended.
func seal(b []byte) {
	for len(b) > 0 {
		n := entryBytes + int(binary.LittleEndian.Uint32(b[12:])) + int(binary.LittleEndian.Uint32(b[16:]))
		binary.LittleEndian.PutUint32(b[4:], crc32.Update(0, castagnoli, b[entryBytes:n]))
		binary.LittleEndian.PutUint32(b, crc32.Update(0, castagnoli, b[4:entryBytes]))
		b = b[n:]
	}
}

// appendOpen appends a record without its checksums, which take longer than the rest.
func appendOpen(b []byte, e entry) []byte {
	head := e.head()
	return append(append(append(b, head[:]...), e.key...), e.value...)
}

// head is a record's head without its checksums.
func (e entry) head() (head [entryBytes]byte) {
	binary.LittleEndian.PutUint32(head[8:], uint32(e.kind))
	binary.LittleEndian.PutUint32(head[12:], uint32(len(e.key)))
	binary.LittleEndian.PutUint32(head[16:], uint32(len(e.value)))
	if e.filter {
		head[20] = 1
	}
	binary.LittleEndian.PutUint64(head[24:], uint64(e.expires))
	return head
}

// DamagedError says where a file is damaged.
type DamagedError struct {
	Name string
	At   int64 // bytes of it that are sound
	Why  string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: %s", e.Name, e.At, e.Why)
}

// errUnknown is a file that does not begin as those do that are known. It may be sound, and of a newer version.
var errUnknown = errors.New("it is no file of keys, or of a version that is not known")

// errTorn ends a file within a record, or with one that is not whole.
var errTorn = errors.New("it ends within a record")

// entries reads the records of a file of so many bytes, and gives them to do, whose they are until it returns. sound is
// how many bytes hold whole records. Errors: errTorn; another, if a record that is not the last is damaged; do's.
func entries(r io.Reader, size int64, do func(e entry) error) (sound int64, err error) {
	from := bufio.NewReaderSize(r, 1<<20)
	var first [len(magic)]byte
	if size < int64(len(magic)) {
		return 0, errTorn
	}
	if _, err := io.ReadFull(from, first[:]); err != nil {
		return 0, err
	}
	if string(first[:]) != magic {
		if first == [len(magic)]byte{} && zeros(from) {
			return 0, errors.New("it is nothing but zeros")
		}
		return 0, errUnknown
	}
	sound = int64(len(magic))
	var head [entryBytes]byte
	var body []byte
	for sound < size {
		if size-sound < entryBytes {
			return sound, errTorn
		}
		if _, err := io.ReadFull(from, head[:]); err != nil {
			return sound, err
		}
		if crc32.Update(0, castagnoli, head[4:]) != binary.LittleEndian.Uint32(head[:]) {
			if head == [entryBytes]byte{} && zeros(from) { // as a file system leaves what it had no time to write
				return sound, errTorn
			}
			return sound, errors.New("a record's head has another checksum than it says")
		}
		e, key, value, err := headOf(head[:])
		if err != nil {
			return sound, err
		}
		n := key + value
		end := sound + entryBytes + n
		if end > size {
			return sound, errTorn
		}
		if int64(cap(body)) < n {
			body = make([]byte, n)
		}
		body = body[:n]
		if _, err := io.ReadFull(from, body); err != nil {
			return sound, err
		}
		if crc32.Update(0, castagnoli, body) != binary.LittleEndian.Uint32(head[4:]) {
			if end == size {
				return sound, errTorn
			}
			return sound, errors.New("a record has another checksum than it says")
		}
		e.key, e.value = body[:key:key], body[key:]
		if err := do(e); err != nil {
			return sound, err
		}
		sound = end
	}
	return sound, nil
}

// headOf reads a record's head, and tells how many bytes its key and its value have.
func headOf(head []byte) (e entry, key, value int64, err error) {
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(head[at:]) }
	k, more := u32(8), u32(20)
	key, value = int64(u32(12)), int64(u32(16))
	e = entry{kind: kind(k), filter: more == 1, expires: int64(binary.LittleEndian.Uint64(head[24:]))}
	if k < uint32(kindPut) || k > uint32(kindTail) || more > 1 || e.filter && e.kind != kindPut || key > mostKey ||
		value > mostBytes {
		err = fmt.Errorf("a record of kind %d with %d and %d bytes", k, key, value)
	}
	return e, key, value, err
}

// each gives the records of a group to do. The group's own checksum is that of all of them.
func each(b []byte, do func(e entry) error) error {
	wrong := errors.New("a group of records that are not whole")
	for len(b) > 0 {
		if len(b) < entryBytes {
			return wrong
		}
		e, key, value, err := headOf(b[:entryBytes])
		if err != nil {
			return err
		}
		if b = b[entryBytes:]; key+value > int64(len(b)) || e.kind == kindGroup {
			return wrong
		}
		e.key, e.value = b[:key:key], b[key:key+value:key+value]
		if err := do(e); err != nil {
			return err
		}
		b = b[key+value:]
	}
	return nil
}

// zeros tells whether nothing but zeros is left.
func zeros(r io.ByteReader) bool {
	for {
		c, err := r.ReadByte()
		if err != nil || c != 0 {
			return err == io.EOF
		}
	}
}

// logFile is a log that is written. A nil one takes nothing.
type logFile struct {
	file   *os.File
	mu     sync.Mutex
	turn   sync.Cond
	buf    []byte // what is to be written
	other  []byte // memory for what is written
	bytes  int64  // of all records
	wrote  int64  // how many of these are in the file
	synced int64  // how many of these are on the disk
	busy   bool   // somebody writes
	sync   bool   // somebody brings to the disk what was written before
	err    error  // why writing failed the last time
	broken bool   // syncing failed
	wake   chan struct{}
	failed *atomic.Bool // of all logs
}

func createLog(name string, wake chan struct{}, failed *atomic.Bool) (*logFile, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	l := &logFile{file: f, wake: wake, failed: failed}
	l.turn.L = &l.mu
	l.buf = append(l.buf, magic...)
	l.bytes = int64(len(l.buf))
	if err := l.commit(true); err != nil { // the next try wants the same name
		return nil, errors.Join(err, f.Close(), os.Remove(name))
	}
	return l, nil
}

// append adds a record. Where the disk does not keep up, it waits, but not for a log that cannot be written.
func (l *logFile) append(e entry) {
	if l == nil {
		return
	}
	head := e.sealed() // before the lock, which all threads want
	before := l.begin()
	l.buf = append(append(append(l.buf, head[:]...), e.key...), e.value...)
	l.end(before)
}

// appendBytes adds records that are written out already.
func (l *logFile) appendBytes(b []byte) {
	before := l.begin()
	l.buf = append(l.buf, b...)
	l.end(before)
}

// begin locks the log when there is room, and end unlocks it when something was added behind what was there before.
func (l *logFile) begin() (before int) {
	l.mu.Lock()
	for len(l.buf) > mostPending && l.err == nil && !l.broken && !l.failed.Load() {
		l.signal()
		l.turn.Wait()
	}
	return len(l.buf)
}

func (l *logFile) end(before int) {
	l.bytes += int64(len(l.buf) - before)
	if before < mostHeld && len(l.buf) >= mostHeld {
		l.signal()
	}
	l.mu.Unlock()
}

func (l *logFile) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// commit has everything that was appended before in the file, and on the disk if it is to be synced. Those who come
// while another writes, or syncs, go together behind that one; others may write while one syncs.
func (l *logFile) commit(sync bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
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
func (l *logFile) write() error {
	l.busy = true
	data, from := l.buf, l.wrote
	l.buf, l.other = l.other[:0], nil
	l.mu.Unlock()
	_, err := l.file.WriteAt(data, from)
	if err != nil {
		l.file.Truncate(from)
	}
	l.mu.Lock()
	l.busy = false
	defer l.turn.Broadcast()
	if err != nil {
		l.failed.Store(true)
		l.buf = append(data, l.buf...)
	} else {
		l.wrote += int64(len(data))
		if cap(data) <= 4<<20 {
			l.other = data[:0]
		}
	}
	if !l.broken {
		l.err = err
	}
	return err
}

// toDisk brings to the disk what was written, without the lock meanwhile.
func (l *logFile) toDisk() error {
	l.sync = true
	wrote := l.wrote
	l.mu.Unlock()
	err := l.file.Sync()
	l.mu.Lock()
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

func (l *logFile) close(sync bool) error { return errors.Join(l.commit(sync), l.file.Close()) }

// why is why the log cannot be written, or nil.
func (l *logFile) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// isBroken tells whether syncing failed, so that the log is never whole again.
func (l *logFile) isBroken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// replaced says that a snapshot holds what the log does, and nobody adds to it any more. So all is as good as synced.
func (l *logFile) replaced() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.busy || l.sync {
		l.turn.Wait()
	}
	l.wrote, l.synced = l.bytes, l.bytes
	l.buf, l.err, l.broken = nil, nil, false
	l.turn.Broadcast()
}

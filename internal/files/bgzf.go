package files

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/inflate"
)

// BGZF (SAM specification, section 4.1) is gzip in members of 64 KiB of text or less, each of which says in its header
// how long it is: bgzip and sequencers write it. Members are unpacked beside one another, some at a time, where one
// core alone unpacks less than a parser takes.
const (
	memberText    = 64 << 10
	membersAtOnce = 32
	memberHead    = 12 // bytes of a header before its extra fields
	memberTail    = 8  // the text's CRC-32, and its length
)

// members is the text of a BGZF file.
type members struct {
	from *bufio.Reader
	work chan struct{} // a place for each that unpacks
	jobs chan *memberJob
	quit chan struct{}
	job  *memberJob // that is being read
	at   int        // of its text
}

// memberJob is some members in a row.
type memberJob struct {
	packed []byte
	ends   []int // of each, in packed
	length int   // of the text
	text   []byte
	rest   io.Reader // what is no BGZF any more: a member of another kind, and all behind it
	err    error     // behind the text
	done   chan struct{}
}

// memberLength is how long the member is that begins here; 0 where its header does not say so. Its extra fields, too,
// are among the first bytes.
func memberLength(head []byte) int {
	const named = 4 // flag: there are extra fields
	if len(head) < memberHead || head[0] != 0x1f || head[1] != 0x8b || head[2] != 8 || head[3] != named {
		return 0
	}
	extra := head[memberHead:]
	extra = extra[:min(len(extra), int(binary.LittleEndian.Uint16(head[10:])))]
	for len(extra) >= 4 {
		n := 4 + int(binary.LittleEndian.Uint16(extra[2:]))
		if n > len(extra) {
			return 0
		}
		if extra[0] == 'B' && extra[1] == 'C' && n == 6 {
			length := int(binary.LittleEndian.Uint16(extra[4:])) + 1
			if length < memberHead+int(binary.LittleEndian.Uint16(head[10:]))+memberTail {
				return 0
			}
			return length
		}
		extra = extra[n:]
	}
	return 0
}

// peekMember is the length of the member that comes next: 0 where it is none of BGZF.
func peekMember(b *bufio.Reader) int {
	head, _ := b.Peek(memberHead)
	if len(head) < memberHead {
		return 0
	}
	head, _ = b.Peek(memberHead + int(binary.LittleEndian.Uint16(head[10:])))
	return memberLength(head)
}

// unpackMembers begins to unpack what b has, which is BGZF. So many jobs are ahead of who reads; each takes a place of
// work. The caller stops it, and closes what b reads from if that may block; then wait waits until nobody reads it any
// more.
func unpackMembers(b *bufio.Reader, ahead int, work chan struct{}) (m *members, stop, wait func()) {
	m = &members{from: b, work: work, jobs: make(chan *memberJob, ahead), quit: make(chan struct{})}
	var all sync.WaitGroup
	all.Add(1)
	go func() {
		defer all.Done()
		defer close(m.jobs)
		for more := true; more; {
			if err := crash.Catch(func() error { more = m.cut(&all); return nil }); err != nil {
				j := &memberJob{err: err, done: make(chan struct{})}
				close(j.done)
				select {
				case m.jobs <- j:
				case <-m.quit:
				}
				return
			}
		}
	}()
	return m, sync.OnceFunc(func() { close(m.quit) }), all.Wait
}

// cut makes a job of the next members, and tells whether there may be more.
func (m *members) cut(all *sync.WaitGroup) bool {
	j := memberJobs.Get().(*memberJob)
	*j = memberJob{packed: j.packed[:0], ends: j.ends[:0], text: j.text[:0], done: make(chan struct{})}
	more := true
	for len(j.ends) < membersAtOnce && more {
		more = m.add(j)
	}
	select {
	case m.jobs <- j:
	case <-m.quit:
		return false
	}
	all.Add(1)
	go func() {
		defer all.Done()
		defer close(j.done)
		select {
		case m.work <- struct{}{}:
		case <-m.quit:
			return
		}
		defer func() { <-m.work }()
		if err := crash.Catch(j.unpack); err != nil {
			j.err, j.rest = err, nil
		}
	}()
	return more
}

// add adds a member to a job, or what ends it.
func (m *members) add(j *memberJob) bool {
	n := peekMember(m.from)
	if n == 0 {
		j.rest = newRow(going{m.from}) // or the end, or what cannot be read
		return false
	}
	from := len(j.packed)
	j.packed = slices.Grow(j.packed, n)[:from+n]
	if _, err := io.ReadFull(m.from, j.packed[from:]); err != nil {
		j.packed, j.err = j.packed[:from], err
		return false
	}
	text := int(binary.LittleEndian.Uint32(j.packed[len(j.packed)-4:]))
	if text > memberText {
		j.err = gzip.ErrHeader
		return false
	}
	j.length += text
	j.ends = append(j.ends, len(j.packed))
	return true
}

// memberJobs are those that were read, for their memory.
var memberJobs = sync.Pool{New: func() any { return new(memberJob) }}

var inflaters = sync.Pool{New: func() any { return new(inflate.Whole) }}

// unpack unpacks the members up to the first that is broken.
func (j *memberJob) unpack() error {
	inflater := inflaters.Get().(*inflate.Whole)
	defer inflaters.Put(inflater)
	j.text = slices.Grow(j.text, j.length+inflate.Slack)
	from := 0
	for _, end := range j.ends {
		x := j.packed[from:end]
		from = end
		tail := x[len(x)-memberTail:]
		data := x[memberHead+int(binary.LittleEndian.Uint16(x[10:])) : len(x)-memberTail]
		at := len(j.text)
		to := at + int(binary.LittleEndian.Uint32(tail[4:]))
		switch err := inflater.Unpack(j.text[at:to+inflate.Slack], data); {
		case err == inflate.ErrLength:
			return gzip.ErrChecksum
		case err != nil:
			return err
		case crc32.ChecksumIEEE(j.text[at:to]) != binary.LittleEndian.Uint32(tail):
			return gzip.ErrChecksum
		}
		j.text = j.text[:to]
	}
	return nil
}

func (m *members) Read(to []byte) (int, error) {
	for {
		if m.job == nil {
			j, more := <-m.jobs
			if !more { // it was stopped
				return 0, io.EOF
			}
			<-j.done
			m.job, m.at = j, 0
		}
		switch j := m.job; {
		case m.at < len(j.text):
			n := copy(to, j.text[m.at:])
			m.at += n
			return n, nil
		case j.rest != nil:
			return j.rest.Read(to)
		case j.err != nil:
			return 0, j.err
		}
		memberJobs.Put(m.job)
		m.job = nil
	}
}

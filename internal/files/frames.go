package files

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/warpmap/warpmap/internal/crash"
)

// Zstd data (RFC 8878) in several frames, as pzstd writes it, is unpacked frame by frame beside one another: each of
// their blocks says how long it is, so that where a frame ends is known before it is unpacked. A long frame, and all
// behind it, is unpacked in a row.
const (
	// mostFrame is how long a frame may be, packed, and mostFrameText its text: with pzstd -3, 1.6 and 8 MiB.
	mostFrame     = 4 << 20
	mostFrameText = 32 << 20
	// framesAtOnce is how many bytes of short frames are unpacked at once.
	framesAtOnce = 512 << 10
)

// frames is the text of zstd's frames.
type frames struct {
	from  *bufio.Reader
	work  chan struct{} // a place for each that unpacks
	whole *zstd.Decoder // unpacks what is there as a whole
	row   []zstd.DOption
	jobs  chan *frameJob
	quit  chan struct{}
	job   *frameJob // that is being read
	at    int       // of its text
	z     *zstd.Decoder
}

// frameJob is some frames in a row.
type frameJob struct {
	packed []byte
	text   []byte
	again  bool      // they are to be unpacked in a row: there is too much text, or something is wrong
	rest   io.Reader // what is behind them, if that is to be unpacked in a row
	err    error
	done   chan struct{}
}

// isSkipped tells whether a frame begins so that is not of text.
func isSkipped(first []byte) bool {
	return len(first) >= 4 && first[0]&0xf0 == 0x50 && bytes.Equal(first[1:4], []byte{0x2a, 0x4d, 0x18})
}

// unpackFrames begins to unpack what b has, which is zstd. So many jobs are ahead of who reads. The caller stops it,
// and closes what b reads from if that may block; then wait waits until nobody reads it any more.
func unpackFrames(b *bufio.Reader, ahead int, work chan struct{}, row []zstd.DOption) (f *frames, stop, wait func(),
	err error) {
	whole, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(cap(work)), zstd.WithDecoderMaxWindow(mostWindow),
		zstd.WithDecoderMaxMemory(mostFrameText))
	if err != nil {
		return nil, nil, nil, err
	}
	f = &frames{from: b, work: work, whole: whole, row: row, jobs: make(chan *frameJob, min(ahead, cap(work)+2)),
		quit: make(chan struct{})}
	var all sync.WaitGroup
	all.Add(1)
	go func() {
		defer all.Done()
		defer close(f.jobs)
		for more := true; more; {
			if err := crash.Catch(func() error { more = f.cut(&all); return nil }); err != nil {
				more = false
				select {
				case f.jobs <- &frameJob{err: err, done: closed}:
				case <-f.quit:
				}
			}
		}
	}()
	return f, sync.OnceFunc(func() { close(f.quit) }), func() {
		all.Wait()
		whole.Close()
		if f.z != nil {
			f.z.Close()
		}
	}, nil
}

// cut makes a job of the next frames, and tells whether there may be more.
func (f *frames) cut(all *sync.WaitGroup) (more bool) {
	j := frameJobs.Get().(*frameJob)
	*j = frameJob{packed: j.packed[:0], text: j.text[:0], done: make(chan struct{})}
	for more = true; more && len(j.packed) < framesAtOnce; {
		var to []byte
		if to, more = f.frame(j.packed); more {
			j.packed = to
		} else if part := to[len(j.packed):]; len(part) > 0 || f.any() {
			j.rest = io.MultiReader(bytes.NewReader(part), f.from)
		}
	}
	select {
	case f.jobs <- j:
	case <-f.quit:
		return false
	}
	all.Add(1)
	go func() {
		defer all.Done()
		defer close(j.done)
		select {
		case f.work <- struct{}{}:
		case <-f.quit:
			return
		}
		defer func() { <-f.work }()
		j.err = crash.Catch(func() (err error) {
			if j.text, err = f.whole.DecodeAll(j.packed, j.text); err != nil {
				j.text, j.again = j.text[:0], true
			}
			return nil
		})
	}()
	return more
}

// frameJobs are those that were read, for their memory.
var frameJobs = sync.Pool{New: func() any { return new(frameJob) }}

// any tells whether there is more input, or an error of it.
func (f *frames) any() bool {
	_, err := f.from.Peek(1)
	return err != io.EOF
}

// frame adds the next frame to what is there. It is false where that is none, or is long, or not whole, and adds what
// it has read of it.
func (f *frames) frame(to []byte) (out []byte, ok bool) {
	from := len(to)
	more := func(n int) bool { // reads so many bytes
		if len(to)-from+n > mostFrame {
			return false
		}
		at := len(to)
		to = append(to, make([]byte, n)...)
		got, err := io.ReadFull(f.from, to[at:])
		to = to[:at+got]
		return err == nil
	}
	if !more(4) {
		return to, false
	}
	if isSkipped(to[from:]) {
		return to, more(4) && more(int(binary.LittleEndian.Uint32(to[from+4:])))
	}
	if PackingOf(to[from:]) != "zstd" || !more(1) {
		return to, false
	}
	// What follows a frame's header are blocks, and then a sum.
	about := to[from+4]
	single, sums := about>>5&1, about>>2&1
	header := []int{0, 1, 2, 4}[about&3] + []int{int(single), 2, 4, 8}[about>>6] + 1 - int(single)
	if !more(header) {
		return to, false
	}
	for last := false; !last; {
		if !more(3) {
			return to, false
		}
		b := to[len(to)-3:]
		x := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
		n := x >> 3
		if last = x&1 == 1; x>>1&3 == 1 { // one byte that is repeated
			n = 1
		}
		if !more(n) {
			return to, false
		}
	}
	return to, sums == 0 || more(4)
}

func (f *frames) Read(to []byte) (int, error) {
	for {
		if f.z != nil {
			n, err := f.z.Read(to)
			if n > 0 || err != io.EOF {
				return n, err
			}
			f.z.Close()
			f.z = nil
		}
		if f.job == nil {
			j, more := <-f.jobs
			if !more {
				return 0, io.EOF
			}
			<-j.done
			f.job, f.at = j, 0
		}
		j := f.job
		switch {
		case j.err != nil:
			return 0, j.err
		case f.at < len(j.text):
			n := copy(to, j.text[f.at:])
			f.at += n
			return n, nil
		case j.again:
			j.again = false
			f.z, j.err = zstd.NewReader(bytes.NewReader(j.packed), f.row...)
		case j.rest != nil:
			f.z, j.err = zstd.NewReader(j.rest, f.row...)
			j.rest = nil
		default:
			frameJobs.Put(j)
			f.job = nil
		}
	}
}

package genome

import (
	"bytes"
	"io"
	"os"
	"slices"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/files"
)

const (
	// mostReaders is how many goroutines copy a plain file from the page cache, at most. Each holds a chunk.
	mostReaders = 8
	// mostRoom is the room before a chunk, at most. What a chunk leaves to the next is copied there if it is no more:
	// of reads it is a few hundred bytes.
	mostRoom = 64 << 10
)

// chunk is what is read of an input at once.
type chunk struct {
	piece
	format format // that cut is of
	cut    int    // where its last record begins; 0: no beginning was found
	end    bool   // of the input
	err    error
	done   chan struct{} // closed when the text is there
}

// search looks for the last record that begins in the chunk.
func (c *chunk) search(f format) {
	if f != unknown && c.format != f {
		c.format, c.cut = f, f.cut(c.text)
	}
}

// source reads an input chunk by chunk: a plain file by several goroutines, each at another place, and what comes in a
// row by one.
type source struct {
	s      *stream
	in     *input
	text   *files.Text  // nil where there is a file
	file   *os.File     // plain and regular, so that it may be read anywhere
	size   int64        // of the file when it was opened; nothing depends on it but how much is read ahead
	at     int64        // of the file, where the next chunk begins
	want   int          // bytes of the next chunk
	format format       // once it is known
	flight []*chunk     // those that are being read, in order
	close  func() error // the input
}

// next is the next chunk, whatever went wrong with it.
func (f *source) next() *chunk {
	for len(f.flight) == 0 || f.file != nil && f.at < f.size && len(f.flight) < f.s.readersOf(f.in) {
		f.flight = append(f.flight, f.begin())
	}
	c := f.flight[0]
	f.flight = f.flight[1:]
	<-c.done
	return c
}

// begin begins to read a chunk; one that is not of a file is there at once.
func (f *source) begin() *chunk {
	size := f.want
	if left := f.size - f.at; f.file != nil && left >= 0 && left < int64(size) {
		size = int(left) + 1 // one more tells that it is the end
	}
	room := min(size/8, mostRoom)
	raw := f.s.texts.get(room + size)
	c := &chunk{piece: piece{text: raw[room:], room: room, memory: f.s.texts.memory(raw)}, done: make(chan struct{})}
	most := f.s.o.BlockBytes
	if f.format == fastq { // half of it is letters
		most *= 2
	}
	f.want = min(2*f.want, most)
	if f.file == nil {
		c.read(f.s, f.text)
		return c
	}
	at, format := f.at, f.format
	go func() {
		defer close(c.done)
		if err := crash.Catch(func() error { c.readAt(f.file, at, format); return nil }); err != nil {
			c.err = err
		}
	}()
	f.at += int64(size)
	return c
}

// readAt reads the chunk that begins at a place of a file.
func (c *chunk) readAt(file *os.File, at int64, f format) {
	n, err := file.ReadAt(c.text, at)
	c.text = c.text[:n]
	if c.end = err == io.EOF; err != nil && !c.end {
		c.err = err
		return
	}
	c.search(f)
}

// read reads the chunk from what comes in a row.
func (c *chunk) read(s *stream, from io.Reader) {
	defer close(c.done)
	n := 0
	for n < len(c.text) && !c.end && s.ctx.Err() == nil {
		got, err := from.Read(c.text[n:])
		n, c.end = n+got, err == io.EOF
		if err != nil && !c.end {
			c.err = err
			break
		}
	}
	c.text = c.text[:n]
}

// end waits for what is being read, and closes the input.
func (f *source) end() {
	for _, c := range f.flight {
		<-c.done
	}
	f.close()
}

// piece is a stretch of text, and the memory that it lies in; nil: memory that nobody gets back.
type piece struct {
	text   []byte
	memory *memory
	room   int // bytes before the text, which is at the memory's front then
}

// pieces are text in a row that lies in several places.
type pieces struct {
	list     []piece
	n        int // bytes
	searched int // as many were searched for a record's beginning, in vain
	weighed  int // as many were compared with the memory that is free
	dropped  []dropped
}

// keptBlanks is how many blank lines in a row are as good as more: a record of FASTQ has fewer.
const keptBlanks = 4

// addLong adds a chunk in which no record was found. One of blank lines alone leaves few of them: a small packed file
// of such lines would take all memory.
func (p *pieces) addLong(x piece) {
	if slices.ContainsFunc(x.text, func(b byte) bool { return b > ' ' || b == 0 }) {
		p.add(x)
		return
	}
	from := 0
	for range keptBlanks {
		from = len(x.text) - len(behind(x.text[from:]))
	}
	to := bytes.LastIndexByte(x.text, '\n') + 1
	if from >= to || len(x.text)-to > mostRoom {
		p.add(x)
		return
	}
	head, tail := piece{text: bytes.Clone(x.text[:from])}, piece{text: bytes.Clone(x.text[to:])}
	p.add(head)
	p.dropped = append(p.dropped, dropped{p.n, int64(bytes.Count(x.text[from:to], []byte{'\n'}))})
	p.add(tail)
	x.release()
}

// droppedUpTo splits the lines that were dropped at a byte of the text, from which those behind it then count.
func (p *pieces) droppedUpTo(at int) (before, behind []dropped) {
	for _, d := range p.dropped {
		if d.at <= at {
			before = append(before, d)
		} else {
			behind = append(behind, dropped{d.at - at, d.lines})
		}
	}
	return before, behind
}

func (p *pieces) add(x piece) {
	if len(x.text) == 0 {
		x.release()
		return
	}
	p.n += len(x.text)
	p.list = append(p.list, x)
}

// ends tells whether the text ends with this byte.
func (p *pieces) ends(b byte) bool {
	return len(p.list) > 0 && bytes.HasSuffix(p.list[len(p.list)-1].text, []byte{b})
}

// prepend makes one piece of all where the last has room before it.
func (p *pieces) prepend() {
	last := p.list[len(p.list)-1]
	before := p.n - len(last.text)
	if len(p.list) == 1 || before > last.room {
		return
	}
	all := last.memory.raw[last.room-before : last.room+len(last.text)]
	at := 0
	for _, x := range p.list[:len(p.list)-1] {
		at += copy(all[at:], x.text)
		x.release()
	}
	p.list = []piece{{text: all, memory: last.memory}}
}

// join makes one piece of all, in memory that can be released.
func (p *pieces) join(from *texts) {
	if len(p.list) == 1 && p.list[0].memory != nil {
		return
	}
	raw, at := from.get(p.n), 0
	for _, x := range p.list {
		at += copy(raw[at:], x.text)
		x.release()
	}
	p.list = []piece{{text: raw, memory: from.memory(raw)}}
}

// behind splits the piece, and gives what is behind its first n bytes.
func (x *piece) behind(n int) piece {
	tail := piece{text: x.text[n:]}
	if x.text = x.text[:n]; len(tail.text) <= mostRoom {
		tail.text = bytes.Clone(tail.text) // so that the memory need not wait for it
	} else {
		tail.memory = x.memory.share()
	}
	return tail
}

func (x piece) release() {
	if x.memory != nil {
		x.memory.release()
	}
}

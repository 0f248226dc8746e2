package genome

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/files"
)

// Record is one sequence of a Block.
type Record struct {
	Name       []byte // the header without its > or @, up to the end of the line
	Start, End int    // the letters are Text[Start:End]
}

// Block is a run of whole records of one input. Text holds their letters as they stand in the file (any case, any
// letter), without line ends, and with one byte '\n' behind each record. Records and Text are good until Release.
type Block struct {
	Input   string
	First   int64 // the number of the first record in its input, from 0
	Text    []byte
	Records []Record
	memory  *memory
	lists   *lists
}

// Release gives the block's memory to later blocks. The garbage collector frees a block that is not released.
func (b *Block) Release() {
	if b.memory != nil {
		b.memory.release()
		b.memory = nil
	}
	if b.lists != nil {
		b.lists.release()
		b.lists = nil
	}
}

// lists are the records of one block, or of parts of it, and their names.
type lists struct {
	users   atomic.Int32
	names   []byte
	records []Record
	from    *texts
}

func (l *lists) share() *lists {
	if l != nil {
		l.users.Add(1)
	}
	return l
}

func (l *lists) release() {
	if l.users.Add(-1) > 0 {
		return
	}
	l.from.mu.Lock()
	defer l.from.mu.Unlock()
	if len(l.from.lists) < l.from.idle {
		l.from.lists = append(l.from.lists, l)
	}
}

// list gives empty lists with one user, which have room for as much as texts of so many bytes had last.
func (t *texts) list(bytes, most int) *lists {
	t.mu.Lock()
	l := &lists{from: t}
	if n := len(t.lists); n > 0 {
		l, t.lists = t.lists[n-1], t.lists[:n-1]
	}
	last := t.last
	t.mu.Unlock()
	l.users.Store(1)
	room := func(had int) int { return int(int64(had)*int64(bytes)/int64(last.bytes+1))*9/8 + 1 }
	if n := min(room(last.records), most); n > cap(l.records) {
		l.records = make([]Record, 0, n)
	}
	if n := room(last.names); n > cap(l.names) {
		l.names = make([]byte, 0, n)
	}
	return l
}

// had notes what a text of so many bytes had.
func (t *texts) had(bytes int, l *lists) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last.bytes, t.last.records, t.last.names = bytes, len(l.records), len(l.names)
}

// memory is what the texts of one block, or of parts of it, lie in.
type memory struct {
	mu    sync.Mutex
	users int
	raw   []byte
	from  *texts
}

func (m *memory) share() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users++
	return m
}

func (m *memory) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users--; m.users == 0 {
		m.from.put(m.raw)
		m.raw = nil
	}
}

// texts is memory that was released. It is kept, whatever the garbage collector does, as long as the stream: memory
// that is new is zeroed, and brought in page by page, which takes longer than reading and parsing a text.
type texts struct {
	mu    sync.Mutex
	free  [][]byte
	lists []*lists
	idle  int // lists that are kept for later at most
	last  struct{ bytes, records, names int }
}

func (t *texts) put(raw []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, raw)
}

// longText is the bytes of a text that is longer than blocks of many letters: one record.
const longText = 32 << 20

// get is memory for so many bytes: of what was released and is not much larger, what came last, for it may be in a
// cache.
func (t *texts) get(n int) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, raw := range slices.Backward(t.free) {
		if cap(raw) >= n && cap(raw)/8 <= n {
			t.free = slices.Delete(t.free, i, i+1)
			return raw[:n]
		}
	}
	if n >= longText {
		// lest records that are each a little longer than the last have new memory every time
		return make([]byte, n, 1<<bits.Len(uint(n-1)))
	}
	return make([]byte, n, n+n/8)
}

// memory is raw with one user.
func (t *texts) memory(raw []byte) *memory { return &memory{users: 1, raw: raw, from: t} }

// Options say how inputs are read. The zero value is good.
type Options struct {
	BlockBytes int // about how many letters a block has (a longer record is whole in one block); 0: 8 MiB
	Threads    int // how many inputs, and blocks of an input, are unpacked and parsed at once; 0: GOMAXPROCS
	// SkipBroken leaves out and counts broken records, such as those of FASTQ in FASTA or the other way round, and
	// inputs that have no records. It does not skip what is packed in another way, nor another kind of text.
	SkipBroken bool

	// MaxLetters bounds the letters of a record, for inputs that nobody vouches for. A longer record is an error, and
	// so is zstd with windows of more than 8 MiB. 0 means no bound.
	MaxLetters int
	// Open, if not nil, opens the inputs, and their names are not expanded. The first block of each input is smaller,
	// so that it comes soon.
	Open func(input string) (io.ReadCloser, error)
}

const (
	defaultBlockBytes = 8 << 20
	openedBlockBytes  = 1 << 16
)

// ErrTooLong is the error for a record that has more letters than Options.MaxLetters, that the machine's memory does
// not hold, or whose name has more than 64 KiB.
var ErrTooLong = errors.New("a record that is too long")

// textBytes is how long the text of a record may be: lines may be of one letter, and qualities are letters once more.
func (o Options) textBytes() int { return max(o.BlockBytes, 1<<16+4*o.MaxLetters) }

// recordText is how much text a record of a block has on average, at least: a Record takes 40 bytes, and what is made
// of one later more, however short it is.
const recordText = 16

// records is how many a block has at most.
func (o Options) records() int { return max(o.BlockBytes/recordText, 1<<10) }

func (o Options) complete() Options {
	if o.BlockBytes <= 0 {
		o.BlockBytes = defaultBlockBytes
	}
	o.Threads = crash.Threads(o.Threads)
	return o
}

// Counts tells how much was read.
type Counts struct{ Inputs, Records, Letters, Broken int64 }

func (c *Counts) add(b *Block) {
	c.Records += int64(len(b.Records))
	c.Letters += int64(len(b.Text) - len(b.Records))
}

// Read reads inputs (see Expand) and calls each for their blocks, in the order of the inputs and their records, from
// one goroutine. It passes no blocks without records. Counts tells what was read, even if an error ended the reading.
//
// Errors: *InputError for what cannot be read, with the line of a broken record; errors of each; the context's error.
// Blocks before the one with the broken record have been passed by then.
func Read(ctx context.Context, inputs []string, o Options, each func(*Block) error) (Counts, error) {
	s, err := newStream(ctx, inputs, o)
	if err != nil {
		return Counts{}, err
	}
	defer s.stop()
	for {
		b, err := s.next()
		if b == nil || err != nil {
			return s.counts, err
		}
		if err := each(b); err != nil {
			return s.counts, err
		}
	}
}

// stream gives the blocks of inputs, in order.
type stream struct {
	ctx     context.Context
	stop    context.CancelFunc
	o       Options
	texts   *texts
	ahead   int // jobs of an input that wait while an input before it is read
	readers int // of a plain file
	parse   chan struct{}
	unpack  chan struct{} // a place for each that unpacks members
	inputs  []string
	opened  []*input // of inputs[at:], those that are being read
	at      int
	lines   int64 // of the input, before the job that comes next
	rest    *job  // has more records than a block may
	first   int64
	counts  Counts
}

// input is one that is being read.
type input struct {
	name  string
	jobs  chan *job
	sent  int           // to jobs
	first chan struct{} // closed when all inputs before it are read
	is    bool          // first is closed
}

// job is a text that is parsed, in one of the stream's goroutines.
type job struct {
	parser
	format format
	pieces pieces
	memory *memory
	err    error
	done   chan struct{}
}

func newStream(ctx context.Context, inputs []string, o Options) (*stream, error) {
	if o.Open == nil {
		var err error
		if inputs, err = Expand(inputs); err != nil {
			return nil, err
		}
	}
	s := &stream{o: o.complete(), inputs: inputs, texts: &texts{idle: 2 * o.Threads}}
	s.ctx, s.stop = context.WithCancel(ctx)
	s.parse, s.unpack = make(chan struct{}, s.o.Threads), make(chan struct{}, s.o.Threads)
	s.ahead = s.o.Threads/max(1, min(s.o.Threads, len(inputs))) + 1
	s.readers = max(1, min(s.o.Threads/2, mostReaders))
	return s, nil
}

// readersOf is how many goroutines read a plain file: several where its blocks are waited for.
func (s *stream) readersOf(in *input) int {
	select {
	case <-in.first:
		return s.readers
	default:
		return 1
	}
}

// next is the next block, or nil behind the last.
func (s *stream) next() (*Block, error) {
	for s.at < len(s.inputs) && s.ctx.Err() == nil {
		for len(s.opened) < s.o.Threads && s.at+len(s.opened) < len(s.inputs) {
			in := &input{name: s.inputs[s.at+len(s.opened)], jobs: make(chan *job, s.o.Threads+1),
				first: make(chan struct{})}
			go func() {
				defer close(in.jobs)
				if err := crash.Catch(func() error { s.read(in); return nil }); err != nil {
					s.fail(in, err)
				}
			}()
			s.opened = append(s.opened, in)
		}
		in := s.opened[0]
		if !in.is {
			in.is = true
			close(in.first)
		}
		j, more := s.rest, true
		if s.rest = nil; j != nil {
			j.err = j.parse(j.format)
		} else {
			select {
			case j, more = <-in.jobs:
			case <-s.ctx.Done():
				return nil, s.ctx.Err()
			}
		}
		if !more {
			s.opened, s.at = s.opened[1:], s.at+1
			s.lines, s.first = 0, 0
			s.counts.Inputs++
			continue
		}
		<-j.done
		b, err := s.take(j)
		if err != nil || b != nil {
			return b, err
		}
	}
	return nil, s.ctx.Err()
}

// take makes a block of a job that is done; nil where there are no records.
func (s *stream) take(j *job) (*Block, error) {
	input := s.inputs[s.at]
	if input == "-" {
		input = "standard input"
	}
	var of *InputError
	switch {
	case errors.As(j.err, &of):
		return nil, &InputError{input, s.lines + of.Line, of.Err}
	case j.err != nil && j.err == s.ctx.Err():
		return nil, j.err
	case j.err != nil && !(s.o.SkipBroken && (j.err == errEmpty || j.err == errNeither)):
		return nil, &InputError{Input: input, Err: j.err}
	case j.err != nil:
		s.counts.Broken++
		return nil, nil
	}
	if i := s.tooLong(j.records); i >= 0 {
		r := j.records[i]
		return nil, &InputError{Input: input, Err: fmt.Errorf("%w: %q has %d letters, want %d at most", ErrTooLong,
			clip(r.Name), r.End-r.Start, s.o.MaxLetters)}
	}
	b := &Block{Input: input, First: s.first, Text: j.text[j.base:j.to:j.to], Records: j.records, memory: j.memory,
		lists: j.lists}
	if j.more() {
		s.rest = j
		j.memory.share()
	} else {
		s.lines += j.line
	}
	s.first += int64(len(b.Records))
	s.counts.Broken += j.broken
	j.broken = 0
	s.counts.add(b)
	if len(b.Records) == 0 {
		b.Release()
		return nil, nil
	}
	return b, nil
}

// tooLong is the first record that is longer than it may be, or -1.
func (s *stream) tooLong(records []Record) int {
	if s.o.MaxLetters == 0 {
		return -1
	}
	return slices.IndexFunc(records, func(r Record) bool { return r.End-r.Start > s.o.MaxLetters })
}

// read cuts an input into texts, and has each parsed.
func (s *stream) read(in *input) {
	from, err := s.open(in)
	if err != nil {
		s.fail(in, files.Cause(err))
		return
	}
	defer from.end()
	var left pieces // no job has them
	for {
		c := from.next()
		if s.ctx.Err() != nil {
			return
		}
		if err := from.know(c); err != nil {
			s.fail(in, files.Cause(err))
			return
		}
		switch {
		case c.end:
			left.add(c.piece)
			s.send(in, s.job(from.format, left))
			return
		case c.cut > 0:
			tail := c.behind(c.cut)
			left.add(c.piece)
			if !s.send(in, s.job(from.format, left)) {
				return
			}
			left = pieces{}
			left.add(tail)
		case from.format == fasta && left.ends('\n') && c.text[0] == byte(fasta):
			if !s.send(in, s.job(from.format, left)) {
				return
			}
			left = pieces{}
			left.add(c.piece)
		default: // a record that is longer than the chunk
			if s.o.MaxLetters > 0 {
				left.add(c.piece) // blank lines count: nobody vouches for the input
			} else {
				left.addLong(c.piece)
			}
			if !s.long(in, from.format, &left) {
				return
			}
		}
	}
}

// know tells the format by the first chunk that is not blank, and what is wrong with a chunk. Of what is packed, the
// first byte that is not blank decides before an error behind it does, which may be in this chunk or in a later one.
func (f *source) know(c *chunk) error {
	if packed := f.text != nil && f.text.Packing != ""; c.err != nil && !packed {
		return c.err
	}
	if f.format == unknown {
		var known bool
		switch f.format, known = formatOf(c.text); {
		case known && f.format == unknown:
			return neither(c.text)
		case !known && c.end:
			return errEmpty
		}
	}
	if c.err != nil {
		return c.err
	}
	c.search(f.format)
	return nil
}

// recordRoom is how much memory the machine has for a record; 0: nobody knows.
var recordRoom = func() int64 {
	free, _ := device.HostMemory()
	return free
}

// long looks after text in which no record was found that follows another: it must not be longer than a record may be,
// or than memory holds, and in FASTQ, where a record's beginning takes three lines to tell, there may be one that no
// chunk has whole. Searching each time that the text has doubled takes as long as copying it twice.
func (s *stream) long(in *input, f format, left *pieces) bool {
	if s.o.MaxLetters > 0 && left.n > s.o.textBytes() {
		return s.fail(in,
			&InputError{Line: 1, Err: fmt.Errorf("%w: more than %d bytes of text, want %d letters at most", ErrTooLong,
				left.n, s.o.MaxLetters)})
	}
	if left.n >= 2*left.weighed {
		left.weighed = left.n
		if room := recordRoom(); room > 0 && room/3 < int64(left.n) { // to double, and to be put together
			return s.fail(in, &InputError{Line: 1, Err: fmt.Errorf("%w: more than %d bytes, and the machine's memory "+
				"has no room to put it together: want shorter records, or a machine with more memory",
				ErrTooLong, left.n)})
		}
	}
	if f != fastq || left.n < 2*left.searched {
		return true
	}
	left.join(s.texts)
	all := &left.list[0]
	left.searched = left.n
	cut := f.cut(all.text)
	if cut == 0 {
		return true
	}
	tail, before := all.behind(cut), pieces{}
	before.add(*all)
	before.dropped, left.dropped = left.droppedUpTo(cut)
	*left = pieces{dropped: left.dropped}
	left.add(tail)
	return s.send(in, s.job(f, before))
}

// job has text parsed. It takes the pieces.
func (s *stream) job(f format, text pieces) *job {
	j := &job{format: f, pieces: text, done: make(chan struct{})}
	j.pieces.prepend()
	go func() {
		s.parse <- struct{}{}
		j.err = crash.Catch(func() error {
			j.pieces.join(s.texts)
			all := j.pieces.list[0]
			j.parser = parser{text: all.text, most: s.o.records(), skip: s.o.SkipBroken, dropped: j.pieces.dropped,
				from: s.texts}
			j.memory = all.memory
			return j.parser.parse(j.format)
		})
		<-s.parse
		close(j.done)
	}()
	return j
}

// send gives a job to the stream, and waits while there are many; it is false where the stream ends.
func (s *stream) send(in *input, j *job) bool {
	if in.sent++; in.sent > s.ahead {
		select {
		case <-in.first:
		case <-s.ctx.Done():
			return false
		}
	}
	select {
	case in.jobs <- j:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// fail ends an input with an error.
func (s *stream) fail(in *input, err error) bool {
	done := make(chan struct{})
	close(done)
	s.send(in, &job{err: err, done: done})
	return false
}

var errSkipMates = errors.New("broken records of mates cannot be left out: nothing would tell which of those behind " +
	"belong together; mend the files, or read them as single reads")

// ReadPaired reads mates as Read reads single records: the n-th record of first comes with the n-th of second, in
// blocks with equal numbers of records. It does not matter which inputs the records of a side come from. Counts are
// sums over both sides.
//
// Both sides are read concurrently, so one program may write the mates to two pipes by turns.
//
// Errors: those of Read; *InputError if one side has fewer records; Options.SkipBroken, because a skipped record would
// leave it unknown which records are mates.
func ReadPaired(ctx context.Context, first, second []string, o Options, each func(a, b *Block) error) (Counts, error) {
	if o.SkipBroken {
		return Counts{}, errSkipMates
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var sides [2]*side
	for i, inputs := range [][]string{first, second} {
		s, err := newStream(inner, inputs, o)
		if err != nil {
			return Counts{}, err
		}
		defer s.stop()
		sides[i] = &side{stream: s}
	}
	counts := func() Counts {
		a, b := sides[0].counts, sides[1].counts
		return Counts{a.Inputs + b.Inputs, a.Records + b.Records, a.Letters + b.Letters, a.Broken + b.Broken}
	}
	for {
		var fill crash.Group
		for _, s := range sides {
			fill.Go(func() error {
				err := s.fill()
				if err != nil { // the other side may wait for its input
					cancel(err)
				}
				return err
			})
		}
		if err := fill.Wait(); err != nil {
			return counts(), cmp.Or(ctx.Err(), context.Cause(inner))
		}
		switch short := sides[0]; {
		case sides[0].block == nil && sides[1].block == nil:
			return counts(), nil
		case sides[1].block == nil:
			short = sides[1]
			fallthrough
		case sides[0].block == nil:
			return counts(), &InputError{Input: short.inputs[len(short.inputs)-1],
				Err: fmt.Errorf("ends after %d records of its side, and there are more mates: paired inputs have "+
					"equal numbers of records", short.seen)}
		}
		n := min(sides[0].left(), sides[1].left())
		if err := each(sides[0].take(n), sides[1].take(n)); err != nil {
			return counts(), err
		}
	}
}

// ReadInterleaved reads mates that take turns in each input: first, second, first, second. The blocks of both sides may
// share one Text. Errors: those of Read; *InputError if the last record of an input has no mate; Options.SkipBroken.
func ReadInterleaved(ctx context.Context, inputs []string, o Options, each func(a, b *Block) error) (Counts, error) {
	if o.SkipBroken {
		return Counts{}, errSkipMates
	}
	var odd *Block // the last record of a block, whose mate is in the next block of the input
	noMate := func() error {
		return &InputError{Input: odd.Input, Err: fmt.Errorf("%q, the last record, has no mate: want them in turns",
			clip(odd.Records[0].Name))}
	}
	counts, err := Read(ctx, inputs, o, func(b *Block) error {
		defer b.Release()
		records := b.Records
		if odd != nil && b.First == 0 { // of the next input
			return noMate()
		}
		if odd != nil {
			if err := each(odd, b.single(records[0])); err != nil {
				return err
			}
			odd, records = nil, records[1:]
		}
		if n := len(records); n%2 == 1 {
			odd, records = b.single(records[n-1]), records[:n-1]
		}
		if len(records) == 0 {
			return nil
		}
		sides := [2]*Block{}
		for i := range sides {
			sides[i] = &Block{Input: b.Input, First: b.First, Text: b.Text, memory: b.memory.share(),
				lists: b.lists.share()} // which their names are of
			for j := i; j < len(records); j += 2 {
				sides[i].Records = append(sides[i].Records, records[j])
			}
		}
		return each(sides[0], sides[1])
	})
	if err == nil && odd != nil {
		err = noMate()
	}
	return counts, err
}

// single is a copy of one record, as a block.
func (b *Block) single(r Record) *Block {
	text := bytes.Clone(b.Text[r.Start : r.End+1])
	return &Block{Input: b.Input, First: b.First, Text: text,
		Records: []Record{{Name: bytes.Clone(r.Name), End: len(text) - 1}}}
}

// side is the blocks of one side of pairs, of which parts are taken.
type side struct {
	*stream
	block *Block // with records that were not taken; nil behind the last
	from  int    // the first of them
	seen  int64  // records that were taken
}

func (s *side) left() int { return len(s.block.Records) - s.from }

// fill gets a block where there is none.
func (s *side) fill() (err error) {
	if s.block == nil {
		s.from = 0
		s.block, err = s.next()
	}
	return err
}

// take gives the next n records as a block.
func (s *side) take(n int) *Block {
	b := s.block
	records := b.Records[s.from : s.from+n]
	base, end := records[0].Start, records[n-1].End+1
	part := &Block{Input: b.Input, First: b.First + int64(s.from), Text: b.Text[base:end:end], Records: records,
		memory: b.memory.share(), lists: b.lists.share()}
	if base > 0 {
		for i := range records {
			records[i].Start -= base
			records[i].End -= base
		}
	}
	s.seen += int64(n)
	if s.from += n; s.from == len(b.Records) {
		b.Release()
		s.block = nil
	}
	return part
}

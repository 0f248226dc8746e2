package files

import (
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/inflate"
)

// Gzip data that does not say where its members end is cut into pieces. Each is decoded beside the others, from the
// first block in it on, without the text before it; package inflate says how. Then one goroutine goes from piece to
// piece, and hands the end of the text on from each to the next.
const (
	// pieceBytes is the length of a piece at first. Once a piece had no block that could be decoded, it is twice that:
	// some encoders write blocks of 400 KiB.
	pieceBytes = 512 << 10
	// rowText is how much text is unpacked at a time where it is unpacked in a row, and rowBytes how much data is held
	// there: more than the longest header of a member. More would not be faster, and slow where files are small.
	rowText  = 64 << 10
	rowBytes = 80 << 10
	// joinText is that where pieces are put together, which are of long files.
	joinText = 256 << 10
	// fewWorkers are so few that data is unpacked sooner in a row: without the text before, each takes about twice as
	// long, and frames of zstd take a half longer as a whole, in memory that no cache holds.
	fewWorkers = 3
	// vainPieces in a row in which no block was found, or none that is one, are a reason not to look in the next:
	// then one of vainPieces is tried.
	vainPieces = 4
)

// row is the text of gzip data that is unpacked in a row.
type row struct {
	from  io.Reader
	s     *inflate.Sequence
	check inflate.Check
	in    []byte // not yet unpacked, in memory of rowBytes
	base  int64
	last  error // of from
	text  []byte
	err   error // behind the text
}

func newRow(from io.Reader) *row {
	return &row{from: from, s: inflate.NewSequence(rowText), in: make([]byte, 0, rowBytes)}
}

func (r *row) Read(to []byte) (int, error) {
	for len(r.text) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.next()
	}
	n := copy(to, r.text)
	r.text = r.text[n:]
	return n, nil
}

// next unpacks some text, or reads.
func (r *row) next() {
	why, err := r.s.Next(inflate.Rest, r.last != nil)
	text := r.s.Text()
	n, wrong := r.check.Add(text)
	r.text = text.Parts[0][:n]
	switch {
	case wrong != nil:
		r.err = wrong
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		r.err = ended(r.last, err)
	case err != nil:
		r.err = err
	case why == inflate.Starved && n == 0: // else what has come is given first: the next may be long in coming
		needs := r.s.Needs()
		kept := copy(r.in[:cap(r.in)], r.in[needs-r.base:])
		n, err := r.from.Read(r.in[kept:cap(r.in)])
		r.in, r.base, r.last = r.in[:kept+n], needs, err
		r.s.Input(r.in, r.base)
	}
}

// ended is the error where the input ends: that of the input unless it is its end.
func ended(input, err error) error {
	if input == io.EOF {
		return err
	}
	return input
}

// gunzip is the text of gzip data that is unpacked by several goroutines.
type gunzip struct {
	from   io.Reader
	length atomic.Int64  // of the next piece
	most   int64         // of pieces
	work   chan struct{} // a place for each that decodes
	pieces chan *gzipPiece
	texts  chan *gzipText
	held   chan struct{} // a place for each piece whose text has not been read
	chunks spares[*inflate.Chunk]
	inputs spares[[]byte] // of pieces
	quit   chan struct{}
	quits  atomic.Bool
	vain   atomic.Int32 // pieces in a row
	check  inflate.Check
	now    *gzipText
	text   [2][]byte // of it, which are not yet read
	err    error
}

// spares are memory that was used. It is kept, whatever the garbage collector does, and what came last goes first, for
// it may be in a cache, and no more comes to be than work at once.
type spares[T any] struct {
	mu   sync.Mutex
	list []T
}

func (s *spares[T]) put(x T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, x)
}

func (s *spares[T]) get() (x T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.list); n > 0 {
		x, s.list = s.list[n-1], s.list[:n-1]
		return x, true
	}
	return x, false
}

// gzipPiece is a piece of the data.
type gzipPiece struct {
	in     []byte // the piece, and then the next
	length int    // of the piece
	base   int64  // its offset
	behind []byte // the next piece
	err    error  // behind it: the last
	chunk  *inflate.Chunk
	done   chan struct{}
	looked bool // for a block
	taken  bool // the text of the chunk has its place
	crash  error
}

// gzipText is text of a piece, or an error.
type gzipText struct {
	text  *inflate.Text
	chunk *inflate.Chunk // that it is of
	err   error          // behind it
	done  chan struct{}
}

// newGunzip begins to unpack, in pieces of so many bytes at first. So many chunks are held. The caller stops it, and
// closes what it reads from if that may block; then wait waits until no goroutine is left.
func newGunzip(from io.Reader, length, chunks int, work chan struct{}) (g *gunzip, stop, wait func()) {
	g = &gunzip{from: from, most: int64(2 * length), work: work, quit: make(chan struct{}),
		pieces: make(chan *gzipPiece, chunks), texts: make(chan *gzipText, chunks),
		held: make(chan struct{}, chunks)}
	g.length.Store(int64(length))
	var all sync.WaitGroup
	all.Add(2)
	go func() {
		defer all.Done()
		defer close(g.pieces)
		if err := crash.Catch(func() error { g.cut(&all); return nil }); err != nil {
			g.hand(&gzipPiece{crash: err, done: closed})
		}
	}()
	go func() {
		defer all.Done()
		defer close(g.texts)
		if err := crash.Catch(func() error { return g.join(&all) }); err != nil {
			g.give(&gzipText{err: err, done: closed})
		}
	}()
	return g, sync.OnceFunc(func() { g.quits.Store(true); close(g.quit) }), all.Wait
}

// closed is a channel that is.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// hand gives a piece to the goroutine that joins them; it is false where nobody wants any.
func (g *gunzip) hand(p *gzipPiece) bool {
	select {
	case g.pieces <- p:
		return true
	case <-g.quit:
		return false
	}
}

func (g *gunzip) give(t *gzipText) bool {
	select {
	case g.texts <- t:
		return true
	case <-g.quit:
		return false
	}
}

// worker does something beside others, if there is a place for it, and closes done.
func (g *gunzip) worker(all *sync.WaitGroup, done chan struct{}, failed *error, do func()) {
	all.Add(1)
	go func() {
		defer all.Done()
		defer close(done)
		select {
		case g.work <- struct{}{}:
		case <-g.quit:
			return
		}
		defer func() { <-g.work }()
		if err := crash.Catch(func() error { do(); return nil }); err != nil {
			*failed = err
		}
	}()
}

// cut cuts the input into pieces. A piece is decoded once the next is there, too.
func (g *gunzip) cut(all *sync.WaitGroup) {
	var p *gzipPiece
	base := int64(0)
	for n := 0; ; n++ {
		in, err := g.read()
		if p != nil {
			if p.behind = in; err != nil {
				p.err, p.length = err, p.length+len(in)
			}
			if !g.begin(all, p, n) || err != nil {
				return
			}
		}
		p = &gzipPiece{in: in, length: len(in), base: base, err: err, done: make(chan struct{})}
		if base += int64(len(in)); err != nil {
			g.begin(all, p, n)
			return
		}
	}
}

// read reads a piece, and tells what ended it, if it is the last.
func (g *gunzip) read() ([]byte, error) {
	in, _ := g.inputs.get()
	length := int(g.length.Load())
	if cap(in) < 2*length {
		in = make([]byte, 2*length)
	}
	n, err := io.ReadFull(g.from, in[:length])
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return in[:n], err
}

// begin has a piece decoded, once there is a place for it.
func (g *gunzip) begin(all *sync.WaitGroup, p *gzipPiece, n int) bool {
	select {
	case g.held <- struct{}{}:
	case <-g.quit:
		return false
	}
	p.looked = g.vain.Load() < vainPieces || n%vainPieces == 0
	g.worker(all, p.done, &p.crash, func() {
		p.in = append(p.in, p.behind...)
		if p.looked {
			if p.chunk, _ = g.chunks.get(); p.chunk == nil {
				p.chunk = new(inflate.Chunk)
			}
			p.chunk.Decode(p.in, p.length, &g.quits)
		}
	})
	return g.hand(p)
}

// join goes from piece to piece, decodes what their chunks lack, and gives the texts. Errors: panics of others.
func (g *gunzip) join(all *sync.WaitGroup) error {
	s := inflate.NewSequence(joinText)
	for {
		p, err := g.take()
		if p == nil {
			return err
		}
		s.Input(p.in, p.base)
		more, err := g.piece(all, s, p)
		if !more {
			return err
		}
		g.used(p)
	}
}

// take gives the next piece, once it is decoded; nil behind the last.
func (g *gunzip) take() (p *gzipPiece, err error) {
	select {
	case p = <-g.pieces:
	case <-g.quit:
	}
	if p == nil {
		return nil, nil
	}
	select {
	case <-p.done:
	case <-g.quit:
		return nil, nil
	}
	if p.crash != nil {
		return nil, p.crash
	}
	return p, nil
}

// used gives back what a piece does not need any more.
func (g *gunzip) used(p *gzipPiece) {
	if p.chunk != nil {
		g.chunks.put(p.chunk)
		g.vain.Add(1)
		g.length.Store(g.most) // its blocks may be longer than pieces
	}
	if !p.taken {
		<-g.held
	}
	g.inputs.put(p.in[:0])
}

// lengthen adds the next piece to one that does not hold all that is needed at once.
func (g *gunzip) lengthen(p *gzipPiece) (ok bool, err error) {
	next, err := g.take()
	if next == nil {
		return false, err
	}
	p.in = append(slices.Clip(p.in[:p.length]), next.in...)
	p.length, p.err = p.length+next.length, next.err
	g.used(next)
	return true, nil
}

// piece gives the text of a piece, and tells whether more may come.
func (g *gunzip) piece(all *sync.WaitGroup, s *inflate.Sequence, p *gzipPiece) (more bool, err error) {
	for again := p.looked; ; {
		at, upTo, last := 0, 8*p.length, p.err != nil
		if last {
			upTo = inflate.Rest
		}
		if again {
			if at, p.taken = s.Take(p.chunk); p.taken {
				t := &gzipText{chunk: p.chunk, done: make(chan struct{})}
				g.vain.Store(0)
				p.chunk, again = nil, false
				g.worker(all, t.done, &t.err, func() { t.text = t.chunk.Text() })
				if !g.give(t) {
					return false, nil
				}
				continue
			}
			if at > 0 {
				upTo = at
			}
		}
		why, err := s.Next(upTo, last)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = ended(p.err, err)
		}
		if text := s.Text(); !text.Empty() || err != nil {
			if !g.give(&gzipText{text: text.Clone(), err: err, done: closed}) || err != nil {
				return false, nil
			}
		}
		switch {
		case why == inflate.Starved && s.Needs() < p.base+int64(p.length):
			if ok, err := g.lengthen(p); !ok {
				return false, err
			}
			s.Input(p.in, p.base)
			again = false
		case why == inflate.Starved, why == inflate.Placed && at == 0:
			return true, nil
		}
	}
}

func (g *gunzip) Read(to []byte) (int, error) {
	for len(g.text[0]) == 0 {
		switch {
		case len(g.text[1]) > 0:
			g.text[0], g.text[1] = g.text[1], nil
		case g.err != nil:
			return 0, g.err
		default:
			g.next()
		}
	}
	n := copy(to, g.text[0])
	g.text[0] = g.text[0][n:]
	return n, nil
}

// next waits for the next text.
func (g *gunzip) next() {
	if g.now != nil && g.now.chunk != nil {
		g.chunks.put(g.now.chunk)
		<-g.held
	}
	if g.now = <-g.texts; g.now == nil { // it was stopped
		g.err = io.EOF
		return
	}
	<-g.now.done
	if g.err = g.now.err; g.now.text == nil {
		return
	}
	n, wrong := g.check.Add(g.now.text)
	if wrong != nil {
		g.err = wrong
	}
	first := min(n, len(g.now.text.Parts[0]))
	g.text = [2][]byte{g.now.text.Parts[0][:first], g.now.text.Parts[1][:n-first]}
}

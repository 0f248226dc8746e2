package serve

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/warpmap/warpmap/internal/files"
)

// spool is text that one goroutine writes and another takes: in memory, and beyond memoryBytes in a temporary file
// without a name, which goes with the process. What waits is counted in the budget of all spools. Where that has no
// room, the writer waits for the taker; a piece goes in whenever nothing waits, so that a taker always gets on.
type spool struct {
	ctx      context.Context
	b        *budget
	client   string
	mu       sync.Mutex
	news     chan struct{} // holds one if there is something new
	emptied  chan struct{} // holds one if nothing waits any more
	text     []byte        // comes before what is in the file
	counted  int64         // of the text, in the budget
	file     *os.File
	from, to int64 // of the file, what was not taken
	inFile   int64 // counted in the budget
	ended    bool
	err      error // behind the last text
}

const (
	memoryBytes = 256 << 10
	pieceBytes  = 64 << 10 // are written at once
)

func newSpool(ctx context.Context, b *budget, client string) *spool {
	return &spool{ctx: ctx, b: b, client: client, news: make(chan struct{}, 1), emptied: make(chan struct{}, 1)}
}

// Write waits where the budget has no room. Errors: of the file; the context's.
func (s *spool) Write(text []byte) (n int, err error) {
	for n < len(text) {
		piece := text[n:min(n+pieceBytes, len(text))]
		counted, err := s.count(int64(len(piece)))
		if err != nil {
			return n, err
		}
		if err := s.put(piece, counted); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}

// count waits for room, or until nothing waits: then it counts nothing.
func (s *spool) count(n int64) (counted int64, err error) {
	for {
		ok, freed := s.b.take(s.client, n)
		if ok {
			return n, nil
		}
		s.mu.Lock()
		empty := len(s.text) == 0 && s.from == s.to
		s.mu.Unlock()
		if empty {
			return 0, nil
		}
		select {
		case <-freed:
		case <-s.emptied:
		case <-s.ctx.Done():
			return 0, context.Cause(s.ctx)
		}
	}
}

func (s *spool) put(piece []byte, counted int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer wake(s.news)
	if s.from == s.to && len(s.text)+len(piece) <= memoryBytes {
		s.text = append(s.text, piece...)
		s.counted += counted
		return nil
	}
	s.inFile += counted
	if s.file == nil {
		f, err := files.Temporary("")
		if err != nil {
			return fullDisk(err)
		}
		s.file = f
	}
	n, err := s.file.WriteAt(piece, s.to)
	s.to += int64(n)
	return fullDisk(err)
}

// fullDisk is an error of a temporary file as clients see it.
func fullDisk(err error) error {
	if err == nil {
		return nil
	}
	return &statusError{http.StatusInsufficientStorage, fmt.Errorf("the server cannot keep what waits for clients: %w",
		err)}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// end says that no more comes; err is what the taker gets behind all text, io.EOF where it is nil.
func (s *spool) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer wake(s.news)
	if err == nil {
		err = io.EOF
	}
	s.ended, s.err = true, err
}

// next waits for text, and takes it into the memory given, as much as that holds. last tells that nothing follows but
// the error, which comes alone.
func (s *spool) next(into []byte) (n int, last bool, err error) {
	for {
		s.mu.Lock()
		switch {
		case len(s.text) > 0:
			n = copy(into, s.text)
			s.text = s.text[:copy(s.text, s.text[n:])]
			s.uncount(&s.counted, int64(n))
		case s.from < s.to:
			n, err = s.file.ReadAt(into[:min(int64(len(into)), s.to-s.from)], s.from)
			if s.from += int64(n); s.from == s.to {
				s.from, s.to = 0, 0 // its place is used again
				s.uncount(&s.inFile, s.inFile)
				if e := s.file.Truncate(0); e != nil && err == nil { // what is given back is the disk's again
					err = e
				}
			}
		case s.ended:
			err = s.err
		}
		if len(s.text) == 0 && s.from == s.to {
			last = s.ended
			wake(s.emptied)
		}
		s.mu.Unlock()
		if n > 0 || err != nil {
			if n > 0 && err == io.EOF { // of the file's end, which is written on
				err = nil
			}
			return n, last, err
		}
		<-s.news
	}
}

// uncount gives n bytes back, or what is counted.
func (s *spool) uncount(counted *int64, n int64) {
	n = min(n, *counted)
	*counted -= n
	s.b.give(s.client, n)
}

// close gives back the file, and what is counted. Nobody writes or takes any more.
func (s *spool) close() {
	s.uncount(&s.counted, s.counted)
	s.uncount(&s.inFile, s.inFile)
	if s.file != nil {
		s.file.Close()
	}
}

// upload is a temporary file that a client sends, which is counted in the budget, too.
type upload struct {
	*os.File
	a      *answer
	ctx    context.Context
	counts int64
}

// Write waits for room as long as a client may be silent.
func (u *upload) Write(text []byte) (int, error) {
	n, b := int64(len(text)), u.a.s.budget
	if most := b.of(u.a.client); u.counts+n > most {
		return 0, refused(http.StatusRequestEntityTooLarge, "the first file of a form has more than %d bytes, which "+
			"the server keeps until the second comes: send pairs in turns, with ?paired=true, or less at once", most)
	}
	timeout, cancel := context.WithTimeout(u.ctx, u.a.s.o.Timeout)
	defer cancel()
	for {
		ok, freed := b.take(u.a.client, n)
		if ok {
			break
		}
		select {
		case <-freed:
		case <-timeout.Done():
			if u.ctx.Err() != nil {
				return 0, context.Cause(u.ctx)
			}
			return 0, refused(http.StatusServiceUnavailable, "the server keeps as much for clients as it may: try "+
				"again later, or send pairs in turns, with ?paired=true")
		}
	}
	u.counts += n
	m, err := u.File.Write(text)
	return m, fullDisk(err)
}

func (u *upload) Close() error {
	u.a.s.budget.give(u.a.client, u.counts)
	u.counts = 0
	return u.File.Close()
}

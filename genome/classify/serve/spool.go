package serve

import (
	"io"
	"os"
	"sync"
)

// spool is text that one goroutine writes and another takes, without waiting for one another: in memory, and beyond memoryBytes in a temporary file
// without a name, which goes with the process.
type spool struct {
	mu       sync.Mutex
	news     chan struct{} // holds one if there is something new
	text     []byte        // comes before what is in the file
	file     *os.File
	from, to int64 // of the file, what was not taken
	ended    bool
	err      error // behind the last text
}

const memoryBytes = 256 << 10

func newSpool() *spool { return &spool{news: make(chan struct{}, 1)} }

// Write never waits for the taker. Errors: of the file.
func (s *spool) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake()
	if s.from == s.to && len(s.text)+len(text) <= memoryBytes {
		s.text = append(s.text, text...)
		return len(text), nil
	}
	if s.file == nil {
		f, err := temporary()
		if err != nil {
			return 0, err
		}
		s.file = f
	}
	n, err := s.file.WriteAt(text, s.to)
	s.to += int64(n)
	return n, err
}

// temporary is a file without a name.
func temporary() (*os.File, error) {
	f, err := os.CreateTemp("", "warpmap-serve-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (s *spool) wake() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// end says that no more comes; err is what the taker gets behind all text, io.EOF where it is nil.
func (s *spool) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake()
	if err == nil {
		err = io.EOF
	}
	s.ended, s.err = true, err
}

// next waits for text, and takes it into the memory given, as much as that holds. last tells that nothing follows but the error, which comes alone.
func (s *spool) next(into []byte) (n int, last bool, err error) {
	for {
		s.mu.Lock()
		switch {
		case len(s.text) > 0:
			n = copy(into, s.text)
			s.text = s.text[:copy(s.text, s.text[n:])]
		case s.from < s.to:
			n, err = s.file.ReadAt(into[:min(int64(len(into)), s.to-s.from)], s.from)
			if s.from += int64(n); s.from == s.to {
				s.from, s.to = 0, 0 // its place is used again
			}
		case s.ended:
			err = s.err
		}
		last = s.ended && len(s.text) == 0 && s.from == s.to
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

// close gives the file back.
func (s *spool) close() {
	if s.file != nil {
		s.file.Close()
	}
}

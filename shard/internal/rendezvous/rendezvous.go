// Package rendezvous brings the processes of a job together over TCP, and tells each of them when one is gone.
//
// Rank 0 listens; the others come to it, say their rank and the job's token, and stay connected: what all agree on goes through rank 0. A connection that
// breaks, or is silent for longer than Silence, is a process that is gone, and all are told which it was.
package rendezvous

import (
	"bufio"
	"context"
	"crypto/subtle"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Silence is how long a process may say nothing before it counts as gone. It says that it is there five times as often.
const Silence = 5 * time.Second

// Options say who comes, and where.
type Options struct {
	Rank, Size int
	Addr       string // host:port, where rank 0 listens
	Token      string // the job's: others are not let in
}

// GoneError says that a member of the job is gone, or gave up.
type GoneError struct {
	Rank int
	Why  string
}

func (e *GoneError) Error() string { return fmt.Sprintf("rank %d is gone: %s", e.Rank, e.Why) }

// AbsentError says which ranks did not come.
type AbsentError struct {
	Ranks []int
	Size  int
	Why   error
}

func (e *AbsentError) Error() string {
	return fmt.Sprintf("of %d processes these did not come: rank %s: %v", e.Size, strings.Trim(fmt.Sprint(e.Ranks), "[]"), e.Why)
}

func (e *AbsentError) Unwrap() error { return e.Why }

type kind int

const (
	hello  kind = iota // of a rank that comes
	refuse             // to one that is not let in
	alive
	say  // a member's part of what is agreed on
	told // everybody's
	gone // a member is gone, or gives up
	bye  // a member leaves
)

// frame is what goes over a connection.
type frame struct {
	Kind       kind
	Rank, Size int
	Token      string
	Text       string
	Body       [][]byte
}

// peer is a connection.
type peer struct {
	rank int
	conn net.Conn
	mu   sync.Mutex
	enc  *gob.Encoder
	dec  *gob.Decoder
}

func newPeer(rank int, conn net.Conn) *peer {
	return &peer{rank: rank, conn: conn, enc: gob.NewEncoder(conn), dec: gob.NewDecoder(bufio.NewReader(conn))}
}

func (p *peer) send(f frame) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn.SetWriteDeadline(time.Now().Add(Silence))
	return p.enc.Encode(f)
}

func (p *peer) receive() (f frame, err error) {
	p.conn.SetReadDeadline(time.Now().Add(Silence))
	err = p.dec.Decode(&f)
	return f, err
}

// Meeting is a job whose processes have all come.
type Meeting struct {
	o     Options
	peers []*peer // of rank 0: all others; else rank 0 alone
	done  chan struct{}
	wg    sync.WaitGroup
	over  sync.Once

	mu      sync.Mutex
	closing bool
	err     error
	broken  chan struct{} // closed when err is set
	said    [][]byte      // of rank 0: what has come of what is agreed on next
	left    []bool        // who has left; others than rank 0 know of that alone
	asking  bool          // of others than rank 0: Agree waits for it
	agreed  chan [][]byte
}

// Meet waits until all ranks have come, until the context is done. Errors: *AbsentError, at rank 0; at others, that rank 0 could not be reached or did not let
// this one in; ranks that come twice.
func Meet(ctx context.Context, o Options) (*Meeting, error) {
	if o.Size < 1 || o.Rank < 0 || o.Rank >= o.Size {
		return nil, fmt.Errorf("rank %d of %d processes: want a rank from 0 to one less than their number", o.Rank, o.Size)
	}
	m := &Meeting{o: o, done: make(chan struct{}), broken: make(chan struct{}), said: make([][]byte, o.Size), left: make([]bool, o.Size), agreed: make(chan [][]byte, 1)}
	var err error
	if o.Rank == 0 {
		err = m.gather(ctx)
	} else {
		err = m.come(ctx)
	}
	if err != nil {
		for _, p := range m.peers {
			p.conn.Close()
		}
		return nil, err
	}
	for _, p := range m.peers {
		m.wg.Add(2)
		go m.listen(p)
		go m.live(p)
	}
	return m, nil
}

// gather lets the others in.
func (m *Meeting) gather(ctx context.Context) error {
	if m.o.Size == 1 {
		return nil
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", m.o.Addr)
	if err != nil {
		return fmt.Errorf("rank 0 cannot listen at %s, where the others come to: %w", m.o.Addr, err)
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var mu sync.Mutex
	came := make([]*peer, m.o.Size)
	all := make(chan struct{})
	missing, closed := m.o.Size-1, false
	defer func() {
		mu.Lock()
		closed = true
		mu.Unlock()
	}()
	admit := func(conn net.Conn) {
		p := newPeer(-1, conn)
		f, err := p.receive()
		why := ""
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil || f.Kind != hello:
			conn.Close()
			return
		case subtle.ConstantTimeCompare([]byte(f.Token), []byte(m.o.Token)) != 1:
			why = "another job's token"
		case f.Size != m.o.Size || f.Rank < 1 || f.Rank >= m.o.Size:
			why = fmt.Sprintf("rank %d of %d in a job of %d processes", f.Rank, f.Size, m.o.Size)
		case came[f.Rank] != nil:
			why = fmt.Sprintf("rank %d came twice", f.Rank)
		}
		if why != "" || closed {
			p.send(frame{Kind: refuse, Text: why})
			conn.Close()
			return
		}
		p.rank = f.Rank
		came[f.Rank] = p
		if missing--; missing == 0 {
			close(all)
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go admit(conn)
		}
	}()
	select {
	case <-all:
	case <-ctx.Done():
	}
	mu.Lock()
	defer mu.Unlock()
	var absent []int
	for rank, p := range came[1:] {
		if p == nil {
			absent = append(absent, rank+1)
		} else {
			m.peers = append(m.peers, p)
		}
	}
	if len(absent) > 0 {
		e := &AbsentError{absent, m.o.Size, context.Cause(ctx)}
		for _, p := range m.peers {
			p.send(frame{Kind: refuse, Text: e.Error()})
		}
		return e
	}
	for _, p := range m.peers {
		if err := p.send(frame{Kind: hello}); err != nil {
			return fmt.Errorf("rank %d: %w", p.rank, err)
		}
	}
	return nil
}

// come goes to rank 0, again and again until it listens.
func (m *Meeting) come(ctx context.Context) error {
	for {
		var dial net.Dialer
		conn, err := dial.DialContext(ctx, "tcp", m.o.Addr)
		if err == nil {
			return m.enter(ctx, conn)
		}
		select {
		case <-ctx.Done():
			return &AbsentError{[]int{0}, m.o.Size, fmt.Errorf("nobody listens at %s: %w", m.o.Addr, errors.Join(err, context.Cause(ctx)))}
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// enter says who comes, and waits for the others.
func (m *Meeting) enter(ctx context.Context, conn net.Conn) error {
	p := newPeer(0, conn)
	m.peers = []*peer{p}
	if err := p.send(frame{Kind: hello, Rank: m.o.Rank, Size: m.o.Size, Token: m.o.Token}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		time.Sleep(time.Second / 2) // rank 0 may be about to say who is missing
		conn.SetReadDeadline(time.Now())
	})
	defer stop()
	var f frame
	if err := p.dec.Decode(&f); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("rank 0 at %s does not say that all have come: %w", m.o.Addr, err)
	}
	if f.Kind != hello {
		return fmt.Errorf("rank 0 at %s: %s", m.o.Addr, f.Text)
	}
	return nil
}

// live says now and then that this process is there.
func (m *Meeting) live(p *peer) {
	defer m.wg.Done()
	tick := time.NewTicker(Silence / 5)
	defer tick.Stop()
	for {
		select {
		case <-m.done:
			return
		case <-tick.C:
			p.send(frame{Kind: alive}) // if that fails, reading does
		}
	}
}

// listen takes what comes over a connection.
func (m *Meeting) listen(p *peer) {
	defer m.wg.Done()
	for {
		f, err := p.receive()
		if err != nil {
			why := "its connection broke: " + err.Error()
			if e := net.Error(nil); errors.As(err, &e) && e.Timeout() {
				why = fmt.Sprintf("it has said nothing for %v", Silence)
			}
			m.lose(&GoneError{p.rank, why})
			return
		}
		switch f.Kind {
		case say:
			m.take(p.rank, f.Body)
		case told:
			m.mu.Lock()
			m.asking = false
			m.mu.Unlock()
			m.agreed <- f.Body
		case gone:
			m.lose(&GoneError{f.Rank, f.Text})
		case bye:
			m.leave(p.rank)
			return
		}
	}
}

// leave notes that a rank left: no harm, unless somebody wants to agree on something.
func (m *Meeting) leave(rank int) {
	m.mu.Lock()
	m.left[rank] = true
	waiting := m.asking || slices.ContainsFunc(m.said, func(b []byte) bool { return b != nil })
	m.mu.Unlock()
	if waiting {
		m.lose(&GoneError{rank, "it has left"})
	}
}

// lose notes who is gone, and tells the others.
func (m *Meeting) lose(e *GoneError) {
	m.mu.Lock()
	first := m.err == nil && !m.closing
	if first {
		m.err = e
		close(m.broken)
	}
	m.mu.Unlock()
	if first && m.o.Rank == 0 {
		for _, p := range m.peers {
			p.send(frame{Kind: gone, Rank: e.Rank, Text: e.Why})
		}
	}
}

// take keeps a rank's part of what is agreed on, at rank 0, and tells all when it is whole.
func (m *Meeting) take(rank int, body [][]byte) {
	m.mu.Lock()
	m.said[rank] = append([]byte{}, slices.Concat(body...)...) // not nil, which says that nothing came
	left := slices.Index(m.left, true)
	all := [][]byte(nil)
	if !slices.ContainsFunc(m.said, func(b []byte) bool { return b == nil }) {
		all = m.said
		m.said = make([][]byte, m.o.Size)
	}
	m.mu.Unlock()
	if all == nil {
		if left >= 0 {
			m.lose(&GoneError{left, "it has left"})
		}
		return
	}
	for _, p := range m.peers {
		p.send(frame{Kind: told, Body: all})
	}
	m.agreed <- all
}

// ErrLeft says that this process is no longer in the job.
var ErrLeft = errors.New("this process has left its job")

// Agree gives every rank what all ranks say, in the order of ranks. All must call it, in the same order. Errors: *GoneError; ErrLeft after Close.
func (m *Meeting) Agree(body []byte) ([][]byte, error) {
	if err := m.Err(); err != nil {
		return nil, err
	}
	select {
	case <-m.done:
		return nil, ErrLeft
	default:
	}
	m.mu.Lock()
	m.asking = m.o.Rank > 0
	left := m.asking && m.left[0]
	m.mu.Unlock()
	if left {
		m.lose(&GoneError{0, "it has left"})
	} else if m.o.Rank == 0 {
		m.take(0, [][]byte{body})
	} else if err := m.peers[0].send(frame{Kind: say, Rank: m.o.Rank, Body: [][]byte{body}}); err != nil {
		select {
		case <-m.broken: // it may be known who
		case <-m.done:
		case <-time.After(Silence):
			m.lose(&GoneError{0, err.Error()})
		}
	}
	select {
	case all := <-m.agreed:
		return all, nil
	case <-m.broken:
	case <-m.done:
	}
	select {
	case all := <-m.agreed: // before somebody was gone: others have it, too
		return all, nil
	default:
	}
	if err := m.Err(); err != nil {
		return nil, err
	}
	return nil, ErrLeft
}

// Fail tells all that this rank gives up.
func (m *Meeting) Fail(why string) {
	if m.o.Rank == 0 {
		m.lose(&GoneError{0, why})
		return
	}
	m.peers[0].send(frame{Kind: gone, Rank: m.o.Rank, Text: why})
	m.lose(&GoneError{m.o.Rank, why})
}

// Broken is closed when a rank is gone; then Err tells which.
func (m *Meeting) Broken() <-chan struct{} { return m.broken }

// Err is the *GoneError of the rank that was gone first; nil while all are there.
func (m *Meeting) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Close leaves. The others go on until they want to agree on something.
func (m *Meeting) Close() {
	m.over.Do(func() {
		m.mu.Lock()
		m.closing = true
		m.mu.Unlock()
		close(m.done)
		for _, p := range m.peers {
			p.send(frame{Kind: bye})
			p.conn.Close()
		}
		m.wg.Wait()
	})
}

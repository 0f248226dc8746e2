// Package rendezvous brings the processes of a job together over TCP, and tells each of them when one is gone.
//
// Rank 0 listens. The other ranks connect to it and stay connected, and everything that all agree on goes through rank
// 0. If a connection breaks, as it does when a process ends, or its host acknowledges nothing for Silence, its process
// counts as gone, and all others are told which it was. A process that is stopped, or that gets no processor, says
// nothing either, but its host acknowledges what it is sent: it has Patience. Until all have come, a rank may come
// again, and takes the place of its earlier connection.
//
// Rank 0 and a rank that comes prove to one another that they have the job's token. They do so by HMACs of nonces of
// both, and do not send the token. Until then a frame has at most 4 KiB, everything must be said within Silence, and
// rank 0 keeps few such connections. So strangers cost little memory, and do not keep ranks out.
//
// The rest is not protected: frames go in clear, and have no HMAC once a rank is let in. Whoever can change or take
// over the job's connections on their way can read and change all that is said. Whoever can read them can guess at a
// token that is short.
package rendezvous

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warpmap/warpmap/internal/crash"
)

const (
	// Silence is how long a process may say nothing whose host does not acknowledge what it is sent. Within that time, each
	// process says five times that it is there.
	Silence = 5 * time.Second
	// Patience is how long a process may say nothing whose host does.
	Patience = patience * Silence
	patience = 12
)

// Options say which processes come, and where they meet.
type Options struct {
	Rank, Size int
	Addr       string // host:port, where rank 0 listens
	Token      string // the job's token; a process without it is not let in
	// Public says why the token is no secret; "" means that it is a secret. A public token, or an empty one, will do at
	// loopback addresses only.
	Public string

	silence time.Duration // Silence, but in tests
	lookup  func(ctx context.Context, host string) ([]netip.Addr, error)
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

type kind byte

const (
	challenge kind = iota // to one that comes: the version, and a nonce
	hello                 // of a rank that comes: a nonce, how many ranks it knows of, and a proof
	welcome               // to a rank that may come: a proof
	start                 // all have come
	refuse                // to one that is not let in, or no more
	alive
	say  // a member's part of what is agreed on
	told // everybody's
	gone // a member is gone, or gives up
	bye  // a member leaves
	ask  // of rank 0: say that you are there; of another: say when all are
	here // the answer
	rest // a member has heard that another leaves, and is in no call
)

// version is the protocol's.
const version = "warpmap job 4"

// Bytes of a frame. Its parts are read as they come, so a length alone takes no memory.
const (
	mostBefore = 4 << 10 // of one that is not known yet
	most       = 1 << 36 // what says that it is larger is no frame
)

// strangers is how many connections rank 0 has at a time that have not proved who they are, beside a job's size: of
// more it drops one, the oldest of the host that has most. A rank answers at once, and one that is dropped comes again.
const strangers = 64

// frame is what goes over a connection: its kind, a byte, a rank, 4, how many parts it has, 4, and each part behind its
// length, 8.
type frame struct {
	Kind  kind
	Rank  int
	Parts [][]byte
}

// text is a frame with a text.
func text(k kind, rank int, s string) frame { return frame{k, rank, [][]byte{[]byte(s)}} }

// errForeign says that what came is no frame, or none that should come here.
var errForeign = errors.New("it says what this one cannot read: do all run the same program?")

// steady is a connection that ends after a silence, which each piece that comes or goes begins anew, and at a time if
// there is one. If there is none, who is at the other end is known, and has patience.
type steady struct {
	net.Conn
	silence time.Duration
	until   time.Time
}

// by is a time so long from now, if that is not too late.
func (s *steady) by(d time.Duration) time.Time {
	at := time.Now().Add(d)
	if !s.until.IsZero() && s.until.Before(at) {
		return s.until
	}
	return at
}

func (s *steady) Read(b []byte) (n int, err error) {
	const part = 5
	for waits, deaf := 1, 0; ; waits++ {
		s.SetReadDeadline(s.by(s.silence / part))
		n, err = s.Conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if err := s.over(waits, part, &deaf, "said"); err != nil {
			return 0, err
		}
	}
}

// Write tries again and again within a silence: Linux says that there is room only when a third of its buffer, of 4 MiB
// at times, is free, which takes a slow connection longer.
func (s *steady) Write(b []byte) (n int, err error) {
	const part = 20
	for waits, deaf := 1, 0; n < len(b); waits++ {
		s.SetWriteDeadline(s.by(s.silence / part))
		k, err := s.Conn.Write(b[n:min(n+64<<10, len(b))])
		n += k
		if k > 0 {
			waits = 0
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = s.over(waits, part, &deaf, "taken")
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// over tells after how many waits, each a part of a silence, it is in vain to go on, and why. Waits count, not time: a
// process that was stopped itself, or got no processor, has not waited for as long, and what came meanwhile is there. deaf
// counts after how many waits in a row the host had not answered: after one, this process may have sent something just
// now, and nothing before while it was stopped.
func (s *steady) over(waits, part int, deaf *int, done string) error {
	if waits < part || answered(s.Conn, s.silence) {
		*deaf = 0
	} else {
		*deaf++
	}
	switch {
	case !s.until.IsZero() && (waits >= part || !time.Now().Before(s.until)):
		return silentError(fmt.Sprintf("it has %s nothing for %v", done, s.silence))
	case waits >= patience*part:
		return silentError(fmt.Sprintf("it has %s nothing for %v", done, patience*s.silence))
	case *deaf > 1:
		return silentError(fmt.Sprintf("it has %s nothing, and its host has not answered, for %v", done, s.silence))
	}
	return nil
}

// answered is answers, but in tests.
var answered = answers

// silentError says of whom nothing is heard.
type silentError string

func (e silentError) Error() string { return string(e) }

// peer is a connection.
type peer struct {
	rank int
	conn *steady
	r    *bufio.Reader
	mu   sync.Mutex // of w
	w    *bufio.Writer

	// How often it was asked whether it is there, and has said so; and at rank 0, how many times it has asked itself and
	// has had no answer. The meeting's lock guards them.
	asked, answered, asks int

	begun  chan error // of one that comes: nil when all have come, or why not
	over   sync.Once
	closed chan struct{}
	why    error // that it was closed
}

// newPeer is one that must prove itself within a silence.
func newPeer(conn net.Conn, silence time.Duration) *peer {
	c := &steady{conn, silence, time.Now().Add(silence)}
	return &peer{
		conn: c, r: bufio.NewReader(c), w: bufio.NewWriter(c), begun: make(chan error, 1), closed: make(chan struct{}),
	}
}

// close ends the connection. The first why counts.
func (p *peer) close(why error) {
	p.over.Do(func() {
		p.why = why
		p.conn.Close()
		close(p.closed)
	})
}

// send closes the connection where a frame does not go: what follows half of one would make no sense.
func (p *peer) send(f frame) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	head := binary.BigEndian.AppendUint32([]byte{byte(f.Kind)}, uint32(f.Rank))
	p.w.Write(binary.BigEndian.AppendUint32(head, uint32(len(f.Parts))))
	for _, part := range f.Parts {
		p.w.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		p.w.Write(part)
	}
	err := p.w.Flush() // the first of all these
	if err != nil {
		p.close(err)
	}
	return err
}

// receive takes a frame of so many parts and bytes at most.
func (p *peer) receive(parts int, size uint64) (f frame, err error) {
	var head [9]byte
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		return f, err
	}
	f.Kind, f.Rank = kind(head[0]), int(binary.BigEndian.Uint32(head[1:]))
	n := binary.BigEndian.Uint32(head[5:])
	if uint64(n) > uint64(parts) {
		return f, errForeign
	}
	for range n {
		if _, err := io.ReadFull(p.r, head[:8]); err != nil {
			return f, err
		}
		length := binary.BigEndian.Uint64(head[:])
		if length > size {
			return f, errForeign
		}
		size -= length
		part, err := p.bytes(int64(length))
		if err != nil {
			return f, err
		}
		f.Parts = append(f.Parts, part)
	}
	return f, nil
}

// bytes takes a part. Memory for it grows as it comes.
func (p *peer) bytes(length int64) ([]byte, error) {
	var part bytes.Buffer
	_, err := io.CopyN(&part, p.r, length)
	return part.Bytes(), err
}

const nonceBytes = 32

func nonce() []byte {
	b := make([]byte, nonceBytes)
	rand.Read(b) // does not fail
	return b
}

// proof shows that who makes it has the token, now and for this connection: by, of one length, is which side it is.
func (o *Options) proof(by string, asked, own []byte, rank, size int) []byte {
	h := hmac.New(sha256.New, []byte(o.Token))
	io.WriteString(h, by)
	h.Write(asked)
	h.Write(own)
	h.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(rank)), uint32(size)))
	return h.Sum(nil)
}

const (
	byMember = "warpmap member"
	byRank0  = "warpmap rank 0"
)

// Meeting is a job whose processes have all come.
type Meeting struct {
	o     Options
	peers []*peer // of rank 0: all others; else rank 0 alone
	done  chan struct{}
	wg    sync.WaitGroup
	over  sync.Once

	mu      sync.Mutex
	started bool    // all have come
	ended   bool    // of rank 0: not all have, and no more may
	came    []*peer // of rank 0: who has come
	closing bool
	err     error
	broken  chan struct{}  // closed when err is set
	telling sync.WaitGroup // of rank 0: the others hear of err
	said    [][]byte       // of rank 0: what has come of what is agreed on next
	left    []bool         // the ranks that leave, or have left
	resting []bool         // the ranks that are in no call, and begin none that others take part in
	calls   int            // calls of this rank that have begun, and not ended
	rested  bool           // this rank has said that it rests
	parted  bool           // this rank has said that it leaves
	cut     bool           // of others than rank 0: rank 0 has left, and its connection is closed
	asking  bool           // of others than rank 0: Agree waits for it
	answer  chan struct{}  // closed with each answer of a peer, and made anew
	agreed  chan [][]byte
}

// Meet waits until all ranks have come, or until the context is done.
//
// Errors: at rank 0, *AbsentError; at another rank, that rank 0 could not be reached, does not know the token, or did
// not let this rank in; a token that is no secret, where processes of other hosts could come.
func Meet(ctx context.Context, o Options) (*Meeting, error) {
	if o.Size < 1 || o.Rank < 0 || o.Rank >= o.Size {
		return nil, fmt.Errorf("rank %d of %d processes: want a rank from 0 to one less than their number", o.Rank, o.Size)
	}
	if o.silence == 0 {
		o.silence = Silence
	}
	if o.lookup == nil {
		o.lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if err := o.guarded(ctx); err != nil {
		return nil, err
	}
	m := &Meeting{
		o: o, done: make(chan struct{}), broken: make(chan struct{}), agreed: make(chan [][]byte, 1),
		said: make([][]byte, o.Size), left: make([]bool, o.Size), resting: make([]bool, o.Size),
		came: make([]*peer, o.Size), answer: make(chan struct{}),
	}
	var err error
	if o.Rank == 0 {
		err = m.gather(ctx)
	} else {
		err = m.come(ctx)
	}
	if err != nil {
		for _, p := range m.peers {
			p.close(nil)
		}
		m.wg.Wait()
		return nil, err
	}
	return m, nil
}

// listens returns the address at which rank 0 listens, and whether only processes of its host reach it. That is the
// address where the ranks meet, except if its host is a name that means a loopback address here and another address
// elsewhere: Debian and Ubuntu map a host's own name to 127.0.1.1. Then it is the port at all addresses.
func (o *Options) listens(ctx context.Context) (addr string, local bool, err error) {
	host, port, err := net.SplitHostPort(o.Addr)
	if err != nil || host == "" {
		return o.Addr, false, err
	}
	at, err := o.lookup(ctx, host)
	if err != nil {
		return "", false, err
	}
	loopback := func(a netip.Addr) bool { return a.Unmap().IsLoopback() }
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	_, noName := netip.ParseAddr(host)
	everywhere := noName == nil || name == "localhost" || strings.HasSuffix(name, ".localhost")
	if !everywhere && slices.ContainsFunc(at, loopback) {
		return net.JoinHostPort("", port), false, nil
	}
	return o.Addr, len(at) > 0 && !slices.ContainsFunc(at, func(a netip.Addr) bool { return !loopback(a) }), nil
}

// guarded returns an error if the token is no secret and processes of other hosts than rank 0's could come.
func (o *Options) guarded(ctx context.Context) error {
	why := o.Public
	if why == "" && o.Token == "" {
		why = "the job has no token"
	}
	if why == "" || o.Size == 1 {
		return nil
	}
	at, local, err := o.listens(ctx)
	if err != nil {
		return fmt.Errorf("where rank 0 listens: %w", err)
	}
	if !local {
		return fmt.Errorf("%s, and whoever reaches %s could join it: set WARPMAP_TOKEN to the same secret for all ranks, "+
			"such as `openssl rand -hex 16` makes (mpirun -x WARPMAP_TOKEN hands it on), or let rank 0 listen at 127.0.0.1 "+
			"(MASTER_ADDR) where all are on one host", why, at)
	}
	return nil
}

// gather lets the others in.
func (m *Meeting) gather(ctx context.Context) error {
	if m.o.Size == 1 {
		m.started = true
		return nil
	}
	at, _, err := m.o.listens(ctx)
	if err != nil {
		return fmt.Errorf("rank 0 cannot listen at %s, where the others come to: %w", m.o.Addr, err)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", at)
	if err != nil {
		return fmt.Errorf("rank 0 cannot listen at %s, where the others come to: %w", at, err)
	}
	d := &door{m: m, all: make(chan struct{}), shut: make(chan struct{})}
	crash.Beside(&d.wg, func() { d.open(l) })
	defer d.close()
	select {
	case <-d.all:
	case <-ctx.Done():
	}
	l.Close()

	m.mu.Lock()
	m.ended = !m.started
	var absent []int
	for rank, p := range m.came[1:] {
		if p == nil {
			absent = append(absent, rank+1)
		} else if m.ended {
			m.peers = append(m.peers, p)
		}
	}
	m.mu.Unlock()
	if !m.ended {
		m.tell(frame{Kind: start})
		return nil
	}
	e := &AbsentError{absent, m.o.Size, context.Cause(ctx)}
	m.tell(text(refuse, 0, e.Error()))
	last := time.After(m.o.silence / 5)
	for _, p := range m.peers {
		p.goodbye(last)
	}
	return e
}

// goodbye lets the other read what was sent last, and hang up: closing at once could take that back.
func (p *peer) goodbye(last <-chan time.Time) {
	if c, ok := p.conn.Conn.(*net.TCPConn); ok {
		c.CloseWrite()
	}
	select {
	case <-p.closed:
	case <-last:
	}
	p.close(nil)
}

// door is where rank 0 lets others in.
type door struct {
	m         *Meeting
	all, shut chan struct{}
	wg        sync.WaitGroup

	mu      sync.Mutex
	waiting []net.Conn // the oldest first
	closed  bool
}

func (d *door) open(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			select {
			case <-d.shut:
				return
			case <-time.After(10 * time.Millisecond): // too many open files, say
				continue
			}
		}
		d.mu.Lock()
		if d.closed {
			d.mu.Unlock()
			conn.Close()
			return
		}
		d.waiting = append(d.waiting, conn)
		if len(d.waiting) > strangers+d.m.o.Size {
			i := crowd(d.waiting)
			d.waiting[i].Close()
			d.waiting = slices.Delete(d.waiting, i, i+1)
		}
		d.mu.Unlock()
		crash.Beside(&d.wg, func() { d.admit(conn) })
	}
}

// crowd finds the oldest connection of the host that has most: strangers push out their own.
func crowd(conns []net.Conn) int {
	hosts, n := make([]netip.Prefix, len(conns)), map[netip.Prefix]int{}
	for i, conn := range conns {
		at, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
		a := at.Addr().Unmap()
		bits := a.BitLen()
		if a.Is6() {
			bits = 64 // a host may have all addresses of a network
		}
		hosts[i], _ = a.WithZone("").Prefix(bits)
		n[hosts[i]]++
	}
	oldest := 0
	for i, h := range hosts {
		if n[h] > n[hosts[oldest]] {
			oldest = i
		}
	}
	return oldest
}

// close ends what goes on at the door.
func (d *door) close() {
	d.mu.Lock()
	d.closed = true
	for _, conn := range d.waiting {
		conn.Close()
	}
	d.mu.Unlock()
	close(d.shut)
	d.wg.Wait()
}

// admit lets a connection in that proves itself.
func (d *door) admit(conn net.Conn) {
	m, p := d.m, newPeer(conn, d.m.o.silence)
	rank, why := m.examine(p)
	d.mu.Lock()
	i := slices.Index(d.waiting, conn)
	if i >= 0 {
		d.waiting = slices.Delete(d.waiting, i, i+1)
	}
	d.mu.Unlock()
	if rank < 1 || i < 0 { // dropped: it comes again
		if why != "" {
			p.send(text(refuse, 0, why))
		}
		p.close(nil)
		return
	}
	p.rank, p.conn.until = rank, time.Time{}
	m.mu.Lock()
	if m.started || m.ended {
		m.mu.Unlock()
		p.close(nil)
		return
	}
	earlier := m.came[rank]
	m.came[rank] = p
	if !slices.Contains(m.came[1:], nil) {
		m.started = true
		m.peers = slices.Clone(m.came[1:])
		close(d.all)
	}
	m.attend(p)
	m.mu.Unlock()
	if earlier != nil {
		why := fmt.Sprintf("rank %d came again, from %v, and has taken the place of this one", rank, conn.RemoteAddr())
		earlier.send(text(refuse, 0, why))
		earlier.goodbye(time.After(m.o.silence / 5))
	}
}

// examine asks who comes. It gives the rank; or 0, and why one that is not let in is told so.
func (m *Meeting) examine(p *peer) (rank int, why string) {
	asked := nonce()
	if p.send(frame{Kind: challenge, Parts: [][]byte{[]byte(version), asked}}) != nil {
		return 0, ""
	}
	f, err := p.receive(3, mostBefore)
	if err != nil || f.Kind != hello || len(f.Parts) != 3 || len(f.Parts[0]) != nonceBytes || len(f.Parts[1]) != 4 {
		return 0, ""
	}
	theirs, size := f.Parts[0], int(binary.BigEndian.Uint32(f.Parts[1]))
	if !hmac.Equal(f.Parts[2], m.o.proof(byMember, asked, theirs, f.Rank, size)) {
		return 0, "another job's token"
	}
	if p.send(frame{Kind: welcome, Parts: [][]byte{m.o.proof(byRank0, asked, theirs, f.Rank, size)}}) != nil {
		return 0, ""
	}
	if size != m.o.Size || f.Rank < 1 || f.Rank >= m.o.Size {
		return 0, fmt.Sprintf("rank %d of %d in a job of %d processes", f.Rank, size, m.o.Size)
	}
	return f.Rank, ""
}

// refused is why rank 0 does not want this one.
type refused struct{ error }

// come goes to rank 0, again and again until it listens, and again if the connection breaks before all have come.
func (m *Meeting) come(ctx context.Context) error {
	for {
		var dial net.Dialer
		conn, err := dial.DialContext(ctx, "tcp", m.o.Addr)
		if err == nil {
			err = m.enter(ctx, conn)
		}
		if no := (refused{}); err == nil || errors.As(err, &no) {
			return no.error
		}
		select {
		case <-ctx.Done():
			err = errors.Join(err, context.Cause(ctx))
			return &AbsentError{[]int{0}, m.o.Size, fmt.Errorf("it cannot be reached at %s: %w", m.o.Addr, err)}
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// enter says who comes, and waits for the others.
func (m *Meeting) enter(ctx context.Context, conn net.Conn) error {
	p := newPeer(conn, m.o.silence)
	stop := context.AfterFunc(ctx, func() { p.close(nil) })
	err := m.introduce(p)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		p.close(nil)
		return err
	}
	p.conn.until = time.Time{}
	m.attend(p)
	select {
	case err = <-p.begun:
	case <-ctx.Done():
		select {
		case err = <-p.begun: // rank 0 may be about to say who is missing
		case <-time.After(time.Second / 2):
			err = refused{fmt.Errorf("rank 0 at %s does not say that all have come: %w", m.o.Addr, context.Cause(ctx))}
		}
	}
	if err != nil {
		p.close(nil)
		return err
	}
	m.peers = []*peer{p}
	return nil
}

// introduce proves to rank 0 that this one has the token, and wants that of it, too.
func (m *Meeting) introduce(p *peer) error {
	f, err := p.receive(2, mostBefore)
	known := f.Kind == challenge && len(f.Parts) == 2 && string(f.Parts[0]) == version && len(f.Parts[1]) == nonceBytes
	if errors.Is(err, errForeign) || err == nil && !known {
		return refused{fmt.Errorf("what listens at %s is no rank 0 of this version of warpmap", m.o.Addr)}
	}
	if err != nil {
		return err
	}
	asked, own := f.Parts[1], nonce()
	size := binary.BigEndian.AppendUint32(nil, uint32(m.o.Size))
	proof := m.o.proof(byMember, asked, own, m.o.Rank, m.o.Size)
	if err := p.send(frame{hello, m.o.Rank, [][]byte{own, size, proof}}); err != nil {
		return err
	}
	f, err = p.receive(1, mostBefore)
	proof = m.o.proof(byRank0, asked, own, m.o.Rank, m.o.Size)
	switch {
	case errors.Is(err, errForeign):
		return refused{fmt.Errorf("what listens at %s: %w", m.o.Addr, err)}
	case err != nil:
		return err
	case f.Kind == refuse:
		return refused{fmt.Errorf("rank 0 at %s does not let this one in, which has another job's token (WARPMAP_TOKEN)", m.o.Addr)}
	case f.Kind != welcome || len(f.Parts) != 1 || !hmac.Equal(f.Parts[0], proof):
		return refused{fmt.Errorf("what listens at %s does not know this job's token (WARPMAP_TOKEN)", m.o.Addr)}
	}
	return nil
}

// attend listens to a peer, and says now and then that this process is there.
func (m *Meeting) attend(p *peer) {
	crash.Beside(&m.wg, func() { m.listen(p) })
	crash.Beside(&m.wg, func() { m.live(p) })
}

// live says now and then that this process is there.
func (m *Meeting) live(p *peer) {
	tick := time.NewTicker(m.o.silence / 5)
	defer tick.Stop()
	for {
		select {
		case <-p.closed:
			return
		case <-tick.C:
			p.send(frame{Kind: alive})
		}
	}
}

// listen takes what comes over a connection.
func (m *Meeting) listen(p *peer) {
	for {
		f, err := p.receive(m.o.Size, most)
		if err == nil {
			err = m.heard(p, f)
		}
		if err != nil {
			m.lost(p, err)
			return
		}
	}
}

// heard does what a frame asks for.
func (m *Meeting) heard(p *peer, f frame) error {
	m.mu.Lock()
	started, replaced := m.started, m.replaced(p)
	if f.Kind == start && m.o.Rank > 0 && !started {
		m.started = true
		p.begun <- nil
	}
	m.mu.Unlock()
	switch {
	case replaced:
	case f.Kind == alive || f.Kind == start && m.o.Rank > 0 && !started:
	case f.Kind == refuse && m.o.Rank > 0 && !started && len(f.Parts) == 1:
		return refused{fmt.Errorf("rank 0 at %s: %s", m.o.Addr, f.Parts[0])}
	case f.Kind == gone && m.o.Rank > 0 && !started && len(f.Parts) == 1: // told beside start
		return refused{&GoneError{f.Rank, string(f.Parts[0])}}
	case f.Kind == say && m.o.Rank == 0 && started && len(f.Parts) == 1:
		m.take(p.rank, f.Parts[0])
	case f.Kind == told && m.o.Rank > 0 && started && len(f.Parts) == m.o.Size:
		m.mu.Lock()
		m.asking = false
		m.mu.Unlock()
		m.agree(f.Parts)
	case f.Kind == gone && started && len(f.Parts) == 1:
		rank := f.Rank
		if m.o.Rank == 0 {
			rank = p.rank
		}
		m.lose(&GoneError{rank, string(f.Parts[0])})
	case f.Kind == ask && started && len(f.Parts) == 0:
		m.asks(p)
	case f.Kind == here && started && len(f.Parts) == 0:
		return m.answers(p)
	case (f.Kind == bye || f.Kind == rest) && started && len(f.Parts) == 0:
		rank := f.Rank
		if m.o.Rank == 0 {
			rank = p.rank
			m.pass(p, frame{Kind: f.Kind, Rank: rank})
		}
		if rank < 0 || rank >= m.o.Size {
			return errForeign
		}
		if m.rests(rank, f.Kind == bye); f.Kind == bye {
			m.leave(rank)
		}
	default:
		return errForeign
	}
	return nil
}

// replaced tells, at rank 0, that a rank has come again since, or that it is known to be lost. The lock is held.
func (m *Meeting) replaced(p *peer) bool { return m.o.Rank == 0 && m.came[p.rank] != p }

// lost notes that a connection is of no more use. That is no failure of a rank that has said that it leaves.
func (m *Meeting) lost(p *peer, err error) {
	p.close(err)
	err = cmp.Or(p.why, err)
	m.mu.Lock()
	started, replaced, left := m.started, m.replaced(p), m.left[p.rank]
	if !started && !replaced {
		m.came[p.rank] = nil // it may come again
	}
	m.mu.Unlock()
	switch {
	case replaced:
	case left:
		m.lostLeaver(p.rank)
	case !started:
		p.begun <- err
	case errors.As(err, new(silentError)), errors.Is(err, errForeign):
		m.lose(&GoneError{p.rank, err.Error()})
	default:
		m.lose(&GoneError{p.rank, "its connection broke: " + err.Error()})
	}
}

// lostLeaver notes that the connection of a rank that leaves has ended. Such a rank waits until no other is in a call,
// unless its process ends before: then what it has sent may never arrive, and calls that wait for it must end.
func (m *Meeting) lostLeaver(rank int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing {
		return
	}
	m.cut = m.o.Rank > 0
	m.stir()
	crash.Beside(&m.wg, func() {
		late := time.NewTimer(m.o.silence)
		defer late.Stop()
		for {
			m.mu.Lock()
			rest, next := m.calls == 0, m.answer
			if m.o.Rank == 0 {
				rest = !slices.Contains(m.resting, false)
			}
			m.mu.Unlock()
			if rest {
				return
			}
			select {
			case <-next:
			case <-m.broken:
				return
			case <-m.done:
				return
			case <-late.C:
				m.lose(&GoneError{rank, "it has left, and ended while others were in a call"})
				return
			}
		}
	})
}

// tell says something to all peers, none of which waits for another that is slow.
func (m *Meeting) tell(f frame) {
	var wg sync.WaitGroup
	for _, p := range m.peers {
		crash.Beside(&wg, func() { p.send(f) }) // if that fails, reading does
	}
	wg.Wait()
}

// pass sends a frame of one peer to all other peers. Only rank 0 has several.
func (m *Meeting) pass(from *peer, f frame) {
	var wg sync.WaitGroup
	for _, p := range m.peers {
		if p != from {
			crash.Beside(&wg, func() { p.send(f) }) // if that fails, reading does
		}
	}
	wg.Wait()
}

// rests notes that a rank is in no call, and whether it leaves.
func (m *Meeting) rests(rank int, leaves bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resting[rank] = true
	m.left[rank] = m.left[rank] || leaves
	m.stir()
}

// leave answers a rank that leaves. If some rank waits for its part of an agreement, the rank counts as gone. Rank 0
// decides that: another rank may hear that a rank leaves before it hears of the agreement that came first. Only if rank
// 0 itself leaves, another rank decides.
func (m *Meeting) leave(rank int) {
	m.mu.Lock()
	waiting := slices.ContainsFunc(m.said, func(b []byte) bool { return b != nil })
	if m.o.Rank > 0 {
		waiting = m.asking && rank == 0
	}
	m.mu.Unlock()
	if waiting {
		m.lose(&GoneError{rank, "it has left"})
	}
	m.rest()
}

// rest has others hear that this rank is in no call, once another leaves.
func (m *Meeting) rest() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rested || m.parted || m.closing || m.calls > 0 || !slices.Contains(m.left, true) {
		return
	}
	m.rested, m.resting[m.o.Rank] = true, true
	m.stir()
	crash.Beside(&m.wg, func() { m.tell(frame{Kind: rest, Rank: m.o.Rank}) })
}

// Enter says that this rank begins a call that others take part in. Exit says that it has ended.
func (m *Meeting) Enter() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
}

// Exit says that a call has ended that began with Enter.
func (m *Meeting) Exit() {
	m.mu.Lock()
	m.calls--
	m.stir()
	m.mu.Unlock()
	m.rest()
}

// Part says to all other ranks that this one leaves, and waits until no rank wants anything of it. Meanwhile it hears
// of ranks that are gone. It returns true once all other ranks leave, too. It returns false once all of them are in no
// call, and within a second some have not said that they leave; when a rank is gone; when rank 0 has left before it
// passed on what others say; and after Patience. After Part, Agree returns ErrLeft.
func (m *Meeting) Part() bool {
	m.mu.Lock()
	said := m.parted
	m.parted = true
	m.left[m.o.Rank], m.resting[m.o.Rank] = true, true
	m.stir()
	waiting := slices.ContainsFunc(m.said, func(b []byte) bool { return b != nil })
	m.mu.Unlock()
	m.telling.Wait() // that this one leaves is not the first that others are to hear
	if !said {
		m.tell(frame{Kind: bye, Rank: m.o.Rank})
	}
	if waiting { // at rank 0: a rank has said its part, and waits for this one's
		m.lose(&GoneError{m.o.Rank, "it has left"})
	}
	over := time.NewTimer(patience * m.o.silence)
	defer over.Stop()
	var late <-chan time.Time
	for {
		m.mu.Lock()
		all, rest, next := !slices.Contains(m.left, false), !slices.Contains(m.resting, false), m.answer
		vain := m.cut || m.err != nil
		m.mu.Unlock()
		switch {
		case vain:
			return false
		case all:
			return true
		case rest && late == nil:
			soon := time.NewTimer(m.o.silence / 5)
			defer soon.Stop()
			late = soon.C
		}
		select {
		case <-next:
		case <-m.broken:
			return false
		case <-late:
			return false
		case <-over.C:
			return false
		}
	}
}

// lose notes who is gone, and tells the others.
func (m *Meeting) lose(e *GoneError) {
	m.mu.Lock()
	first := m.err == nil && !m.closing
	if first {
		m.err = e
		m.telling.Add(1)
		close(m.broken)
	}
	m.mu.Unlock()
	if !first {
		return
	}
	if m.o.Rank == 0 {
		m.tell(text(gone, e.Rank, e.Why))
	}
	m.telling.Done()
}

// take keeps a rank's part of what is agreed on, at rank 0, and tells all when it is whole.
func (m *Meeting) take(rank int, body []byte) {
	m.mu.Lock()
	m.said[rank] = append([]byte{}, body...) // not nil, which says that nothing came
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
	m.tell(frame{Kind: told, Parts: all})
	m.agree(all)
}

// agree hands what all have said to Agree.
func (m *Meeting) agree(all [][]byte) {
	select {
	case m.agreed <- all:
	case <-m.done: // nobody asks any more
	}
}

// ErrLeft says that this process is no longer in the job.
var ErrLeft = errors.New("this process has left its job")

// Agree returns the bodies of all ranks, in the order of ranks. All ranks must call it, in the same order. Errors:
// *GoneError; ErrLeft after Part or Close.
func (m *Meeting) Agree(body []byte) ([][]byte, error) {
	m.mu.Lock()
	err, parted, left := m.err, m.parted, m.o.Rank > 0 && m.left[0]
	if err == nil && !parted {
		m.asking = m.o.Rank > 0
	}
	m.mu.Unlock()
	if parted {
		return nil, ErrLeft
	} else if err != nil {
		return nil, err
	}
	if left {
		m.lose(&GoneError{0, "it has left"})
	} else if m.o.Rank == 0 {
		m.take(0, body)
	} else if err := m.peers[0].send(frame{say, m.o.Rank, [][]byte{body}}); err != nil {
		select {
		case <-m.broken: // it may be known who
		case <-m.done:
		case <-time.After(m.o.silence):
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

// AllThere waits until all ranks have said that they are there, each after the call began, or until one is gone, which
// Err tells then. What a rank has told before that is known when it returns: so it tells of a failure that others caused
// whether they have said that they did. It is false where one is gone or has left, or when the time is over.
func (m *Meeting) AllThere(within time.Duration) bool {
	over := time.NewTimer(within)
	defer over.Stop()
	return m.allThere(over.C)
}

func (m *Meeting) allThere(over <-chan time.Time) bool {
	m.mu.Lock()
	want := make([]int, len(m.peers))
	for i, p := range m.peers {
		p.asked++
		want[i] = p.asked
	}
	m.mu.Unlock()
	m.tell(frame{Kind: ask})
	for {
		m.mu.Lock()
		left, there, next := slices.Index(m.left, true), true, m.answer
		for i, p := range m.peers {
			there = there && p.answered >= want[i]
		}
		there = there && m.err == nil
		m.mu.Unlock()
		switch {
		case left >= 0:
			m.lose(&GoneError{left, "it has left"})
			return false
		case there:
			return true
		}
		select {
		case <-next:
		case <-m.broken:
			return false
		case <-m.done:
			return false
		case <-over:
			return false
		}
	}
}

// asks answers a peer: rank 0 when all others have said that they are there, another rank at once.
func (m *Meeting) asks(p *peer) {
	if m.o.Rank > 0 {
		p.send(frame{Kind: here}) // if that fails, reading does
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.asks++; p.asks == 1 { // else whoever answers the last one goes on
		crash.Beside(&m.wg, func() { m.tellsAll(p) })
	}
}

// tellsAll answers what a peer asks, until it asks no more or somebody is gone.
func (m *Meeting) tellsAll(p *peer) {
	for n := 0; ; {
		m.mu.Lock()
		p.asks -= n // which are answered
		n = p.asks
		m.mu.Unlock()
		if n == 0 || !m.allThere(nil) {
			return
		}
		for range n {
			p.send(frame{Kind: here})
		}
	}
}

// answers notes that a peer is there.
func (m *Meeting) answers(p *peer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.answered == p.asked {
		return errForeign
	}
	p.answered++
	m.stir()
	return nil
}

// stir has whoever waits for answers look again. The lock is held.
func (m *Meeting) stir() {
	close(m.answer)
	m.answer = make(chan struct{})
}

// Fail tells all others that this rank gives up.
func (m *Meeting) Fail(why string) {
	if m.o.Rank == 0 {
		m.lose(&GoneError{0, why})
		return
	}
	m.peers[0].send(text(gone, m.o.Rank, why))
	m.lose(&GoneError{m.o.Rank, why})
}

// Broken gives a channel that is closed when a rank is gone. Err then tells which rank.
func (m *Meeting) Broken() <-chan struct{} { return m.broken }

// Err is the *GoneError of the rank that was gone first. It is nil while all ranks are there.
func (m *Meeting) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Close leaves the job. The other ranks go on until they want to agree on something.
func (m *Meeting) Close() {
	m.over.Do(func() {
		m.mu.Lock()
		said := m.parted
		m.closing, m.parted = true, true
		m.mu.Unlock()
		close(m.done)
		m.telling.Wait() // that this one leaves is not the first that others are to hear
		if !said {
			m.tell(frame{Kind: bye, Rank: m.o.Rank})
		}
		for _, p := range m.peers {
			p.close(nil)
		}
		m.wg.Wait()
	})
}

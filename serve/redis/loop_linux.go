package redis

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/warpmap/warpmap/internal/keyspace"
)

// loop answers some of the connections: see the package's comment. Only its goroutine touches what is not guarded.
type loop struct {
	s      *Server
	number int
	epoll  int
	wake   int // an eventfd
	conns  map[int32]*polled
	buf    []byte    // what was read
	used   int       // bytes of it, of ready
	ready  []*polled // that have read something
	spare  []byte    // memory for replies
	again  []*polled // whose requests were not all answered
	due    []*polled // whose replies wait for the log

	mu    sync.Mutex
	come  []*polled // that were handed over
	kill  []*polled // that CLIENT KILL ends
	ended bool
}

// polled is a connection of a loop.
type polled struct {
	*session
	fd      int
	at      int    // bytes of replies that were sent
	events  uint32 // that it waits for
	waiting bool   // for the client to take replies
	queued  bool   // is in loop.again
	counted int    // bytes of these in Server.waiting
	shut    bool   // nothing more is sent, for the server ends
	gone    bool
}

const (
	mostEvents = 256
	tick       = time.Second // how often clients that stall are looked for
	leastRoom  = 16 << 10    // bytes of a part of a request from which on the rest is read behind it

	mostReady  = 16  // connections that read before they are answered
	shortBytes = 128 // bytes of a request that is looked at before its turn

	partingTick = 5 * time.Millisecond // how often the last replies are looked for
)

func (s *Server) newLoops() (loops []*loop, err error) {
	for number := range s.o.Loops {
		l := &loop{s: s, number: number, epoll: -1, wake: -1, conns: map[int32]*polled{}}
		l.buf = make([]byte, 2*readBytes)
		loops = append(loops, l)
		if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
			l.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		}
		if err == nil {
			err = l.watch(l.wake, unix.EPOLL_CTL_ADD, unix.EPOLLIN)
		}
		if err != nil {
			for _, l := range loops {
				l.close()
			}
			return nil, fmt.Errorf("redis: epoll: %w", err)
		}
	}
	return loops, nil
}

func (l *loop) watch(fd, what int, events uint32) error {
	return unix.EpollCtl(l.epoll, what, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// take takes a connection over, or tells that it cannot: of TLS, or for want of files.
func (l *loop) take(conn net.Conn, c *session) bool {
	of, is := conn.(syscall.Conn)
	if !is {
		return false
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return false
	}
	fd := -1 // of its own: Go's would wake Go's poller, too
	own := func(from uintptr) { fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0) }
	if control := raw.Control(own); control != nil || err != nil {
		return false
	}
	conn.Close()
	p := &polled{session: c, fd: fd}
	l.mu.Lock()
	ended := l.ended
	if !ended {
		l.come = append(l.come, p)
		l.rouse()
	}
	l.mu.Unlock()
	if ended {
		unix.Close(fd)
		l.s.over(c)
		return true
	}
	c.endsBy(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.ended {
			l.kill = append(l.kill, p)
			l.rouse()
		}
	})
	return true
}

func (l *loop) rouse() { unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// end has the loop return when it has sent what it can.
func (l *loop) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ended = true
		l.rouse()
	}
}

func (l *loop) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for _, p := range l.come {
		unix.Close(p.fd)
		l.s.over(p.session)
	}
	l.come = nil
	for _, fd := range []int{l.epoll, l.wake} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	l.epoll, l.wake = -1, -1
}

// newcomers watches what was handed over.
func (l *loop) newcomers() (ended bool) {
	var b [8]byte
	unix.Read(l.wake, b[:])
	l.mu.Lock()
	come, kill := l.come, l.kill
	l.come, l.kill, ended = nil, nil, l.ended
	l.mu.Unlock()
	for _, p := range come {
		l.conns[int32(p.fd)] = p
		p.near = l.number
		p.events = unix.EPOLLIN
		if l.watch(p.fd, unix.EPOLL_CTL_ADD, unix.EPOLLIN) != nil {
			l.drop(p)
		}
	}
	for _, p := range kill {
		l.drop(p)
	}
	return ended
}

func (l *loop) run() error {
	defer l.close()
	events := make([]unix.EpollEvent, mostEvents)
	looked, ended := time.Now(), false
	for !ended || l.parting() {
		wait := tick
		switch {
		case len(l.again) > 0:
			wait = 0
		case ended:
			wait = partingTick
		}
		n, err := unix.EpollWait(l.epoll, events, int(wait/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("redis: epoll: %w", err)
		}
		now := time.Now()
		again := l.again
		l.again = nil
		for _, p := range again {
			p.queued = false
			if !p.gone {
				l.answer(p, now)
			}
		}
		for _, e := range events[:max(0, n)] {
			if int(e.Fd) == l.wake {
				ended = l.newcomers()
				continue
			}
			p := l.conns[e.Fd]
			if p == nil {
				continue
			}
			ready := !p.waiting || e.Events&unix.EPOLLIN != 0
			if p.waiting && !p.wrote { // else it waits for the log, too
				l.send(p)
			}
			// Else its turn comes by itself, or no more.
			if ready && !p.gone && !p.more && !ended && (!p.waiting || l.readsOn(p)) {
				l.read(p, now)
			}
		}
		l.answerReady(now)
		l.commit()
		l.s.metrics.rounds.Add(1)
		if now.Sub(looked) > tick {
			looked = now
			for _, p := range l.conns {
				if now.UnixMilli() > p.due() {
					l.s.metrics.expired.Add(1)
					l.drop(p)
				}
			}
		}
	}
	for _, p := range l.conns {
		l.drop(p)
	}
	return nil
}

// parting lets connections go whose replies are all sent, when the server ends, and tells whether to wait for others.
// With unread bytes a system closes TCP at once, and throws away what the client has not received yet. So those are
// read away, until it has all.
func (l *loop) parting() bool {
	for _, p := range l.conns {
		if p.waiting || p.more {
			continue
		}
		if !p.shut {
			p.shut = true
			unix.Shutdown(p.fd, unix.SHUT_WR)
		}
		n, err := 1, error(nil)
		for range 16 { // then others have their turn
			if n, err = rawIO(unix.SYS_READ, p.fd, l.buf); n <= 0 {
				break
			}
		}
		if n > 0 || errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			unsent, err := unix.IoctlGetInt(p.fd, unix.SIOCOUTQ)
			if err == nil && unsent > 1 { // one is the end itself
				continue
			}
		}
		l.drop(p)
	}
	return len(l.conns) > 0 && time.Now().UnixMilli() < l.s.until.Load()
}

// read reads once. What is whole then is answered with that of others.
func (l *loop) read(p *polled, now time.Time) {
	if len(l.ready) == mostReady || len(l.buf)-l.used < readBytes {
		l.answerReady(now)
	}
	buf := l.buf[l.used:][:readBytes]
	room := p.in.Partial() && p.in.Held() >= leastRoom
	if room {
		buf = p.in.Room(readBytes)
	}
	n, err := rawIO(unix.SYS_READ, p.fd, buf)
	switch {
	case n > 0 && room:
		p.in.Filled(n)
	case n > 0:
		p.in.Feed(buf[:n])
		l.used += n
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return
	case n == 0 && len(p.out) > p.at: // it sends no more, and may take its replies yet
		if p.closing = true; !p.wrote { // else they wait for the log, too
			l.send(p)
		}
		return
	default:
		l.drop(p)
		return
	}
	l.ready = append(l.ready, p)
}

// answerReady answers those that have read. Where each asks for little, what their keys lead to is read at once: see
// session.look.
func (l *loop) answerReady(now time.Time) {
	if len(l.ready) >= leastWarmed {
		var hashes [mostReady]uint64
		var from [mostReady]int
		var all keyspace.Several
		n := 0
		for _, p := range l.ready {
			if hash, is := p.next(); is {
				hashes[n] = hash
				all.Add(hash)
				n++
			}
		}
		if n >= leastWarmed {
			r := l.s.space.ShareAll(&all, l.number)
			l.s.space.Warm(hashes[:n], from[:])
			l.s.space.UnshareAll(&all, r)
		}
	}
	for _, p := range l.ready {
		if !p.gone {
			l.answer(p, now)
		}
	}
	clear(l.ready) // those that go leave much
	l.ready, l.used = l.ready[:0], 0
}

// next is the hash of the key that a short request asks for, which is answered later.
func (p *polled) next() (hash uint64, is bool) {
	if !p.known || p.gone || p.in.Came() > shortBytes {
		return 0, false
	}
	at := p.in.At()
	if args, err := p.in.Next(); err == nil && (len(args) == 2 || len(args) == 3) {
		hash, is = p.s.space.Hash(args[1]), true
	}
	p.in.Done()
	p.in.Back(at)
	return hash, is
}

// rawIO reads or writes without telling Go's scheduler, which costs as much again: neither waits, for the connection is
// one that does not block.
func rawIO(call uintptr, fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

func (l *loop) answer(p *polled, now time.Time) {
	if p.out == nil {
		p.out, l.spare = l.spare, nil
	}
	p.run(now)
	if p.wrote && l.s.space.Syncs() {
		l.due = append(l.due, p)
		return
	}
	p.wrote = false
	l.send(p)
}

// commit brings the log to the disk, and then sends what waited for that.
func (l *loop) commit() {
	if len(l.due) == 0 {
		return
	}
	err := l.s.space.Commit()
	for _, p := range l.due {
		p.wrote = false
		switch {
		case p.gone:
		case err != nil:
			l.drop(p) // nothing of this is acknowledged
		default:
			l.send(p)
		}
	}
	clear(l.due)
	l.due = l.due[:0]
}

// send sends replies, as far as the client takes them.
func (l *loop) send(p *polled) {
	if p.gone {
		return
	}
	p.at = min(p.at, len(p.out)) // replies that are too large were thrown away
	for p.at < len(p.out) {
		n, err := rawIO(unix.SYS_WRITE, p.fd, p.out[p.at:])
		switch {
		case n > 0:
			if p.at += n; p.waiting {
				p.last.Store(time.Now().UnixMilli())
			}
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			l.wait(p)
			return
		default:
			l.drop(p)
			return
		}
	}
	if l.spare == nil && cap(p.out) <= 2*mostRound {
		l.spare = p.out[:0]
	}
	p.out, p.at = nil, 0
	if p.closing || p.waiting && !l.interest(p, unix.EPOLLIN) {
		l.drop(p)
		return
	}
	if p.waiting {
		p.sent(time.Now())
	}
	p.waiting = false
	l.count(p)
	if p.more {
		l.later(p)
	}
}

// later has the requests that are left answered in the next round.
func (l *loop) later(p *polled) {
	if !p.queued {
		p.queued = true
		l.again = append(l.again, p)
	}
}

// wait has a connection wait until its client takes replies. Meanwhile it is read on, for clients send all of a
// pipeline before they read, but only while few bytes of replies wait in all.
func (l *loop) wait(p *polled) {
	if p.at >= len(p.out)/2 {
		p.out, p.at = append(p.out[:0], p.out[p.at:]...), 0
	}
	p.waiting = true
	l.count(p)
	events := uint32(unix.EPOLLOUT)
	on := l.readsOn(p)
	if on {
		events |= unix.EPOLLIN
	}
	switch {
	case !l.interest(p, events):
		l.drop(p)
	case on && p.more:
		l.later(p)
	}
}

// mostWaiting is how many bytes of replies may wait in all while clients are read that do not take theirs.
const mostWaiting = 256 << 20

// readsOn tells whether a client is read though its replies wait.
func (l *loop) readsOn(p *polled) bool {
	return !p.closing && len(p.out)-p.at < l.s.o.Output && l.s.waiting.Load() < mostWaiting
}

// count counts the bytes of a connection's replies that wait.
func (l *loop) count(p *polled) {
	n := 0
	if p.waiting && !p.gone {
		n = len(p.out) - p.at
	}
	if n != p.counted {
		l.s.waiting.Add(int64(n - p.counted))
		p.counted = n
	}
}

// interest says what a connection waits for.
func (l *loop) interest(p *polled, events uint32) bool {
	if p.events == events {
		return true
	}
	p.events = events
	return l.watch(p.fd, unix.EPOLL_CTL_MOD, events) == nil
}

func (l *loop) drop(p *polled) {
	if p.gone {
		return
	}
	p.gone = true
	l.count(p)
	delete(l.conns, int32(p.fd))
	unix.Close(p.fd)
	l.s.over(p.session)
}

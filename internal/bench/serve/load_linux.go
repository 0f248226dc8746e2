package serve

import (
	"bytes"
	"fmt"
	"math"
	"net"
	"os/exec"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/warpmap/warpmap/internal/crash"
)

// Run puts the load on. Errors: numbers out of range; the system's; a reply that is not what it should be.
func (l Load) Run() (r Rates, err error) {
	if err := l.complete(runtime.NumCPU()); err != nil {
		return r, err
	}
	s := l.script()
	asking := make([]*asker, l.Threads)
	defer func() {
		for _, a := range asking {
			a.close()
		}
	}()
	for i := range asking {
		from, to := i*s.turns/l.Threads, (i+1)*s.turns/l.Threads
		most := int64(math.MaxInt64)
		if l.Fill {
			most = int64(to - from)
		}
		if asking[i], err = newAsker(l.Address, s, from, most, (l.Connections+i)/l.Threads); err != nil {
			return r, err
		}
	}
	server, client, began := cpuOf(l.PID), cpuOf(0), time.Now()
	var g crash.Group
	for _, a := range asking {
		g.Go(func() error { return a.run(began, l.time()) })
	}
	if err := g.Wait(); err != nil {
		return r, err
	}
	took := time.Since(began)
	server, client = cpuOf(l.PID)-server, cpuOf(0)-client
	var all times
	turns := int64(0)
	for _, a := range asking {
		turns += a.done
		for i, n := range a.times {
			all[i] += n
		}
	}
	n := float64(turns) * float64(l.Depth*l.Batch)
	r = Rates{Rate: n / took.Seconds(), P50: all.quantile(0.5), P99: all.quantile(0.99),
		Server: math.NaN(), Client: client.Seconds() * 1e6 / n}
	if l.PID != 0 {
		r.Server = server.Seconds() * 1e6 / n
	}
	return r, nil
}

// cpuOf is the time that a process has used, of user and system; 0 is this one.
func cpuOf(pid int) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|2), &t) != nil { // clock_getcpuclockid
		return 0
	}
	return time.Duration(t.Nano())
}

// asker is a thread of clients.
type asker struct {
	script
	next    int   // turn
	most    int64 // turns to begin
	begun   int64
	done    int64
	waiting int // connections that do not have all replies
	epoll   int
	conns   []asking
	buf     []byte
	times   times
	began   time.Time
}

// asking is a connection.
type asking struct {
	fd, turn   int
	sent, came int // bytes of the turn
	since      time.Duration
	full       bool // the system takes no more for now
}

func newAsker(address string, s script, from int, most int64, conns int) (a *asker, err error) {
	a = &asker{script: s, next: from, most: most, conns: make([]asking, 0, conns), buf: make([]byte, 256<<10)}
	if a.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return a, err
	}
	to, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return a, err
	}
	ip := to.IP.To4()
	if ip == nil { // of this host
		ip = net.IPv4(127, 0, 0, 1).To4()
	}
	for i := range conns {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return a, err
		}
		a.conns = append(a.conns, asking{fd: fd})
		if err := unix.Connect(fd, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(ip)}); err != nil {
			return a, fmt.Errorf("%s: %w", address, err)
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			return a, err
		}
		if err := unix.SetNonblock(fd, true); err != nil {
			return a, err
		}
		if err := a.watch(i, unix.EPOLL_CTL_ADD, unix.EPOLLIN); err != nil {
			return a, err
		}
	}
	return a, nil
}

func (a *asker) close() {
	if a == nil {
		return
	}
	for _, c := range a.conns {
		unix.Close(c.fd)
	}
	unix.Close(a.epoll)
}

func (a *asker) watch(i, what int, events uint32) error {
	return unix.EpollCtl(a.epoll, what, a.conns[i].fd, &unix.EpollEvent{Events: events, Fd: int32(i)})
}

// run asks for so long, and waits for the last replies.
func (a *asker) run(began time.Time, long time.Duration) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	a.began = began
	for i := range a.conns {
		if err := a.begin(i); err != nil {
			return err
		}
	}
	events := make([]unix.EpollEvent, 256)
	for a.waiting > 0 {
		n, err := unix.EpollWait(a.epoll, events, int(patience/time.Millisecond))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return fmt.Errorf("no reply in %v", patience)
		}
		if time.Since(began) > long {
			a.most = 0
		}
		for _, e := range events[:n] {
			i := int(e.Fd)
			if a.conns[i].full {
				if err := a.send(i); err != nil {
					return err
				}
			}
			if e.Events&^unix.EPOLLOUT != 0 {
				if err := a.receive(i); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// begin begins a connection's next turn, if there is one.
func (a *asker) begin(i int) error {
	if a.begun >= a.most {
		return nil
	}
	a.begun++
	a.waiting++
	c := &a.conns[i]
	c.turn, c.sent, c.came, c.since = a.next, 0, 0, time.Since(a.began)
	if a.next++; a.next == a.turns {
		a.next = 0
	}
	return a.send(i)
}

func (a *asker) send(i int) error {
	c := &a.conns[i]
	for ask := a.ask[c.turn*a.asks:][:a.asks]; c.sent < len(ask); {
		n, err := rawIO(unix.SYS_WRITE, c.fd, ask[c.sent:])
		switch {
		case err == 0:
			c.sent += n
		case err == unix.EAGAIN && c.full:
			return nil
		case err == unix.EAGAIN:
			c.full = true
			return a.watch(i, unix.EPOLL_CTL_MOD, unix.EPOLLIN|unix.EPOLLOUT)
		case err != unix.EINTR:
			return err
		}
	}
	if !c.full {
		return nil
	}
	c.full = false
	return a.watch(i, unix.EPOLL_CTL_MOD, unix.EPOLLIN)
}

// receive reads once, and compares.
func (a *asker) receive(i int) error {
	c := &a.conns[i]
	n, err := rawIO(unix.SYS_READ, c.fd, a.buf)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return nil
	case err != 0:
		return err
	case n == 0:
		return fmt.Errorf("the server ended a connection behind %d bytes of %d of replies", c.came, a.wants)
	}
	want := a.want[c.turn*a.wants:][c.came:a.wants]
	if n > len(want) || !bytes.Equal(a.buf[:n], want[:n]) {
		return fmt.Errorf("a wrong reply: %.100q, want %.100q", a.buf[:n], want)
	}
	if c.came += n; c.came < a.wants {
		return nil
	}
	a.times.add(int64(time.Since(a.began) - c.since))
	a.done++
	a.waiting--
	return a.begin(i)
}

// rawIO reads or writes without telling Go's scheduler, which costs as much again: a connection does not block.
func rawIO(call uintptr, fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}

// endWithThread has a command killed when the thread that starts it ends.
func endWithThread(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

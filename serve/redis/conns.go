package redis

import (
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"github.com/warpmap/warpmap/internal/crash"
)

// conns are the connections that have a goroutine each.
type conns struct {
	s     *Server
	work  crash.WaitGroup
	mu    sync.Mutex
	all   map[net.Conn]bool
	ended bool
	broke chan error // gets the first panic
}

func newConns(s *Server) *conns {
	return &conns{s: s, all: map[net.Conn]bool{}, broke: make(chan error, 1)}
}

// take has a goroutine answer a connection.
func (k *conns) take(conn net.Conn, c *session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		k.s.over(c)
		conn.Close()
		return
	}
	k.all[conn] = true
	c.endsBy(func() { below(conn).Close() })
	k.work.Go(func() {
		defer func() {
			k.mu.Lock()
			delete(k.all, conn)
			k.mu.Unlock()
			k.s.over(c)
			conn.Close()
		}()
		if err := crash.Catch(func() error { c.answer(conn); return nil }); err != nil {
			select {
			case k.broke <- err:
			default:
			}
		}
	})
}

// end has all connections answer what they have read, and waits for them, but no longer than replies may wait.
func (k *conns) end() {
	k.mu.Lock()
	k.ended = true
	until := time.UnixMilli(k.s.until.Load())
	for conn := range k.all {
		conn.SetReadDeadline(time.Now())
		conn.SetWriteDeadline(until)
	}
	k.mu.Unlock()
	late := time.AfterFunc(time.Until(until.Add(lastWords/10)), func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		for conn := range k.all { // those of TLS wait for seconds to say that they close
			below(conn).Close()
		}
	})
	defer late.Stop()
	k.work.Wait()
}

// below is the connection that carries one of TLS, or else the connection.
func below(conn net.Conn) net.Conn {
	if t, is := conn.(*tls.Conn); is {
		return t.NetConn()
	}
	return conn
}

// lastWords is how long replies wait for their client when the server ends.
const lastWords = time.Second

const readBytes = 64 << 10

// answer reads requests and sends replies until the connection ends.
func (c *session) answer(conn net.Conn) {
	if t, is := conn.(*tls.Conn); is {
		t.SetDeadline(time.Now().Add(c.s.o.Timeout))
		if c.s.ending.Load() || t.Handshake() != nil { // conns.end may have set its deadline before this one
			return
		}
		t.SetDeadline(time.Time{})
	}
	buf := make([]byte, readBytes/4) // for there are many
	late := false                    // replies are sent while the server ends
	for {
		if !c.more {
			if !c.read(conn, buf) {
				return
			}
		} else {
			c.run(time.Now())
		}
		c.s.metrics.rounds.Add(1)
		if c.wrote {
			if c.s.space.Commit() != nil {
				return // nothing of this is acknowledged
			}
			c.wrote = false
		}
		for len(c.out) > 0 {
			part := c.out[:min(len(c.out), readBytes)]
			conn.SetWriteDeadline(time.Now().Add(c.s.o.Timeout))
			if c.s.ending.Load() { // and conns.end may have set its deadline before this one
				conn.SetWriteDeadline(time.UnixMilli(c.s.until.Load()))
			}
			n, err := conn.Write(part)
			if err != nil {
				c.timedOut(err)
				below(conn).Close() // there is nobody to tell
				return
			}
			c.out = c.out[n:]
			c.last.Store(time.Now().UnixMilli())
			late = c.s.ending.Load()
			c.sent(time.Now())
		}
		if c.out = nil; c.closing || c.s.ending.Load() && !c.more {
			if late {
				c.part(conn)
			}
			return
		}
	}
}

// part waits for the client to close, and reads away what it has sent: see loop.parting.
func (c *session) part(conn net.Conn) {
	if t, is := conn.(*tls.Conn); is {
		t.CloseWrite()
	}
	conn = below(conn)
	if half, is := conn.(interface{ CloseWrite() error }); is {
		half.CloseWrite()
		conn.SetReadDeadline(time.UnixMilli(c.s.until.Load()))
		io.Copy(io.Discard, conn)
	}
}

// read reads once, and answers what is whole then.
func (c *session) read(conn net.Conn, buf []byte) bool {
	var until time.Time
	if at := c.due(); at < math.MaxInt64 {
		until = time.UnixMilli(at + 1)
	}
	conn.SetReadDeadline(until)
	if c.s.ending.Load() {
		return false
	}
	n, err := conn.Read(buf)
	if n > 0 {
		c.in.Feed(buf[:n])
		c.run(time.Now())
		return true
	}
	c.timedOut(err)
	return false
}

func (c *session) timedOut(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) && !c.s.ending.Load() {
		c.s.metrics.expired.Add(1)
	}
}

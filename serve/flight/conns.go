package flight

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// bounded is a listener of so many connections; it closes more at once.
type bounded struct {
	net.Listener
	places chan struct{}
	s      *Server
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.places <- struct{}{}:
			b.s.metrics.connections.Add(1)
			p := &place{Conn: c, users: 1, free: func() { <-b.places }, calls: make(chan struct{}, b.s.o.Streams)}
			p.close = sync.OnceFunc(p.leave)
			if b.s.o.Token != "" {
				p.known = time.AfterFunc(b.s.o.Timeout, func() {
					b.s.metrics.expired.Add(1)
					p.close()
					c.Close()
				})
			}
			return p, nil
		default:
			b.s.metrics.refused.Add(1)
			c.Close()
		}
	}
}

// place is a connection that gives its place back when it is closed and the work of its calls has ended: who connects
// again and again has no more calls than others. That of a stranger, who says no token, is closed after a while.
type place struct {
	net.Conn
	free  func()
	close func()        // leaves for the connection, once
	known *time.Timer   // nil: there is no token; the first call that has it stops it
	calls chan struct{} // one for each call whose work goes on, also behind the call's end

	mu    sync.Mutex
	users int // calls, and one more until the connection is closed
}

// enter keeps the place for a call, until leave. It tells whether the place was not given back before.
func (p *place) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users == 0 {
		return false
	}
	p.users++
	return true
}

func (p *place) leave() {
	p.mu.Lock()
	p.users--
	last := p.users == 0
	p.mu.Unlock()
	if last {
		p.free()
	}
}

func (p *place) Close() error {
	if p.close(); p.known != nil {
		p.known.Stop()
	}
	return p.Conn.Close()
}

// reach lets calls reach their connection. It adds nothing to it: TLS is the listener's.
type reach struct{}

// reached is what a call knows of its connection.
type reached struct {
	credentials.CommonAuthInfo
	conn net.Conn
}

func (reached) AuthType() string { return "connection" }

func (reach) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, reached{conn: c}, nil
}

func (reach) ClientHandshake(_ context.Context, _ string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, reached{conn: c}, nil
}

func (reach) Info() credentials.ProtocolInfo          { return credentials.ProtocolInfo{} }
func (reach) Clone() credentials.TransportCredentials { return reach{} }
func (reach) OverrideServerName(string) error         { return nil }

// hangUp closes a call's connection. gRPC has no other way to be rid of replies that a client does not take: the end of
// a call waits behind them.
func hangUp(ctx context.Context) {
	if c := connection(ctx); c != nil {
		c.Close()
	}
}

// entered keeps a call's connection, which has said the token, and its place until leave. Where the work of calls that
// were given up goes on, for gRPC no calls any more, it waits for that. Errors: of gRPC; there is no call then.
func (s *Server) entered(ctx context.Context) (leave func(), err error) {
	p, is := connection(ctx).(*place)
	if !is {
		return func() {}, nil
	}
	if p.known != nil {
		p.known.Stop()
	}
	if !p.enter() {
		return nil, status.Error(codes.Canceled, "the connection was closed before the call began")
	}
	var late <-chan time.Time
	if s.o.MaxTime > 0 {
		late = time.After(s.o.MaxTime)
	}
	select {
	case p.calls <- struct{}{}:
		return func() { <-p.calls; p.leave() }, nil
	case <-ctx.Done():
		err = status.FromContextError(ctx.Err()).Err()
	case <-s.ending:
		err = errEnds
	case <-late:
		err = status.Errorf(codes.ResourceExhausted, "the work of %d calls of this connection goes on, which were "+
			"given up", s.o.Streams)
	}
	p.leave()
	return nil, err
}

// connection is that of a call.
func connection(ctx context.Context) net.Conn {
	if p, is := peer.FromContext(ctx); is {
		if r, is := p.AuthInfo.(reached); is {
			return r.conn
		}
	}
	return nil
}

package flight

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
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
			return &place{Conn: c, leave: sync.OnceFunc(func() { <-b.places })}, nil
		default:
			b.s.metrics.refused.Add(1)
			c.Close()
		}
	}
}

// place is a connection that gives its place back.
type place struct {
	net.Conn
	leave func()
}

func (p *place) Close() error {
	p.leave()
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
	if p, is := peer.FromContext(ctx); is {
		if r, is := p.AuthInfo.(reached); is {
			r.conn.Close()
		}
	}
}

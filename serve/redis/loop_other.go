//go:build !linux

package redis

import "net"

// loop is for systems with epoll. Elsewhere each connection has a goroutine.
type loop struct{}

func (s *Server) newLoops() ([]*loop, error) { return nil, nil }
func (l *loop) run() error                   { return nil }
func (l *loop) take(net.Conn, *session) bool { return false }
func (l *loop) end()                         {}

//go:build !linux

package rendezvous

import (
	"net"
	"time"
)

// answers cannot tell here whether a host is gone: Patience bounds the wait alone.
func answers(net.Conn, time.Duration) bool { return true }

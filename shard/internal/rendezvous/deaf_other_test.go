//go:build !linux

package rendezvous

import (
	"net"
	"testing"
)

func deaf(*testing.T, net.Conn) bool { return false }

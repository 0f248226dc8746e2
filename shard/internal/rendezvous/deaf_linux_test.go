package rendezvous

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// deaf has the system drop all that comes over a connection, unacknowledged, as if the host were gone.
func deaf(t *testing.T, conn net.Conn) bool {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	none := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	program := unix.SockFprog{Len: 1, Filter: &none}
	raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
	})
	return err == nil
}

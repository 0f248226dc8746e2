package rendezvous

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// answers tells whether the other host acknowledges what it is sent. Its kernel does so for a process that is stopped or
// gets no processor, too. Nothing that waits for an acknowledgement is no sign that the host is gone.
func answers(conn net.Conn, within time.Duration) bool {
	c, is := conn.(syscall.Conn)
	if !is {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var about *unix.TCPInfo
	if raw.Control(func(fd uintptr) { about, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }) != nil {
		return false
	}
	return err == nil && (about.Unacked == 0 || time.Duration(about.Last_ack_recv)*time.Millisecond < within)
}

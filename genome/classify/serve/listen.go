package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
)

// ListenUnix makes a Unix socket with mode 0600, which only this user can reach. The socket is removed when it is
// closed. If a server that is gone left a socket behind, it is replaced. Errors: a socket that somebody listens on; a
// file that is no socket.
func ListenUnix(name string) (net.Listener, error) {
	if strings.HasPrefix(name, "@") || strings.ContainsRune(name, 0) {
		return nil, fmt.Errorf("the socket %q would have no file, and so no mode: name a file", name)
	}
	if err := clear(name); err != nil {
		return nil, err
	}
	return listenAlone(name)
}

// clear removes a socket that nobody listens on.
func clear(name string) error {
	i, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if i.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there, and is no socket: want a name that is free", name)
	}
	c, err := net.Dial("unix", name)
	if err == nil {
		c.Close()
		return fmt.Errorf("%s: another server listens there", name)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(name)
}

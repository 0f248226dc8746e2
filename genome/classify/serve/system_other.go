//go:build !unix

package serve

import (
	"errors"
	"fmt"
	"net"
)

// listenAlone refuses: a socket here has no mode that would keep others out.
func listenAlone(name string) (net.Listener, error) {
	return nil, fmt.Errorf("%s: a Unix socket for this user alone: %w", name, errors.ErrUnsupported)
}

func mostFiles() int { return 0 }

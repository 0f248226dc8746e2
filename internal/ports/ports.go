// Package ports finds ports for processes that are told where to listen.
package ports

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// Systems give ports from 30000 on, at least, to whoever asks for any.
const first, count = 20_000, 10_000

// turn is the last port that was tried, from the first: ever another one, and elsewhere than in other processes.
var turn atomic.Uint32

func init() { turn.Store(rand.Uint32N(count)) }

// Free gives the number of a TCP port on which nobody listens at 127.0.0.1. It is none of those that systems choose
// themselves: one of these is soon given to another program, before whoever is told of it listens. Errors: those of
// listening, where no port is free.
func Free() (port string, err error) {
	for range count {
		port = strconv.Itoa(first + int(turn.Add(1)%count))
		l, failed := net.Listen("tcp", "127.0.0.1:"+port)
		if failed == nil {
			return port, l.Close()
		}
		err = failed
	}
	return "", errors.Join(errors.New("no port is free"), err)
}

package serve

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"time"
)

// Load is what clients ask of a server of keys: each of Connections sends Depth requests at once, and again when it has
// all replies to them.
type Load struct {
	Address     string  // of TCP
	PID         int     // of the server, for its CPU time; 0: not known
	Command     string  // GET, SET, or MGET of Batch keys
	Batch       int     // keys of a request; 0: 1
	Depth       int     // requests that are sent at once; 0: 1
	Connections int     // 0: 50
	Threads     int     // of clients; 0: one for every two cores
	Keys        int     // 0: 1,000,000
	Bytes       int     // of a value; 0: 8
	Seconds     float64 // 0: 1
	Fill        bool    // set all keys, and then end; else they are there
}

// Rates are what came of a load. Those of MGET are of keys.
type Rates struct {
	Rate           float64 // requests a second
	P50, P99       float64 // milliseconds between the sending of Depth requests and the last reply to them
	Server, Client float64 // microseconds of CPU time, of user and system, for a request; NaN: not known
}

const mostTurn = 16 << 20 // bytes that a connection sends at once

func (l *Load) complete(cores int) error {
	for _, x := range []struct {
		n     *int
		usual int
	}{{&l.Batch, 1}, {&l.Depth, 1}, {&l.Connections, 50}, {&l.Threads, max(1, cores/2)}, {&l.Keys, 1_000_000},
		{&l.Bytes, 8}} {
		if *x.n < 0 || *x.n > 1<<30 {
			return fmt.Errorf("a load of %d: want no number below 0 or above 2³⁰", *x.n)
		}
		if *x.n == 0 {
			*x.n = x.usual
		}
	}
	if l.Seconds == 0 {
		l.Seconds = 1
	}
	if l.Fill {
		l.Command = "SET"
	}
	switch {
	case l.Command != "GET" && l.Command != "SET" && l.Command != "MGET":
		return fmt.Errorf("a load of %q: want GET, SET or MGET", l.Command)
	case l.Command != "MGET" && l.Batch != 1:
		return fmt.Errorf("%s of %d keys: want MGET for several", l.Command, l.Batch)
	case !(l.Seconds > 0) || l.Seconds > 3600:
		return errors.New("a load without time: want up to an hour")
	case int64(l.Depth)*int64(l.Batch)*int64(l.Bytes+64) > mostTurn:
		return fmt.Errorf("%d requests of %d keys at once: want less than %d bytes", l.Depth, l.Batch, mostTurn)
	case l.Address == "":
		return errors.New("a load without an Address: want one such as 127.0.0.1:6379")
	}
	l.Threads = min(l.Threads, l.Connections)
	return nil
}

// time is how long to ask.
func (l *Load) time() time.Duration {
	if l.Fill {
		return math.MaxInt64
	}
	return time.Duration(l.Seconds * float64(time.Second))
}

// patience is how long a server may take to answer.
const patience = 30 * time.Second

// script is all requests, and what the server must answer. Turns, of Depth requests each, have equal numbers of bytes.
type script struct {
	ask, want   []byte
	asks, wants int // bytes of a turn
	turns       int
}

// script draws keys at random, so many as there are at most; to fill, it takes all of them.
func (l *Load) script() (s script) {
	each := l.Depth * l.Batch
	s.turns = max(1, min(l.Keys, 1<<20)/each)
	if l.Fill {
		s.turns = (l.Keys + each - 1) / each
	}
	r, next := rand.New(rand.NewPCG(1, 2)), -1
	key := func() int {
		if next++; l.Fill {
			return next % l.Keys
		}
		return r.IntN(l.Keys)
	}
	for range s.turns * l.Depth {
		switch l.Command {
		case "GET":
			k := key()
			s.ask = fmt.Appendf(s.ask, "*2\r\n$3\r\nGET\r\n$16\r\nkey:%012d\r\n", k)
			s.want = l.bulk(s.want, k)
		case "SET":
			k := key()
			s.ask = l.bulk(fmt.Appendf(s.ask, "*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n", k), k)
			s.want = append(s.want, "+OK\r\n"...)
		case "MGET":
			s.ask = fmt.Appendf(s.ask, "*%d\r\n$4\r\nMGET\r\n", 1+l.Batch)
			s.want = fmt.Appendf(s.want, "*%d\r\n", l.Batch)
			for range l.Batch {
				k := key()
				s.ask = fmt.Appendf(s.ask, "$16\r\nkey:%012d\r\n", k)
				s.want = l.bulk(s.want, k)
			}
		}
	}
	s.asks, s.wants = len(s.ask)/s.turns, len(s.want)/s.turns
	return s
}

// bulk appends the value of a key, as the protocol has it: no two keys have the same, from 8 bytes on.
func (l *Load) bulk(b []byte, key int) []byte {
	b = fmt.Appendf(b, "$%d\r\n", l.Bytes)
	for i := range l.Bytes {
		b = append(b, "0123456789abcdef"[uint64(key)>>(4*(i%8))&15])
	}
	return append(b, "\r\n"...)
}

// times counts durations of nanoseconds, to a 32nd exactly.
type times [60 << 5]int64

func (t *times) add(ns int64) {
	e := max(0, bits.Len64(uint64(ns))-6)
	t[e<<5+int(ns>>e)]++
}

// quantile is what so large a part of the durations is within, in milliseconds.
func (t *times) quantile(q float64) float64 {
	all := int64(0)
	for _, n := range t {
		all += n
	}
	left := int64(math.Ceil(q * float64(all)))
	for i, n := range t {
		if left -= n; left <= 0 {
			e := max(0, i>>5-1)
			return float64(int64(i-e<<5)<<e) / 1e6
		}
	}
	return math.NaN()
}

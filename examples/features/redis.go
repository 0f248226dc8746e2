package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
)

// redis is a connection to a Redis, with as much of its protocol as this program speaks.
type redis struct {
	mu sync.Mutex
	net.Conn
	in *bufio.Reader
}

// mostBulk bounds what an answer is believed to have.
const mostBulk = 1 << 20

func dial(at string) (*redis, error) {
	network := "tcp"
	if strings.Contains(at, "/") {
		network = "unix"
	}
	c, err := net.Dial(network, at)
	if err != nil {
		return nil, err
	}
	return &redis{Conn: c, in: bufio.NewReader(c)}, nil
}

// ask sends a command, and gives the strings of its answer: of a list those of the list, nil for one that there is not.
func (r *redis) ask(command ...[]byte) (all [][]byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := bufio.NewWriter(r.Conn)
	fmt.Fprintf(out, "*%d\r\n", len(command))
	for _, word := range command {
		fmt.Fprintf(out, "$%d\r\n%s\r\n", len(word), word)
	}
	if err := out.Flush(); err != nil {
		return nil, err
	}
	kind, rest, err := r.line()
	if err != nil || kind == '+' {
		return nil, err
	}
	n, err := strconv.Atoi(rest)
	if kind != '*' || err != nil || n != len(command)-1 {
		return nil, fmt.Errorf("redis answers %c%s", kind, rest)
	}
	for range n {
		text, err := r.bulk()
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, nil
}

// line is one of an answer: what it is, and the rest of it.
func (r *redis) line() (kind byte, rest string, err error) {
	text, err := r.in.ReadString('\n')
	if err != nil {
		return 0, "", err
	}
	text = strings.TrimSuffix(text, "\r\n")
	if text == "" {
		return 0, "", errors.New("redis answers an empty line")
	}
	if text[0] == '-' {
		return 0, "", fmt.Errorf("redis: %s", text[1:])
	}
	return text[0], text[1:], nil
}

// bulk is a string of an answer, or nil.
func (r *redis) bulk() ([]byte, error) {
	kind, rest, err := r.line()
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(rest)
	if kind != '$' || err != nil || n > mostBulk {
		return nil, fmt.Errorf("redis answers %c%s", kind, rest)
	}
	if n < 0 {
		return nil, nil
	}
	text := make([]byte, n+2)
	_, err = io.ReadFull(r.in, text)
	return text[:n], err
}

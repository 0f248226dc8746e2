package redis

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// state is all that a server's keys hold, without their times.
func (s *Server) state() string {
	var keys, out []string
	s.space.Scan(0, everyKey, 0, false, func(key, _ []byte) { keys = append(keys, string(key)) })
	slices.Sort(keys)
	for _, key := range keys {
		h := s.space.Hash([]byte(key))
		sh := s.space.Lock(h)
		v, _, _ := sh.Peek(h, []byte(key), 0)
		f, _, _ := sh.Filter(h, []byte(key), 0)
		out = append(out, fmt.Sprintf("%q %q %q", key, v, f))
		sh.Unlock()
	}
	return strings.Join(out, "\n")
}

// A log that ends behind any record has each command wholly, or not at all.
func TestCommandsAreWhole(t *testing.T) {
	folder := t.TempDir()
	s := serve(t, Options{Folder: folder, Fsync: FsyncAlways})
	c := dial(t, s.addr)
	states := []string{""}
	for _, line := range []string{
		"SET a abc", "SETRANGE a 1 XYZW", "SETRANGE a 9 xyz", "SETBIT a 3 1", "SETBIT a 200 1", "APPEND a more", "MSET b 1 c 2 d 3",
		"INCRBYFLOAT b 1.5", "RENAME a e", "COPY b a", "MSETNX f 1 g 2", "PFADD h x", "PFADD h y z 1 2 3 4 5", "PFADD i 1 2",
		"PFMERGE h i", "BF.MADD j 1 2 3", "CF.ADD k 1", "CF.DEL k 1", "DEL f g", "GETDEL d", "GETSET b 9", "SET e v EX 1000 GET",
		"GETEX e PERSIST", "RENAME e b",
	} {
		if got := c.do(strings.Fields(line)...); got[0] == '-' {
			t.Fatal(line, got)
		}
		states = append(states, s.state())
	}
	c.send([]byte("MULTI\r\nSETRANGE b 0 xx\r\nSET l 1\r\nDEL c\r\nPFADD h 6 7 8\r\nEXEC\r\n"))
	for range 6 {
		c.reply()
	}
	states = append(states, s.state())
	text, err := os.ReadFile(filepath.Join(folder, "log.1"))
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	record := func(at int) int { // its bytes: see package keyspace
		return 32 + int(binary.LittleEndian.Uint32(text[at+12:])) + int(binary.LittleEndian.Uint32(text[at+16:]))
	}
	for n := len("warpmap keys 01\n"); n < len(text); {
		n += record(n)
		at := t.TempDir()
		if err := os.WriteFile(filepath.Join(at, "log.1"), text[:n], 0o666); err != nil {
			t.Fatal(err)
		}
		cut, err := New(Options{Folder: at})
		if err != nil {
			t.Fatal(err)
		}
		state := cut.state()
		if err := cut.Close(); err != nil {
			t.Error(err)
		}
		if i := slices.Index(states[last:], state); i >= 0 {
			last += i
		} else {
			t.Fatalf("cut at byte %d of %d, behind command %d:\n%.300q", n, len(text), last, state)
		}
	}
	if last != len(states)-1 {
		t.Errorf("the whole log has %d commands of %d", last, len(states)-1)
	}
}

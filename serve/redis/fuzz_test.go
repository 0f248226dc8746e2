package redis

import (
	"bufio"
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/warpmap/warpmap/internal/testenv"
)

// FuzzRequests: whatever bytes a client sends, each request has one reply of the protocol, and the space is sound. What
// it asks for is bounded.
func FuzzRequests(f *testing.F) {
	var all []byte
	for _, args := range [][]string{{"SET", "a", "1", "EX", "100", "NX", "GET"}, {"INCRBY", "a", "5"}, {"APPEND", "a", "x"},
		{"MGET", "a", "b"}, {"MSET", "a", "1", "b", "2"}, {"EXPIRE", "a", "-1"}, {"GETEX", "a", "PERSIST"}, {"SCAN", "0", "MATCH", "[a-b]*"},
		{"KEYS", "*"}, {"HELLO", "3", "SETNAME", "x"}, {"CLIENT", "LIST"}, {"CONFIG", "GET", "*"}, {"COMMAND", "INFO", "get", "x"},
		{"PFADD", "h", "1", "2"}, {"PFMERGE", "g", "h"}, {"PFCOUNT", "g", "h"}, {"INFO"}, {"FLUSHALL"}, {"SAVE"}, {"RESET"}, {"QUIT"},
		{"DEL", "a", "b"}, {"SETEX", "a", "1", "b"}, {"GETDEL", "a"}, {"TTL", "a"}, {"MSETNX", "a", "1"},
		{"MULTI"}, {"SETRANGE", "a", "3", "x"}, {"WATCH", "a"}, {"EXEC"}, {"GETRANGE", "a", "0", "-1"}, {"SETBIT", "a", "9", "1"},
		{"BITCOUNT", "a", "0", "-1", "BIT"}, {"INCRBYFLOAT", "a", "1.5e3"}, {"RENAME", "a", "b"}, {"COPY", "b", "a", "DB", "0"},
		{"CONFIG", "SET", "maxmemory", "2mb"}, {"CLIENT", "REPLY", "SKIP"}, {"CLIENT", "KILL", "ID", "9"}, {"OBJECT", "ENCODING", "a"},
		{"MEMORY", "USAGE", "a"}, {"COMMAND", "LIST", "FILTERBY", "PATTERN", "a*"}, {"DISCARD"}, {"RANDOMKEY"},
		{"BF.RESERVE", "b", "0.1", "9", "EXPANSION", "2"}, {"BF.MADD", "b", "1", "2"}, {"BF.MEXISTS", "b", "1"}, {"BF.INFO", "b", "SIZE"},
		{"BF.CARD", "b"}, {"CF.RESERVE", "c", "9", "EXPANSION", "2"}, {"CF.ADD", "c", "1"}, {"CF.DEL", "c", "1"}, {"CF.COUNT", "c", "1"},
		{"CF.INFO", "c"}, {"GET", "b"}, {"COPY", "b", "d"}} {
		f.Add(request(args...))
		all = append(all, request(args...)...)
	}
	f.Add(all)
	f.Add([]byte("set a \"b\r\nget a\r\n*1\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		testenv.Bounded(t, len(text), func() {
			// Without a bound SETs are done together.
			s, err := New(Options{MaxMemory: int64(len(text)%2) << 20, Bulk: 1 << 16, Request: 1 << 17, Output: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			near, far := net.Pipe()
			defer near.Close()
			defer far.Close()
			c := s.newSession(near)
			c.in.Feed(text)
			c.run(time.Now())
			r, replies := bufio.NewReader(bytes.NewReader(c.out)), int64(0)
			for rest := len(c.out); rest > 0; replies++ {
				var one bytes.Buffer
				if err := readReply(r, &one); err != nil {
					t.Fatalf("%v in %q", err, c.out)
				}
				rest -= one.Len()
			}
			// The last reply may be an error of the protocol, and HTTP has none.
			mute := bytes.Contains(bytes.ToUpper(text), []byte("REPLY"))
			if !mute && !c.more && len(c.out) > 0 && (replies < c.done-1 || replies > c.done+1) {
				t.Fatalf("%d replies to %d requests: %q", replies, c.done, c.out)
			}
			if err := s.space.Check(); err != nil {
				t.Fatal(err)
			}
		})
	})
}

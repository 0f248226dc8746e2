package redis

import (
	"cmp"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// Bytes that trickle in keep no connection: neither one that has not said its password, nor one with a request that is
// half sent. A large request that is slow, but moves, stays, and so does one that is known and asks for nothing.
func TestTrickle(t *testing.T) {
	eachWay(t, func(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient) {
		for tries := 0; !trickle(t, listen, dial); tries++ {
			if tries == 5 {
				t.Fatal("what should come each tenth of a second stalls each time")
			}
		}
	})
}

// trickle tells whether all came in time: others may have had the cores, and then nothing is judged.
func trickle(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient) (inTime bool) {
	const timeout = 800 * time.Millisecond
	s := serve(t, Options{Timeout: timeout, Password: "secret"}, listen())
	known := func() *testClient {
		c := dial(s)
		c.want("+OK\r\n", "AUTH", "secret")
		return c
	}
	idle, large := known(), known()
	trickles := []struct {
		name, text string
		of         *testClient
	}{
		{"a stranger's request", "AUTH " + strings.Repeat("x", 1000), dial(s)},
		{"a stranger's wrong passwords", strings.Repeat("AUTH x\r\n", 200), dial(s)},
		{"a request", "*2\r\n$3\r\nGET\r\n$1000\r\n" + strings.Repeat("x", 1000), known()},
	}
	const n, part = 16, 256 << 10
	large.send([]byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4194304\r\n"))
	last, longest, gone := time.Now(), time.Duration(0), error(nil)
	for i := range n { // 1.6 s in all
		_, err := large.Write([]byte(strings.Repeat("v", part)))
		longest, last, gone = max(longest, time.Since(last)), time.Now(), cmp.Or(gone, err)
		for _, c := range trickles {
			c.of.Write([]byte(c.text[4*i : 4*i+4])) // an error is what should come
		}
		time.Sleep(100 * time.Millisecond)
	}
	large.Write([]byte("\r\n"))
	got, err := large.from.ReadString('\n')
	switch longest = max(longest, time.Since(last)); {
	case gone == nil && got == "+OK\r\n":
	case longest > timeout/2:
		return false
	default:
		t.Errorf("%q, %v", got, errors.Join(gone, err))
	}
	begin, left := time.Now(), trickles
	for i := n; len(left) > 0; i++ {
		if time.Since(begin) > 10*time.Second { // there are bytes for 11
			t.Fatalf("%s stays", left[0].name)
		}
		if _, err := left[0].of.Write([]byte(left[0].text[4*i : 4*i+4])); err != nil {
			left = left[1:]
		}
		time.Sleep(50 * time.Millisecond)
	}
	idle.want("+PONG\r\n", "PING")
	return true
}

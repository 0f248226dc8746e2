package redis

import (
	"net"
	"strings"
	"testing"
	"time"
)

// Bytes that trickle in keep no connection: neither one that has not said its password, nor one with a request that is
// half sent. A large request that is slow, but moves, stays, and so does one that is known and asks for nothing.
func TestTrickle(t *testing.T) {
	const timeout = 800 * time.Millisecond
	eachWay(t, func(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient) {
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
		for i := range n { // 1.6 s in all
			large.send([]byte(strings.Repeat("v", part)))
			for _, c := range trickles {
				c.of.Write([]byte(c.text[4*i : 4*i+4])) // an error is what should come
			}
			time.Sleep(100 * time.Millisecond)
		}
		large.send([]byte("\r\n"))
		if got := large.reply(); got != "+OK\r\n" {
			t.Error(got)
		}
		begin, left := time.Now(), trickles
		for i := n; len(left) > 0; i++ {
			if time.Since(begin) > 3*time.Second {
				t.Fatalf("%s stays", left[0].name)
			}
			if _, err := left[0].of.Write([]byte(left[0].text[4*i : 4*i+4])); err != nil {
				left = left[1:]
			}
			time.Sleep(50 * time.Millisecond)
		}
		idle.want("+PONG\r\n", "PING")
	})
}

package redis

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// Replies that a client has not taken yet when the server ends are sent all the same, also where it has sent more than
// the server reads. Those who wait for nothing hold up nothing, and those who never read hold up little.
func TestRepliesAtEnd(t *testing.T) {
	const size, n = 1 << 20, 4
	for _, beyond := range []int{0, 300_000} {
		eachWay(t, func(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient) {
			s := serve(t, Options{Loops: 1}, listen())
			c, idle := dial(s), dial(s)
			idle.want("+OK\r\n", "SET", "k", strings.Repeat("v", size))
			for range n {
				c.send(request("GET", "k"))
			}
			for end := time.Now().Add(10 * time.Second); s.metrics.requests.Load() < 2; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("nothing is asked")
				}
			}
			time.Sleep(50 * time.Millisecond)
			if beyond > 0 {
				go c.Write([]byte(strings.Repeat("PING\r\n", beyond/6)))
				time.Sleep(50 * time.Millisecond)
			}
			ended := make(chan error)
			go func() { ended <- s.stop() }()
			time.Sleep(100 * time.Millisecond)
			got, err := io.ReadAll(c.from)
			if want := n * (size + len(fmt.Sprintf("$%d\r\n\r\n", size))); len(got) < want {
				t.Errorf("%d bytes of %d come: %v", len(got), want, err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			idle.ends()
		})
	}
}

func TestEndWaitsForNobodyLong(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		eachWay(t, func(t *testing.T, listen func() net.Listener, dial func(s *serving) *testClient) {
			s := serve(t, Options{}, listen())
			c := dial(s)
			c.want("+OK\r\n", "SET", "k", strings.Repeat("v", 1<<20))
			if deaf {
				c.send([]byte(strings.Repeat("GET k\r\n", 100)))
				time.Sleep(100 * time.Millisecond)
			}
			begin := time.Now()
			if err := s.stop(); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); !deaf && took > lastWords || took > 5*lastWords {
				t.Errorf("the end takes %v", took)
			}
		})
	}
}

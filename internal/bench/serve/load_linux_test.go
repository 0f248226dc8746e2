package serve

import (
	"bufio"
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/serve/redis"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// What clients ask of a server is answered as they want it, also where replies come in parts and where the system takes
// no more for now, and they tell what they measured. Keys that were not set are told.
func TestLoad(t *testing.T) {
	l := listen(t)
	s, err := redis.New(redis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Serve(ctx, l) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Close()
	}()
	load := Load{Address: l.Addr().String(), PID: os.Getpid(), Threads: 2, Connections: 5, Keys: 1001, Seconds: 0.03}
	with := func(command string, depth, batch, bytes int, fill bool) (Rates, error) {
		one := load
		one.Command, one.Depth, one.Batch, one.Bytes, one.Fill = command, depth, batch, bytes, fill
		return one.Run()
	}
	if _, err := with("GET", 1, 0, 0, false); err == nil || !strings.Contains(err.Error(), `a wrong reply: "$-1\r\n"`) {
		t.Errorf("without keys: %v", err)
	}
	for _, bytes := range []int{8, 5000} {
		if _, err := with("", 7, 0, bytes, true); err != nil || s.Len() != 1001 {
			t.Fatalf("%d keys, %v", s.Len(), err)
		}
		for _, x := range []struct {
			command      string
			depth, batch int
		}{{"GET", 1, 1}, {"GET", 300, 1}, {"SET", 1, 1}, {"SET", 300, 1}, {"MGET", 2, 100}} {
			r, err := with(x.command, x.depth, x.batch, bytes, false)
			if err != nil || r.Rate < 1 || !(r.P50 > 0 && r.P50 <= r.P99) || !(r.Server > 0) || !(r.Client > 0) {
				t.Errorf("%+v: %+v, %v", x, r, err)
			}
		}
	}
	if _, err := with("GET", 1, 1, 8, false); err == nil {
		t.Error("values of 5,000 bytes are taken for others")
	}
	for want, wrong := range map[string]Load{
		"want GET, SET or MGET": {Command: "DEL"}, "want MGET for several": {Command: "GET", Batch: 2},
		"no number below 0": {Command: "GET", Keys: -1}, "want less than": {Command: "GET", Depth: 1 << 20},
		"an hour": {Command: "GET", Seconds: math.Inf(1)}, "missing port": {Command: "GET", Address: "nowhere"},
	} {
		if _, err := wrong.Run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", wrong, err, want)
		}
	}
}

// A server that answers wrongly, too much or nothing more is found out.
func TestWrongReplies(t *testing.T) {
	for want, says := range map[string]string{
		"a wrong reply":                       "+OK\r\n+OK\r\n+KO\r\n",
		"a wrong reply: \"+OK\\r\\n+OK\\r\\n": "+OK\r\n+OK\r\n+OK\r\n+OK\r\n+",
		"ended a connection behind 7 bytes":   "+OK\r\n+O",
	} {
		l := listen(t)
		done := make(chan bool)
		go func() {
			defer close(done)
			c, err := l.Accept()
			if err != nil {
				return
			}
			r := bufio.NewReader(c)
			for range 4 * 7 { // the lines of four requests, so that nothing is unread behind the end
				r.ReadString('\n')
			}
			io.WriteString(c, says)
			c.Close()
		}()
		_, err := Load{Address: l.Addr().String(), Command: "SET", Depth: 4, Connections: 1, Keys: 100, Seconds: 60}.Run()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", says, err)
		}
		l.Close()
		<-done
	}
}

// Quantiles are those of the durations themselves, to a 32nd.
func TestTimes(t *testing.T) {
	var got times
	var all []float64
	for range 10_000 {
		ns := int64(math.Exp(30 * rand.Float64()))
		got.add(ns)
		all = append(all, float64(ns))
	}
	slices.Sort(all)
	for _, q := range []float64{0.0001, 0.5, 0.99, 1} {
		want := all[int(math.Ceil(q*10_000))-1] / 1e6
		if x := got.quantile(q); x > want || x < want*31/32 {
			t.Errorf("%v: %v ms, want %v", q, x, want)
		}
	}
	got.add(0)
	got.add(math.MaxInt64)
}

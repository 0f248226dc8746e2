package rendezvous

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warpmap/warpmap/internal/ports"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// free is an address where nobody listens.
func free(t *testing.T) string {
	t.Helper()
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	return "127.0.0.1:" + port
}

// meet brings the ranks of a job together, or waits two seconds for those that do not come.
func meet(t *testing.T, size int, ranks ...int) (meetings []*Meeting, errs []error) {
	t.Helper()
	long := 20 * time.Second
	if len(ranks) < size {
		long = 2 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	meetings, errs = make([]*Meeting, len(ranks)), make([]error, len(ranks))
	addr := free(t)
	var wg sync.WaitGroup
	for i, rank := range ranks {
		wg.Add(1)
		go func() {
			defer wg.Done()
			meetings[i], errs[i] = Meet(ctx, Options{Rank: rank, Size: size, Addr: addr, Token: "t"})
		}()
	}
	wg.Wait()
	return meetings, errs
}

func TestAgree(t *testing.T) {
	meetings, errs := meet(t, 4, 3, 1, 0, 2)
	var wg sync.WaitGroup
	for i, m := range meetings {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			if all, err := m.Agree(nil); err != nil || len(all) != 4 { // nothing is something to say
				t.Errorf("%v, %v", all, err)
			}
			for round := range 100 {
				all, err := m.Agree(fmt.Appendf(nil, "%d of %d", round, m.o.Rank))
				if err != nil {
					t.Error(err)
					return
				}
				for rank, body := range all {
					if string(body) != fmt.Sprintf("%d of %d", round, rank) {
						t.Errorf("round %d: rank %d says %q", round, rank, body)
					}
				}
			}
		}()
	}
	wg.Wait()
	for _, m := range meetings {
		m.Close()
		m.Close()
	}
}

// A rank that does not come is named, to those that came, too.
func TestAbsent(t *testing.T) {
	_, errs := meet(t, 4, 0, 2)
	var absent *AbsentError
	if !errors.As(errs[0], &absent) || !slices.Equal(absent.Ranks, []int{1, 3}) || !errors.Is(errs[0], context.DeadlineExceeded) {
		t.Errorf("rank 0: %v", errs[0])
	}
	if errs[1] == nil || !strings.Contains(errs[1].Error(), "these did not come: rank 1 3") {
		t.Errorf("rank 2: %v", errs[1])
	}
	_, errs = meet(t, 2, 1)
	if !errors.As(errs[0], &absent) || !slices.Equal(absent.Ranks, []int{0}) {
		t.Errorf("without rank 0: %v", errs[0])
	}
}

func TestStrangers(t *testing.T) {
	addr := free(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done := make(chan error)
	var first *Meeting
	go func() {
		var err error
		first, err = Meet(ctx, Options{Rank: 0, Size: 2, Addr: addr, Token: "t"})
		done <- err
	}()
	for want, o := range map[string]Options{
		"another job's token":            {Rank: 1, Size: 2, Addr: addr, Token: "u"},
		"rank 2 of 3 in a job of 2":      {Rank: 2, Size: 3, Addr: addr, Token: "t"},
		"want a rank from 0 to one less": {Rank: 2, Size: 2, Addr: addr, Token: "t"},
	} {
		if _, err := Meet(ctx, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	conn, err := net.Dial("tcp", addr) // says nothing that makes sense
	if err != nil {
		t.Fatal(err)
	}
	conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	defer conn.Close()
	second, err := Meet(ctx, Options{Rank: 1, Size: 2, Addr: addr, Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	second.Close()
	first.Close()
}

// Who is gone is named to all: one whose connection breaks, one that gives up, one that left while others want to agree, and rank 0.
func TestGone(t *testing.T) {
	for _, rank := range []int{0, 2} {
		for what, go_ := range map[string]func(m *Meeting){
			"its connection broke": func(m *Meeting) {
				m.mu.Lock()
				m.closing = true // as dead as a process that was killed
				m.mu.Unlock()
				for _, p := range m.peers {
					p.conn.Close()
				}
			},
			"no memory":   func(m *Meeting) { m.Fail("no memory") },
			"it has left": func(m *Meeting) { m.Close() },
		} {
			meetings, errs := meet(t, 3, 0, 1, 2)
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			go_(meetings[rank])
			for i, m := range meetings {
				if i == rank {
					continue
				}
				start := time.Now()
				_, err := m.Agree(nil)
				var e *GoneError
				if !errors.As(err, &e) || e.Rank != rank || time.Since(start) > 2*Silence {
					t.Errorf("rank %d, of which %s: rank %d says %v", rank, what, i, err)
				}
			}
			for _, m := range meetings {
				m.Close()
			}
		}
	}
}

// Who has left agrees on nothing more, and does not wait; and who waits while its process leaves does not go on waiting.
func TestAgreeAfterLeaving(t *testing.T) {
	for rank := range 2 {
		meetings, errs := meet(t, 2, 0, 1)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		m := meetings[rank]
		waiting := make(chan error)
		go func() {
			_, err := m.Agree(nil) // the other does not come
			waiting <- err
		}()
		time.Sleep(50 * time.Millisecond)
		m.Close()
		for range 2 {
			select {
			case err := <-waiting:
				if !errors.Is(err, ErrLeft) {
					t.Errorf("rank %d: %v", rank, err)
				}
			case <-time.After(5 * time.Second):
				t.Fatalf("rank %d waits", rank)
			}
			go func() {
				_, err := m.Agree(nil)
				waiting <- err
			}()
		}
		<-waiting
		meetings[1-rank].Close()
	}
}

// Ranks that ask hear at once that all are there; not while one does not answer; and who it is that is gone or has left.
// What a rank tells before it answers is known then.
func TestAllThere(t *testing.T) {
	meetings, errs := meet(t, 3, 0, 1, 2)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, m := range meetings {
		for range 5 { // some beside one another
			wg.Go(func() {
				for range 20 {
					if !m.AllThere(time.Minute) {
						t.Errorf("rank %d hears that not all are there: %v", m.o.Rank, m.Err())
						return
					}
				}
			})
		}
	}
	wg.Wait()

	meetings[2].mu.Lock() // it hears nothing, and says that it is alive
	for _, m := range meetings[:2] {
		if m.AllThere(100*time.Millisecond) || m.Err() != nil {
			t.Errorf("rank 2 does not answer, and rank %d takes it for there, or gone: %v", m.o.Rank, m.Err())
		}
	}
	meetings[2].mu.Unlock()
	for _, m := range meetings {
		if !m.AllThere(time.Minute) {
			t.Errorf("rank %d hears that not all are there: %v", m.o.Rank, m.Err())
		}
	}
	for _, m := range meetings {
		m.Close()
	}

	for what, do := range map[string]func(m *Meeting){
		"no memory":   func(m *Meeting) { m.Fail("no memory") },
		"it has left": func(m *Meeting) { m.Close() },
	} {
		for rank := range 3 {
			meetings, errs := meet(t, 3, 0, 1, 2)
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			do(meetings[rank])
			for i, m := range meetings {
				if i == rank {
					continue
				}
				there := m.AllThere(time.Minute)
				if e := (*GoneError)(nil); there || !errors.As(m.Err(), &e) || e.Rank != rank || e.Why != what {
					t.Errorf("rank %d, of which %s: rank %d hears %t, %v", rank, what, i, there, m.Err())
				}
			}
			for _, m := range meetings {
				m.Close()
			}
		}
	}
}

// Rank 0 that leaves when it hears who is gone has told the others before.
func TestGoneThenLeft(t *testing.T) {
	t.Parallel()
	for range 30 {
		meetings, errs := meet(t, 3, 0, 1, 2)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			meetings[0].Agree(nil)
			meetings[0].Close()
		})
		wg.Go(func() {
			var e *GoneError
			if _, err := meetings[1].Agree(nil); !errors.As(err, &e) || e.Rank != 2 {
				t.Errorf("rank 2 left, and rank 1 hears: %v", err)
			}
		})
		meetings[2].Close()
		wg.Wait()
		meetings[1].Close()
	}
}

// What all have agreed on is everybody's, though a rank leaves right behind it and another already wants more of it.
func TestAgreedThenLeft(t *testing.T) {
	for range 20 {
		meetings, errs := meet(t, 3, 0, 1, 2)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for rank, m := range meetings {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if all, err := m.Agree(nil); err != nil || len(all) != 3 {
					t.Errorf("rank %d: %v", rank, err)
				}
				switch rank {
				case 1:
					if _, err := m.Agree(nil); err == nil {
						t.Error("rank 2 agrees, which has left")
					}
				case 2:
					m.Close()
				}
			}()
		}
		wg.Wait()
		for _, m := range meetings {
			m.Close()
		}
	}
}

// dialed is a stranger's connection to rank 0, which may not listen yet.
func dialed(t *testing.T, addr string) net.Conn {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// began is a Meet in a goroutine.
func began(ctx context.Context, o Options) func() (*Meeting, error) {
	type met struct {
		m   *Meeting
		err error
	}
	c := make(chan met, 1)
	go func() {
		m, err := Meet(ctx, o)
		c <- met{m, err}
	}()
	return func() (*Meeting, error) {
		x := <-c
		return x.m, x.err
	}
}

// Whatever strangers send, it takes little memory, and the job begins.
func TestHostileStrangers(t *testing.T) {
	addr := free(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	first := began(ctx, Options{Rank: 0, Size: 2, Addr: addr, Token: "t"})

	type body struct { // what a program that decodes whatever comes would take for a frame
		Kind int
		Body [][]byte
	}
	var encoded bytes.Buffer
	if err := gob.NewEncoder(&encoded).Encode(body{Body: [][]byte{make([]byte, 16<<20)}}); err != nil {
		t.Fatal(err)
	}
	huge := func(k kind, parts uint32, length uint64) []byte {
		head := binary.BigEndian.AppendUint32([]byte{byte(k)}, 1)
		return append(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(head, parts), length), make([]byte, 1<<20)...)
	}
	dialed(t, addr)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var wg sync.WaitGroup
	for _, what := range [][]byte{
		encoded.Bytes(), encoded.Bytes(), encoded.Bytes(), huge(hello, 1, 1<<62), huge(hello, 3, mostBefore-1), huge(hello, 1<<31, 0), huge(say, 1, 64<<20),
		huge(told, 2, 1<<30), bytes.Repeat([]byte{0xff}, 1<<20), []byte("GET / HTTP/1.1\r\n\r\n"), nil,
	} {
		conn := dialed(t, addr)
		wg.Go(func() {
			conn.SetDeadline(time.Now().Add(2 * time.Second))
			conn.Write(what)
		})
	}
	wg.Wait()
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 24<<20 {
		t.Errorf("strangers took %d MiB", took>>20)
	}
	second, err := Meet(ctx, Options{Rank: 1, Size: 2, Addr: addr, Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	m, err := first()
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
}

// Many connections that say nothing, or a byte now and then, keep no rank out, and are dropped after a silence.
func TestManyStrangers(t *testing.T) {
	addr := free(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	first := began(ctx, Options{Rank: 0, Size: 2, Addr: addr, Token: "t", silence: time.Second})
	quiet := dialed(t, addr)
	slow := make([]net.Conn, 4*strangers)
	for i := range slow {
		slow[i] = dialed(t, addr)
	}
	last := slow[len(slow)-1]
	last.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := last.Read(make([]byte, 1)); err != nil { // it is asked who it is: all before it have come in
		t.Fatal(err)
	}
	n := runtime.NumGoroutine()
	for start := time.Now(); n > 2*strangers && time.Since(start) < 500*time.Millisecond; n = runtime.NumGoroutine() {
		time.Sleep(10 * time.Millisecond)
	}
	if n > 2*strangers {
		t.Errorf("%d goroutines attend to %d strangers", n, len(slow))
	}
	hung := 0
	for _, conn := range slow {
		conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			hung++
		}
	}
	if hung > 2*strangers {
		t.Errorf("%d strangers are waited for", hung)
	}
	quiet.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.Copy(io.Discard, quiet); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the oldest stranger was not dropped")
	}
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) { // bytes do not renew the time that a stranger has
		if _, err := last.Write([]byte{byte(hello)}); err != nil {
			break
		}
		if time.Since(start) > 5*time.Second {
			t.Fatal("a stranger that is slow is waited for")
		}
	}
	second, err := Meet(ctx, Options{Rank: 1, Size: 2, Addr: addr, Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	m, err := first()
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
}

// Strangers push out one another, not a rank that comes from elsewhere and is slow to answer.
func TestStrangersElsewhere(t *testing.T) {
	addr := free(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	first := began(ctx, Options{Rank: 0, Size: 2, Addr: addr, Token: "t"})
	p := newPeer(dialed(t, addr), 20*time.Second)
	defer p.close(nil)
	elsewhere := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	var all []net.Conn
	for range 4 * strangers {
		conn, err := elsewhere.DialContext(ctx, "tcp", addr)
		if err != nil {
			cancel()
			first()
			t.Skip("needs a second loopback address: ", err)
		}
		defer conn.Close()
		all = append(all, conn)
	}
	for _, conn := range all[:3*strangers-2] { // those that are dropped
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a stranger was not dropped")
		}
	}
	if err := (&Meeting{o: Options{Rank: 1, Size: 2, Addr: addr, Token: "t"}}).introduce(p); err != nil {
		t.Errorf("the rank that was there first: %v", err)
		cancel()
	}
	if m, err := first(); err == nil {
		m.Close()
	}
}

// A connection that was dropped while it proved itself is not let in: a job would begin with a rank that is gone.
func TestDroppedAtTheDoor(t *testing.T) {
	o := Options{Size: 2, Token: "t", silence: 5 * time.Second}
	m := &Meeting{o: o, came: make([]*peer, 2)}
	d := &door{m: m, all: make(chan struct{})} // where it does not wait any more
	ours, theirs := net.Pipe()
	defer ours.Close()
	var wg sync.WaitGroup
	wg.Go(func() { d.admit(theirs) })
	o.Rank = 1
	if err := (&Meeting{o: o}).introduce(newPeer(ours, o.silence)); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if m.started || m.came[1] != nil {
		t.Error("it was let in")
		m.came[1].close(nil)
		m.wg.Wait()
	}
}

// What a rank said to be let in lets nobody else in, and a rank tells a rank 0 without the token from its own.
func TestReplay(t *testing.T) {
	addr := free(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	first := began(ctx, Options{Rank: 0, Size: 3, Addr: addr, Token: "t"})
	said := new(bytes.Buffer)
	ctx1, leave := context.WithCancel(ctx)
	defer leave()
	tap := make(chan struct{})
	through := proxy(t, addr, func(from, to net.Conn) {
		defer close(tap)
		defer leave()
		io.CopyN(io.MultiWriter(to, said), from, 9+8+nonceBytes+8+4+8+32)
	})
	if _, err := Meet(ctx1, Options{Rank: 1, Size: 3, Addr: through, Token: "t"}); err == nil {
		t.Fatal("met without rank 2")
	}
	<-tap
	conn := dialed(t, addr)
	conn.Write(said.Bytes())
	conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	answer, err := io.ReadAll(conn)
	if err != nil || !bytes.Contains(answer, []byte("another job's token")) {
		t.Errorf("said again: %q, %v", answer, err)
	}

	_, err = Meet(ctx, Options{Rank: 1, Size: 3, Addr: impostor(t), Token: "t"})
	if err == nil || !strings.Contains(err.Error(), "does not know this job's token") {
		t.Errorf("a rank 0 without the token: %v", err)
	}
	cancel()
	if _, err := first(); err == nil {
		t.Error("met without the others")
	}
}

// impostor listens as a rank 0 would that does not have the token, and gives back the proof that it got.
func impostor(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		p := newPeer(conn, time.Second)
		defer p.close(nil)
		p.send(frame{Kind: challenge, Parts: [][]byte{[]byte(version), nonce()}})
		if f, err := p.receive(3, mostBefore); err == nil {
			p.send(frame{Kind: welcome, Parts: [][]byte{f.Parts[2]}})
		}
	}()
	return l.Addr().String()
}

// proxy listens for one connection and passes it on to addr; what comes from there goes by up.
func proxy(t *testing.T, addr string, up func(from, to net.Conn)) string {
	t.Helper()
	dialed(t, addr).Close() // somebody listens there
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		from, err := l.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", addr)
		if err != nil {
			from.Close()
			return
		}
		wg.Go(func() { io.Copy(from, to); from.Close() })
		up(from, to)
		to.Close()
	})
	return l.Addr().String()
}

// A rank that comes again before all have, whether its earlier process is gone or not, takes that one's place.
func TestComesAgain(t *testing.T) {
	t.Parallel()
	for _, dead := range []bool{true, false} {
		addr := free(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		o := func(rank int) Options { return Options{Rank: rank, Size: 3, Addr: addr, Token: "t"} }
		first := began(ctx, o(0))
		ctx1, leave := context.WithCancel(ctx)
		defer leave()
		early := began(ctx1, o(1))
		time.Sleep(500 * time.Millisecond) // it is there by then
		if dead {
			leave()
			early()
		}
		again := began(ctx, o(1))
		if !dead {
			if _, err := early(); err == nil || !strings.Contains(err.Error(), "rank 1 came again") {
				t.Errorf("the earlier one: %v", err)
			}
		}
		time.Sleep(200 * time.Millisecond)
		for i, m := range []func() (*Meeting, error){began(ctx, o(2)), again, first} {
			m, err := m()
			if err != nil {
				t.Errorf("dead %t: %d: %v", dead, i, err)
				continue
			}
			defer m.Close()
		}
	}
}

// What the earlier process of a rank that came again does is no more the job's, though it ends when all have come.
func TestEarlierEndsLater(t *testing.T) {
	addr := free(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	o := func(rank int) Options { return Options{Rank: rank, Size: 3, Addr: addr, Token: "t"} }
	first := began(ctx, o(0))
	conn := dialed(t, addr)
	early := newPeer(conn, 5*time.Second)
	if err := (&Meeting{o: o(1)}).introduce(early); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond) // it is let in by then
	again := began(ctx, o(1))
	said, err := early.receive(1, mostBefore)
	for err == nil && said.Kind == alive {
		said, err = early.receive(1, mostBefore)
	}
	if err != nil || said.Kind != refuse {
		t.Fatalf("the earlier one hears %+v, %v", said, err)
	}
	third := began(ctx, o(2))
	var meetings []*Meeting
	for i, m := range []func() (*Meeting, error){again, third} {
		m, err := m()
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		defer m.Close()
		meetings = append(meetings, m)
	}
	early.send(text(gone, 1, "it says so"))
	early.close(nil)
	m, err := first()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	time.Sleep(50 * time.Millisecond)
	var wg sync.WaitGroup
	for _, m := range append(meetings, m) {
		wg.Go(func() {
			if all, err := m.Agree([]byte("x")); err != nil || len(all) != 3 {
				t.Errorf("%q, %v", all, err)
			}
		})
	}
	wg.Wait()
}

// A rank whose process ended before all came has not come, and rank 0 that starts again is found again.
func TestGoneBeforeAllCame(t *testing.T) {
	addr := free(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	o := func(rank int) Options {
		return Options{Rank: rank, Size: 3, Addr: addr, Token: "t", silence: 2 * time.Second}
	}
	ctx0, crash := context.WithCancel(ctx)
	first := began(ctx0, o(0))
	second := began(ctx, o(1))
	time.Sleep(100 * time.Millisecond)
	ctx2, leave := context.WithCancel(ctx)
	third := began(ctx2, o(2))
	leave() // before or after it is let in, and once in a while after all have met
	if m, err := third(); err == nil {
		m.Close()
	}
	crash()
	m0, all := first()
	if all == nil {
		m0.Close()
	}
	if m, err := second(); err == nil {
		m.Close()
		if all != nil { // rank 0 told it
			t.Error("met without rank 2")
		}
	}

	first = began(ctx, o(0))
	leaving := dialed(t, addr)
	p := newPeer(leaving, 20*time.Second) // as rank 2, whose process is killed
	o2 := o(2)
	if err := (&Meeting{o: o2}).introduce(p); err != nil {
		t.Fatal(err)
	}
	p.close(nil)
	time.Sleep(200 * time.Millisecond) // rank 0 has seen that by then
	second = began(ctx, o(1))
	time.Sleep(50 * time.Millisecond)
	for i, m := range []func() (*Meeting, error){began(ctx, o2), second, first} {
		m, err := m()
		if err != nil {
			t.Errorf("%d: %v", i, err)
			continue
		}
		defer m.Close()
	}
}

// A rank that is gone at the moment when all have come is named to the others, though they hear of it before they hear
// that all have.
func TestGoneAtTheStart(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := Options{Size: 3, Addr: l.Addr().String(), Token: "t", silence: time.Second}
	second := o
	second.Rank = 1
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	met := began(ctx, second)
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	p := newPeer(conn, o.silence)
	defer p.close(nil)
	if rank, why := (&Meeting{o: o}).examine(p); rank != 1 {
		t.Fatal(rank, why)
	}
	p.send(text(gone, 2, "its connection broke"))
	p.send(frame{Kind: start})
	l.Close()
	var e *GoneError
	if _, err := met(); !errors.As(err, &e) || e.Rank != 2 {
		t.Error(err)
	}
}

// A rank whose connection breaks before all have come, because rank 0 dropped it or started again, goes there again.
func TestDropped(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	second := began(ctx, Options{Rank: 1, Size: 2, Addr: l.Addr().String(), Token: "t"})
	conn, err := l.Accept()
	l.Close()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	first := began(ctx, Options{Rank: 0, Size: 2, Addr: l.Addr().String(), Token: "t"})
	for i, m := range []func() (*Meeting, error){first, second} {
		m, err := m()
		if err != nil {
			t.Errorf("%d: %v", i, err)
			continue
		}
		defer m.Close()
	}
}

// A frame may take longer than a silence to come, if it comes.
func TestSlowConnection(t *testing.T) {
	t.Parallel()
	addr := free(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	const silence = 1200 * time.Millisecond
	first := began(ctx, Options{Rank: 0, Size: 2, Addr: addr, Token: "t", silence: silence})
	through := proxy(t, addr, func(from, to net.Conn) {
		b := make([]byte, 32<<10)
		from.(*net.TCPConn).SetReadBuffer(64 << 10)
		for {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			if n > 1000 {
				time.Sleep(20 * time.Millisecond) // 1.6 MB/s
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
	})
	second, err := Meet(ctx, Options{Rank: 1, Size: 2, Addr: through, Token: "t", silence: silence})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	m, err := first()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	body := bytes.Repeat([]byte("0123456789abcdef"), 9<<18/16)
	start := time.Now()
	ended := make(chan error, 1)
	go func() {
		_, err := m.Agree(nil)
		ended <- err
	}()
	all, err := second.Agree(body)
	if err := errors.Join(err, <-ended); err != nil || !bytes.Equal(all[1], body) {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	if time.Since(start) < silence {
		t.Errorf("it took %v: too fast for this test", time.Since(start))
	}
}

// A connection whose buffer is full, and that takes a little at a time, is not silent, though Linux calls it ready only
// when a third of the buffer is free.
func TestSlowWrite(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn := dialed(t, l.Addr().String())
	defer conn.Close()
	slow, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	b := make([]byte, 64<<10)
	for range 4 { // the buffer grows with what is taken
		for n := 1; n > 0; {
			conn.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
			n, _ = conn.Write(b)
		}
		io.CopyN(io.Discard, slow, 256<<10)
	}
	for n := 1; n > 0; {
		conn.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		n, _ = conn.Write(b)
	}
	go func() {
		b := make([]byte, 4<<10)
		for n, err := slow.Read(b); err == nil; n, err = slow.Read(b) {
			time.Sleep(time.Duration(n) * time.Second / 800_000)
		}
	}()
	s := &steady{Conn: conn, silence: time.Second}
	start := time.Now()
	if n, err := s.Write(make([]byte, 64<<10)); err != nil {
		t.Errorf("after %v and %d bytes: %v", time.Since(start), n, err)
	}
}

// A rank whose process gets no processor, or is stopped, is silent, but its host acknowledges what it is sent: it goes on
// when it can, though it has been silent for long. One whose host does not is gone after a silence.
func TestStarved(t *testing.T) {
	t.Parallel()
	const silence = 200 * time.Millisecond
	join := func() (*Meeting, *peer) {
		addr := free(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		first := began(ctx, Options{Rank: 0, Size: 2, Addr: addr, Token: "t", silence: silence})
		starved := newPeer(dialed(t, addr), time.Minute)
		// A stranger has a silence to say who comes, in which others may have the cores.
		for (&Meeting{o: Options{Rank: 1, Size: 2, Addr: addr, Token: "t"}}).introduce(starved) != nil {
			starved.close(nil)
			starved = newPeer(dialed(t, addr), time.Minute)
		}
		m, err := first()
		if err != nil {
			t.Fatal(err)
		}
		return m, starved
	}

	m, starved := join()
	defer m.Close()
	agreed := make(chan error, 1)
	go func() { _, err := m.Agree(nil); agreed <- err }()
	select {
	case err := <-agreed:
		t.Fatal(err)
	case <-time.After(5 * silence):
	}
	starved.send(frame{say, 1, [][]byte{nil}})
	if err := <-agreed; err != nil {
		t.Error(err)
	}
	select { // patience has an end
	case <-m.Broken():
	case <-time.After(time.Minute):
	}
	if err := m.Err(); err == nil || !strings.Contains(err.Error(), "rank 1 is gone: it has said nothing for 2.4s") {
		t.Error(err)
	}

	m, starved = join()
	defer m.Close()
	if !deaf(t, starved.conn.Conn) {
		t.Skip("knows no way here to make a host that does not answer")
	}
	start := time.Now()
	<-m.Broken()
	if took := time.Since(start); took > patience*silence || !strings.Contains(m.Err().Error(), "its host has not answered") {
		t.Errorf("after %v: %v", took, m.Err())
	}
}

// A process that was stopped itself finds what has come meanwhile, and takes nobody for gone.
func TestWatcherStarved(t *testing.T) {
	s := &steady{Conn: &late{left: 4}, silence: time.Second}
	if n, err := s.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Error(n, err)
	}
	// What it has sent just now has no answer yet, after each time that it was stopped.
	defer func() { answered = answers }()
	for _, again := range []bool{false, true} {
		looks := 0
		answered = func(net.Conn, time.Duration) bool { looks++; return looks%2 == 0 && !again }
		s.Conn = &late{left: 20}
		if n, err := s.Read(make([]byte, 1)); (n == 1) == again || looks < 2 || again && !strings.Contains(fmt.Sprint(err), "has not answered") {
			t.Errorf("no answer twice in a row %t: %d, %v", again, n, err)
		}
	}
}

// late is a connection on which so many reads come to their deadlines, however late, before there is something.
type late struct {
	net.Conn
	left int
}

func (l *late) SetReadDeadline(time.Time) error { return nil }

func (l *late) Read(b []byte) (int, error) {
	if l.left--; l.left >= 0 {
		return 0, os.ErrDeadlineExceeded
	}
	return 1, nil
}

// Without a secret nobody is waited for where other hosts could come, and the error says what to do.
func TestNoSecret(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, o := range []Options{
		{Size: 2, Addr: ":0"}, {Size: 2, Addr: "0.0.0.0:0"}, {Rank: 1, Size: 2, Addr: "192.0.2.1:1"}, {Size: 2, Addr: "[::]:0"},
		{Size: 2, Addr: ":0", Token: "none", Public: "the job has no token"},
	} {
		start := time.Now()
		if _, err := Meet(ctx, o); err == nil || !strings.Contains(err.Error(), "the job has no token") || !strings.Contains(err.Error(), "set WARPMAP_TOKEN") {
			t.Errorf("%+v: %v", o, err)
		}
		if ctx.Err() != nil {
			t.Errorf("%+v: it took %v", o, time.Since(start))
		}
	}
	addr := free(t)
	first := began(ctx, Options{Size: 2, Addr: addr, Token: "7", Public: "it is a number"})
	second, err := Meet(ctx, Options{Rank: 1, Size: 2, Addr: addr, Token: "7"})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	m, err := first()
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
}

// A host's own name is a loopback address at home, in Debian and Ubuntu: 127.0.1.1. Rank 0 listens where other hosts
// reach it, then, and wants a secret. Names and addresses that are loopback everywhere stay what they are.
func TestOwnName(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	known := map[string][]netip.Addr{
		"node7": {netip.MustParseAddr("127.0.1.1")}, "node8": {netip.MustParseAddr("::1"), netip.MustParseAddr("192.0.2.8")},
		"node9": {netip.MustParseAddr("192.0.2.9")}, "localhost": {netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()},
		"a.localhost": {netip.IPv6Loopback()}, "127.0.0.1": {netip.MustParseAddr("127.0.0.1")},
		"::1": {netip.IPv6Loopback()}, "192.0.2.1": {netip.MustParseAddr("192.0.2.1")},
	}
	lookup := func(_ context.Context, host string) ([]netip.Addr, error) {
		if at := known[host]; at != nil {
			return at, nil
		}
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	for _, c := range []struct {
		addr, at string
		local    bool
	}{
		{"node7:80", ":80", false}, {"node8:80", ":80", false}, {"node9:80", "node9:80", false}, {":80", ":80", false},
		{"localhost:80", "localhost:80", true}, {"a.localhost:80", "a.localhost:80", true},
		{"127.0.0.1:80", "127.0.0.1:80", true}, {"[::1]:80", "[::1]:80", true}, {"192.0.2.1:80", "192.0.2.1:80", false},
	} {
		o := Options{Addr: c.addr, lookup: lookup}
		if at, local, err := o.listens(ctx); at != c.at || local != c.local || err != nil {
			t.Errorf("%s: rank 0 listens at %q, local %t, %v (want %q, %t)", c.addr, at, local, err, c.at, c.local)
		}
	}
	for _, rank := range []int{0, 1} {
		o := Options{Rank: rank, Size: 2, Addr: "node7:80", lookup: lookup}
		if _, err := Meet(ctx, o); err == nil || !strings.Contains(err.Error(), "set WARPMAP_TOKEN") {
			t.Errorf("rank %d, without a token: %v", rank, err)
		}
		o.Token, o.Addr = "secret", "nowhere:80"
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		if _, err := Meet(short, o); err == nil || !strings.Contains(err.Error(), "nowhere") {
			t.Errorf("rank %d, a name that nobody knows: %v", rank, err)
		}
		cancel()
	}
	// With a secret they meet: the other rank comes by another address of the host.
	_, port, err := net.SplitHostPort(free(t))
	if err != nil {
		t.Fatal(err)
	}
	first := began(ctx, Options{Size: 2, Addr: "node7:" + port, Token: "secret", lookup: lookup})
	second, err := Meet(ctx, Options{Rank: 1, Size: 2, Addr: "127.0.0.1:" + port, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	m, err := first()
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
}

// A rank that leaves waits until others are in no call, and whether they leave, too. If its process ends before, those
// in a call get an error that names it. Others go on.
func TestPart(t *testing.T) {
	t.Parallel()
	gather := func(t *testing.T) (meetings [3]*Meeting) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		addr := free(t)
		var wg sync.WaitGroup
		for rank := range meetings {
			wg.Go(func() {
				var err error
				o := Options{Rank: rank, Size: 3, Addr: addr, Token: "t", silence: time.Second}
				if meetings[rank], err = Meet(ctx, o); err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
			})
		}
		if wg.Wait(); t.Failed() {
			t.FailNow()
		}
		return meetings
	}
	for leaver := range 3 {
		other := (leaver + 1) % 3
		for _, how := range []string{"all leave", "it leaves", "its process ends", "its process ends in a call"} {
			t.Run(fmt.Sprintf("rank %d, %s", leaver, how), func(t *testing.T) {
				t.Parallel()
				meetings := gather(t)
				last := meetings[leaver]
				for _, m := range meetings {
					m.Enter()
				}
				last.Exit()
				parted := make(chan bool, 3)
				go func() { parted <- last.Part() }()
				select {
				case <-parted:
					t.Errorf("it does not wait for those that are in a call")
					parted <- false
				case <-time.After(50 * time.Millisecond):
				}
				if how != "its process ends in a call" {
					meetings[other].Exit()
					meetings[(leaver+2)%3].Exit()
				}
				switch how {
				case "all leave":
					go func() { parted <- meetings[other].Part() }()
					go func() { parted <- meetings[(leaver+2)%3].Part() }()
					if a, b, c := <-parted, <-parted, <-parted; !a || !b || !c {
						t.Errorf("do all leave? %t, %t, %t", a, b, c)
					}
				case "it leaves":
					if <-parted {
						t.Errorf("do all leave? true")
					}
				case "its process ends", "its process ends in a call":
					for _, p := range last.peers {
						p.conn.Conn.Close()
					}
					select {
					case <-meetings[other].Broken():
					case <-time.After(2 * time.Second):
					}
					err, e := meetings[other].Err(), (*GoneError)(nil)
					if named := errors.As(err, &e) && e.Rank == leaver; named != (how != "its process ends") {
						t.Error(err)
					}
				}
				for _, m := range meetings {
					m.Close()
				}
				if _, err := last.Agree(nil); !errors.Is(err, ErrLeft) {
					t.Errorf("a rank that has left agrees: %v", err)
				}
			})
		}
	}
}

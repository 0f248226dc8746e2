package rendezvous

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/warpmap/warpmap/internal/testenv"
)

// written are frames as they go over a connection.
func written(frames ...frame) []byte {
	var b bytes.Buffer
	p := &peer{w: bufio.NewWriter(&b)}
	for _, f := range frames {
		p.send(f)
	}
	return b.Bytes()
}

// FuzzFrames: what is received is what would be sent as those bytes, and never more than the bounds allow.
func FuzzFrames(f *testing.F) {
	f.Add(written(text(say, 3, "abc"), frame{Kind: alive}, frame{told, 1, [][]byte{{}, []byte("x"), {0}}}), byte(3), uint32(100))
	f.Add(written(frame{Kind: start}), byte(0), uint32(0))
	f.Add([]byte{6, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 15, 255, 255, 255, 255}, byte(1), uint32(1<<32-1))
	f.Add([]byte{6, 255, 255, 255, 255, 255, 255, 255, 255}, byte(255), uint32(1<<20))
	f.Fuzz(func(t *testing.T, sent []byte, parts byte, size uint32) {
		testenv.Bounded(t, len(sent), func() {
			p := &peer{r: bufio.NewReader(bytes.NewReader(sent))}
			var got []frame
			for {
				f, err := p.receive(int(parts), uint64(size))
				if err != nil {
					if !errors.Is(err, errForeign) && err != io.EOF && err != io.ErrUnexpectedEOF {
						t.Errorf("%T %v", err, err)
					}
					break
				}
				bytes := 0
				for _, part := range f.Parts {
					bytes += len(part)
				}
				if len(f.Parts) > int(parts) || bytes > int(size) {
					t.Errorf("a frame of %d parts and %d bytes, want %d and %d at most", len(f.Parts), bytes, parts, size)
				}
				got = append(got, f)
			}
			if again := written(got...); !bytes.HasPrefix(sent, again) {
				t.Errorf("%q is received as %q", sent, again)
			}
		})
	})
}

// meeting is one that Meet would make, for a rank whose connections the fuzzer makes.
func meeting(rank, size int) *Meeting {
	return &Meeting{
		o:    Options{Rank: rank, Size: size, Token: "secret", silence: 10 * time.Second},
		done: make(chan struct{}), broken: make(chan struct{}), agreed: make(chan [][]byte, 1),
		said: make([][]byte, size), left: make([]bool, size), resting: make([]bool, size),
		came: make([]*peer, size), answer: make(chan struct{}),
	}
}

// connected gives the two ends of a connection, of which theirs says these bytes, and takes all that comes.
func connected(said []byte) (ours net.Conn, wait func()) {
	ours, theirs := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(io.Discard, theirs) })
	wg.Go(func() {
		theirs.Write(said)
		theirs.Close()
	})
	return ours, wg.Wait
}

// FuzzStranger: whoever does not know the token is not let in, whatever it says, and leaves nothing behind.
func FuzzStranger(f *testing.F) {
	proof := make([]byte, 32)
	f.Add(written(frame{hello, 1, [][]byte{make([]byte, nonceBytes), {0, 0, 0, 3}, proof}}))
	f.Add(written(frame{hello, 1 << 31, [][]byte{make([]byte, nonceBytes), {255, 255, 255, 255}, nil}}))
	f.Add(written(text(gone, 0, "x"), frame{Kind: bye}))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		testenv.Bounded(t, len(said), func() {
			m := meeting(0, 3)
			d := &door{m: m, all: make(chan struct{}), shut: make(chan struct{})}
			ours, wait := connected(said)
			d.waiting = append(d.waiting, ours)
			d.admit(ours)
			wait()
			for rank, p := range m.came {
				if p != nil {
					t.Errorf("it was let in as rank %d", rank)
				}
			}
			if len(d.waiting) > 0 || m.started {
				t.Errorf("%d connections wait, started: %t", len(d.waiting), m.started)
			}

			// One that comes to a stranger in rank 0's place does not take it for rank 0.
			m = meeting(1, 3)
			ours, wait = connected(said)
			if m.introduce(newPeer(ours, time.Second)) == nil {
				t.Error("it was taken for rank 0")
			}
			ours.Close()
			wait()
		})
	})
}

// FuzzMember: a member that says anything harms nobody but its own job, which then knows that it is gone, or that it
// has left; and all ends.
func FuzzMember(f *testing.F) {
	for _, rank := range []byte{0, 1} {
		f.Add(written(frame{Kind: start}, text(say, 1, "a"), frame{told, 0, [][]byte{{1}, {2}, {3}}}, frame{Kind: bye}), rank, true)
		f.Add(written(text(gone, 7, "it failed")), rank, true)
		f.Add(written(frame{Kind: ask}, frame{Kind: ask}, frame{Kind: here}, frame{Kind: bye}), rank, true)
		f.Add(written(text(refuse, 0, "no")), rank, false)
		f.Add(written(frame{Kind: start}, frame{Kind: start}), rank, false)
		f.Add(written(frame{Kind: bye}, text(say, 2, "")), rank, true)
		f.Add(written(frame{Kind: rest, Rank: 2}, frame{Kind: bye, Rank: 2}, frame{Kind: bye, Rank: 3}), rank, true)
		f.Add(written(text(say, 1, ""), text(say, 1, "b"), frame{told, 0, [][]byte{nil, nil, nil}}, frame{told, 0, [][]byte{nil, nil, nil}}), rank, true)
	}
	f.Fuzz(func(t *testing.T, said []byte, rank byte, started bool) {
		testenv.Bounded(t, len(said), func() {
			m := meeting(int(rank%2), 3)
			ours, wait := connected(said)
			p := newPeer(ours, 10*time.Second)
			p.conn.until = time.Time{}
			if m.o.Rank == 0 {
				p.rank, m.came[1] = 1, p
				m.said[0], m.said[2] = []byte("0"), []byte("2") // so that what it says is the last
			}
			m.peers, m.started = []*peer{p}, started
			var agreed sync.WaitGroup
			agreed.Go(func() {
				for {
					select {
					case all := <-m.agreed:
						if len(all) != 3 {
							t.Errorf("%d parts are agreed on, want 3", len(all))
						}
					case <-m.done:
						return
					}
				}
			})
			m.listen(p)
			close(m.done)
			agreed.Wait()
			p.close(nil)
			wait()
			m.wg.Wait()
			m.telling.Wait()
			if gone := new(GoneError); m.err != nil && (!errors.As(m.err, &gone) || m.o.Rank == 0 && gone.Rank != 1) {
				t.Errorf("%v: want that rank 1 is gone", m.err)
			}
			if left := m.left[p.rank]; m.started && m.err == nil && !left {
				t.Error("its connection has ended, and it is still there")
			}
		})
	})
}

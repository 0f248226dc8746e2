package nccl_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/warpmap/warpmap/shard/internal/nccl"
	"github.com/warpmap/warpmap/shard/internal/nccl/standin"
)

// comms are communicators of as many ranks, in this process, by the library.
func comms(t *testing.T, size int) []*nccl.Comm {
	t.Helper()
	lib, err := nccl.Open()
	if err != nil {
		t.Fatal(err)
	}
	id, err := lib.GetUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(string(bytes.TrimRight(id[:], "\x00"))) })
	out := make([]*nccl.Comm, size)
	for rank := range out {
		if out[rank], err = lib.Init(size, rank, id); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// The id arrives, by pointer and by value, and bytes go round.
func TestExchange(t *testing.T) {
	for _, version := range []string{"22803", "21805"} {
		t.Setenv("STANDIN_VERSION", version)
		t.Setenv(nccl.Env, standin.Build(t))
		all := comms(t, 3)
		done := make(chan error, len(all))
		for rank, c := range all {
			go func() {
				if err := c.Wait(nil); err != nil {
					done <- err
					return
				}
				out, in := make([]byte, 300_000), make([]byte, 300_000)
				for i := range out {
					out[i] = byte(i * (rank + 1))
				}
				piece := func(b []byte, peer int) []nccl.Piece {
					return []nccl.Piece{{Addr: uint64(uintptr(unsafe.Pointer(&b[0]))), Bytes: len(b), Peer: peer}}
				}
				err := c.Exchange(piece(out, (rank+1)%3), piece(in, (rank+2)%3), 0)
				if err == nil {
					err = c.Wait(nil)
				}
				runtime.KeepAlive(out)
				for i := range in {
					if in[i] != byte(i*((rank+2)%3+1)) {
						t.Errorf("rank %d, byte %d: %d", rank, i, in[i])
						break
					}
				}
				if err == nil {
					err = c.Destroy(nil)
				}
				done <- err
			}()
		}
		for range all {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}

// Who waits for a member that does not come gives up.
func TestGiveUp(t *testing.T) {
	t.Setenv(nccl.Env, standin.Build(t))
	c := comms(t, 2)[:1][0]
	lonely := comms(t, 1)[0]
	if err := lonely.Wait(nil); err != nil {
		t.Error(err)
	}
	give := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() { c.Abort(); close(give) })
	b := make([]byte, 1)
	c.Wait(give)
	for _, what := range []string{"whose other member sends nothing", "that was aborted"} {
		err := c.Exchange(nil, []nccl.Piece{{Addr: uint64(uintptr(unsafe.Pointer(&b[0]))), Bytes: 1, Peer: 1}}, 0)
		if err == nil {
			err = c.Wait(give)
		}
		if err == nil {
			t.Errorf("a communicator %s receives", what)
		}
	}
}

// A member that goes as soon as another has come ends the other's call, and not its process: a signal of a broken
// connection that comes to a thread of C's ends a process of Go's.
func TestGoneBeforeHello(t *testing.T) {
	t.Setenv(nccl.Env, standin.Build(t))
	lib, err := nccl.Open()
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		id, err := lib.GetUniqueID()
		if err != nil {
			t.Fatal(err)
		}
		folder := string(bytes.TrimRight(id[:], "\x00"))
		zero, err := net.ListenUnix("unix", &net.UnixAddr{Name: folder + "/0"})
		if err != nil {
			t.Fatal(err)
		}
		c, err := lib.Init(2, 1, id)
		if err != nil {
			t.Fatal(err)
		}
		if one, err := zero.Accept(); err == nil {
			one.Close()
		}
		zero.Close()
		c.Wait(nil) // who says hello first has joined
		c.Abort()
		os.RemoveAll(folder)
	}
}

// An abort ends an exchange whose other member never comes, at whatever point of it. The stand-in ends the process
// where it frees what a call still has.
func TestAbortInExchange(t *testing.T) {
	t.Setenv(nccl.Env, standin.Build(t))
	t.Setenv("STANDIN_SLOW", "10000")
	for _, after := range []time.Duration{0, 15 * time.Millisecond, 60 * time.Millisecond} { // 3 pieces take 30 ms
		all := comms(t, 2)
		for _, c := range all {
			if err := c.Wait(nil); err != nil {
				t.Fatal(err)
			}
		}
		b := make([]byte, 300)
		var pieces []nccl.Piece
		for i := range 3 {
			pieces = append(pieces, nccl.Piece{Addr: uint64(uintptr(unsafe.Pointer(&b[100*i]))), Bytes: 100, Peer: 1})
		}
		ended := make(chan error, 1)
		go func() {
			err := all[0].Exchange(nil, pieces, 0)
			if err == nil {
				err = all[0].Wait(nil)
			}
			ended <- err
		}()
		time.Sleep(after)
		if err := all[0].Abort(); err != nil {
			t.Error(err)
		}
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("an exchange that was aborted after %v is done", after)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("an exchange that was aborted after %v goes on", after)
		}
		runtime.KeepAlive(b)
		all[1].Abort()
	}
}

// What waits for an exchange and gives up leaves nothing that still writes to its memory.
func TestGiveUpAborts(t *testing.T) {
	t.Setenv(nccl.Env, standin.Build(t))
	all := comms(t, 2)
	for _, c := range all {
		if err := c.Wait(nil); err != nil {
			t.Fatal(err)
		}
	}
	in, out := make([]byte, 100), bytes.Repeat([]byte{1}, 100)
	piece := func(b []byte, peer int) []nccl.Piece {
		return []nccl.Piece{{Addr: uint64(uintptr(unsafe.Pointer(&b[0]))), Bytes: len(b), Peer: peer}}
	}
	if err := all[0].Exchange(nil, piece(in, 1), 0); err != nil {
		t.Fatal(err)
	}
	give := make(chan struct{})
	close(give)
	if err := all[0].Wait(give); !errors.Is(err, nccl.ErrAborted) {
		t.Error(err)
	}
	if err := all[1].Exchange(piece(out, 0), nil, 0); err == nil {
		all[1].Wait(nil)
	}
	time.Sleep(20 * time.Millisecond)
	if in[0] != 0 {
		t.Error("who gave up got what came later")
	}
	runtime.KeepAlive(out)
	all[1].Abort()
}

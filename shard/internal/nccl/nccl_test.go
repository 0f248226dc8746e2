package nccl_test

import (
	"bytes"
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
				runtime.KeepAlive(out)
				for i := range in {
					if in[i] != byte(i*((rank+2)%3+1)) {
						t.Errorf("rank %d, byte %d: %d", rank, i, in[i])
						break
					}
				}
				if err == nil {
					err = c.Destroy()
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
	if err := c.Exchange(nil, []nccl.Piece{{Addr: uint64(uintptr(unsafe.Pointer(&b[0]))), Bytes: 1, Peer: 1}}, 0); err == nil {
		t.Error("a communicator that was aborted receives")
	}
}

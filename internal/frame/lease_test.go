package frame_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// What is lent stays its holder's while memory is short; another who needs scratch memory gets another piece; and what is not lent goes first.
func TestScratchIsLent(t *testing.T) {
	d := openCPU(t, device.WithMemory(64<<10))
	var f frame.Frame
	must(t, f.Open("framed", d, func() error { return nil }, func() error { return nil }))
	must(t, f.Writing(nil, func(st *device.Stream) error {
		free := func() int64 {
			n, _, err := d.Memory()
			must(t, err)
			return n
		}
		atFirst := free()
		first, err := f.Scratch(20 << 10)
		must(t, err)
		second, err := f.Scratch(4 << 10)
		must(t, err)
		must(t, errors.Join(first.Mem.Fill(st, 1), second.Mem.Fill(st, 2)))
		second.Done()
		if got := atFirst - free(); got != 24<<10 {
			t.Errorf("%d bytes are taken, want both pieces", got)
		}
		large, err := frame.Make[byte](&f, free()+1000) // for which the second must go, that nobody holds
		must(t, err)
		if _, err := frame.Make[byte](&f, 10<<10); !device.IsOutOfMemory(err) {
			t.Errorf("there is memory, though all is lent: %v", err)
		}
		if _, err := f.Scratch(10 << 10); !device.IsOutOfMemory(err) {
			t.Errorf("there is scratch memory, though all is lent: %v", err)
		}
		must(t, f.Spare())
		got, err := first.Mem.Host(st)
		must(t, err)
		if !bytes.Equal(got, bytes.Repeat([]byte{1}, 20<<10)) {
			t.Error("what is lent has changed")
		}
		first.Done()
		first.Done() // does nothing
		again, err := f.Scratch(20 << 10)
		must(t, err)
		if again.Mem.Addr() == 0 || again.Mem.Len() != 20<<10 {
			t.Errorf("%d bytes of scratch memory were kept, want %d", again.Mem.Len(), 20<<10)
		}
		again.Done()
		must(t, f.Free(large))
		must(t, f.Spare())
		if got := free(); got != atFirst {
			t.Errorf("%d bytes are free in the end, %d at first", got, atFirst)
		}
		return nil
	}))
	must(t, f.Close())
}

// Budget says what is more than MaxBytes, which 0 does not bound.
func TestBudget(t *testing.T) {
	f := frame.Frame{Family: "framed", MaxBytes: 1000}
	must(t, f.Budget(1000))
	if err := f.Budget(1001); !errors.Is(err, table.ErrMaxBytes) {
		t.Error(err)
	}
	f.MaxBytes = 0
	must(t, f.Budget(1<<40))
}

// A test makes any allocation of its device fail, of device memory and of the host's, and none of another's.
func TestShortage(t *testing.T) {
	d, other := openCPU(t), openCPU(t)
	calls := 0
	faults.Set(d, faults.OfMemory(func(int64) bool { calls++; return calls <= 3 }))
	defer faults.Set(d, nil)
	_, e1 := device.Make[byte](d, 10)
	_, e2 := device.MakeHost[byte](d, 10)
	r, err := device.Reserve(d, 1<<20)
	must(t, err)
	for i, err := range []error{e1, e2, r.Resize(1)} {
		if !device.IsOutOfMemory(err) {
			t.Errorf("allocation %d: %v", i, err)
		}
	}
	must(t, r.Resize(1))
	must(t, r.Free())
	s, err := device.Make[byte](other, 10)
	must(t, errors.Join(err, s.Free()))
	if calls != 4 {
		t.Errorf("%d allocations, want 4", calls)
	}
}

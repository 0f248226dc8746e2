package device_test

import (
	"testing"

	"github.com/warpmap/warpmap/device"
)

// Small pieces of pinned memory take no call of the driver each, overlap nowhere, are all 0, and come back; the device frees all.
func TestSmallHostMemory(t *testing.T) {
	f, d := openFake(t)
	had := f.Get("host")
	write := func(h device.Host[uint64], x uint64) {
		for i := range h.Slice() {
			h.Slice()[i] = x
		}
	}
	const n = 129 // one more than 64 KiB have
	var all []device.Host[uint64]
	for round := range 2 {
		all = all[:0]
		for i := range n {
			h, err := device.MakeHost[uint64](d, 64)
			must(t, err)
			for _, x := range h.Slice() {
				if x != 0 {
					t.Fatalf("round %d: piece %d begins as %d", round, i, x)
				}
			}
			write(h, uint64(i+1))
			all = append(all, h)
		}
		if got := f.Get("host") - had; got != 2 {
			t.Errorf("round %d: the driver has %d pieces of host memory, want 2", round, got)
		}
		if got := len(d.Live()); got != n {
			t.Errorf("round %d: Live tells of %d pieces, want %d", round, got, n)
		}
		for i, h := range all {
			for _, x := range h.Slice() {
				if x != uint64(i+1) {
					t.Fatalf("round %d: piece %d has %d of another", round, i, x)
				}
			}
			must(t, h.Free())
		}
		if round == 0 {
			contains(t, all[0].Free(), device.ErrFreed.Error())
		}
	}
	large, err := device.MakeHost[uint64](d, 65)
	must(t, err)
	if got := f.Get("host") - had; got != 3 {
		t.Errorf("the driver has %d pieces of host memory with a large one, want 3", got)
	}
	must(t, large.Free())
	_, err = device.MakeHost[uint64](d, 3)
	must(t, err)
	must(t, d.Close())
	if got := f.Get("host"); got != had {
		t.Errorf("%d pieces of host memory are left behind Close", got-had)
	}
}

package device_test

import (
	"errors"
	"testing"

	"github.com/warpmap/warpmap/device"
)

// rangeTest grows and shrinks memory in place.
func rangeTest(t *testing.T, d *device.Device) {
	t.Helper()
	r, err := device.Reserve(d, 1<<30)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	must(t, err)
	at, mark := uint64(0), 0
	for i, n := range []int64{1, 5 << 20, 64 << 20} {
		must(t, r.Resize(n))
		s := r.Slice()
		if s.Bytes() < n || s.Bytes()%r.Granule() != 0 || at != 0 && s.Addr() != at {
			t.Fatalf("%d bytes: %d at %#x, which was %#x", n, s.Bytes(), s.Addr(), at)
		}
		at = s.Addr()
		if i == 1 {
			mark = s.Len() - 1
		}
		must(t, s.Slice(s.Len()-100, s.Len()).Fill(nil, byte(i+1)))
		must(t, s.Slice(0, 1).Fill(nil, byte(i+1)))
	}
	whole := r.Slice()
	if got, err := whole.Slice(mark, mark+1).Host(nil); err != nil || got[0] != 2 {
		t.Errorf("what was written before it grew: %v, %v", got, err)
	}
	must(t, d.Stream().Sync())
	must(t, r.Resize(5<<20))
	if n := r.Slice().Bytes(); n != 6<<20 && n != 5<<20 {
		t.Errorf("%d bytes after shrinking to 5 MiB", n)
	}
	if got, err := r.Slice().Slice(0, 1).Host(nil); err != nil || got[0] != 3 {
		t.Errorf("what was written before it shrank: %v, %v", got, err)
	}
	must(t, r.Resize(32<<20))
	for _, n := range []int64{-1, 1<<30 + 1} {
		if r.Resize(n) == nil {
			t.Errorf("resized to %d bytes", n)
		}
	}
	must(t, r.FreeAfter(d.Stream()))
	if err := r.Resize(1); !errors.Is(err, device.ErrFreed) {
		t.Errorf("resized after it was freed: %v", err)
	}
	if err := r.Free(); !errors.Is(err, device.ErrFreed) {
		t.Errorf("freed twice: %v", err)
	}
	if live := d.Live(); len(live) > 0 {
		t.Errorf("still there: %v", live)
	}
	for _, n := range []int64{0, -1} {
		if _, err := device.Reserve(d, n); err == nil {
			t.Errorf("reserved %d bytes", n)
		}
	}
	left, err := device.Reserve(d, 1<<24) // Close frees it
	must(t, err)
	must(t, left.Resize(1<<22))
}

func TestRange(t *testing.T) {
	d := openCPU(t, device.WithMemory(100<<20))
	r, err := device.Reserve(d, 1<<30)
	must(t, err)
	must(t, r.Resize(90<<20))
	if err := r.Resize(110 << 20); !device.IsOutOfMemory(err) || r.Slice().Len() != 90<<20 {
		t.Errorf("beyond the bound: %v, and it has %d bytes", err, r.Slice().Len())
	}
	if _, err := device.Make[byte](d, 20<<20); !device.IsOutOfMemory(err) {
		t.Errorf("beside the range: %v", err)
	}
	must(t, r.Free())
	rangeTest(t, d)
}

func TestGPURange(t *testing.T) { rangeTest(t, openGPU(t)) }

// A driver that is older than virtual memory management has none.
func TestRangeWithoutSupport(t *testing.T) {
	_, d := openFake(t)
	if _, err := device.Reserve(d, 1<<30); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}

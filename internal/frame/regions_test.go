package frame_test

import (
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// Small batches, small tables and thin batches are inserted as they are, and none on the CPU.
func TestWhatIsBroughtInOrder(t *testing.T) {
	gpu := device.Info{Name: "cuda:0", L2: 50 << 20}
	r := frame.RegionsFor(gpu, 1.28, 1<<18)
	for _, c := range []struct{ n, bytes, want int64 }{
		{r.MinRows, r.MinBytes, 2},
		{r.MinRows - 1, r.MinBytes, 0},
		{r.MinRows, r.MinBytes - 1, 0},
		{100_000_000, 1 << 30, 32},
		{r.RegionRows * 32, 1 << 30, 32},
		{r.RegionRows*32 - 1, 1 << 30, 0},
		{1 << 30, r.RegionBytes * frame.MaxParts * 2, 0},
		{r.RegionRows * frame.MaxParts, r.RegionBytes * frame.MaxParts, frame.MaxParts},
		{r.RegionRows*frame.MaxParts - 1, r.RegionBytes * frame.MaxParts, 0},
	} {
		if got := r.Count(c.n, c.bytes); got != c.want {
			t.Errorf("%d rows into %d bytes: %d regions, want %d", c.n, c.bytes, got, c.want)
		}
	}
	if small := frame.RegionsFor(device.Info{Name: "cuda:0", L2: 6 << 20}, 1.28, 1<<18); small.RegionBytes >= 6<<20 || small.MinBytes > 8<<20 {
		t.Errorf("with 6 MB of L2: %+v", small)
	}
	for _, info := range []device.Info{{Name: "cpu", L2: 32 << 20}, {Name: "cuda:0"}} {
		if r := frame.RegionsFor(info, 1.28, 1<<18); r.Count(1<<40, 1<<40) != 0 {
			t.Errorf("%+v has regions: %+v", info, r)
		}
	}
}

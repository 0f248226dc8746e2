package frame

import (
	"testing"

	"github.com/warpmap/warpmap/device"
)

// No thread of a grid has more items than kernels count in 16 bits, however small a GPU is; a large one has no more
// blocks than are asked for.
func TestGridsBoundWhatALaneTakes(t *testing.T) {
	for _, multiprocessors := range []int{1, 2, 8, 20, 132} {
		for _, n := range []int64{0, 1, 1000, 1 << 20, largestPart - 1, largestPart, 1<<36 + 5} {
			for _, blocks := range []int64{1, 8, 128} {
				info := device.Info{Name: "cuda:0", Multiprocessors: multiprocessors}
				g, fed := gridOf(info, n, blocks), fedGridOf(info, n, blocks)
				lanes := g.Blocks * int64(g.Threads)
				if each := (n + lanes - 1) / lanes; each > mostOfLane {
					t.Errorf("%d items on %d multiprocessors: %d blocks, whose threads have %d each (want %d at most)", n, multiprocessors, g.Blocks, each, mostOfLane)
				}
				if lanes := fed.Blocks * int64(fed.Threads); fed.Blocks > g.Blocks || (n+lanes-1)/lanes > mostOfLane {
					t.Errorf("%d items on %d multiprocessors: %d blocks feed their lanes, %d others", n, multiprocessors, fed.Blocks, g.Blocks)
				}
				if wanted := int64(multiprocessors) * blocks; multiprocessors == 132 && blocks >= 8 && n <= largestPart && g.Blocks > wanted {
					t.Errorf("%d items on %d multiprocessors: %d blocks, want %d at most", n, multiprocessors, g.Blocks, wanted)
				}
			}
		}
	}
}

// A lane of a small batch is fed several items, but each multiprocessor has blocks enough.
func TestFedGridsHaveFewLanes(t *testing.T) {
	info := device.Info{Name: "cuda:0", Multiprocessors: 132}
	for n, want := range map[int64]int64{1000: 4, 1 << 18: 1024, 1 << 20: 132 * 8, 10_000_000: 132 * 9, 1 << 31: 132 * 128} {
		if g := fedGridOf(info, n, 128); g.Blocks != want {
			t.Errorf("%d items: %d blocks, want %d", n, g.Blocks, want)
		}
	}
}

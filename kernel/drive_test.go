package kernel_test

import (
	"fmt"
	"testing"

	"github.com/warpmap/warpmap/device"
)

// Lanes read items that other lanes of the warp have stored in shared memory, and then store the next items there. The
// memory model reports a race if only votes are between the two, because a vote orders no memory. The items take one to
// three rounds, so that rows end at different times.
func TestDriveOrdersItsItems(t *testing.T) {
	for _, tile := range []string{"tile<8, true>", "tile<32, true>"} {
		t.Run(tile, func(t *testing.T) {
			const n = 700
			d := openCPU(t, device.WithMemoryModel(3))
			k := load(t, d, program("drive", fmt.Sprintf(`
#include "drive.cuh"
struct Job {
    typedef u32 Item;
    const params& p;
    u64 at_item;
    u32 left;
    __device__ Job(const params& p) : p(p), at_item(0), left(0) {}
    __device__ Item load(u64 i) { return load_readonly(at<u32>(p.in) + i); }
    __device__ bool begin(u64 i, Item x) {
        store_relaxed(at<u32>(p.out) + i, x);
        left = x %% 3 + 1;
        return true;
    }
    template <class Tile> __device__ bool round(Tile g, bool active) {
        g.any(active);
        return active && --left;
    }
    __device__ void done(u64) {}
};
WARPMAP_KERNEL(drive_all, params) {
    Job job(p);
    drive<%s, u32>(p.n, job);
}
`, tile)), "drive_all")
			in := make([]uint32, n)
			for i := range in {
				in[i] = uint32(i*7 + 1)
			}
			for i, x := range call[uint32, uint32](t, d, k, device.Grid{Blocks: 1, Threads: 64}, in, n) {
				if x != in[i] {
					t.Fatalf("item %d is %d, want %d", i, x, in[i])
				}
			}
		})
	}
}

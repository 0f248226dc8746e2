package warpcore

import (
	_ "embed"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

//go:embed filter_stretch.cu
var filterStretchCU string

// filterStretches are the kernels of filter_stretch.cu, and when they are used: where a batch has a key for so many bytes
// of the filter, because all of that is read and written.
type filterStretches struct {
	minRows, keyBytes int64
	bytes             int64 // of shared memory, of a stretch
	late              frame.Late
	insert            device.Kernel[filterPartitionParams]
	within            frame.Within
}

func filterStretchesFor(info device.Info) filterStretches {
	return filterStretches{minRows: frame.LargeFrom(info, 1<<22), keyBytes: filterStretchKey, bytes: filterStretchBytes}
}

// insertStretches puts a batch in stretch by stretch; false where that would be slower, or cannot be: then nothing was
// queued.
func (f *filter) insertStretches(st *device.Stream, b frame.Rows) (bool, error) {
	s, bytes := &f.stretch, int64(f.mem.Len())
	block := int64(f.cfg.block)
	if b.N < s.minRows || b.N > math.MaxUint32 || bytes < f.regions.MinBytes || b.N*s.keyBytes < bytes {
		return false, nil
	}
	parts := (bytes + s.bytes - 1) / s.bytes
	if parts > frame.MaxParts*frame.MaxParts || !f.loadStretches() {
		return false, nil
	}
	x := frame.Placement{Regions: &f.regions, KeyBytes: f.cfg.keyBytes, Params: func(rows frame.Partition) any {
		return &filterPartitionParams{Filter: f.t, Rows: rows}
	}}
	return f.kernel.partition.InSmallParts(&f.frame, st, s.within, x, b, 0, func(int64) int64 { return parts },
		func(rows frame.Partition) error {
			// Of a part's blocks the first and the last may be those of the parts beside it, too.
			most := (int64(f.t.Blocks)+int64(rows.Parts)-1)/int64(rows.Parts) + 2
			grid := device.Grid{Blocks: int64(rows.Parts), Threads: frame.Threads, Shared: int(most * block)}
			return s.insert.Launch(st, grid, &filterPartitionParams{Filter: f.t, Rows: rows})
		})
}

// stretchProgram is the kernel that inserts by stretches.
func (c filterConfig) stretchProgram() *device.Program {
	p := c.program("warpcore_filter_stretch", filterStretchCU)
	p.Defines = append(p.Defines, device.Define{Name: "WARPMAP_SHARED", Value: 1})
	return p
}

// loadStretches tells whether the kernel is there.
func (f *filter) loadStretches() bool {
	return f.stretch.late.Load(f.frame.Device, f.cfg.stretchProgram, func(m *device.Module) error {
		return device.Bind(m, "filter_insert_stretch", &f.stretch.insert)
	})
}

package cuckoo

import (
	_ "embed"
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

//go:embed stretch.cu
var stretchCU string

// stretches are the kernels of stretch.cu, and when they are used: where a batch has a key for so many bytes of the
// filter, because all of that is read and written.
type stretches struct {
	minRows, keyBytes int64
	late              frame.Late
	insert, erase     device.Kernel[stretchParams]
	tellAll           device.Kernel[stretchParams]
	within            frame.Within
}

func stretchesFor(info device.Info) stretches {
	return stretches{minRows: frame.LargeFrom(info, 1<<22), keyBytes: stretchKey}
}

// byStretches puts a batch in, or takes it out, window by window; false where that would be slower, or cannot be: then
// nothing was queued. Each row that finds no room is noted in refused, where that is not 0: otherwise rows are taken
// out, and told if b has Flags.
func (f *filter) byStretches(st *device.Stream, b frame.Rows, refused uint64) (bool, error) {
	s, bytes, windows := &f.stretch, int64(f.mem.Len()), f.geometry.all()
	shared, most := f.geometry.buckets*int64(f.cfg.words())*wordBytes+sharedBeside, f.frame.Device.Info().Shared
	if f.frame.Device.Info().CUDA() { // elsewhere a kernel's own variables lie apart
		most -= waitingBytes
	}
	if b.N < s.minRows || b.N > mostRows || bytes < f.regions.MinBytes ||
		b.N*s.keyBytes < bytes ||
		windows > frame.MaxParts*frame.MaxParts || shared > most || !f.loadStretches() {
		return false, nil
	}
	kernel := s.erase
	if refused != 0 {
		kernel = s.insert
	}
	x := frame.Placement{Regions: &f.regions, KeyBytes: f.cfg.keyBytes, Positions: refused != 0 || b.Flags != 0,
		Params: func(rows frame.Partition) any {
			return &partitionParams{Table: f.t, Rows: rows, ByWindow: 1}
		}}
	return f.kernel.partition.InSmallParts(&f.frame, st, s.within, x, b, 0, func(int64) int64 { return windows },
		func(rows frame.Partition) error {
			grid := device.Grid{Blocks: windows, Threads: stretchThreads, Shared: int(shared)}
			if !f.frame.Device.Info().CUDA() {
				grid.Threads = frame.Threads
			}
			p := stretchParams{Table: f.t, Rows: rows, Refused: refused, Failed: f.counters.Addr(), Told: b.Flags}
			if p.Told != 0 && rows.First == 0 {
				all := p
				all.Rows.N = uint64(b.N)
				if err := s.tellAll.Launch(st, f.grid(b.N), &all); err != nil {
					return err
				}
			}
			return kernel.Launch(st, grid, &p)
		})
}

// stretchProgram is the kernels for large batches.
func (c config) stretchProgram() *device.Program {
	p := c.program("cuckoo_stretch", stretchCU)
	p.Threads = stretchThreads
	p.Defines = append(p.Defines, device.Define{Name: "WARPMAP_SHARED", Value: 1})
	return p
}

// loadStretches tells whether the kernels are there.
func (f *filter) loadStretches() bool {
	return f.stretch.late.Load(f.frame.Device, f.cfg.stretchProgram, func(m *device.Module) error {
		return errors.Join(device.Bind(m, "insert_stretch", &f.stretch.insert),
			device.Bind(m, "erase_stretch", &f.stretch.erase), device.Bind(m, "tell_all", &f.stretch.tellAll))
	})
}

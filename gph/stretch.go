package gph

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

//go:embed stretch.cu
var stretchCU string

// stretches are the kernel of stretch.cu, and when a table is built by it.
type stretches struct {
	rule        frame.Stretches
	late        frame.Late
	build       device.Kernel[stretchParams]
	built, left int64 // tables, or what grew; and pairs that were left over, of the last
	ranges      int64 // that the last was built in
	rangeRows   int64 // of tests: rows of a range
}

// buildByStretches says whether tables are built stretch by stretch at all.
const buildByStretches = true

// stretchesFor gives the rule for a device. A set is worth it if it fills an eighth of the table: all buckets are written.
func stretchesFor(info device.Info) frame.Stretches {
	rule := frame.StretchesFor(info, 8, 2)
	if !buildByStretches {
		rule.MinRows = math.MaxInt64
	}
	return rule
}

// constructStretches is construct, stretch by stretch. done is false where that would be slower, or where memory is short: then nothing
// is in the table.
func (c *core) constructStretches(st *device.Stream, b *builder, in frame.Rows, rest func(frame.Rows) error) (done bool, err error) {
	s := &c.stretch
	stretches := int64(c.t.Stretches)
	fine, ok := s.rule.Fine(frame.Regions{PieceRows: in.N, PowerOfTwo: true}, in.N, c.slots(), stretches, in.N)
	if !ok {
		return false, nil
	}
	p := stretchParams{Table: c.t}
	info, grid := c.frame.Device.Info(), device.Grid{Blocks: stretches, Threads: stretchThreads}
	if !info.CUDA() {
		grid.Threads = frame.Threads
	}
	grid.Shared, p.CopyBytes = c.cfg.stretchShared(&c.t)
	if c.t.StretchCells > mostCells || grid.Shared+c.cfg.stretchFixed() > int(info.Shared) || !c.loadStretches() {
		return false, nil
	}
	counters := 8 * int(c.t.Reserve)
	mem, err := device.MakePooled[byte](c.frame.Device, counters+4)
	if device.IsOutOfMemory(err) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	left := device.View[uint32](mem, counters, 1)
	p.ReserveUsed, p.Left = mem.Addr(), left.Addr()
	full := false // the columns for what is left over
	done, err = c.byStretches(st, b, in, fine, func(r frame.PartRange) error {
		p.Keys, p.Values, p.Starts = r.Rows.Keys, r.Rows.Values, r.Starts.Addr()
		p.LeftKeys, p.LeftValues, p.LeftLimit = r.Spare.Keys, r.Spare.Values, uint64(r.Spare.N)
		p.First, grid.Blocks = uint64(r.First), min(r.Parts, stretches-r.First)
		if r.First == 0 {
			s.ranges = 0
			if err := mem.Fill(st, 0); err != nil {
				return err
			}
		}
		s.ranges++
		if err := s.build.Launch(st, grid, &p); err != nil || !r.Last {
			return err
		}
		n, err := left.Host(st)
		if err != nil {
			return err
		}
		if _, err := c.look(st); err != nil {
			return err
		}
		if full = int64(n[0]) > r.Spare.N; full { // few keys that come again and again
			return c.empty(st)
		}
		s.built, s.left = s.built+1, int64(n[0])
		if n[0] == 0 {
			return nil
		}
		return rest(frame.Rows{Keys: p.LeftKeys, Values: p.LeftValues, N: int64(n[0])})
	})
	// The memory that pairs came in order in may be as large as the table, which may never be built again.
	return done && !full, errors.Join(err, c.frame.Spare(), c.frame.Free(mem))
}

// byStretches calls do with all pairs in the order of stretches, at once, or, where memory is short, by ranges of stretches one behind the other,
// each with all its pairs, because the cells of a stretch are planned with these. done is false where memory is too short for that, too, or one key
// comes again and again: then it does nothing.
func (c *core) byStretches(st *device.Stream, b *builder, in frame.Rows, fine frame.Fine, do func(frame.PartRange) error) (done bool, err error) {
	r := &fine.Regions
	r.MinRows, r.MemoryShare = c.stretch.rule.MinRows, 1
	r.RegionRows = (in.N-1)/(fine.Large*fine.Within) + 1 // less is no piece
	params := func(rows frame.Partition) any {
		p := &buildParams{Table: c.t, Rows: rows, Stretches: uint64(c.t.Stretches)}
		if rows.Within == 0 {
			p.Shift = uint32(bits.TrailingZeros64(uint64(fine.Within)))
		}
		return p
	}
	x := frame.Placement{Regions: r, KeyBytes: c.cfg.keyBytes, ValueBytes: c.cfg.valueBytes, Params: params}
	if r.PieceRows = in.N; c.stretch.rangeRows == 0 {
		taken, err := b.partition.InFineOrder(&c.frame, st, b.within.Within, x, in, fine.Large, fine.Within, func(o frame.Ordered, starts device.Slice[uint64], spare frame.Rows) error {
			if o.Rows.N != in.N {
				return fmt.Errorf("gph: %d pairs of %d in one piece: this is a defect of warpmap", o.Rows.N, in.N)
			}
			return do(frame.PartRange{Ordered: o, Starts: starts, Parts: fine.Large * fine.Within, Last: true, Spare: spare})
		})
		if taken > 0 || err != nil {
			return taken > 0, err
		}
	}
	r.PieceRows = cmp.Or(c.stretch.rangeRows, (in.N+1)/2)
	return b.partition.InRanges(&c.frame, st, b.within, x, in, fine.Large, fine.Within, do)
}

func (c *core) stretchProgram() *device.Program {
	p := c.program("gph_stretch", stretchCU)
	p.Threads = stretchThreads
	p.Layouts = append(p.Layouts, stretchParams{})
	p.Defines = append(p.Defines, device.Define{Name: "WARPMAP_SHARED", Value: 1},
		device.Define{Name: "GPH_PLAN_ATTEMPTS", Value: planAttempts}, device.Define{Name: "GPH_STRETCH_BLOCKS", Value: stretchBlocks},
		device.Define{Name: "GPH_STRETCH_FIXED", Value: c.cfg.stretchFixed()})
	return p
}

// loadStretches tells whether the kernel is there.
func (c *core) loadStretches() bool {
	return c.stretch.late.Load(c.frame.Device, c.stretchProgram, func(m *device.Module) error {
		return device.Bind(m, "build_stretch", &c.stretch.build)
	})
}

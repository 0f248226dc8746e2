package gph

import (
	_ "embed"
	"errors"
	"fmt"
	"math/bits"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// Index tells where Find and Contains read the cells.
type Index int

const (
	// Global means device memory. A GPU's L2 cache holds the cells, or as many of them as it can.
	Global Index = iota
	// Shared means the shared memory of the multiprocessors, as in the paper (§4.1, §7.1). Each multiprocessor holds a
	// part of the cells, and keys first go to the one that holds their cell. For that, the keys are read twice, and
	// they are written and read in the order of parts, with their positions. Then results are written in no order. So
	// Shared pays only if reading a cell from L2 costs more than all this. On an H200 it does not: of keys and values
	// of 4 bytes, in tables of 2²², 2²⁶ and 2²⁸ pairs, Shared finds 18, 13 and 10 billion a second, and Global 44, 35
	// and 22. A small batch also pays for loading the cells.
	//
	// Shared makes the same tables as Global, and changes them in the same way. Look-ups wait for one another, because
	// they share scratch memory: a key and 4 bytes for each key of a batch, up to 48 MiB. If there is no memory for
	// that, or if there are more cells than 1,024 parts hold, look-ups run as with Global.
	Shared
)

//go:embed shared.cu
var sharedCU string

// sharedParams are the parameters of the kernels in shared.cu. Values and Found, either of which may be 0, are in the
// order of the input; Rows.OutKeys and Rows.OutPositions in that of parts.
type sharedParams struct {
	Table     Table
	Rows      frame.Partition
	Values    uint64
	Found     uint64
	PartCells uint32 // cells of a part; whole words of 16 bytes
	Pad       uint32
}

// sharedRule says how look-ups through shared memory go about it.
type sharedRule struct {
	cellBytes int64 // of a block's shared memory for cells, at most; 0: what the device has
	pieceRows int64 // of a batch that are looked up at once: scratch memory is bounded
	blockRows int64 // at least, or a block loads its cells for too few
}

// Pieces are such that an H200's L2 cache holds most of what is written in no order: those of 2²⁶ rows take a quarter longer.
var sharedRules = sharedRule{pieceRows: 1 << 22, blockRows: 1 << 10}

// sharedBlocks is how many blocks of find_shared are to be resident on a multiprocessor: more have more reads under way,
// and each has less shared memory, so that there are more parts.
const sharedBlocks = 4

// sharedIndex is what a core has for Index Shared.
type sharedIndex struct {
	rule    sharedRule
	route   frame.Partitioner
	find    device.Kernel[sharedParams]
	scratch device.Slice[byte] // of one find after the other,
	order   frame.Order        // which this sees to
}

func (c *core) sharedProgram() *device.Program {
	p := c.program("gph_shared", sharedCU)
	p.Defines = append(append(p.Defines, frame.PartitionDefines()...), device.Define{Name: "GPH_SHARED_BLOCKS", Value: sharedBlocks})
	p.Layouts = append(p.Layouts, sharedParams{})
	return p
}

// compileShared does nothing for a table with Index Global.
func (c *core) compileShared() error {
	if c.opts.Index != Shared {
		return nil
	}
	m, err := c.frame.Device.CompileApart(c.sharedProgram())
	if err != nil {
		return err
	}
	s := &c.shared
	if s.rule == (sharedRule{}) {
		s.rule = sharedRules
	}
	if s.route, err = frame.NewPartitioner[sharedParams](c.frame.Device, m); err != nil {
		return err
	}
	return device.Bind(m, "find_shared", &s.find)
}

// sharedParts divides the cells into equal parts, one to a block's shared memory, for as many blocks on a multiprocessor
// as leave no more than frame.MaxParts parts. parts is 0 where even one has too little.
func (c *core) sharedParts() (parts, partCells, blocks int64) {
	cells, size := int64(c.t.CellCount), int64(c.cfg.cellBytes)
	for blocks = sharedBlocks; blocks > 0; blocks /= 2 {
		// A multiprocessor has 1 KiB more than its largest block may have, and needs that much for each block.
		bytes := (c.frame.Device.Info().Shared+1<<10)/blocks - 1<<10
		if c.shared.rule.cellBytes > 0 {
			bytes = min(bytes, c.shared.rule.cellBytes)
		}
		most := bytes / 16 * 16 / size
		if most <= 0 {
			continue
		}
		parts = (cells + most - 1) / most
		if parts <= frame.MaxParts {
			words := ((cells+parts-1)/parts*size + 15) / 16
			return parts, words * 16 / size, blocks
		}
	}
	return 0, 0, 0
}

// findShared queues a look-up, piece by piece. Only for more memory than before does it wait.
func (c *core) findShared(st *device.Stream, b frame.Rows) error {
	n := b.N
	parts, partCells, blocks := c.sharedParts()
	piece := int64(0)
	if parts > 0 {
		var err error
		if piece, err = c.reserveShared(n, parts); err != nil {
			return err
		}
	}
	if piece == 0 {
		return c.search(st, c.kernel.find, b)
	}
	s := &c.shared
	at := s.place(piece, parts, c.cfg.keyBytes)
	base := s.scratch.Addr()
	counters := device.View[uint64](s.scratch, 0, frame.PartitionWords(int(parts)))
	return s.order.Write(st, func() error {
		for first := int64(0); first < n; first += piece {
			m := min(piece, n-first)
			part := b.Part(frame.Part{First: uint64(first), N: uint64(m)}, c.cfg.keyBytes, c.cfg.valueBytes)
			p := sharedParams{Table: c.t, Values: part.Values, Found: part.Flags, PartCells: uint32(partCells), Rows: frame.Partition{
				Keys: part.Keys, N: uint64(m), Parts: uint64(parts),
				OutKeys: base + uint64(at.keys), OutPositions: base + uint64(at.positions),
			}}
			if err := s.route.Run(st, counters, p.Rows, func(rows frame.Partition) any { p.Rows = rows; return &p }); err != nil {
				return err
			}
			grid := device.Grid{Threads: frame.Threads, Shared: int((partCells*int64(c.cfg.cellBytes) + 15) / 16 * 16)}
			grid.Blocks = max(1, min((m+s.rule.blockRows-1)/s.rule.blockRows, blocks*int64(c.frame.Device.Info().Multiprocessors)))
			if err := s.find.Launch(st, grid, &p); err != nil {
				return err
			}
		}
		return nil
	})
}

// sharedScratch says where in the scratch memory what lies; counters come first.
type sharedScratch struct{ keys, positions, end int64 }

func (s *sharedIndex) place(rows, parts int64, keyBytes int) (at sharedScratch) {
	at.keys = frame.Align(8 * int64(frame.PartitionWords(int(parts))))
	at.positions = at.keys + frame.Align(rows*int64(keyBytes))
	at.end = at.positions + frame.Align(rows*4)
	return at
}

// reserveShared sees to scratch memory for a piece of a batch of n rows; piece is 0 where there is too little. Memory
// grows in powers of two, and freeing the old waits for the look-ups that use it.
func (c *core) reserveShared(n, parts int64) (piece int64, err error) {
	s := &c.shared
	most := s.rule.pieceRows
	for {
		pieces := (n + most - 1) / most
		piece = ((n+pieces-1)/pieces + 15) &^ 15 // keys of a piece begin at a whole 16 bytes
		if int64(s.scratch.Len()) >= s.place(piece, parts, c.cfg.keyBytes).end {
			return piece, nil
		}
		if err := s.free(); err != nil {
			return 0, err
		}
		rows := max(min(int64(1)<<bits.Len64(uint64(piece-1)), most+15), piece)
		mem, err := device.MakePooled[byte](c.frame.Device, int(s.place(rows, frame.MaxParts, c.cfg.keyBytes).end))
		switch {
		case err == nil:
			s.scratch = mem
			return piece, nil
		case !device.IsOutOfMemory(err):
			return 0, err
		case most <= s.rule.blockRows:
			return 0, nil
		}
		most /= 2
	}
}

// free waits for the look-ups under way.
func (s *sharedIndex) free() error {
	if s.scratch.Len() == 0 {
		return nil
	}
	busy, err := s.order.Idle()
	mem := s.scratch
	s.scratch = device.Slice[byte]{}
	return errors.Join(err, mem.FreeAfter(busy...))
}

func (i Index) check() error {
	if i != Global && i != Shared {
		return fmt.Errorf("gph: index %d (want Global or Shared)", int(i))
	}
	return nil
}

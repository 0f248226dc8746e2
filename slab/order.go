package slab

import (
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// launchInsert queues an insert. Where that is faster, it first brings the batch in the order of the table's regions, piece
// by piece; not where each position is told what became of it.
func (c *core) launchInsert(st *device.Stream, k device.Kernel[InsertParams], p InsertParams) error {
	n := int64(p.N)
	regions := c.partitions.regions(n, int64(c.base.Len()))
	if p.Added != 0 || p.Attempt != 0 {
		regions = 0
	}
	var room orderRoom
	if regions > 0 {
		room = c.reserveOrdered(n, regions)
	}
	if room.piece == 0 {
		return k.Launch(st, c.grid(n, insertBlocks), &p)
	}
	span := c.partitions.span
	for first := int64(0); first < n; first += room.piece {
		m := min(room.piece, n-first)
		q := PartitionParams{Table: p.Table, Rows: table.Partition{
			Keys: p.Keys + uint64(first)*uint64(c.cfg.keyBytes), N: uint64(m), First: uint64(first),
			OutKeys: room.keys, OutPositions: room.positions, Parts: uint64(regions),
		}}
		if p.Values != 0 {
			q.Rows.Values, q.Rows.OutValues = p.Values+uint64(first)*uint64(c.cfg.valueBytes), room.values
		}
		if err := c.kernel.partition.Run(st, room.counters, &q.Rows, &q); err != nil {
			return err
		}
		r := p
		r.Keys, r.Values, r.Positions, r.N, r.Span = room.keys, room.values, room.positions, uint64(m), uint64(span)
		if err := k.Launch(st, device.Grid{Blocks: (m + span - 1) / span, Threads: threads}, &r); err != nil {
			return err
		}
	}
	return nil
}

// orderRoom is memory for a piece of a batch in order.
type orderRoom struct {
	piece                   int64 // rows; 0: there is too little memory
	counters                device.Slice[uint64]
	keys, values, positions uint64
}

// reserveOrdered gives memory for the pairs of a piece of a batch of n. The caller holds the lock, and waits for its work
// before it lets go. Without enough memory the batch goes in as it is.
func (c *core) reserveOrdered(n, regions int64) (room orderRoom) {
	rule := &c.partitions
	words := table.PartitionWords(int(regions))
	head := align(8 * int64(words))
	equal := func(most int64) int64 { // pieces of a batch, of no more than most rows
		pieces := (n + most - 1) / most
		return (n + pieces - 1) / pieces
	}
	place := func(piece int64) (values, positions, end int64) {
		values = head + align(piece*int64(c.cfg.keyBytes))
		positions = values + align(piece*int64(c.cfg.valueBytes))
		return values, positions, positions + align(4*piece)
	}
	piece := equal(rule.pieceRows)
	if _, _, need := place(piece); int64(c.ordered.Len()) < need {
		free, _, err := c.d.Memory()
		if err != nil {
			return room
		}
		free = max(free/rule.memoryShare, int64(c.ordered.Len()))
		fit := (free - head - 3*256) / int64(c.cfg.keyBytes+c.cfg.valueBytes+4)
		if fit < rule.regionRows*regions {
			return room
		}
		piece = equal(min(fit, rule.pieceRows))
		if _, _, need = place(piece); int64(c.ordered.Len()) < need {
			c.freeOrdered() // nothing uses it: every insert has waited
			if c.ordered, err = device.Make[byte](c.d, int(need)); err != nil {
				c.ordered = device.Slice[byte]{}
				return room
			}
		}
	}
	values, positions, _ := place(piece)
	base := c.ordered.Addr()
	return orderRoom{piece, device.View[uint64](c.ordered, 0, words), base + uint64(head), base + uint64(values), base + uint64(positions)}
}

// freeOrdered gives back what reserveOrdered has made.
func (c *core) freeOrdered() {
	if c.ordered.Len() > 0 {
		c.ordered.Free()
	}
	c.ordered = device.Slice[byte]{}
}

package text

import (
	"errors"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// arena is memory for records, and the bitmap of where they begin.
type arena struct {
	mem      device.Slice[byte]
	starts   device.Slice[uint32]
	capacity int64
}

func (a *arena) bytes() int64 { return a.mem.Bytes() + a.starts.Bytes() }

// capacityIn is how large an arena is that takes so many bytes with its bitmap.
func capacityIn(bytes int64) int64 { return bytes / (grain + 4) * grain }

func (c *core) makeArena(st *device.Stream, capacity int64) (a arena, err error) {
	if err = c.f.Budget(capacity + capacity/grain*4); err != nil {
		return a, err
	}
	if a.mem, err = frame.Make[byte](&c.f, capacity); err != nil {
		return a, err
	}
	if a.starts, err = frame.Make[uint32](&c.f, capacity/grain); err == nil {
		err = a.starts.Fill(st, 0)
	}
	if err != nil {
		return arena{}, errors.Join(err, c.f.Free(a.mem, a.starts))
	}
	a.capacity = capacity
	return a, nil
}

const (
	// slack is the part of an arena at its bound that no live record takes, 1/32. So between two times that the records are moved, records of that many
	// bytes come in: for a byte that is put no more than 32 are moved, however small batches are.
	slack = 32
	// fewLeft and leastShrunk say when a Delete gives memory back: where no more than a quarter of what is used is left.
	fewLeft, leastShrunk = 4, 1 << 20
)

func (c *core) live() int64 { return int64(c.counts.Seen.Used-c.counts.Seen.Garbage) - firstPlace }

// room makes room in the arena for records of so many bytes, or of fewer. limit is how far they may reach; where that is not for all, why says what forbids
// more. Others may come in behind, of so many bytes in all. The caller has looked.
func (c *core) room(st *device.Stream, bytes, behind int64) (limit int64, why, err error) {
	fit := max(0, min(bytes, c.mostLive()-c.live()))
	if fit < bytes {
		why = frame.AtMaxBytes(c.o.MaxBytes)
	}
	if int64(c.counts.Seen.Used)+fit > c.arena.capacity {
		short, err := c.makeRoom(st, fit, behind)
		if err != nil {
			return 0, nil, err
		}
		if short != nil {
			why = short
		}
	}
	return min(int64(c.counts.Seen.Used)+fit, c.arena.capacity), why, nil
}

// makeRoom moves the records where there is room for so many bytes more, and if it can be for those behind. Where there is no memory for much more, there is
// some slack at least.
func (c *core) makeRoom(st *device.Stream, bytes, behind int64) (short, err error) {
	total, most := firstPlace+c.live()+bytes, c.mostCapacity()
	with := func(part int64) int64 { return min(roundUp(total+total/part, grain), most) }
	double := max(2*c.arena.capacity, with(8))
	sizes := []int64{min(max(double, roundUp(total+behind, grain)), most), min(double, most), with(8), with(slack)}
	if total <= c.arena.capacity-c.arena.capacity/4 {
		sizes = []int64{c.arena.capacity}
	}
	for _, size := range slices.Compact(sizes) {
		if short, err = c.rebuild(st, size); err != nil || short == nil {
			break
		}
	}
	return short, err
}

// mostCapacity is the bound of the arena's capacity.
func (c *core) mostCapacity() int64 {
	if c.most == 0 {
		return 1 << 50
	}
	return capacityIn(c.most)
}

// mostLive is the bound of the live records' bytes.
func (c *core) mostLive() int64 {
	if c.most == 0 {
		return 1 << 50
	}
	return c.mostCapacity() - c.mostCapacity()/slack - firstPlace
}

// shrink gives memory back where little is left in it. It need not.
func (c *core) shrink(st *device.Stream) error {
	if used := int64(c.counts.Seen.Used); used < leastShrunk || c.live() > used/fewLeft {
		return nil
	}
	err := c.settle(st)
	if err == nil {
		_, err = c.rebuild(st, max(leastArena, roundUp(2*c.live()+firstPlace, grain)))
	}
	if device.IsOutOfMemory(err) {
		return nil
	}
	return err
}

// moveWords is how many words of the bitmap are gone through at once when the index learns where records went.
const moveWords = 1 << 15

// rebuild brings the records to an arena of another capacity, or of the same without the garbage. short is the memory that it lacked: then nothing is changed.
// The index is owed nothing before. Errors: *device.OutOfMemoryError of the index, which then is owed where the records are.
func (c *core) rebuild(st *device.Stream, capacity int64) (short, err error) {
	var lists device.Slice[uint64]
	to, err := c.makeArena(st, capacity)
	used := int64(c.counts.Seen.Used)
	words := min(moveWords, (used+grain-1)/grain)
	if garbage := c.counts.Seen.Garbage > 0; err == nil && garbage {
		if lists, err = frame.Make[uint64](&c.f, 2*words*grain/recordBytes(c.head, 0)+2*words); err != nil {
			err = errors.Join(err, c.f.Free(to.mem, to.starts))
		}
	}
	if device.IsOutOfMemory(err) {
		return err, nil
	} else if err != nil {
		return nil, err
	}
	from := c.arena
	if lists.Addr() == 0 {
		err = errors.Join(to.mem.CopyFrom(st, from.mem.Slice(0, int(used))), to.starts.CopyFrom(st, from.starts.Slice(0, int((used+grain-1)/grain))))
		c.arena = to
		return nil, errors.Join(c.breaks(err), c.f.Free(from.mem, from.starts))
	}
	c.owed.move = &move{from: from, lists: lists, words: words, all: (used + grain - 1) / grain}
	if err := c.breaks(c.carry(st, c.owed.move, to)); err != nil {
		return nil, err
	}
	return nil, c.settle(st)
}

// move is what the index must be told after the records were carried to another arena.
type move struct {
	from       arena
	lists      device.Slice[uint64] // memory for the hashes and places of all records of so many words of the bitmap
	words, all int64                // all: of from's bitmap
	first      int64                // the first that the index does not know
}

// params are those of the kernels, in the arena that the records are in now.
func (m *move) params(c *core) params {
	p := c.params(rows{})
	p.Other, p.OtherStarts, p.Arena, p.Starts, p.Sure = p.Arena, p.Starts, m.from.mem.Addr(), m.from.starts.Addr(), 1
	return p
}

// carry brings the live records, and their chains, to another arena.
func (c *core) carry(st *device.Stream, m *move, to arena) error {
	c.arena = to
	p := m.params(c)
	p.Words = uint64(m.all)
	c.counts.Seen.Used, c.counts.Seen.Garbage = firstPlace, 0
	if err := errors.Join(frame.InTurn(
		func() error { return c.counts.Set(st) },
		func() error { return c.launch(st, c.k.move, m.all, &p) },
	), c.counts.Look(st)); err != nil {
		return err
	}
	p.Words = (c.counts.Seen.Used + grain - 1) / grain
	return c.launch(st, c.k.relink, int64(p.Words), &p)
}

// lead has the index lead where the records were carried: it has their hashes already, so that nothing is added to it. Errors: *device.OutOfMemoryError; it
// goes on from there the next time.
func (c *core) lead(st *device.Stream, m *move) error {
	p := m.params(c)
	half := m.lists.Len() / 2
	hashes, places := m.lists.Slice(0, half), m.lists.Slice(half, 2*half)
	p.NewHashes, p.NewPlaces = hashes.Addr(), places.Addr()
	for ; m.first < m.all; m.first += m.words {
		p.First, p.Words = uint64(m.first), uint64(min(m.words, m.all-m.first))
		n, err := c.gathered(st, &p)
		if err != nil {
			return c.breaks(err)
		}
		if _, err := c.tell(n, func(from, to int) error { return c.index.InsertOn(st, hashes.Slice(from, to), places.Slice(from, to)) }); err != nil {
			return err
		}
	}
	return c.f.Free(m.from.mem, m.from.starts, m.lists)
}

// gathered lists the records of some words of the bitmap, and counts them. A batch in which this comes has placed none.
func (c *core) gathered(st *device.Stream, p *params) (n int, err error) {
	c.counts.Seen.Placed = 0
	err = errors.Join(frame.InTurn(
		func() error { return c.counts.Set(st) },
		func() error { return c.launch(st, c.k.gather, int64(p.Words), p) },
	), c.counts.Look(st))
	n = int(c.counts.Seen.Placed)
	c.counts.Seen.Placed = 0
	return n, errors.Join(err, c.counts.Set(st))
}

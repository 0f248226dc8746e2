package text

import (
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
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
	if a.mem, err = reserve[byte](c, capacity); err != nil {
		return a, err
	}
	if a.starts, err = reserve[uint32](c, capacity/grain); err == nil {
		err = a.starts.Fill(st, 0)
	}
	if err != nil {
		return arena{}, errors.Join(err, c.f.Free(a.mem, a.starts))
	}
	a.capacity = capacity
	return a, nil
}

// reserve is table.Make, but leaves the scratch memory alone: a batch is at work in it.
func reserve[T any](c *core, n int64) (device.Slice[T], error) {
	s, err := device.MakePooled[T](c.f.Device, int(n))
	if device.IsOutOfMemory(err) && table.ReleaseStaging(c.f.Device) > 0 {
		s, err = device.MakePooled[T](c.f.Device, int(n))
	}
	return s, err
}

const (
	// worthwhile: at the bound the arena is cleared of garbage where that is this part of it, 1/32: else few bytes would cost as much again and again.
	worthwhile = 32
	// fewLeft and leastShrunk say when a Delete gives memory back: where no more than a quarter of what is used is left.
	fewLeft, leastShrunk = 4, 1 << 20
)

func (c *core) live() int64 { return int64(c.counts.Seen.Used-c.counts.Seen.Garbage) - unit }

// room makes room in the arena for records of so many bytes. why says what forbids it. The caller has looked.
func (c *core) room(st *device.Stream, bytes int64) (why, err error) {
	used, garbage, most := int64(c.counts.Seen.Used), int64(c.counts.Seen.Garbage), c.mostCapacity()
	if used+bytes <= c.arena.capacity {
		return nil, nil
	}
	total := unit + c.live() + bytes
	sizes := []int64{max(2*c.arena.capacity, roundUp(total+total/8, grain)), roundUp(total+total/8, grain), roundUp(total+total/32, grain), roundUp(total, grain)}
	if total <= c.arena.capacity-c.arena.capacity/4 {
		sizes = []int64{c.arena.capacity}
	}
	filled := c.arena.capacity >= most && garbage < most/worthwhile
	if total > most || filled {
		if why = table.AtMaxBytes(c.o.MaxBytes); filled {
			return why, nil
		}
		sizes = []int64{most}
	}
	var short error
	for _, size := range sizes {
		if short, err = c.rebuild(st, min(size, most)); err != nil || short == nil {
			break
		}
	}
	if err == nil && short != nil {
		why = short
	}
	return why, err
}

// mostCapacity is the bound of the arena's capacity.
func (c *core) mostCapacity() int64 {
	if c.most == 0 {
		return 1 << 50
	}
	return capacityIn(c.most)
}

// shrink gives memory back where little is left in it. It need not.
func (c *core) shrink(st *device.Stream) error {
	if used := int64(c.counts.Seen.Used); used < leastShrunk || c.live() > used/fewLeft {
		return nil
	}
	_, err := c.rebuild(st, max(leastArena, roundUp(2*c.live()+unit, grain)))
	return err
}

// moveWords is how many words of the bitmap are gone through at once when the index learns where records went.
const moveWords = 1 << 15

// rebuild brings the records to an arena of another capacity, or of the same without the garbage. short is the memory that it lacked: then nothing is changed.
func (c *core) rebuild(st *device.Stream, capacity int64) (short, err error) {
	var lists device.Slice[uint64]
	to, err := c.makeArena(st, capacity)
	words := min(moveWords, (int64(c.counts.Seen.Used)+grain-1)/grain)
	if garbage := c.counts.Seen.Garbage > 0; err == nil && garbage {
		if lists, err = reserve[uint64](c, 2*words*grain/recordBytes(c.valueBytes, 0)+2*words); err != nil {
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
		used := int64(c.counts.Seen.Used)
		err = errors.Join(to.mem.CopyFrom(st, from.mem.Slice(0, int(used))), to.starts.CopyFrom(st, from.starts.Slice(0, int((used+grain-1)/grain))))
	} else {
		err = c.breaks(c.move(st, to, words, lists))
	}
	c.arena = to
	return nil, errors.Join(err, c.f.Free(from.mem, from.starts, lists))
}

// move brings the live records to another arena, and has the index lead there: it has their hashes already, so that nothing is added to it. lists is
// memory for the hashes and places of all records of so many words of the bitmap.
func (c *core) move(st *device.Stream, to arena, words int64, lists device.Slice[uint64]) error {
	seen := c.counts.Seen
	p := c.params(rows{})
	p.Other, p.OtherStarts, p.Sure = to.mem.Addr(), to.starts.Addr(), 1
	run := func(k device.Kernel[params], used uint64, first, words int64) error {
		c.counts.Seen.Used, c.counts.Seen.Placed = used, 0
		p.First, p.Words = uint64(first), uint64(words)
		return errors.Join(c.counts.Set(st), c.launch(st, k, words, &p), c.counts.Look(st))
	}
	all := (int64(seen.Used) + grain - 1) / grain
	if err := run(c.k.move, unit, 0, all); err != nil {
		return err
	}
	used := c.counts.Seen.Used
	if err := run(c.k.relink, used, 0, (int64(used)+grain-1)/grain); err != nil {
		return err
	}
	hashes, places := lists.Slice(0, lists.Len()/2), lists.Slice(lists.Len()/2, lists.Len())
	p.NewHashes, p.NewPlaces = hashes.Addr(), places.Addr()
	for first := int64(0); first < all; first += words {
		err := run(c.k.gather, used, first, min(words, all-first))
		if n := int(c.counts.Seen.Placed); err == nil && n > 0 {
			err = c.index.InsertOn(st, hashes.Slice(0, n), places.Slice(0, n))
		}
		if err != nil {
			return err
		}
	}
	c.counts.Seen = seen
	c.counts.Seen.Used, c.counts.Seen.Garbage = used, 0
	return c.counts.Set(st)
}

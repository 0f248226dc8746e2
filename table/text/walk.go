package text

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// checkPiece is how many hashes Check asks the index for at once.
const checkPiece = 1 << 16

// walkBytes is how much of the arena is brought here at once.
const walkBytes = 4 << 20

// walk goes over the records of the arena, stretch by stretch.
type walk struct {
	c      *core
	place  int64 // the next record
	mem    []byte
	starts []uint32
}

func (c *core) walk() *walk { return &walk{c: c, place: firstPlace} }

// next brings the keys and values of the records of a stretch here; over: there are no more. The caller is in reading.
func (w *walk) next(st *device.Stream) (keys Keys, values []byte, over bool, err error) {
	used := int64(w.c.counts.Seen.Used)
	if w.place >= used {
		return keys, nil, true, nil
	}
	from := w.place / grain * grain
	if w.mem, w.starts, err = w.c.stretch(st, w.mem, w.starts, from, min(used, from+walkBytes)); err == nil {
		keys, values, w.place, err = w.c.records(st, w.mem, w.starts, from, w.place)
	}
	return keys, values, false, err
}

// all gives do the keys and values of every record, with the lock held.
func (c *core) all(do func(keys Keys, values []byte)) error {
	return c.reading(nil, func(st *device.Stream) error {
		for w := c.walk(); ; {
			keys, values, over, err := w.next(st)
			if err != nil || over {
				return err
			}
			do(keys, values)
		}
	})
}

// chunks gives do the keys and values of every record, without the lock.
func (c *core) chunks(ctx context.Context, do func(keys Keys, values []byte) error) error {
	var changes uint64
	w := c.walk()
	for begun := false; ; begun = true {
		if err := crash.Ended(ctx); err != nil {
			return err
		}
		var keys Keys
		var values []byte
		over := false
		err := c.reading(nil, func(st *device.Stream) (err error) {
			if !begun {
				changes = c.changes
			} else if changes != c.changes {
				return fmt.Errorf("%s: %w", family, table.ErrChanged)
			}
			keys, values, over, err = w.next(st)
			return err
		})
		if err != nil || over {
			return err
		}
		if keys.Len() > 0 {
			if err := do(keys, values); err != nil {
				return err
			}
		}
	}
}

// stretch reads the arena's bytes from ... to-1 and the bitmap's words of them. from is a multiple of grain.
func (c *core) stretch(st *device.Stream, mem []byte, starts []uint32, from, to int64) ([]byte, []uint32, error) {
	if n := int(to - from); cap(mem) < n {
		mem = make([]byte, n)
	}
	mem = mem[:to-from]
	words := int((to - from + grain - 1) / grain)
	if cap(starts) < words {
		starts = make([]uint32, words)
	}
	starts = starts[:words]
	return mem, starts, errors.Join(c.arena.mem.Slice(int(from), int(to)).Read(st, mem), c.arena.starts.Slice(int(from/grain), int(from/grain)+words).Read(st, starts))
}

// records are those of a stretch of the arena that begin at place or behind; next is where to go on. One that does not fit the stretch is read alone.
func (c *core) records(st *device.Stream, mem []byte, starts []uint32, from, place int64) (keys Keys, values []byte, next int64, err error) {
	keys.Offsets = []int64{0}
	take := func(record []byte, n int64) {
		keys.Bytes = append(keys.Bytes, record[c.head:int64(c.head)+n]...)
		keys.Offsets = append(keys.Offsets, int64(len(keys.Bytes)))
		values = append(values, record[recordHead:recordHead+c.valueBytes]...)
	}
	end := from + int64(len(mem))
	for w, word := range starts {
		for ; word != 0; word &= word - 1 {
			at := from + (int64(w)*wordUnits+int64(bits.TrailingZeros32(word)))*unit
			if at < place {
				continue
			}
			n := int64(0)
			if at+recordHead <= end {
				n = int64(binary.LittleEndian.Uint64(mem[at-from+8:]))
			}
			switch size := recordBytes(c.head, n); {
			case at+recordHead > end, at+size > end && keys.Len() > 0:
				return keys, values, at, nil
			case at+size > end:
				if at+size > int64(c.counts.Seen.Used) {
					return keys, nil, 0, fmt.Errorf("%s: a record at %d of %d bytes, and %d are used: this is a defect of warpmap", family, at, size, c.counts.Seen.Used)
				}
				record, err := c.arena.mem.Slice(int(at), int(at+size)).Host(st)
				if err != nil {
					return keys, nil, 0, err
				}
				take(record, n)
				return keys, values, at + size, nil
			default:
				take(mem[at-from:], n)
				next = at + size
			}
		}
	}
	return keys, values, max(next, end), nil
}

// stats is Stats. The caller is in reading or writing.
func (c *core) stats() (s Stats, err error) {
	index, err := c.index.Stats()
	if err != nil {
		return s, err
	}
	n := c.counts.Seen
	behind := int(n.Live) - index.Len
	histogram := make([]uint64, len(index.Probes)+1)
	for i, x := range index.Probes {
		histogram[i] = uint64(x)
	}
	last := len(index.Probes)
	histogram[last-1] += uint64(behind)
	histogram[last] = uint64(index.MeanProbes*float64(index.Len)+0.5) + uint64(behind*last)
	s.Stats = index
	s.Len, s.Capacity, s.MaxProbes = int(n.Live), index.Capacity+behind, index.MaxProbes
	if behind > 0 {
		s.MaxProbes += last
	}
	if n.Live > 0 {
		mean := float64(c.live()) / float64(n.Live)
		s.Capacity = max(s.Len, min(s.Capacity, int(float64(min(c.arena.capacity, c.mostLive()))/mean)))
	}
	scratch := index.ScratchBytes + c.least.Bytes()
	c.f.Tell(&s.Stats, histogram)
	s.Family = c.index.Family()
	s.ScratchBytes += scratch
	s.ArenaBytes, s.UsedBytes, s.GarbageBytes = c.arena.bytes(), int64(n.Used), int64(n.Garbage)
	s.Bytes = index.Bytes + s.ArenaBytes
	return s, nil
}

// full is the error for the positions that are not in. There is room for what is in: Stats, which knows better, goes over all of the index.
func (c *core) full(refused []int, why error) error {
	live := int(c.counts.Seen.Live)
	return frame.Full(refused, live, live, why)
}

// grow is Grow.
func (c *core) grow(st *device.Stream, n int64) error {
	n = max(n, int64(c.counts.Seen.Live))
	mean := recordBytes(c.head, int64(c.o.KeyBytes))
	if c.counts.Seen.Live > 0 {
		mean = c.live()/int64(c.counts.Seen.Live) + 1
	}
	live := int64(1 << 50)
	if n <= live/mean {
		live = max(n*mean, c.live())
	}
	if live > c.mostLive() {
		return c.f.NoRoomFor(int(n), live, c.o.MaxBytes)
	}
	want := min(roundUp(firstPlace+live, grain), c.mostCapacity())
	if err := c.index.Grow(int(n)); err != nil {
		return err
	}
	if want <= c.arena.capacity && c.counts.Seen.Garbage == 0 {
		return nil
	}
	short, err := c.rebuild(st, max(want, c.arena.capacity))
	return errors.Join(short, err)
}

// check is Check.
func (c *core) check(st *device.Stream) error {
	if err := errors.Join(c.index.Check(), c.f.Budget(c.arena.bytes())); err != nil {
		return err
	}
	seen := c.counts.Seen
	if err := c.counts.Look(st); err != nil {
		return err
	}
	if now := c.counts.Seen; now.Live != seen.Live || now.Used != seen.Used || now.Garbage != seen.Garbage {
		return fmt.Errorf("%s: the device counts %+v, and the host %+v", family, now, seen)
	}
	mem, starts, err := c.stretch(st, nil, nil, 0, roundUp(int64(seen.Used), grain))
	if err != nil {
		return err
	}
	live, bytes := map[uint64]bool{}, int64(0)
	keys := map[string]uint64{}
	for w, word := range starts {
		for ; word != 0; word &= word - 1 {
			place := uint64((w*wordUnits + bits.TrailingZeros32(word)) * unit)
			key, err := c.keyAt(mem, place)
			if err != nil {
				return err
			}
			if other, twice := keys[string(key)]; twice {
				return fmt.Errorf("%s: one key of %d bytes is at %d and at %d", family, len(key), other, place)
			}
			keys[string(key)], live[place] = place, true
			bytes += recordBytes(c.head, int64(len(key)))
		}
	}
	if uint64(len(live)) != seen.Live || bytes != c.live() {
		return fmt.Errorf("%s: %d records of %d bytes, and %d keys of %d are counted", family, len(live), bytes, seen.Live, c.live())
	}
	first, err := c.firsts(st, keys)
	if err != nil {
		return err
	}
	return c.checkChains(mem, first, live)
}

// firsts asks the index for all keys: by each hash it is to lead to a place, and by no other. All would take more memory than there may be.
func (c *core) firsts(st *device.Stream, keys map[string]uint64) (first map[uint64]uint64, err error) {
	first = map[uint64]uint64{}
	for key := range keys {
		first[c.hash.of([]byte(key))] = 0
	}
	if n, err := c.index.Len(); err != nil {
		return nil, err
	} else if n != len(first) {
		return nil, fmt.Errorf("%s: the index has %d hashes, and the keys %d", family, n, len(first))
	}
	mem := c.least
	lease, err := c.f.Scratch(16 * checkPiece)
	if err == nil {
		defer lease.Done()
		mem = lease.Mem
	} else if !device.IsOutOfMemory(err) {
		return nil, err
	}
	for piece := range slices.Chunk(slices.Collect(maps.Keys(first)), mem.Len()/16) {
		hashes, places := device.View[uint64](mem, 0, len(piece)), device.View[uint64](mem, 8*len(piece), len(piece))
		if err := frame.InTurn(
			func() error { return hashes.Write(st, piece) },
			func() error { return c.index.FindOn(st, hashes, places, device.Slice[bool]{}) },
		); err != nil {
			return nil, err
		}
		found, err := places.Host(st)
		if err != nil {
			return nil, err
		}
		for i, h := range piece {
			first[h] = found[i]
		}
	}
	return first, nil
}

// keyAt is the key of a record.
func (c *core) keyAt(mem []byte, place uint64) ([]byte, error) {
	used := c.counts.Seen.Used
	if place < firstPlace || place%unit != 0 || place+uint64(c.head) > used {
		return nil, fmt.Errorf("%s: a record at %d, of %d bytes that are used", family, place, used)
	}
	n := binary.LittleEndian.Uint64(mem[place+8:])
	if n > used || place+uint64(recordBytes(c.head, int64(n))) > used {
		return nil, fmt.Errorf("%s: a record at %d of a key of %d bytes, and %d are used", family, place, n, used)
	}
	from := place + uint64(c.head)
	return mem[from : from+n], nil
}

// checkChains walks all chains: each record that is live must be in that of its hash, and in no other.
func (c *core) checkChains(mem []byte, first map[uint64]uint64, live map[uint64]bool) error {
	seen := 0
	for h, place := range first {
		for ; place != 0; place = binary.LittleEndian.Uint64(mem[place:]) {
			key, err := c.keyAt(mem, place)
			if err != nil {
				return err
			}
			if got := c.hash.of(key); !live[place] || got != h {
				return fmt.Errorf("%s: the chain of hash %#x leads to the record at %d, whose hash is %#x and which is live: %t", family, h, place, got, live[place])
			}
			if seen++; seen > len(live) {
				return fmt.Errorf("%s: chains lead to more records than there are, %d", family, len(live))
			}
		}
	}
	if seen != len(live) {
		return fmt.Errorf("%s: chains lead to %d records of %d", family, seen, len(live))
	}
	return nil
}

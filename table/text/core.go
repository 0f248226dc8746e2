package text

import (
	"errors"
	"fmt"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// family begins the errors.
const family table.Family = "strings"

// Index makes the table that finds an arena's records.
type Index = func(d *device.Device, o table.Options) (table.Map[uint64, uint64], error)

// Options are the options of a Map. The zero value is good.
type Options struct {
	// Options are the options of the index, except that MaxBytes and Capacity are those of the whole map.
	table.Options
	// KeyBytes is how long keys are, on average. It decides how Capacity and MaxBytes are divided between the index and
	// the arena. Zero means 32.
	KeyBytes int
}

const keyBytes = 32

func (o *Options) complete() error {
	if o.KeyBytes < 0 || o.KeyBytes > 1<<32 {
		return fmt.Errorf("strings: keys of %d bytes (want 0 to 2³²; 0 for the default)", o.KeyBytes)
	}
	if o.KeyBytes == 0 {
		o.KeyBytes = keyBytes
	}
	return o.Options.Complete(1)
}

// core is a map of any values.
type core struct {
	f          frame.Frame
	k          kernels
	index      table.Map[uint64, uint64]
	o          Options
	valueBytes int
	head       int // where the key begins in a record
	hash       hasher
	arena      arena
	most       int64 // bytes that the arena may have, with its bitmap; 0: as many as there are
	counts     frame.Counters[counts]
	changes    uint64 // calls that may have changed the map
	owed       owed
	least      device.Slice[byte] // scratch memory for a least part, where there is no other
	broken     error              // what left the map in no sound state
	foreseen   bool               // the batch has asked for room for all of it
	rows       int64              // of a part, at most: fewer in tests
}

var unmade = frame.Unmade(func(c *core) *frame.Frame { return &c.f }, family, "a Map that New has not made")

// together has a warp's lanes work together on long keys: on the CPU device that is for tests.
func (c *core) open(d *device.Device, o Options, index Index, together bool) error {
	var err error
	load := o.LoadFactor
	if err = o.complete(); err != nil {
		return err
	}
	c.o, c.rows = o, partOnCPU
	if d != nil && d.Info().CUDA() {
		c.rows = partOnGPU
	}
	c.hash = hasher{[2]uint64{kernel.Fmix64(o.Seed), kernel.Fmix64(o.Seed ^ 0x9e3779b97f4a7c15)}, ^uint64(0)}
	switch o.Hash { // those for tests make hashes equal
	case kernel.HashIdentity:
		c.hash.mask = 63
	case kernel.HashConstant:
		c.hash.mask = 0
	}
	c.head = headBytes(c.valueBytes, together)
	record := recordBytes(c.head, int64(o.KeyBytes))
	inner := o.Options
	inner.LoadFactor, inner.Seed, inner.Hash = load, kernel.Fmix64(o.Seed+1), kernel.HashMurmur
	if o.MaxBytes > 0 {
		inner.MaxBytes = max(1, int64(float64(o.MaxBytes)*perSlot*1.25/float64(perSlot*1.25+float64(record))))
		if c.most = o.MaxBytes - inner.MaxBytes; capacityIn(c.most) < grain {
			return fmt.Errorf("strings: MaxBytes %d leaves %d bytes for keys, which is too little: %w", o.MaxBytes, c.most, table.ErrMaxBytes)
		}
	}
	return c.f.Open(family, d, func() (err error) {
		c.f.Why, c.f.MaxBytes = o.Why, c.most // the index has the rest
		if c.k, err = loadKernels(d, c.valueBytes, together); err != nil {
			return err
		}
		if err := c.counts.Make(&c.f, d.Stream()); err != nil {
			return err
		}
		if c.index, err = index(d, inner); err != nil {
			return err
		}
		capacity := max(leastArena, roundUp(firstPlace+record*min(int64(o.Capacity), (1<<50)/record), grain))
		if c.most > 0 {
			capacity = min(capacity, capacityIn(c.most))
		}
		if c.arena, err = c.makeArena(d.Stream(), capacity); err != nil {
			return err
		}
		if c.least, err = frame.Make[byte](&c.f, leastPart*scratchWrite+scratchSlack); err != nil {
			return err
		}
		return c.reset(d.Stream())
	}, func() error {
		err := errors.Join(c.forget(), c.f.Free(c.arena.mem, c.arena.starts, c.least, &c.counts))
		if c.index != nil {
			err = errors.Join(err, c.index.Close())
		}
		return err
	})
}

// reset makes the counters those of an empty map. Nothing lies before the first place.
func (c *core) reset(st *device.Stream) error {
	c.counts.Seen = counts{Used: firstPlace}
	return c.counts.Set(st)
}

// changing does what Writing of the frame does, for calls that may change the map.
func (c *core) changing(st *device.Stream, do func(st *device.Stream) error) error {
	return c.f.Writing(st, func(st *device.Stream) error {
		if c.broken != nil {
			return c.broken
		}
		c.changes++
		return do(st)
	})
}

// writing is changing for calls to which all keys must be found.
func (c *core) writing(st *device.Stream, do func(st *device.Stream) error) error {
	return c.changing(st, func(st *device.Stream) error { return c.settled(st, do) })
}

func (c *core) reading(st *device.Stream, do func(st *device.Stream) error) error {
	return c.f.Alone(st, func(st *device.Stream) error { // scratch memory is used
		if c.broken != nil {
			return c.broken
		}
		return c.settled(st, do)
	})
}

func (c *core) settled(st *device.Stream, do func(st *device.Stream) error) error {
	if err := c.settle(st); err != nil {
		return fmt.Errorf("%s: the index has no memory for what an earlier batch left to do, so that nothing is done: free some, and try again: %w", family, err)
	}
	return do(st)
}

// breaks notes an error after which nothing of the map is to be trusted.
func (c *core) breaks(err error) error {
	if err != nil {
		c.broken = fmt.Errorf("strings: a batch broke off in the middle, make a new map: %w", err)
	}
	return err
}

// rows is a batch on the device, or a part of one.
type rows struct {
	bytes, offsets, wide, limit uint64
	n                           int64
	values, flags               uint64 // 0: left out
}

func (c *core) part(r rows, first, n int64) rows {
	r.offsets += uint64(first) * (4 + 4*r.wide)
	if r.values != 0 {
		r.values += uint64(first) * uint64(c.valueBytes)
	}
	if r.flags != 0 {
		r.flags += uint64(first)
	}
	r.n = n
	return r
}

func (c *core) params(r rows) params {
	return params{Bytes: r.bytes, Offsets: r.offsets, Wide: r.wide, Limit: r.limit, N: uint64(r.n), Values: r.values, Flags: r.flags,
		Arena: c.arena.mem.Addr(), Starts: c.arena.starts.Addr(), Capacity: uint64(c.arena.capacity), Counters: c.counts.Addr(), Seed: c.hash.seed, Mask: c.hash.mask}
}

func (c *core) launch(st *device.Stream, k device.Kernel[params], n int64, p *params) error {
	if n == 0 {
		return nil
	}
	return k.Launch(st, c.f.Grid(n, 16), p)
}

// begin sets the counts of a piece to 0.
func (c *core) begin(st *device.Stream) error {
	var n counts
	const fresh = 3 * 8 // the offset of Fresh
	n.Live, n.Used, n.Garbage = c.counts.Seen.Live, c.counts.Seen.Used, c.counts.Seen.Garbage
	c.counts.Seen = n
	return c.counts.ClearFrom(st, fresh)
}

// Rows of a part of a batch, at most and at least, and the scratch memory that one takes.
const (
	partOnGPU    = 1 << 22
	partOnCPU    = 1 << 17
	leastPart    = 1 << 7
	scratchFind  = 16
	scratchWrite = 64
	scratchSlack = 1 << 12
)

// scratch is memory that is cut off piece by piece.
type scratch struct {
	mem device.Slice[byte]
	at  int
}

func cut[T any](s *scratch, n int64) device.Slice[T] {
	v := device.View[T](s.mem, s.at, int(n))
	s.at = int(frame.Align(int64(s.at) + v.Bytes()))
	return v
}

// viewAt is memory that was cut off, by its address.
func viewAt[T any](s *scratch, addr uint64, n int) device.Slice[T] {
	return device.View[T](s.mem, int(addr-s.mem.Addr()), n)
}

// inParts does a batch in parts that there is scratch memory for, so many bytes for each row: there always is for a least part. A part for which do finds no
// memory is not done, and is tried again in smaller ones. Errors: *device.OutOfMemoryError where that does not help; the rows before are done.
func (c *core) inParts(st *device.Stream, r rows, bytes int64, do func(first int64, r rows, s *scratch) error) (done int64, err error) {
	most := c.rows
	for done < r.n {
		n := min(most, r.n-done)
		err := func() error {
			lease, err := c.f.Scratch(n*bytes + scratchSlack)
			mem := lease.Mem
			if device.IsOutOfMemory(err) && n <= leastPart {
				mem, err = c.least, nil
			}
			defer lease.Done()
			if err == nil {
				err = c.settle(st)
			}
			if err == nil {
				err = do(done, c.part(r, done, n), &scratch{mem: mem})
			}
			return err
		}()
		if device.IsOutOfMemory(err) && n > 1 && c.broken == nil {
			if err := c.f.Spare(); err != nil { // a smaller one will do
				return done, err
			}
			most = max(1, n/4)
			continue
		}
		if err != nil {
			return done, err
		}
		done += n
		most = min(c.rows, 2*most)
	}
	return done, nil
}

// ask hashes a part, and asks the index where the records of each hash begin.
func (c *core) ask(st *device.Stream, p *params, s *scratch) error {
	hashes, heads := cut[uint64](s, int64(p.N)), cut[uint64](s, int64(p.N))
	p.Hashes, p.Heads = hashes.Addr(), heads.Addr()
	if err := c.launch(st, c.k.hash, int64(p.N), p); err != nil {
		return err
	}
	if c.counts.Seen.Live == 0 {
		return heads.Fill(st, 0)
	}
	return c.index.FindOn(st, hashes, heads, device.Slice[bool]{})
}

// find queues a look-up. The caller is in reading or in writing.
func (c *core) find(st *device.Stream, r rows) error {
	_, err := c.inParts(st, r, scratchFind, func(_ int64, r rows, s *scratch) error {
		p := c.params(r)
		if err := c.ask(st, &p, s); err != nil {
			return err
		}
		return c.launch(st, c.k.find, r.n, &p)
	})
	return err
}

// put takes a batch in. Positions that found no room come back, ascending, with the reason. Where the index has no memory for a few new keys, the others are
// still asked for, and what is in gets its values; where it has none even for that, the rest is refused as it is.
func (c *core) put(st *device.Stream, r rows, replace bool) (refused []int, why, err error) {
	parts, first, all := 0, int64(0), r.n
	c.foreseen = false
	var closed error // what lets no more in
	for first < r.n {
		done, err := c.inParts(st, c.part(r, first, r.n-first), scratchWrite, func(at int64, r rows, s *scratch) error {
			lost, w, err := c.putPart(st, r, all-first-at-r.n, replace, closed, s)
			if parts++; w != nil {
				why = w
			}
			slices.Sort(lost) // blocks list them in no order
			for _, i := range lost {
				refused = append(refused, int(first+at)+int(i))
			}
			return err
		})
		first += done
		if err != nil && (!device.IsOutOfMemory(err) || c.broken != nil) {
			return nil, nil, err
		}
		if err != nil && closed != nil {
			break
		}
		closed = err
	}
	if len(refused) > 0 && parts > 1 { // others with the same key may have come in later
		if refused, err = c.absent(st, r, refused); err != nil {
			return nil, nil, err
		}
	}
	if first == r.n {
		return refused, why, nil
	}
	for i := first; i < r.n; i++ {
		refused = append(refused, int(i))
	}
	return refused, closed, c.unflag(st, r, first)
}

// unflag clears the flags of a batch from a row on.
func (c *core) unflag(st *device.Stream, r rows, first int64) error {
	if r.flags == 0 {
		return nil
	}
	rest := c.part(r, first, r.n-first)
	return c.launch(st, c.k.unflag, rest.n, &params{Flags: rest.flags, N: uint64(rest.n)})
}

// foresee tells how many new keys may come behind a part of which nearly all were, and once a batch, if they are more than those that are in, makes room
// for them in the index: so it grows once, and not each time that it is full. Where memory may be short it tells of none: index and arena then grow as they
// must, and neither takes what the other needs.
func (c *core) foresee(rows, behind, fresh, bytes int64) (news int64, err error) {
	news = int64(float64(behind) / float64(rows) * float64(fresh))
	live := int64(c.counts.Seen.Live) + fresh
	if news < live || fresh < rows-rows/8 || c.foreseen {
		return 0, nil
	}
	c.foreseen = true
	const tables = 4 // the old and the new, at the lowest load factor that is usual
	free, _, err := c.f.Device.Memory()
	if need := float64(live+news) * tables * (perSlot + float64(bytes)/float64(fresh)); err != nil || need > float64(free) {
		return 0, err
	}
	if err = c.index.Grow(int(live + news)); device.IsOutOfMemory(err) || errors.Is(err, table.ErrMaxBytes) {
		return 0, nil
	}
	return news, err
}

// putPart takes a part in, behind which the batch has so many rows; with closed no new keys, for that reason. Errors: *device.OutOfMemoryError, and no new key
// is in.
func (c *core) putPart(st *device.Stream, r rows, behind int64, replace bool, closed error, s *scratch) (refused []uint32, why, err error) {
	p := c.params(r)
	if replace {
		p.Replace = 1
	}
	if err := frame.InTurn(
		func() error { return c.begin(st) },
		func() error { return c.ask(st, &p, s) },
	); err != nil {
		return nil, nil, err
	}
	if err := device.Ahead(c.k.match, c.k.place, c.k.tally, c.k.chain); err != nil {
		return nil, nil, err
	}
	before := c.counts.Seen
	slots := int64(64)
	for slots < 2*r.n {
		slots *= 2
	}
	list, places, fresh := cut[uint32](s, r.n), cut[uint64](s, r.n), cut[uint64](s, r.n)
	origins, fates, added := cut[uint32](s, r.n), cut[byte](s, r.n), cut[bool](s, r.n)
	reps, taken := cut[uint32](s, r.n), cut[uint32](s, slots)
	p.List, p.NewPlaces, p.NewHashes, p.Origins = list.Addr(), places.Addr(), fresh.Addr(), origins.Addr()
	p.Fates, p.Added, p.Reps, p.Slots, p.SlotMask = fates.Addr(), added.Addr(), reps.Addr(), taken.Addr(), uint64(slots-1)
	if err := errors.Join(frame.InTurn(
		func() error { return taken.Fill(st, 0xff) },
		func() error { return c.launch(st, c.k.match, r.n, &p) },
	), c.counts.Look(st)); err != nil {
		return nil, nil, err
	}
	listed := int64(c.counts.Seen.Fresh)
	if listed == 0 {
		return nil, nil, nil
	}
	limit, why := int64(0), closed
	if closed == nil {
		bytes := int64(c.counts.Seen.Bytes)
		news, err := c.foresee(r.n, behind, listed, bytes)
		if err != nil {
			return nil, nil, err
		}
		if limit, why, err = c.room(st, bytes, bytes/listed*news); err != nil {
			return nil, nil, err
		}
	}
	if closed == nil && device.IsOutOfMemory(why) {
		return nil, nil, why
	}
	before.Used, before.Garbage = c.counts.Seen.Used, c.counts.Seen.Garbage
	own := c.params(r) // the arena may be another
	p.Arena, p.Starts, p.Capacity, p.Listed, p.Placed = own.Arena, own.Starts, uint64(limit), uint64(listed), uint64(listed)
	if why == nil {
		p.Sure = 1
	}
	if err := c.breaks(c.launch(st, c.k.place, listed, &p)); err != nil {
		return nil, nil, err
	}
	if why != nil {
		if err := c.breaks(c.counts.Look(st)); err != nil {
			return nil, nil, err
		}
		p.Placed = c.counts.Seen.Placed
	}
	indexWhy, err := c.enter(st, p, s)
	if device.IsOutOfMemory(err) {
		return nil, nil, errors.Join(err, c.breaks(c.undo(st, &p, r, before, s)))
	} else if err != nil {
		return nil, nil, c.breaks(err)
	}
	if indexWhy != nil {
		why = indexWhy
	}
	if c.counts.Seen.Refused == 0 {
		return nil, nil, nil
	}
	if err := errors.Join(c.launch(st, c.k.refuse, r.n, &p), c.counts.Look(st)); err != nil {
		return nil, nil, err
	}
	refused, err = list.Slice(0, int(c.counts.Seen.Named)).Host(st)
	return refused, why, err
}

// enter has the index lead to new records, and chains where it leads to others of the same hash. Errors: *device.OutOfMemoryError; then no chain is changed.
func (c *core) enter(st *device.Stream, p params, s *scratch) (why, err error) {
	n := int(p.Placed)
	hashes, places, added := viewAt[uint64](s, p.NewHashes, n), viewAt[uint64](s, p.NewPlaces, n), viewAt[bool](s, p.Added, n)
	if n > 0 {
		if err := added.Fill(st, 0); err != nil { // perhaps no kernel writes those that are refused
			return nil, err
		}
		err = c.index.InsertNewOn(st, hashes, places, added)
	}
	if full := (*table.FullError)(nil); errors.As(err, &full) {
		why = full.Why
	} else if err != nil {
		return nil, err
	}
	if err := errors.Join(c.launch(st, c.k.tally, int64(n), &p), c.counts.Look(st)); err != nil {
		return nil, err
	}
	if c.counts.Seen.Linked == uint64(n) {
		return why, nil
	}
	p.Heads = p.Slots // nobody needs these any more, and what the heads were before may be asked
	err = c.index.FindOn(st, hashes, viewAt[uint64](s, p.Heads, n), device.Slice[bool]{})
	if err != nil {
		return nil, err
	}
	return why, errors.Join(c.launch(st, c.k.chain, int64(n), &p), c.counts.Look(st))
}

// absent keeps of ascending positions of a batch those whose keys are not in.
func (c *core) absent(st *device.Stream, r rows, positions []int) (out []int, err error) {
	const each = 1 << 16
	r.values = 0
	for len(positions) > 0 {
		first := positions[0]
		n := 0
		for n < len(positions) && positions[n] < first+each {
			n++
		}
		some := c.part(r, int64(first), int64(positions[n-1]-first+1))
		done, err := c.inParts(st, some, scratchFind+1, func(from int64, r rows, s *scratch) error {
			found := cut[bool](s, r.n)
			r.flags = found.Addr()
			p := c.params(r)
			if err := c.ask(st, &p, s); err != nil {
				return err
			}
			if err := c.launch(st, c.k.find, r.n, &p); err != nil {
				return err
			}
			in, err := found.Host(st)
			if err != nil {
				return err
			}
			for _, i := range positions[:n] {
				if at := int64(i-first) - from; at >= 0 && at < r.n && !in[at] {
					out = append(out, i)
				}
			}
			return nil
		})
		if device.IsOutOfMemory(err) && c.broken == nil { // nobody can say
			next, _ := slices.BinarySearch(positions, first+int(done))
			return append(out, positions[next:]...), nil
		}
		if err != nil {
			return nil, err
		}
		positions = positions[n:]
	}
	return out, nil
}

// erase takes keys out. Errors: *device.OutOfMemoryError; the flags say which are out.
func (c *core) erase(st *device.Stream, r rows) error {
	done, err := c.inParts(st, r, scratchWrite, func(_ int64, r rows, s *scratch) error {
		p := c.params(r)
		if err := frame.InTurn(
			func() error { return c.begin(st) },
			func() error { return c.ask(st, &p, s) },
		); err != nil {
			return err
		}
		list, hashes, places := cut[uint32](s, r.n), cut[uint64](s, r.n), cut[uint64](s, r.n)
		p.List, p.NewHashes, p.NewPlaces = list.Addr(), hashes.Addr(), places.Addr()
		if err := errors.Join(c.launch(st, c.k.strike, r.n, &p), c.counts.Look(st)); err != nil {
			return c.breaks(err)
		}
		return c.breaks(c.leave(st, &p, hashes, s))
	})
	if device.IsOutOfMemory(err) {
		err = errors.Join(err, c.unflag(st, r, done))
	}
	if err != nil {
		return err
	}
	return c.shrink(st)
}

// leave has the index and the chains lead past the records that were struck out.
func (c *core) leave(st *device.Stream, p *params, hashes device.Slice[uint64], s *scratch) error {
	n := int64(c.counts.Seen.Placed)
	if n == 0 {
		return nil
	}
	c.counts.Seen.Live -= uint64(n)
	if err := c.counts.Set(st); err != nil {
		return err
	}
	if c.counts.Seen.Chained == 0 {
		return c.pass(st, hashes.Slice(0, int(n)), device.Slice[uint64]{})
	}
	gone, moved, to, owner := cut[uint64](s, n), cut[uint64](s, n), cut[uint64](s, n), cut[bool](s, n)
	p.Placed, p.GoneHashes, p.MovedHashes, p.MovedPlaces, p.Added = uint64(n), gone.Addr(), moved.Addr(), to.Addr(), owner.Addr()
	if err := errors.Join(frame.InTurn(
		func() error { return c.launch(st, c.k.own, n, p) },
		func() error { return c.launch(st, c.k.unchain, n, p) },
	), c.counts.Look(st)); err != nil {
		return err
	}
	g, m := int(c.counts.Seen.Gone), int(c.counts.Seen.Moved)
	return frame.InTurn(
		func() error { return c.pass(st, gone.Slice(0, g), device.Slice[uint64]{}) },
		func() error { return c.pass(st, moved.Slice(0, m), to.Slice(0, m)) },
	)
}

// pass has the index lead from hashes to places, or with none nowhere. What it has no memory for it is owed.
func (c *core) pass(st *device.Stream, hashes, places device.Slice[uint64]) error {
	done, err := c.tell(hashes.Len(), func(from, to int) error {
		if places.Len() == 0 {
			return c.index.DeleteOn(st, hashes.Slice(from, to), device.Slice[bool]{})
		}
		return c.index.InsertOn(st, hashes.Slice(from, to), places.Slice(from, to))
	})
	if !device.IsOutOfMemory(err) {
		return err
	}
	h, err1 := hashes.Slice(done, hashes.Len()).Host(st)
	p, err2 := places.Slice(min(done, places.Len()), places.Len()).Host(st)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	c.owed.owe(h, p)
	return nil
}

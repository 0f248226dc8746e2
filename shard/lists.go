package shard

import (
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// list is what an owner finds of a multimap's keys: rows' offsets, one more than there are, and values, in memory that
// other devices can read.
type list struct {
	offsets device.Slice[uint64]
	values  device.Slice[byte]
}

// finder finds the list of rows that an owner got.
type finder func(owner int, st *device.Stream, r received) (list, error)

// taker takes offsets and values.
type taker func(offsets device.Slice[uint64], values device.Slice[byte]) error

// listing is how all values of keys are found: counted first, for there to be room.
type listing struct {
	count job
	find  finder
}

// job is the job of bringing lists to where there is room for them.
func (l listing) job(offsets device.Slice[uint64], values device.Slice[byte]) job {
	return job{asks: true, lists: l.find, taken: func(_ *member, p *listRows, first int) {
		p.Offsets, p.OutValues = offsets.Addr()+8*uint64(first), values.Addr()
	}}
}

// findAtOnce is the keys of a batch of Go slices whose values are found at once.
const findAtOnce = 1 << 22

func (c *cluster) lists(b batch, l listing, take taker) error {
	if b.wrong != nil {
		return b.wrong
	}
	if !b.host {
		offsets, values, err := c.findAll(b, l)
		if err != nil {
			return err
		}
		return take(offsets, values)
	}
	if err := c.locked(func() error { return nil }); err != nil {
		return err
	}
	for from := 0; from < b.n; from += findAtOnce {
		to := min(from+findAtOnce, b.n)
		if err := c.listsOf(b.keys[from*c.keyBytes:to*c.keyBytes], l, take); err != nil {
			return err
		}
	}
	return nil
}

// listsOf is lists of a piece of Go slices. If there is no memory for the values of all keys at once, it takes halves.
func (c *cluster) listsOf(keys []byte, l listing, take taker) error {
	offsets, values, err := c.findHost(keys, l)
	if n := len(keys) / c.keyBytes; device.IsOutOfMemory(err) && n > tileMost {
		half := n / 2 * c.keyBytes
		if err := c.listsOf(keys[:half], l, take); err != nil {
			return err
		}
		return c.listsOf(keys[half:], l, take)
	}
	if err != nil {
		return err
	}
	return take(offsets, values)
}

// findHost finds all values of keys of a Go slice, by way of the first device.
func (c *cluster) findHost(keys []byte, l listing) (offsets device.Slice[uint64], values device.Slice[byte],
	err error) {
	k, err := frame.From(c.members[0].d, keys)
	if err != nil {
		return offsets, values, err
	}
	defer func() { err = errors.Join(err, k.Free()) }()
	s := sourceOf(nil, received{n: len(keys) / c.keyBytes, keys: k})
	return c.findAll(batch{parts: []part{{source: s, on: k.Device()}}}, l)
}

// findAll finds all values of keys on a device, in device slices of its own making. It waits for the stream.
func (c *cluster) findAll(b batch, l listing) (offsets device.Slice[uint64], values device.Slice[byte], err error) {
	err = c.locked(func() error {
		p, err := c.place(b)
		if err != nil {
			return err
		}
		offsets, values, err = c.findAllOn(p.devices[0], p.sources, l)
		return err
	})
	return offsets, values, err
}

func (c *cluster) findAllOn(at int, sources []source, l listing) (offsets device.Slice[uint64],
	values device.Slice[byte], err error) {
	own, s := c.members[at], sources[at]
	var counts device.Slice[uint32]
	defer func() {
		err = errors.Join(err, c.settle(), counts.Free()) // a device may be lost that was to send values
		if err != nil {
			offsets.Free()
			values.Free()
			offsets, values = device.Slice[uint64]{}, device.Slice[byte]{}
		}
	}()
	if offsets, err = device.Make[uint64](own.d, s.n+1); err != nil {
		return offsets, values, err
	}
	if s.n == 0 {
		values, err = device.Make[byte](own.d, 0)
		return offsets, values, errors.Join(err, offsets.Fill(nil, 0), own.d.Stream().Sync())
	}
	if counts, err = device.Make[uint32](own.d, s.n); err != nil {
		return offsets, values, err
	}
	ask := sourceOf(s.st, received{n: s.n, keys: s.slices.keys, out: counts.Raw()})
	count := l.count.of(c.from(at, ask))
	if err = c.exchange(&count); err != nil {
		return offsets, values, err
	}
	total, err := own.offsets(own.following(s.st), counts, offsets)
	if err != nil {
		return offsets, values, err
	}
	if values, err = device.Make[byte](own.d, total*c.valueBytes); err != nil || total == 0 {
		return offsets, values, err
	}
	j := l.job(offsets, values)
	j.sources = sources
	return offsets, values, c.exchange(&j)
}

// listChunk is how many counts a warp adds up.
const listChunk = 256

// offsets adds up counts, one fewer than there are offsets, and tells how many there are in all. It waits for the
// stream.
func (m *member) offsets(st *device.Stream, counts device.Slice[uint32], offsets device.Slice[uint64]) (total int,
	err error) {
	n := counts.Len()
	chunks := (n + listChunk - 1) / listChunk
	totals, err := device.Make[uint64](m.d, chunks)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, totals.Free()) }()
	p := listRows{N: uint64(n), Chunk: listChunk, Chunks: uint64(chunks), Counts: counts.Addr(), Totals: totals.Addr(),
		Offsets: offsets.Addr()}
	warps, last := device.GridFor(int64(chunks)*32, threads), make([]uint64, 1)
	err = errors.Join(frame.InTurn(
		func() error { return m.lists[0].Launch(st, warps, &p) },
		func() error { return m.lists[1].Launch(st, device.Grid{Blocks: 1, Threads: threads}, &p) },
		func() error { return m.lists[2].Launch(st, warps, &p) },
	), offsets.Slice(n, n+1).Read(st, last))
	if err != nil {
		return 0, err
	}
	return frame.TotalOf(family, last[0])
}

// fetchLists queues bringing back the values of a round's keys. Without peer access it waits: how many there are is
// known then.
func (f *flight) fetchLists(i, r int) (err error) {
	m, rd, half := f.members[i], f.plan.rounds[r], f.half(r)
	rows := rd.to[i] - rd.from[i]
	p := listRows{N: uint64(rows), Owners: uint64(len(f.members))}
	if !f.job.all {
		p.Places = m.notes[half].Addr()
		p.Bases = p.Places + uint64(f.notesOf(rows, len(f.members)).bases)
	}
	var brought []list
	defer func() {
		if len(brought) > 0 {
			err = errors.Join(err, m.split.Sync())
		}
		for _, l := range brought {
			err = errors.Join(err, l.offsets.Free(), l.values.Free())
		}
	}()
	for j := range f.members {
		if rd.n[i][j] == 0 {
			continue
		}
		l := f.lists[j][r]
		l.offsets = l.offsets.Slice(rd.at[i][j], rd.at[i][j]+rd.n[i][j]+1)
		if !m.peers[j] {
			l, err = m.bring(l)
			brought = append(brought, l)
			if err != nil {
				return err
			}
		}
		p.Lists[j], p.Values[j] = l.offsets.Addr(), l.values.Addr()
	}
	f.job.taken(m, &p, rd.from[i])
	grid := device.GridFor(int64(rows)*listLanes, threads)
	if info := m.d.Info(); info.CUDA() {
		grid.Blocks = min(grid.Blocks, 16*int64(info.Multiprocessors))
	}
	return errors.Join(m.lists[3].Launch(m.split, grid, &p), m.fetched[half].Record(m.split))
}

// bring copies a list to the member. The offsets stay those of the owner. After an error, too, the caller frees what
// it gets.
func (m *member) bring(l list) (own list, err error) {
	if own.offsets, err = device.Make[uint64](m.d, l.offsets.Len()); err != nil {
		return own, err
	}
	if own.values, err = device.Make[byte](m.d, l.values.Len()); err != nil {
		return own, err
	}
	return own, errors.Join(own.offsets.CopyFrom(m.split, l.offsets), own.values.CopyFrom(m.split, l.values))
}

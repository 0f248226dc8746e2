package text

import (
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// owed is what the index has yet to be told, because it had no memory for it. Until then keys cannot be found by it, and a batch begins with settling. So
// memory that is short in the middle of a batch never leaves a map of which nothing is to be trusted.
type owed struct {
	move           *move    // first
	hashes, places []uint64 // where it is to lead; place 0: nowhere
}

// owe notes hashes that the index is to lead to places, or with none nowhere.
func (o *owed) owe(hashes, places []uint64) {
	if len(places) == 0 {
		places = make([]uint64, len(hashes))
	}
	o.hashes, o.places = append(o.hashes, hashes...), append(o.places, places...)
}

// settle tells the index what it is owed. Errors: *device.OutOfMemoryError, and the rest is owed still.
func (c *core) settle(st *device.Stream) error {
	o := &c.owed
	if o.move != nil {
		if err := c.lead(st, o.move); err != nil {
			return err
		}
		o.move = nil
	}
	for len(o.hashes) > 0 {
		n := 1 // as many as are told one thing
		for n < min(leastPart, len(o.hashes)) && (o.places[n] == 0) == (o.places[0] == 0) {
			n++
		}
		hashes, places := device.View[uint64](c.least, 0, n), device.View[uint64](c.least, 8*leastPart, n)
		if err := errors.Join(hashes.Write(st, o.hashes[:n]), places.Write(st, o.places[:n])); err != nil {
			return c.breaks(err)
		}
		gone := o.places[0] == 0
		done, err := c.tell(n, func(from, to int) error {
			if gone {
				return c.index.DeleteOn(st, hashes.Slice(from, to), device.Slice[bool]{})
			}
			return c.index.InsertOn(st, hashes.Slice(from, to), places.Slice(from, to))
		})
		o.hashes, o.places = o.hashes[done:], o.places[done:]
		if err != nil {
			return err
		}
	}
	o.hashes, o.places = nil, nil
	return nil
}

// tell calls do for a batch of n, and where the index has no memory for that for smaller and smaller pieces. done is how many it took. Errors:
// *device.OutOfMemoryError where there is none for a single one; after others nothing is to be trusted.
func (c *core) tell(n int, do func(from, to int) error) (done int, err error) {
	for piece := n; done < n; {
		to := min(n, done+piece)
		err := do(done, to)
		switch {
		case err == nil:
			done = to
		case !device.IsOutOfMemory(err):
			return done, c.breaks(err)
		case to-done == 1:
			return done, err
		default:
			piece = (to - done + 1) / 2
		}
	}
	return done, nil
}

// forget drops what the index is owed: all of it is about to go.
func (c *core) forget() (err error) {
	if m := c.owed.move; m != nil {
		err = c.f.Free(m.from.mem, m.from.starts, m.lists)
	}
	c.owed = owed{}
	return err
}

// undo takes back the records of a part of which the index may have learnt some: it had none of the hashes whose head was 0, and is to lead nowhere by them.
//
// before are the counts then.
func (c *core) undo(st *device.Stream, p *params, r rows, before counts, s *scratch) error {
	n := int(p.Placed)
	hashes, err1 := viewAt[uint64](s, p.NewHashes, n).Host(st)
	origins, err2 := viewAt[uint32](s, p.Origins, n).Host(st)
	heads, err3 := viewAt[uint64](s, p.Heads, int(r.n)).Host(st)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	var news []uint64
	for i, h := range hashes {
		if heads[origins[i]] == 0 {
			news = append(news, h)
		}
	}
	c.owed.owe(news, nil)
	q := *p
	q.Heads = p.Slots
	err := frame.InTurn(
		func() error { return viewAt[bool](s, p.Added, n).Fill(st, 0) },
		func() error { return viewAt[uint64](s, q.Heads, n).Fill(st, 0) },
		func() error { return c.launch(st, c.k.chain, int64(n), &q) },
		func() error { return c.unflag(st, r, 0) },
	)
	c.counts.Seen = before
	return errors.Join(err, c.counts.Set(st))
}

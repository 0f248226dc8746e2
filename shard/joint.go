package shard

import (
	"errors"
	"fmt"
	"sync"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// joint is a table over the members of a job, as far as it is in this process: one device, and what it has for
// exchanges, which NCCL carries. What looks at no other member is not collective: export, chunks, close, and what tells
// of this process alone.
type joint struct {
	widths
	*Member
	m      *member
	number int // of the tables that the member made, so that all mean the same
	// scattered: keys may be with members that do not own them, in the independent mode.
	scattered bool
	opts      Options
	seed      uint64
	piece     int // rows, everybody's; smaller in a call for which memory is short
	most      int // rows of an inbox, everybody's
	// roomy has, for boxes of a kind, the rows that all members are known to have room for.
	roomy map[boxes]boxRows

	wire          *device.Stream   // what NCCL carries
	arrived, back [2]*device.Event // rows, and results
	inbox, outbox [2]box

	mu     sync.Mutex
	closed bool
	broken error
}

// common is what members must agree on when they make a table.
type common struct {
	Seed, Key, Value, Most, Piece int64
	Mode                          int64
	Bounded                       bool // rows may find no room
}

// newJoint makes this member's part.
func newJoint(mem *Member, w frame.Width, o Options,
	each func(i int, d *device.Device, o table.Options) (table.Table, error)) (j *joint, err error) {
	if mem.meeting == nil {
		return nil, errors.New("shard: a Member that Join has not made")
	}
	mem.begin()
	defer mem.end()
	mem.tables++
	all := o.Options
	err = errors.Join(w.Err, all.Complete(1))
	if err == nil && o.Regions > frame.MaxParts/mem.size {
		err = fmt.Errorf("%s: %d regions with each of %d members (%d at most in all)", family, o.Regions, mem.size,
			frame.MaxParts)
	}
	if err == nil && (o.Piece < 0 || o.Mode != Distributed && o.Mode != Independent) {
		err = fmt.Errorf("%s: a table of members with pieces of %d rows, and mode %d (want 0 or more, and "+
			"Distributed or Independent)", family, o.Piece, o.Mode)
	}
	j = &joint{Member: mem, number: mem.tables, opts: o, widths: widths{w.Key, w.Value}}
	own := common{Seed: int64(all.Seed), Key: int64(w.Key), Value: int64(w.Value), Piece: int64(o.Piece),
		Mode: int64(o.Mode), Bounded: all.MaxBytes > 0}
	if err == nil {
		if own.Piece == 0 {
			own.Piece = defaultPiece
		}
		own.Most = int64(inboxRows(j.widths, mem.d) / 2)
	}
	said, err := agreed(j, "making a table", own, err)
	if err != nil {
		return nil, err
	}
	for rank, x := range said {
		switch {
		case x.Mode != said[0].Mode:
			return nil, fmt.Errorf("%s: rank %d: a table in the %v mode, and rank 0's in the %v: want the same "+
				"everywhere", family, rank, Mode(x.Mode), Mode(said[0].Mode))
		case x.Bounded != said[0].Bounded:
			return nil, fmt.Errorf("%s: of rank %d and rank 0 one has MaxBytes and the other none: want either "+
				"everywhere", family, rank)
		case x.Key != said[0].Key || x.Value != said[0].Value || x.Piece != said[0].Piece:
			return nil, fmt.Errorf("%s: rank %d makes a table of %d+%d bytes with pieces of %d rows, and rank 0 one "+
				"of %d+%d with %d: want the same everywhere",
				family, rank, x.Key, x.Value, x.Piece, said[0].Key, said[0].Value, said[0].Piece)
		}
		own.Most = min(own.Most, x.Most)
	}
	seed := uint64(said[0].Seed)
	j.seed, j.piece = ownersSeed(seed), int(own.Piece)
	j.piece = min(j.piece, int(own.Most))
	j.most = max(chunkOf(j.piece), min(j.piece+j.piece/8+tileMost, int(own.Most)))
	j.m = &member{d: mem.d}
	if err = j.open(); err == nil {
		j.m.table, err = each(0, mem.d, partOf(o.Options, seed, mem.size))
	}
	if err = j.together("making a table", err); err != nil {
		j.close()
		return nil, err
	}
	return j, nil
}

// open makes streams and events.
func (j *joint) open() (err error) {
	if err := j.m.open(program(j.keyBytes, j.valueBytes), false); err != nil {
		return err
	}
	if j.wire, err = j.d.NewUrgentStream(); err != nil {
		return err
	}
	for _, ev := range []**device.Event{&j.arrived[0], &j.arrived[1], &j.back[0], &j.back[1]} {
		if *ev, err = j.d.NewEvent(); err != nil {
			return err
		}
	}
	return nil
}

// together returns the first rank's error of a step, if any has one. It is collective, as agreed is.
func (j *joint) together(what string, err error) error {
	_, err = agreed(j, what, true, err)
	return err
}

// locked runs a collective call, one at a time of all tables of the member. A table that is closed says so to the
// others, which may wait for this member; one that is broken need not, for then nobody waits: no rank knows how far
// others came.
func (j *joint) locked(what string, do func() error) error {
	j.begin()
	defer j.end()
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.usable()
	switch {
	case err == nil:
		finished := false
		defer func() {
			if !finished { // by a panic: the others would wait for this member
				j.broken = fmt.Errorf("%s: a panic in %s has left the table halfway", family, what)
				j.meeting.Fail("a panic in " + what)
			}
		}()
		err = do()
		finished = true
	case j.closed:
		j.together(what, err)
	}
	return err
}

// usable says why the table is of no use.
func (j *joint) usable() error {
	if j.closed {
		return fmt.Errorf("%s: %w", family, table.ErrClosed)
	}
	return j.broken
}

// word is a member's part of a step of a collective call: a value for all members, and its error if it has one. What
// names the call, not the step, and Table the table: members that make different calls must not take each other's words
// for their own.
type word struct {
	Table     int
	What, Err string
	Said      []byte
}

// agreed returns each member's value, in the order of ranks, or the error of the first member that has one: then all
// members get an error. It is collective; what is the name of the method that the user called.
func agreed[T any](j *joint, what string, own T, err error) ([]T, error) {
	said, e := encoded(own)
	w := word{Table: j.number, What: what, Said: said}
	if err = frame.OneLine(err); err == nil {
		err = e
	}
	if err != nil {
		w.Err = err.Error()
	}
	words, e := agree(j.Member, w)
	if e != nil {
		j.broken = e
		return nil, frame.OneLine(errors.Join(e, err))
	}
	if err != nil {
		return nil, err
	}
	all := make([]T, len(words))
	for rank, x := range words {
		switch {
		case x.What != what:
			return nil, fmt.Errorf("%s: rank %d calls %s while this one calls %s: all members make the same calls in "+
				"the same order", family, rank, x.What, what)
		case x.Table != j.number:
			return nil, fmt.Errorf("%s: %s: rank %d calls it of the table that it made as number %d, and this one of "+
				"number %d: all members make the same calls in the same order",
				family, what, rank, x.Table, j.number)
		case x.Err != "":
			return nil, fmt.Errorf("%s: %s: rank %d: %s", family, what, rank, x.Err)
		}
		if all[rank], err = decoded[T](rank, x.Said); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (j *joint) family() table.Family { return j.m.table.Family() }

func (j *joint) independent() bool { return j.opts.Mode == Independent }

func (j *joint) ownerOf(key uint64) int { return ownerOf(key, j.keyBytes, j.seed, j.size) }

func (j *joint) devices() []*device.Device { return []*device.Device{j.d} }

func (j *joint) steps() Steps { return Steps{} }

func (j *joint) len() (n int, err error) {
	err = j.locked("Len", func() error { n, err = j.held("Len"); return err })
	return n, err
}

func (j *joint) ownLen() (n int, err error) {
	err = j.export(func(int) error { n, err = j.m.table.Len(); return err })
	return n, err
}

func (j *joint) tell(n int, wrong error) (all []int, err error) {
	err = j.locked("Tell", func() error { all, err = agreed(j, "Tell", n, wrong); return err })
	return all, err
}

// held returns the number of rows or keys that all members hold, in the call named what. The caller holds the lock.
func (j *joint) held(what string) (n int, err error) {
	own, err := j.m.table.Len()
	all, err := agreed(j, what, own, err)
	for _, x := range all {
		n += x
	}
	return n, err
}

func (j *joint) statsEach() (each []table.Stats, err error) {
	err = j.locked("Stats", func() error { each, err = j.stats("Stats"); return err })
	return each, err
}

// stats returns the statistics of each member's table, in the call named what. The caller holds the lock.
func (j *joint) stats(what string) ([]table.Stats, error) {
	own, err := j.m.table.Stats()
	own.ScratchBytes += j.m.kept()
	return agreed(j, what, own, err)
}

func (j *joint) clear() error {
	return j.locked("Clear", func() error {
		err := j.together("Clear", j.m.table.Clear())
		j.scattered = j.scattered && err != nil
		return err
	})
}

func (j *joint) grow(n int) error {
	return j.locked("Grow", func() error {
		own := n
		if n > 0 {
			own = share(n, j.size)
		}
		return j.together("Grow", j.m.table.Grow(own))
	})
}

// check walks the invariants of this member's table, and in the distributed mode sees that its keys belong to it.
func (j *joint) check(exported func(i int) ([]uint64, error)) error {
	return j.locked("Check", func() error {
		err := j.m.table.Check()
		if err == nil && !j.independent() {
			var keys []uint64
			keys, err = exported(0)
			for _, k := range keys {
				if owner := j.ownerOf(k); owner != j.rank {
					err = fmt.Errorf("%s: key %#x is with rank %d, and belongs to rank %d", family, k, j.rank, owner)
				}
			}
		}
		return j.together("Check", err)
	})
}

// close frees this member's part. A second call does nothing.
func (j *joint) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	for _, st := range []*device.Stream{j.m.ahead, j.m.split, j.m.work, j.wire} {
		if st != nil {
			st.Sync()
		}
	}
	var err error
	for _, ev := range []*device.Event{j.arrived[0], j.arrived[1], j.back[0], j.back[1]} {
		if ev != nil {
			err = errors.Join(err, ev.Close())
		}
	}
	if j.wire != nil {
		err = errors.Join(err, j.wire.Close())
	}
	for half := range j.inbox {
		err = errors.Join(err, j.inbox[half].release(&j.m.inbox[half]), j.outbox[half].release(&j.m.outbox[half]))
	}
	if err = frame.OneLine(errors.Join(err, j.m.close())); errors.Is(err, device.ErrClosed) {
		return nil
	}
	return err
}

// export does something with this member's own table, without the lock.
func (j *joint) export(do func(i int) error) error {
	j.mu.Lock()
	err := j.usable()
	j.mu.Unlock()
	if err != nil {
		return err
	}
	return do(0)
}

// chunks goes over this member's own table, which knows of changes itself.
func (j *joint) chunks(over func(i int, unchanged func() error) error) error {
	return j.export(func(i int) error { return over(i, func() error { return nil }) })
}

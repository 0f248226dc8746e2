package shard

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/shard/internal/nccl"
	"github.com/warpmap/warpmap/table"
)

// joint is what a table over the members of a job has in this process: one device, and what it has for exchanges, which NCCL carries.
type joint struct {
	widths
	*Member
	m      *member
	number int // of the tables that the member made, so that all mean the same
	// scattered: keys may be with members that do not own them, in the independent mode.
	scattered bool
	opts      Options
	seed      uint64
	piece     int // rows, everybody's
	most      int // rows of an inbox, everybody's

	wire          *device.Stream   // what NCCL carries
	arrived, back [2]*device.Event // rows, and results
	answered      [2]*device.Event // others' rows of a round that goes in an order

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
func newJoint(mem *Member, w table.Width, o Options, each func(d *device.Device, o table.Options) (table.Table, error)) (j *joint, err error) {
	mem.turn.Lock()
	defer mem.turn.Unlock()
	mem.tables++
	all := o.Options
	err = errors.Join(w.Err, all.Complete(1))
	if err == nil && o.Regions > table.MaxParts/mem.size {
		err = fmt.Errorf("%s: %d regions with each of %d members (%d at most in all)", family, o.Regions, mem.size, table.MaxParts)
	}
	if err == nil && (o.Piece < 0 || o.Mode != Distributed && o.Mode != Independent) {
		err = fmt.Errorf("%s: a table of members with pieces of %d rows, and mode %d (want 0 or more, and Distributed or Independent)", family, o.Piece, o.Mode)
	}
	j = &joint{Member: mem, number: mem.tables, opts: o, widths: widths{w.Key, w.Value}}
	own := common{Seed: int64(all.Seed), Key: int64(w.Key), Value: int64(w.Value), Piece: int64(o.Piece), Mode: int64(o.Mode), Bounded: all.MaxBytes > 0}
	if err == nil {
		if own.Piece == 0 {
			own.Piece = defaultPiece
		}
		own.Most = int64(inboxRows(j.widths, mem.d))
	}
	said, err := agreed(j, "making a table", own, err)
	if err != nil {
		return nil, err
	}
	for rank, x := range said {
		switch {
		case x.Mode != said[0].Mode:
			return nil, fmt.Errorf("%s: rank %d: a table in the %v mode, and rank 0's in the %v: want the same everywhere", family, rank, Mode(x.Mode), Mode(said[0].Mode))
		case x.Bounded != said[0].Bounded:
			return nil, fmt.Errorf("%s: of rank %d and rank 0 one has MaxBytes and the other none: want either everywhere", family, rank)
		case x.Key != said[0].Key || x.Value != said[0].Value || x.Piece != said[0].Piece:
			return nil, fmt.Errorf("%s: rank %d makes a table of %d+%d bytes with pieces of %d rows, and rank 0 one of %d+%d with %d: want the same everywhere",
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
		j.m.table, err = each(mem.d, partOf(o.Options, seed, mem.size))
	}
	if err = j.together("making a table", err); err != nil {
		j.Close()
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
	for _, ev := range []**device.Event{&j.arrived[0], &j.arrived[1], &j.back[0], &j.back[1], &j.answered[0], &j.answered[1]} {
		if *ev, err = j.d.NewEvent(); err != nil {
			return err
		}
	}
	return nil
}

// together says whether a step worked, and gives the first rank's error if any has one.
func (j *joint) together(what string, err error) error {
	_, err = agreed(j, what, true, err)
	return err
}

// locked runs a collective call, one at a time of all tables of the member. A table that is closed says so to the others, which may wait for this member; one that
// is broken need not, for then nobody waits: no rank knows how far others came.
func (j *joint) locked(what string, do func() error) error {
	j.turn.Lock()
	defer j.turn.Unlock()
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

// request is what a member brings to an operation: how many rows, how many of each chunk are whose, and the order that it would have them in, by which it counted;
// anyOrder where it has none.
type request struct {
	N       int
	Counts  []uint64
	Regions int
	Order   uint64 // its seed
}

// exchange does a job of all members; s is what this one brings, and err what is wrong with it. It waits until all is done here.
func (j *joint) exchange(what string, jb *job, s source, err error) error {
	own := request{N: s.n}
	jb.all = jb.asks && j.opts.Mode == Independent
	if err == nil && jb.owned && j.scattered {
		err = errScattered
	}
	if err == nil && jb.all && s.n > 0 {
		err = errors.Join(j.m.came.Record(s.st), j.m.split.Wait(j.m.came))
	} else if err == nil {
		o := j.wanted(jb, s)
		own.Regions, own.Order = o.regions, o.seed
		if s.n > 0 {
			own.Counts, err = j.counted(s, o)
		}
	}
	said, err := agreed(j, what, own, err)
	if err != nil {
		return err
	}
	jb.order = agreedOrder(said)
	recount := func(x request) bool { return x.N > 0 && x.Regions != jb.order.regions }
	if slices.ContainsFunc(said, recount) {
		if recount(own) {
			own.Counts, err = j.counted(s, jb.order)
		}
		if said, err = agreed(j, what, own, err); err != nil {
			return err
		}
	}
	p := j.planned(jb, said)
	rounds := j.rounds
	if jb.lists != nil {
		rounds = j.roundsOfLists
	}
	if err = rounds(jb, p, s); err != nil {
		err = j.named(err)
		j.broken = err
		if j.meeting.Err() == nil {
			j.meeting.Fail(err.Error())
		}
	}
	return err
}

// planned is everybody's plan, from what all have said.
func (j *joint) planned(jb *job, said []request) plan {
	chunk := jb.order.chunk(j.piece)
	sizes, counts := make([]int, j.size), make([][]uint64, j.size)
	for rank, x := range said {
		sizes[rank], counts[rank] = x.N, x.Counts
		switch {
		case jb.all:
			counts[rank] = toAll(x.N, chunk, j.size)
		case jb.order.regions > 0:
			counts[rank] = jb.order.ownersOf(x.Counts)
		}
	}
	p := newPlan(sizes, counts, chunk, j.piece, max(chunk, j.most))
	if p.order = jb.order; p.order.regions > 0 {
		p.starts = [][]uint64{j.startsInBox(p, said[j.rank].Counts)}
	}
	return p
}

// rounds does all rounds of a plan: while the table works on one, the next is split and on its way, but not where inserts go in order (see flight.ahead).
func (j *joint) rounds(jb *job, p plan, s source) error {
	if err := j.makeRoom(jb, p); err != nil {
		return err
	}
	if len(p.rounds) == 0 {
		return nil
	}
	half := func(r int) int { return r % 2 } // nothing is under way: one inbox does for one round
	lag := 1
	if jb.order.regions > 0 && !jb.asks {
		lag = 0
	}
	if err := j.beginSplitting(p); err != nil {
		return err
	}
	for r := range len(p.rounds) + lag {
		if r < len(p.rounds) {
			if err := errors.Join(j.send(jb, p.rounds[r], r, half(r), s), j.carry(jb, p.rounds[r], half(r), s, false)); err != nil {
				return err
			}
		}
		done := r - lag
		if done < 0 {
			continue
		}
		if err := j.work(jb, p.rounds[done], half(done)); err != nil {
			return err
		}
		if jb.comesBack() {
			if err := errors.Join(j.carry(jb, p.rounds[done], half(done), s, true), j.fetch(jb, p.rounds[done], half(done), s)); err != nil {
				return err
			}
		}
	}
	// What others carry may still wait for this one, and for those that are gone.
	err := errors.Join(j.wire.Sync(), j.m.split.Sync(), j.m.work.Sync())
	return errors.Join(err, j.meeting.Err())
}

// beginSplitting queues setting the cursors of all rounds to where their parts begin.
func (j *joint) beginSplitting(p plan) error {
	if p.order.regions > 0 {
		return j.m.cursors.Slice(0, len(p.starts[0])).Write(j.m.split, p.starts[0])
	}
	return j.m.cursors.Fill(j.m.split, 0)
}

// makeRoom makes inboxes, outboxes and notes as large as the plan needs them. Nothing is under way.
func (j *joint) makeRoom(jb *job, p plan) error {
	fit := func(s *device.Slice[byte], bytes int) (err error) {
		if s.Len() < bytes {
			if err = release(s); err == nil {
				*s, err = device.Make[byte](j.d, bytes)
			}
		}
		return err
	}
	own := 0 // rows of a round
	for _, rd := range p.rounds {
		own = max(own, rd.to[j.rank]-rd.from[j.rank])
	}
	noted := j.notesOf(own, j.size)
	if jb.order.regions > 0 && own > 0 { // a member without rows may be without these kernels
		noted = j.m.notesOfRegions(j.widths, own, j.size*jb.order.regions)
	}
	for half := range min(2, len(p.rounds)) {
		err := errors.Join(fit(&j.m.inbox[half], j.columns(p.rows[j.rank], jb).bytes), fit(&j.m.outbox[half], j.columns(boxed(jb, own, j.size), jb).bytes), fit(&j.m.notes[half], noted.bytes))
		if err != nil {
			return err
		}
	}
	if words := max(256, len(p.rounds)*j.size*max(1, jb.order.regions)); j.m.cursors.Len() < words {
		if err := release(&j.m.cursors); err != nil {
			return err
		}
		var err error
		if j.m.cursors, err = device.Make[uint64](j.d, words); err != nil {
			return err
		}
	}
	return nil
}

// outgoing is the part of the outbox that is for a rank, or comes back from it. Keys that go to all are the caller's own.
func (j *joint) outgoing(jb *job, rd round, half, to int, s source) received {
	from, rows, at := rd.from[j.rank], rd.to[j.rank]-rd.from[j.rank], 0
	for k := range to {
		at += rd.n[j.rank][k]
	}
	r := j.cut(j.m.outbox[half], j.columns(boxed(jb, rows, j.size), jb), at, rd.n[j.rank][to])
	if jb.all && rows > 0 {
		r.keys = s.slices.keys.Slice(from*j.keyBytes, (from+rows)*j.keyBytes)
	}
	return r
}

// incoming is the part of the inbox that is a rank's.
func (j *joint) incoming(jb *job, rd round, half, from int) received {
	return j.cut(j.m.inbox[half], j.columns(rd.gets[j.rank], jb), rd.at[from][j.rank], rd.n[from][j.rank])
}

// send queues splitting this member's rows of a round into its outbox. What goes to all is not split.
func (j *joint) send(jb *job, rd round, r, half int, s source) error {
	rows := rd.to[j.rank] - rd.from[j.rank]
	if rows == 0 {
		return nil
	}
	if jb.all {
		return j.m.sent[half].Record(j.m.split)
	}
	if jb.order.regions > 0 {
		return j.sendOrdered(jb, rd, r, half, s)
	}
	p := j.split(jb, s, rd.from[j.rank], rows)
	p.Seed, p.Owners, p.Cursors, p.Places = j.seed, uint64(j.size), j.m.cursors.Addr()+uint64(8*r*j.size), j.m.notes[half].Addr()
	p.Bases = p.Places + uint64(j.notesOf(rows, j.size).bases)
	for to := range j.size {
		p.to(to, j.outgoing(jb, rd, half, to, s))
	}
	return errors.Join(j.m.split.Wait(j.arrived[half]), j.m.splits.Launch(j.m.split, j.tiles(j.m, rows), &p), j.m.sent[half].Record(j.m.split))
}

// carry queues what goes between members in a round: rows to their owners, or results back.
func (j *joint) carry(jb *job, rd round, half int, s source, results bool) error {
	var out, in []nccl.Piece
	var err error
	for peer := range j.size {
		o, i := j.outgoing(jb, rd, half, peer, s), j.incoming(jb, rd, half, peer)
		columns := jb.going(o, i)
		if results {
			columns = jb.coming(i, o)
		}
		for _, column := range columns {
			if peer == j.rank && jb.order.regions > 0 {
				continue // the table has them where they stand
			}
			if peer == j.rank {
				err = errors.Join(err, j.waits(jb, half, results), column.to.CopyFrom(j.wire, column.from))
				continue
			}
			if column.from.Len() > 0 {
				out = append(out, nccl.Piece{Addr: column.from.Addr(), Bytes: column.from.Len(), Peer: peer})
			}
			if column.to.Len() > 0 {
				in = append(in, nccl.Piece{Addr: column.to.Addr(), Bytes: column.to.Len(), Peer: peer})
			}
		}
	}
	if err = errors.Join(err, j.waits(jb, half, results)); err != nil {
		return err
	}
	if len(out)+len(in) > 0 {
		if err := j.swap(out, in); err != nil {
			return err
		}
	}
	if results {
		return j.back[half].Record(j.wire)
	}
	return j.arrived[half].Record(j.wire)
}

// swap has NCCL carry pieces on the wire. After an error nothing of it goes on, so that their memory may be freed.
func (j *joint) swap(out, in []nccl.Piece) error {
	err := j.d.Current(func() error { return j.comm.Exchange(out, in, j.wire.Handle()) })
	if err == nil {
		err = j.comm.Wait(j.meeting.Broken())
	}
	if err != nil {
		j.comm.Abort()
		j.wire.Sync()
	}
	return err
}

// waits holds back the wire until what it takes is there, and what it writes to is free.
func (j *joint) waits(jb *job, half int, results bool) error {
	if results && jb.order.regions > 0 {
		return j.wire.Wait(j.answered[half])
	}
	if results {
		return j.wire.Wait(j.m.done[half])
	}
	return errors.Join(j.wire.Wait(j.m.sent[half]), j.wire.Wait(j.m.done[half]))
}

// work does the operation on what this member got in a round.
func (j *joint) work(jb *job, rd round, half int) error {
	if jb.order.regions > 0 {
		return j.workOrdered(jb, rd, half)
	}
	n := rd.gets[j.rank]
	return errors.Join(j.m.work.Wait(j.arrived[half]), j.operate(jb, j.cut(j.m.inbox[half], j.columns(n, jb), 0, n)), j.m.done[half].Record(j.m.work))
}

// operate does the operation on rows that this member got.
func (j *joint) operate(jb *job, got received) error {
	if got.n == 0 {
		return nil
	}
	got = jb.wanted(got)
	if jb.flags && !jb.asks { // no kernel may see rows that are refused
		if err := got.flags.Fill(j.m.work, 0); err != nil {
			return err
		}
	}
	err := jb.run(0, j.m.work, got) // the job has this member's table alone
	if full := (*table.FullError)(nil); errors.As(err, &full) {
		err = jb.full(0, full, got)
	}
	return err
}

// fetch queues putting a round's results where they belong.
func (j *joint) fetch(jb *job, rd round, half int, s source) error {
	rows := rd.to[j.rank] - rd.from[j.rank]
	if rows == 0 {
		return nil
	}
	if jb.order.regions > 0 {
		return j.fetchOrdered(jb, rd, half, s)
	}
	p := j.gathered(jb, s, rd.from[j.rank], rows)
	p.Owners, p.Places = uint64(j.size), j.m.notes[half].Addr()
	p.Bases = p.Places + uint64(j.notesOf(rows, j.size).bases)
	for from := range j.size {
		x := j.outgoing(jb, rd, half, from, s)
		p.Values[from], p.Flags[from] = x.out.Addr(), x.flags.Addr()
	}
	if jb.sum {
		p.Sum = 1
	}
	if err := j.m.split.Wait(j.back[half]); err != nil {
		return err
	}
	if jb.all {
		return j.m.merge.Launch(j.m.split, plain(j.m, rows), &p)
	}
	return j.m.gather.Launch(j.m.split, j.tiles(j.m, rows), &p)
}

// Close frees this member's part. It is not collective. A second call does nothing.
func (j *joint) Close() error {
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
	for _, ev := range []*device.Event{j.arrived[0], j.arrived[1], j.back[0], j.back[1], j.answered[0], j.answered[1]} {
		if ev != nil {
			err = errors.Join(err, ev.Close())
		}
	}
	if j.wire != nil {
		err = errors.Join(err, j.wire.Close())
	}
	if err = table.OneLine(errors.Join(err, j.m.close())); errors.Is(err, device.ErrClosed) {
		return nil
	}
	return err
}

// word is what a member says of a step of a collective call: what all are to know, and what is wrong here. Which call it is, of which of the member's tables, shows
// whether all make the same.
type word struct {
	Table     int
	What, Err string
	Said      []byte
}

// agreed gives what each member says, in the order of ranks, or the error of the first that has one: then all have it.
func agreed[T any](j *joint, what string, own T, err error) ([]T, error) {
	said, e := encoded(own)
	w := word{Table: j.number, What: what, Said: said}
	if err == nil {
		err = e
	}
	if err != nil {
		w.Err = err.Error()
	}
	words, e := agree(j.Member, w)
	if e != nil {
		j.broken = e
		return nil, table.OneLine(errors.Join(e, err))
	}
	if err != nil {
		return nil, err
	}
	all := make([]T, len(words))
	for rank, x := range words {
		switch {
		case x.What != what:
			return nil, fmt.Errorf("%s: rank %d calls %s while this one calls %s: all members make the same calls in the same order", family, rank, x.What, what)
		case x.Table != j.number:
			return nil, fmt.Errorf("%s: %s: rank %d calls it of the table that it made as number %d, and this one of number %d: all members make the same calls in the same order",
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

// Family is that of the members' tables.
func (j *joint) Family() table.Family { return j.m.table.Family() }

// Len counts what the members' tables hold, together. It is collective.
func (j *joint) Len() (n int, err error) {
	err = j.locked("Len", func() error { n, err = j.len(); return err })
	return n, err
}

func (j *joint) len() (n int, err error) {
	own, err := j.m.table.Len()
	all, err := agreed(j, "Len", own, err)
	for _, x := range all {
		n += x
	}
	return n, err
}

// Stats adds up the statistics of all members' tables; MaxProbes is the largest. It is collective.
func (j *joint) Stats() (sum table.Stats, err error) {
	err = j.locked("Stats", func() error { sum, err = j.stats(); return err })
	return sum, err
}

func (j *joint) stats() (sum table.Stats, err error) {
	own, err := j.m.table.Stats()
	own.ScratchBytes += j.m.kept()
	all, err := agreed(j, "Stats", own, err)
	return added(all), err
}

// Clear empties the tables of all members. It is collective.
func (j *joint) Clear() error {
	return j.locked("Clear", func() error {
		err := j.together("Clear", j.m.table.Clear())
		j.scattered = j.scattered && err != nil
		return err
	})
}

// Grow makes room for at least n pairs or keys of all members. It is collective.
func (j *joint) Grow(n int) error {
	return j.locked("Grow", func() error {
		own := n
		if n > 0 {
			own = share(n, j.size)
		}
		return j.together("Grow", j.m.table.Grow(own))
	})
}

// check walks the invariants of this member's table, and in the distributed mode sees that the keys that exported gives belong to it. It is collective.
func (j *joint) check(exported func() ([]uint64, error)) error {
	return j.locked("Check", func() error {
		err := j.m.table.Check()
		if err == nil && j.opts.Mode == Distributed {
			var keys []uint64
			keys, err = exported()
			for _, k := range keys {
				if owner := ownerOf(k, j.keyBytes, j.seed, j.size); owner != j.rank {
					err = fmt.Errorf("%s: key %#x is with rank %d, and belongs to rank %d", family, k, j.rank, owner)
				}
			}
		}
		return j.together("Check", err)
	})
}

// bringing is what a member brings to a collective call, on its device; err is what is wrong with it, of which the others hear.
type bringing[K, V any] struct {
	st          *device.Stream
	keys        device.Slice[K]
	values, out device.Slice[V]
	flags, when device.Slice[bool]
	ops         device.Slice[table.Op]
	err         error
}

// checked sees that others, which the operation asks for, go with the keys.
func (b bringing[K, V]) checked(j *joint, others ...table.DeviceSlice) bringing[K, V] {
	if b.err == nil {
		b.err = family.CheckOn(j.d, b.st, append([]table.DeviceSlice{b.keys}, others...)...)
	}
	return b
}

func (b bringing[K, V]) source() source {
	if b.err != nil {
		return source{}
	}
	return source{n: b.keys.Len(), keys: b.keys.Addr(), values: b.values.Addr(), marks: b.ops.Addr(), out: b.out.Addr(), flags: b.flags.Addr(), when: b.when.Addr(), st: b.st,
		slices: &received{n: b.keys.Len(), keys: b.keys.Raw(), values: b.values.Raw(), out: b.out.Raw(), flags: b.flags.Raw(), when: b.when.Raw()}}
}

// fromHost brings Go slices to the device for a collective call, and what comes back from it. All but keys may be nil. lens is what is wrong with their lengths.
func fromHost[K, V any](j *joint, h hostBatch[K, V], lens error, call func(b bringing[K, V]) error) (err error) {
	b := bringing[K, V]{err: lens}
	defer func() {
		for _, free := range []func() error{b.keys.Free, b.values.Free, b.out.Free, b.flags.Free, b.when.Free} {
			if e := free(); e != nil {
				err = errors.Join(err, e)
			}
		}
	}()
	bring := func(wanted bool, do func() error) {
		if b.err == nil && wanted {
			b.err = do()
		}
	}
	bring(true, func() (err error) { b.keys, err = table.From(j.d, h.keys); return err })
	bring(h.values != nil, func() (err error) { b.values, err = table.From(j.d, h.values); return err })
	bring(h.out != nil, func() (err error) { b.out, err = table.Alloc[V](j.d, len(h.out)); return err })
	bring(h.flags != nil, func() (err error) { b.flags, err = table.Alloc[bool](j.d, len(h.flags)); return err })
	bring(h.when != nil, func() (err error) { b.when, err = table.From(j.d, h.when); return err })
	err = call(b)
	if full := (*table.FullError)(nil); b.err != nil || err != nil && !errors.As(err, &full) {
		return err
	}
	if h.out != nil {
		if e := table.Download(nil, h.out, b.out); e != nil {
			return e
		}
	}
	if h.flags != nil {
		if e := table.Download(nil, h.flags, b.flags); e != nil {
			return e
		}
	}
	return err
}

// asking does a collective call that all have the same job for.
func asking[K, V any](j *joint, what string, b bringing[K, V], jb job) error {
	return j.locked(what, func() error { return j.exchange(what, &jb, b.source(), b.err) })
}

// putting takes batches in, of keys that are there once. Where a member's table may not grow, each hears which of its own rows are not in.
func putting[K, V any](j *joint, what string, b bringing[K, V], added bool, x keyed[K]) error {
	return j.locked(what, func() error {
		var why error
		jb := x.insert(added, &why)
		if j.opts.Mode == Independent && !jb.owned {
			return j.local(what, &jb, b.source(), b.err, x.settle)
		}
		if err := j.exchange(what, &jb, b.source(), b.err); err != nil {
			return err
		}
		why, err := j.whyFull(what, why, nil)
		if err != nil {
			return err
		}
		if why != nil && x.again != nil {
			_, err = x.again()
		}
		if x.settle != nil {
			if err := x.settle(err); err != nil {
				return err
			}
		}
		if why == nil {
			return nil
		}
		return fullOf(j, b, x.absence(), why, err)
	})
}

// fullOf makes the FullError of this member's keys that are not in, of chosen rows alone; where absence gives values, they come to the batch's. It is collective; wrong is what went wrong here before.
func fullOf[K, V any](j *joint, b bringing[K, V], absence job, why, wrong error) (err error) {
	var flags device.Slice[bool]
	if wrong == nil {
		flags, wrong = device.Make[bool](j.d, b.keys.Len())
	}
	defer func() {
		if e := flags.Free(); e != nil {
			err = errors.Join(err, e)
		}
	}()
	ask := bringing[K, V]{st: b.st, keys: b.keys, out: b.out, flags: flags, err: wrong}
	if err := j.exchange("look up what is full", &absence, ask.source(), wrong); err != nil {
		return err
	}
	return j.fullAt(why, func() ([]int, error) {
		positions, err := flagged(flags, func(in bool) bool { return !in })
		if err != nil {
			return nil, err
		}
		return b.source().chosen(positions)
	})
}

// local does an insert of each member's rows in its own table. It is collective: nobody's rows go in before all know that nobody's are wrong.
func (j *joint) local(what string, jb *job, s source, err error, settle func(wrong error) error) error {
	sizes, err := agreed(j, what, s.n, err)
	if err != nil {
		return err
	}
	j.scattered = j.scattered || j.size > 1 && slices.Max(sizes) > 0
	var lost []int
	var why error
	if s.n > 0 {
		if s.flags != 0 { // no kernel may see rows that are refused
			err = s.slices.flags.Fill(s.st, 0)
		}
		if err == nil {
			err = errors.Join(jb.run(0, s.st, *s.slices), j.m.following(s.st).Sync())
		}
		if full := (*table.FullError)(nil); errors.As(err, &full) {
			lost, why, err = full.Positions, full.Why, nil
		}
	}
	if why, err = j.whyFull(what, why, err); err == nil && settle != nil {
		err = settle(nil)
	}
	if err != nil || why == nil {
		return err
	}
	return j.fullAt(why, func() ([]int, error) { return lost, nil })
}

// whyFull gives why a table found no room: this member's, or else that of the first rank whose table found none; nil where all had room. It is collective; wrong is
// what went wrong here.
func (j *joint) whyFull(what string, why, wrong error) (error, error) {
	type reason struct {
		Text  string
		Bound bool // it is MaxBytes
	}
	own := reason{Bound: errors.Is(why, table.ErrMaxBytes)}
	if why != nil {
		own.Text = why.Error()
	}
	said, err := agreed(j, what, own, wrong)
	if err != nil || why != nil {
		return why, err
	}
	at := slices.IndexFunc(said, func(r reason) bool { return r.Text != "" })
	switch {
	case at < 0:
		return nil, nil
	case said[at].Bound:
		return fmt.Errorf("%w (rank %d: %s)", table.ErrMaxBytes, at, said[at].Text), nil
	}
	return fmt.Errorf("rank %d: %s", at, said[at].Text), nil
}

// fullAt is the FullError of this member's positions that found no room, or nil where it has none. It is collective, but for refused, which gives them.
func (j *joint) fullAt(why error, refused func() ([]int, error)) error {
	s, err := j.stats()
	if err != nil {
		return err
	}
	positions, err := refused()
	if err != nil {
		return err
	}
	return table.Full(positions, s.Capacity, s.Len, why)
}

// flagged gives the positions of flags of which says is true, in order. It waits for the device's own stream.
func flagged[T any](flags device.Slice[T], says func(flag T) bool) (positions []int, err error) {
	all, err := flags.Host(nil)
	for i, flag := range all {
		if says(flag) {
			positions = append(positions, i)
		}
	}
	return positions, err
}

// part does something with this member's own table: it is not collective, and without the lock.
func (j *joint) part(do func() error) error {
	j.mu.Lock()
	err := j.usable()
	j.mu.Unlock()
	if err != nil {
		return err
	}
	return do()
}

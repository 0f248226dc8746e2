package shard

import (
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// member is one of a table's devices, with what it has for exchanges. Of what there are two, successive rounds take one
// each in turn.
type member struct {
	d     *device.Device
	stage frame.Stage
	table table.Table
	peers []bool // may kernels here use the memory of the others, and theirs this device's

	ahead, split, work  *device.Stream   // counting; splitting and gathering; the table's own operations
	sends, returns      *device.Stream   // copies of rows to their owners, and of results from there, in steps
	arrivals            *device.Stream   // waits until all rows of a step are there
	splitting, working  *watch           // with Options.Apart: steps on the first two, and on the last
	came                *device.Event    // the end of a caller's stream
	sent, done, fetched [2]*device.Event // the ends of a round's splitting, operations and fetching
	sorted              [2]*device.Event // the end of a round's sorting
	returned            *device.Event    // the end of the last copies of results
	begun               *device.Event    // the end of the last copy of starts
	steps               [2]stepEvents
	count               device.Kernel[countRows]
	splits              device.Kernel[splitRows]
	gather, merge       device.Kernel[gatherRows]
	spread              device.Kernel[spreadRows]
	regional            regional                   // made when first asked for
	lists               [4]device.Kernel[listRows] // shard_sum, shard_scan, shard_offsets, shard_lists

	counts  device.Slice[uint64] // one a chunk and owner
	landing device.Host[uint64]  // where they come to
	cursors device.Slice[uint64] // one a round and owner
	starts  device.Host[uint64]  // what cursors begin with
	inbox   [2]device.Slice[byte]
	notes   [2]device.Slice[byte] // places and bases of a round's rows
	outbox  [2]device.Slice[byte] // rows on their way, where there is no peer access
	quick   quick

	capacity int // slots of the table, if it has reached MaxBytes
}

// open makes what the member has from the beginning.
func (m *member) open(p *device.Program, apart bool) error {
	m.stage.Init(m.d)
	module, err := m.d.Compile(p)
	if err != nil {
		return err
	}
	err = errors.Join(device.Bind(module, "shard_count", &m.count), device.Bind(module, "shard_split", &m.splits),
		device.Bind(module, "shard_gather", &m.gather),
		device.Bind(module, "shard_merge", &m.merge), device.Bind(module, "shard_spread", &m.spread))
	for i, name := range []string{"shard_sum", "shard_scan", "shard_offsets", "shard_lists"} {
		err = errors.Join(err, device.Bind(module, name, &m.lists[i]))
	}
	if err != nil {
		return err
	}
	for _, st := range m.streams() {
		if *st, err = m.d.NewStream(); err != nil {
			return err
		}
	}
	for _, ev := range m.events() {
		if *ev, err = m.d.NewEvent(); err != nil {
			return err
		}
	}
	if apart {
		if m.splitting, err = newWatch(m.d); err == nil {
			m.working, err = newWatch(m.d)
		}
	}
	return err
}

func (m *member) events() []**device.Event {
	return []**device.Event{&m.came, &m.sent[0], &m.sent[1], &m.done[0], &m.done[1], &m.fetched[0], &m.fetched[1],
		&m.sorted[0], &m.sorted[1], &m.returned, &m.begun, &m.quick.done, &m.quick.fetched}
}

func (m *member) streams() []**device.Stream {
	return []**device.Stream{&m.ahead, &m.split, &m.work, &m.sends, &m.returns, &m.arrivals}
}

// settle waits for all that exchanges have queued.
func (m *member) settle() (err error) {
	for _, st := range m.streams() {
		if *st != nil {
			err = errors.Join(err, (*st).Sync())
		}
	}
	for _, ev := range []*device.Event{m.quick.done, m.quick.fetched} { // on callers' streams
		if ev != nil {
			err = errors.Join(err, ev.Sync())
		}
	}
	return err
}

// startCount queues counting a source's rows by chunk and owner, in so many words; they come to m.landing.
func (m *member) startCount(s source, seed uint64, owners, chunk, words int) error {
	if err := m.roomToCount(words); err != nil {
		return err
	}
	counts := m.counts.Slice(0, words)
	grid := device.GridFor(int64(s.n), tileMost)
	grid.Threads = threads
	grid.Blocks = min(grid.Blocks, max(8*int64(m.d.Info().Multiprocessors), int64(s.n>>31)+1))
	return frame.OneLine(errors.Join(frame.InTurn(
		func() error { return m.came.Record(s.st) },
		func() error { return m.ahead.Wait(m.came) },
		func() error { return counts.Fill(m.ahead, 0) },
		func() error {
			return m.count.Launch(m.ahead, grid, &countRows{Keys: s.keys, N: uint64(s.n), When: s.when, Seed: seed,
				Owners: uint64(owners), Chunk: uint64(chunk), Counts: counts.Addr()})
		},
	), counts.ReadAsync(m.ahead, m.landing, counts.Len())))
}

// roomToCount makes the counters, so many words. Nothing that is queued uses them: whoever counted has waited.
func (m *member) roomToCount(words int) (err error) {
	if m.counts.Len() >= words {
		return nil
	}
	if err := errors.Join(release(&m.counts), m.landing.Free()); err != nil {
		return err
	}
	m.landing = device.Host[uint64]{}
	words = max(words, 256)
	if m.landing, err = device.MakeHost[uint64](m.d, words); err == nil {
		m.counts, err = device.Make[uint64](m.d, words)
	}
	return err
}

// roomForCursors makes that many cursors. Nothing uses the old ones.
func (m *member) roomForCursors(words int) (err error) {
	if err := errors.Join(release(&m.cursors), m.starts.Free()); err != nil {
		return err
	}
	m.starts = device.Host[uint64]{}
	words = max(leastCursors, words)
	if m.starts, err = device.MakeHost[uint64](m.d, words); err == nil {
		m.cursors, err = device.Make[uint64](m.d, words)
	}
	return err
}

// setCursors queues setting the cursors. It waits for the copy that a call before it has queued.
func (m *member) setCursors(starts []uint64) error {
	if err := m.begun.Sync(); err != nil {
		return err
	}
	copy(m.starts.Slice(), starts)
	return errors.Join(m.cursors.WriteAsync(m.split, m.starts, len(starts)), m.begun.Record(m.split))
}

func (m *member) needsOutbox() bool {
	for _, direct := range m.peers {
		if !direct {
			return true
		}
	}
	return false
}

// following is the stream that comes behind a job.
func (m *member) following(st *device.Stream) *device.Stream {
	if st == nil {
		return m.d.Stream()
	}
	return st
}

// kept is the device memory that exchanges keep for the next.
func (m *member) kept() (bytes int64) {
	for i := range m.inbox {
		bytes += m.inbox[i].Bytes() + m.notes[i].Bytes() + m.outbox[i].Bytes() + m.quick.boxes[i].Bytes() +
			m.quick.notes[i].Bytes()
	}
	return bytes + m.counts.Bytes() + m.cursors.Bytes() + m.quick.cursor.Bytes() + m.quick.sums.Bytes()
}

// isFull notes the slots of a table that can grow no more. One that lacks memory may grow later.
func (m *member) isFull(e *table.FullError) {
	if errors.Is(e.Why, table.ErrMaxBytes) {
		m.capacity = e.Capacity
	}
}

// releaseBoxes frees the memory that exchanges keep for rows. Nothing uses it.
func (m *member) releaseBoxes() (err error) {
	for i := range m.inbox {
		err = errors.Join(err, release(&m.inbox[i]), release(&m.notes[i]), release(&m.outbox[i]),
			release(&m.quick.boxes[i]), release(&m.quick.notes[i]))
	}
	return err
}

// close frees what the member has. Nothing uses it any more.
func (m *member) close() (err error) {
	if m.table != nil {
		err = m.table.Close()
	}
	err = errors.Join(err, m.releaseBoxes())
	err = errors.Join(err, release(&m.counts), release(&m.cursors), m.landing.Free(), m.starts.Free(),
		release(&m.quick.cursor), release(&m.quick.sums), m.quick.totals.Free())
	err = errors.Join(err, m.splitting.close(), m.working.close())
	for _, ev := range m.events() {
		if *ev != nil {
			err = errors.Join(err, (*ev).Close())
		}
	}
	for half := range m.steps {
		for _, ev := range m.steps[half].events() {
			err = errors.Join(err, ev.Close())
		}
	}
	for _, st := range m.streams() {
		if *st != nil {
			err = errors.Join(err, (*st).Close())
		}
	}
	return err
}

// release frees a slice that nothing uses.
func release[T any](s *device.Slice[T]) error {
	freed := *s
	*s = device.Slice[T]{}
	return freed.Free()
}

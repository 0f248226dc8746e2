package stadium

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Options are the options of New: those of table.Options, and some of its own. The zero value is good.
//
// LoadFactor is 0.8 unless set, and may be 1.
type Options struct {
	table.Options
	// Ticket is the number of bits of a ticket: 1, 2, 4, 8 or 16. Zero means 8, or 16 if DeviceBytes is set. With more
	// bits, look-ups read fewer slots that hold other keys. The board takes that many bits for each slot, and is always
	// in the device's memory.
	Ticket int
	// DeviceBytes is how many bytes of the table's slots may lie in the device's memory. The others lie in pinned host
	// memory. A negative number means none. Zero means as many as there is memory for, but an eighth of the device's
	// memory, and room for the copies that batches need, stay free.
	DeviceBytes int64
	// HostBytes is how many bytes of pinned host memory the table may take. A negative number means none. Zero means
	// three quarters of what is free.
	HostBytes int64

	pane        int64  // bytes of a pane, in tests
	tight, most uint64 // in tests: in place of tightProbes and mostProbes
}

const (
	defaultLoadFactor = 0.8
	defaultTicket     = 8
	farTicket         = 16 // where a slot that is read for nothing is read across the bus
	// tightProbes bounds the buckets that an insert searches for room in a table that is nearly full.
	tightProbes = 256
	// mostProbes bounds them in a table that cannot grow. Then about one slot in a hundred stays empty in a large table
	// that is full. If its last slots were looked for in the whole board, they would take longer than all others, and
	// from then on look-ups of keys that are not in would read most of the board, too.
	mostProbes = 512
	// brim is the share of the slots up to which inserts find room soon.
	brim = 0.98
	// wear: a table is laid anew for what deletions left once it has had so many of them for each slot. Look-ups of keys
	// that are not in get slower with each round of keys, and to lay it anew costs an insert for each pair.
	wear = 3
	// firstBatch is how many pairs of unknown duplicity are tried before a table decides how far to grow, where that is
	// crowded times its slots at most: rows take turns with the buckets of a small table. 65,536 rows and one bucket took
	// 0.4 s on an H200, and the time goes with the square.
	firstBatch = 1 << 16
	crowded    = 4
	leastBatch = 1 << 10
	// blocks of a multiprocessor.
	blocks = 64
	// mostRows of a batch are in one launch.
	mostRows = 1 << 30
)

var (
	//go:embed kernels.cu
	kernelsCU string
	//go:embed stadium.cuh
	stadiumCUH string
	//go:embed jobs.cuh
	jobsCUH string
)

// core is the table under Map: it owns the memory, and works in addresses and bytes.
type core struct {
	frame  frame.Frame
	cfg    config
	opts   Options
	kernel struct {
		replacing, adding      insertKernels
		mixed                  device.Kernel[mixedParams]
		find, erase            device.Kernel[findParams]
		rehash, export, probes device.Kernel[slotsParams]
		refuseAbsent           device.Kernel[insertParams]
		partition              frame.Partitioner
		within                 frame.Within
	}
	staged  staged
	stretch stretches
	regions frame.Regions
	far     far
	room    room
	updates frame.Operations[device.Kernel[insertParams]]
	choosing

	forecast frame.Forecast
	memory   // guarded by the frame's lock
}

// handle is what users hold of a table. It names core instead of embedding it: each instance of a generic type is compiled with every
// method that it embeds, in each package that uses it.
type handle struct{ core *core }

// made is the table, or one whose operations are errors, if no constructor has made it.
func (h *handle) made() *core { return frame.Or(h.core, unmade) }

var unmade = frame.Unmade(func(c *core) *frame.Frame { return &c.frame }, family,
	"a Map that New has not made")

// memory is what a rebuild replaces.
type memory struct {
	shape     shape
	board     device.Slice[byte] // tickets, filters and access bits
	near      device.Slice[byte] // slots, in one piece, or in
	panes     []pane
	paneShift int
	addresses device.Slice[uint64] // of the panes
	counters  frame.Counters[Counters]
	// most: there are no more pairs than this. foreign: but a kernel of the user's may have inserted since the last look.
	most    int64
	foreign bool
	// worn: as many pairs have been deleted since the board was made, of those that a look has told of. erased: no more
	// rows than this have deleted a pair since.
	worn, erased int64
}

func (m *memory) live() int64 { return int64(m.counters.Seen.Pairs) }

func (c *core) freeMemory(m *memory) error {
	c.room.inDevice -= int64(m.near.Len())
	return errors.Join(c.frame.Free(&m.counters, m.board, m.near, m.addresses), c.freePanes(m.panes...))
}

// program is the table's kernels with the given translation unit.
func (c *core) program(name, main string, more ...device.File) *device.Program {
	return &device.Program{
		Name:    name,
		Files:   append([]device.File{{Name: name + ".cu", Text: main}, {Name: "stadium.cuh", Text: stadiumCUH}, {Name: "jobs.cuh", Text: jobsCUH}, {Name: "config.h", Text: c.cfg.header("config")}}, more...),
		Defines: c.cfg.defines(),
		Layouts: layouts(),
	}
}

// complete checks the options and fills in the defaults.
func (o *Options) complete(cfg *config) error {
	if err := o.Options.Complete(defaultLoadFactor); err != nil {
		return err
	}
	if o.Ticket == 0 {
		if o.Ticket = defaultTicket; o.DeviceBytes != 0 {
			o.Ticket = farTicket
		}
	}
	cfg.hash, cfg.ticket = o.Hash, o.Ticket
	return cfg.check()
}

// begin makes an empty table as the options say.
func (c *core) begin() error {
	err := c.opts.complete(&c.cfg)
	if err == nil {
		err = c.compile()
	}
	if err != nil {
		return err
	}
	c.frame.MaxBytes = c.opts.MaxBytes
	c.regions = frame.RegionsFor(c.frame.Device.Info(), regionsFrom, regionRows)
	info := c.frame.Device.Info()
	c.staged.rule = frame.StretchesFor(info, 16, int64(info.Multiprocessors))
	c.stretch = stretches{rule: frame.StretchesFor(info, 8, int64(info.Multiprocessors)), bytes: stretchBytes, larger: stretchLarger, listed: stretchListed}
	if c.cfg.stretches() {
		frame.AheadOfLate(c.frame.Device, c.loadStretches)
	}
	if c.cfg.staged() {
		frame.AheadOfLate(c.frame.Device, c.loadStaged)
	}
	frame.AheadOfLate(c.frame.Device, func() bool { return c.far.compile(c) == nil })
	if c.room, err = c.roomFor(); err != nil {
		return err
	}
	s := c.shapeForPairs(int64(c.opts.Capacity))
	if limit := c.opts.MaxBytes; limit > 0 && c.bytes(s) > limit {
		if s = c.largest(); s.regions == 0 {
			return fmt.Errorf("stadium: MaxBytes of %s leaves no room for a bucket of %d slots", device.Bytes(limit), c.cfg.slots())
		}
	}
	return c.allocate(c.frame.Device.Stream(), s)
}

func (c *core) compile() error {
	m, err := c.frame.Device.CompileApart(c.program("stadium", kernelsCU))
	if err != nil {
		return err
	}
	k := &c.kernel
	if c.cfg.sorted() {
		var wrong error
		k.partition, err = frame.NewPartitioner[partitionParams](c.frame.Device, m)
		k.within, wrong = frame.NewWithin[partitionParams](m)
		if err = errors.Join(err, wrong); err != nil {
			return err
		}
	}
	err = errors.Join(k.replacing.bind(m, "", c.cfg.stretches()), k.adding.bind(m, "_new", c.cfg.stretches()), device.Bind(m, "refuse_absent", &k.refuseAbsent), device.Bind(m, "mixed", &k.mixed),
		device.Bind(m, "find", &k.find), device.Bind(m, "erase", &k.erase),
		device.Bind(m, "rehash", &k.rehash), device.Bind(m, "export_pairs", &k.export), device.Bind(m, "probe_lengths", &k.probes))
	return errors.Join(err, frame.AheadOfFinds(c.opts.Work, k.find))
}

// Sizes.

func (c *core) slotsOf(s shape) int64 { return s.buckets() * int64(c.cfg.slots()) }

func (c *core) capacity() int64 { return c.slotsOf(c.shape) }

// shapeForPairs has room for so many pairs before it grows.
func (c *core) shapeForPairs(pairs int64) shape {
	slots := int64(min(math.Ceil(float64(pairs)/c.opts.LoadFactor), 1<<50)) // more than any memory, less than overflows
	s := shapeFor((slots + int64(c.cfg.slots()) - 1) / int64(c.cfg.slots()))
	for c.limitOf(s) < pairs && slots < 1<<50 {
		s.regions++
	}
	return s
}

// limitOf is how many pairs may be in a table of that shape before it grows.
func (c *core) limitOf(s shape) int64 { return int64(float64(c.slotsOf(s)) * c.opts.LoadFactor) }

func (c *core) limit() int64 { return c.limitOf(c.shape) }

// easy is how many pairs find room soon.
func (c *core) easy() int64 {
	if uint64(c.shape.buckets()) <= cmp.Or(c.opts.tight, tightProbes) {
		return c.capacity()
	}
	return int64(brim * float64(c.capacity()))
}

func accessBytes(buckets int64) int64 { return (buckets + 31) / 32 * 4 }

// ticketsBytes is the memory of tickets and filters, and boardBytes that of access bits, too.
func (c *core) ticketsBytes(s shape) int64 {
	return frame.Align(s.buckets() * int64(c.cfg.ticketBytes()))
}
func (c *core) boardBytes(s shape) int64 {
	return c.ticketsBytes(s) + frame.Align(accessBytes(s.buckets()))
}

func (c *core) slotsBytes(s shape) int64 { return c.slotsOf(s) * int64(c.cfg.slotBytes()) }

func (c *core) bytes(s shape) int64 { return c.boardBytes(s) + c.slotsBytes(s) }

// largest is the largest shape that MaxBytes allows; no regions if there is none.
func (c *core) largest() shape {
	from, to := int64(0), c.opts.MaxBytes/int64(c.cfg.slots()*c.cfg.slotBytes())+1 // buckets: from fits, to does not
	for from+1 < to {
		if mid := (from + to) / 2; c.bytes(shapeUpTo(mid)) <= c.opts.MaxBytes {
			from = mid
		} else {
			to = mid
		}
	}
	if from == 0 {
		return shape{}
	}
	return shapeUpTo(from)
}

// table is the table as kernels take it.
func (c *core) table() Table { return c.tableOf(&c.memory) }

func (c *core) tableOf(m *memory) Table {
	return Table{Board: m.board.Addr(), Near: m.near.Addr(), Panes: m.addresses.Addr(), PaneShift: uint64(m.paneShift), Regions: uint64(m.shape.regions),
		Shift: uint64(m.shape.shift), Access: m.board.Addr() + uint64(c.ticketsBytes(m.shape)), Seed: c.opts.Seed, Counters: m.counters.Addr()}
}

// wipe makes all tickets available, and clears filters (their bits are set) and access bits.
func (c *core) wipe(st *device.Stream, m *memory) error {
	tickets := int(c.ticketsBytes(m.shape))
	for i := range m.panes {
		m.panes[i].fresh = true
	}
	return errors.Join(m.board.Slice(0, tickets).Fill(st, 0xff), m.board.Slice(tickets, m.board.Len()).Fill(st, 0))
}

// allocate makes an empty table. It waits for the stream.
func (c *core) allocate(st *device.Stream, s shape) (err error) {
	m := memory{shape: s}
	defer func() {
		if err != nil {
			st.SyncOf(c.frame.Device) // it fills what is freed in the order of another
			c.freeMemory(&m)
		}
	}()
	if err = c.makeBoard(st, &m); err != nil {
		return err
	}
	if m.near, err = c.makeNear(s); device.IsOutOfMemory(err) {
		if err = c.makePanes(st, &m); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if err = errors.Join(c.wipe(st, &m), st.SyncOf(c.frame.Device)); err == nil {
		c.memory = m
	}
	return err
}

// makeBoard allocates what always is in device memory.
func (c *core) makeBoard(st *device.Stream, m *memory) (err error) {
	if m.shape.regions > math.MaxUint32 || c.bytes(m.shape) < 0 || c.bytes(m.shape) > 1<<56 {
		return fmt.Errorf("stadium: %d buckets: too many for any memory", m.shape.buckets())
	}
	if err = c.frame.Budget(c.bytes(m.shape)); err != nil {
		return err
	}
	if m.board, err = frame.Make[byte](&c.frame, c.boardBytes(m.shape)); err == nil {
		err = m.counters.Make(&c.frame, st)
	}
	return err
}

// makeNear allocates slots in one piece of device memory, if they may be there.
func (c *core) makeNear(s shape) (near device.Slice[byte], err error) {
	bytes := c.slotsBytes(s)
	if left := c.deviceLeft(); bytes > left && (c.room.device >= 0 || c.room.host != 0) {
		return near, &device.OutOfMemoryError{Device: "device memory for stadium (see Options.DeviceBytes)", Asked: bytes, Free: left}
	}
	if near, err = frame.Make[byte](&c.frame, bytes); err == nil {
		c.room.inDevice += bytes
	}
	return near, err
}

// look waits for the stream, reads the counters and gives the number of pairs.
func (c *core) look(st *device.Stream) (int64, error) {
	if err := c.counters.Look(st); err != nil {
		return 0, err
	}
	if !c.foreign { // what is there, and what came since, is there no more where it was deleted: the other rows found nothing
		c.erased = min(c.erased, max(0, c.most-c.live()))
	}
	c.worn, c.erased = c.worn+c.erased, 0
	c.most, c.foreign = c.live(), false
	return c.live(), nil
}

// reset sets the counters that are not sums. The counters are as last seen.
func (c *core) reset(st *device.Stream) error {
	c.counters.Seen.Failed, c.counters.Seen.Exported = 0, 0
	return c.counters.Set(st)
}

func (c *core) grid(n int64) device.Grid { return c.frame.Grid(n, blocks) }

func (c *core) size() (capacity, live int64) { return c.capacity(), c.live() }

// insertKernels are those of Insert or of InsertNew. Without `left` they put all rows in one by one: there are none for stages and panes.
type insertKernels struct{ insert, left, listed device.Kernel[insertParams] }

func (k *insertKernels) bind(m *device.Module, which string, listed bool) (err error) {
	if listed {
		err = device.Bind(m, "insert_listed"+which, &k.listed)
	}
	return errors.Join(err, device.Bind(m, "insert"+which, &k.insert), device.Bind(m, "insert_left"+which, &k.left))
}

// insertion takes batches in with the kernels.
func (c *core) insertion(k *insertKernels) frame.Insertion {
	return frame.Insertion{Size: c.size, Find: c.find, Put: func(st *device.Stream, b frame.Rows) ([]int, error, error) { return c.insert(st, k, b, nil) }}
}

// insert takes a batch in.
func (c *core) insert(st *device.Stream, k *insertKernels, b frame.Rows, exact *frame.Exactly) (refused []int, why, err error) {
	if !c.foreign && c.most+b.N <= c.limit() {
		c.most += b.N
		return nil, nil, c.launchInsert(st, k, insertParams{Limit: math.MaxUint64}, b)
	}
	keys := b.Keys
	if b.When != 0 || !c.frame.Device.Info().CUDA() || !frame.CanCount(c.cfg.keyBytes) {
		keys = 0 // they have rows that are not chosen, or are not counted; and cores do not crowd in a bucket
	}
	return c.take(st, b.N, 1, keys, exact, func(p frame.Part) error {
		q := insertParams{Rows: frame.Placing{Refused: p.Refused, Attempt: p.Attempt}, Limit: c.searched(int64(p.N), p.Attempt)}
		if p.Attempt == lastAttempt {
			q.Exact = 1
		}
		return c.launchInsert(st, k, q, b.Part(p, c.cfg.keyBytes, c.cfg.valueBytes))
	})
}

// searched is how many buckets an insert searches for room, before the table grows, and when it cannot.
func (c *core) searched(n int64, attempt uint64) uint64 {
	switch {
	case attempt == lastAttempt:
		return cmp.Or(c.opts.most, mostProbes)
	case c.most+n > c.easy():
		return cmp.Or(c.opts.tight, tightProbes)
	}
	return math.MaxUint64
}

// launchInsert queues an insert of rows. Large batches go region by region.
func (c *core) launchInsert(st *device.Stream, k *insertKernels, p insertParams, b frame.Rows) error {
	for ; b.N > mostRows && p.Rows.Refused == 0; b = b.Part(frame.Part{First: mostRows, N: uint64(b.N - mostRows)}, c.cfg.keyBytes, c.cfg.valueBytes) {
		if err := c.launchInsert(st, k, p, b.Part(frame.Part{N: mostRows}, c.cfg.keyBytes, c.cfg.valueBytes)); err != nil {
			return err
		}
	}
	p.When = b.When
	var taken int64
	var err error
	if k.left != (device.Kernel[insertParams]{}) {
		taken, err = c.stage(st, k, p, b)
		if err == nil && taken < b.N {
			taken, err = c.insertFar(st, k, p, b, taken)
		}
	}
	if err != nil || taken == b.N {
		return err
	}
	if taken > 0 {
		if p.Rows.Refused != 0 {
			p.Rows.Refused += uint64(taken / 8)
		}
		b = b.Part(frame.Part{First: uint64(taken), N: uint64(b.N - taken)}, c.cfg.keyBytes, c.cfg.valueBytes)
	}
	c.stale()
	p.Table = c.table()
	launch := func(g device.Grid, rows frame.Placing) error {
		q := p
		q.Rows = rows
		if rows.Values == 0 {
			q.Rows.Values = b.Values
			if rows.Positions != 0 {
				q.ByPosition = 1
			}
		}
		return k.insert.Launch(st, g, &q)
	}
	if c.cfg.together() {
		return launch(device.GridFor(b.N, frame.Threads), p.Rows.Of(frame.Ordered{Rows: b}))
	}
	if !c.cfg.ordered() {
		return launch(c.grid(b.N), p.Rows.Of(frame.Ordered{Rows: b}))
	}
	rows := b
	if c.cfg.carried() == 0 {
		rows.Values = 0
	}
	return c.kernel.partition.Place(&c.frame, st, frame.Placement{
		Regions: &c.regions, Bytes: c.bytes(c.shape), KeyBytes: c.cfg.keyBytes, ValueBytes: c.cfg.carried(), Positions: p.Rows.Refused != 0 || rows.Values == 0,
		Params: c.regionParams(p.Table),
		Launch: launch, Grid: c.grid,
	}, p.Rows, rows)
}

// take runs a batch of n operations that may want room. One in `share` is expected to add a pair; keys are those of a
// batch of inserts, else 0. Those that find no room come back with the reason: all slots are taken then, so where exact
// is over, a key that was refused finds no room. It waits for the stream.
func (c *core) take(st *device.Stream, n, share int64, keys uint64, exact *frame.Exactly, launch func(frame.Part) error) (refused []int, why, err error) {
	if _, err := c.look(st); err != nil {
		return nil, nil, err
	}
	if c.worn > wear*c.capacity() {
		if err := c.renew(st); err != nil {
			return nil, nil, err
		}
	}
	last := false
	if keys != 0 && !exact.Over() {
		rows := frame.Rows{Keys: keys, N: n}
		grow := func(pairs int64) (why, err error) { return c.grow(st, pairs) }
		learn, err := c.forecast.First(&c.frame, st, rows, c.live, c.limit(), c.find, grow)
		if err != nil {
			return nil, nil, err
		}
		defer learn()
	}
	return frame.Inserter{
		Try:   c.tries(),
		Share: share, Keys: keys, KeyBytes: c.cfg.keyBytes,
		Launch: func(p frame.Part) (err error) {
			if last = p.Attempt == lastAttempt; p.Attempt > 0 {
				err = c.reset(st)
			}
			if err == nil {
				err = launch(p)
			}
			return err
		},
		Look: func() (failed, live int64, err error) {
			live, err = c.look(st)
			return int64(c.counters.Seen.Failed), live, err
		},
		Room: func(_ int64, bound bool) (int64, error) {
			if bound {
				return c.easy() - c.live(), nil
			}
			return c.limit() - c.live(), nil
		},
		Grow: func(_, _, pairs int64) (why, err error) {
			return exact.Grow(func() (why, err error) { return c.grow(st, pairs) })
		},
		Settle: func(int64) (attempt uint64, err error) {
			if !last {
				attempt = lastAttempt
			}
			return attempt, nil
		},
		After: func() (err error) {
			if c.counters.Seen.Failed > 0 {
				exact.Refused(true)
				err = c.reset(st)
			}
			return err
		},
	}.Run(&c.frame, st, n, c.live())
}

// grow makes room for so many pairs in all, or for more than there is. why says what forbids it: then the table is as it was.
func (c *core) grow(st *device.Stream, pairs int64) (why, err error) {
	s := c.shapeForPairs(max(pairs, 2*c.limit()))
	if limit := c.opts.MaxBytes; limit > 0 && c.bytes(s) > limit {
		if s = c.largest(); c.slotsOf(s) <= c.capacity() {
			return frame.AtMaxBytes(limit), nil
		}
	}
	why = c.rebuild(st, s)
	for step := s.regions / 4; device.IsOutOfMemory(why) && step > 0 && c.room.host != 0; step /= 2 { // as far as the panes that there may be reach
		if s.regions -= step; c.limitOf(s) < pairs || c.slotsOf(s) <= c.capacity() {
			break
		}
		why = c.rebuild(st, s)
	}
	if device.IsOutOfMemory(why) {
		return why, nil
	}
	return nil, why
}

// renew rids the board of what deletions left: tickets that were once taken, and filters' bits. It does so where memory
// allows, for a table whose slots are in one piece and which has room, and else leaves that for later. It waits for the
// stream, and is called behind look.
func (c *core) renew(st *device.Stream) error {
	c.worn = 0
	if c.near.Len() == 0 || c.live() > min(c.limit(), c.easy()) {
		return nil
	}
	if err := c.move(st, c.shape, false); !device.IsOutOfMemory(err) {
		return err
	}
	return nil
}

// rebuild moves all pairs to a new table of the given shape, in panes if need be; on an error the old one stands, unless
// the device is lost. It waits for the stream.
func (c *core) rebuild(st *device.Stream, s shape) error { return c.move(st, s, true) }

// move is rebuild, in panes only if it may.
func (c *core) move(st *device.Stream, s shape, panes bool) error {
	old, from := c.memory, c.table()
	err := c.frame.Spare() // the new table may need the memory more
	if err != nil {
		return err
	}
	m := memory{shape: s}
	if err = c.makeBoard(st, &m); err == nil {
		if m.near, err = c.makeNear(s); panes && device.IsOutOfMemory(err) {
			return c.spread(st, m)
		}
	}
	if err == nil {
		err = errors.Join(c.wipe(st, &m), st.SyncOf(c.frame.Device))
	}
	if err != nil {
		st.SyncOf(c.frame.Device)
		return errors.Join(err, c.freeMemory(&m))
	}
	c.memory = m
	if err = c.kernel.rehash.Launch(st, c.grid(c.slotsOf(old.shape)), &slotsParams{Table: from, Target: c.table()}); err == nil {
		_, err = c.look(st)
	}
	if failed := c.counters.Seen.Failed; err == nil && failed > 0 {
		err = fmt.Errorf("stadium: %d pairs found no slot in a larger table: this is a defect of warpmap", failed)
	}
	rest := &old // what is not wanted any more
	if err != nil {
		now := c.memory
		c.memory, rest = old, &now
	}
	return errors.Join(err, c.freeMemory(rest))
}

// Grow makes room for at least n pairs in all. It needs memory for the old and the new table at once. Errors:
// table.ErrMaxBytes; *device.OutOfMemoryError. After an error the table is unchanged.
func (h *handle) Grow(n int) error {
	c := h.made()
	return c.frame.GrowTo(n, c.look, func(st *device.Stream, _ int64) error {
		s := c.shapeForPairs(int64(n))
		if c.slotsOf(s) <= c.capacity() {
			if c.worn == 0 {
				return nil
			}
			return c.renew(st)
		}
		if limit := c.opts.MaxBytes; limit > 0 && c.bytes(s) > limit {
			return c.frame.NoRoomFor(n, c.bytes(s), limit)
		}
		return c.rebuild(st, s)
	})
}

// find queues a look-up.
func (c *core) find(st *device.Stream, b frame.Rows) error {
	return c.search(st, c.kernel.find, &c.far.find, b)
}

// erase queues a deletion.
func (c *core) erase(st *device.Stream, b frame.Rows) error {
	c.erased += b.N
	return c.search(st, c.kernel.erase, &c.far.erase, b)
}

// search queues look-ups. Large ones in a table that is partly in host memory it waits for, unless they go into a graph.
func (c *core) search(st *device.Stream, k device.Kernel[findParams], far *farSearch, b frame.Rows) error {
	captured, err := st.Capturing()
	if err != nil {
		return err
	}
	return b.InPieces(mostRows, c.cfg.keyBytes, c.cfg.valueBytes, func(x frame.Rows) error {
		p := findParams{Table: c.table(), Keys: x.Keys, Values: x.Values, Found: x.Flags, N: uint64(x.N)}
		if !captured && c.far.orders(c, x.N) {
			return c.searchFar(st, k, far, p)
		}
		return k.Launch(st, device.GridFor(x.N, frame.Threads), &p)
	})
}

// mixedInserts: of a mixed batch, one operation in so many is expected to add a pair. Where more do, the table grows in the middle of
// the batch.
const mixedInserts = 4

// mixedDeletes: and one in so many to delete one.
const mixedDeletes = 4

// mix runs a mixed batch; results and status may be 0. Where there is room for all its operations, it does not wait.
func (c *core) mix(st *device.Stream, b frame.MixedRows) (refused []int, why, err error) {
	launch := func(part frame.Part, limit uint64) error {
		b := b.Part(part, c.cfg.keyBytes, c.cfg.valueBytes)
		c.stale()
		return c.kernel.mixed.Launch(st, c.grid(b.N), &mixedParams{Table: c.table(), Ops: b.Ops, Keys: b.Keys, Values: b.Values, Results: b.Results,
			Status: b.Status, Refused: part.Refused, N: part.N, Attempt: part.Attempt, Limit: limit})
	}
	c.erased += b.N / mixedDeletes
	if !c.foreign && c.most+b.N <= c.limit() && b.N <= mostRows {
		c.most += b.N
		return nil, nil, launch(frame.Part{N: uint64(b.N)}, math.MaxUint64)
	}
	return c.take(st, b.N, mixedInserts, 0, nil, func(part frame.Part) error { return launch(part, c.searched(int64(part.N), part.Attempt)) })
}

// Family returns the family's name.
func (*handle) Family() table.Family { return family }

// Len counts the pairs.
func (h *handle) Len() (int, error) { return h.made().frame.Count(h.made().look) }

// Clear removes all pairs and keeps the capacity. It queues its work and returns.
func (h *handle) Clear() error {
	c := h.made()
	return c.frame.Writing(nil, func(st *device.Stream) error {
		c.most, c.foreign, c.worn, c.erased = 0, false, 0, 0
		return errors.Join(c.wipe(st, &c.memory), c.counters.Clear(st))
	})
}

// exporting is how the pairs are given out.
func (c *core) exporting(st *device.Stream) (frame.Exporter, error) {
	live, err := c.look(st)
	return frame.Exporter{Slots: c.capacity(), Live: live, Export: func(st *device.Stream, r frame.Range) (int64, error) {
		p := slotsParams{Table: c.table(), First: uint64(r.First), Slots: uint64(r.Slots), Keys: r.Keys, Values: r.Values, Limit: uint64(r.Limit)}
		queued := frame.InTurn(func() error { return c.reset(st) },
			func() error { return c.kernel.export.Launch(st, c.grid(r.Slots), &p) })
		return frame.Exported(queued, func() (uint64, error) { _, err := c.look(st); return c.counters.Seen.Exported, err })
	}}, err
}

// Stats measures the table. It walks from the first bucket of every pair to the slot of the pair.
func (h *handle) Stats() (table.Stats, error) {
	c := h.made()
	var far int64
	s, err := c.frame.Measure(c.look, func(st *device.Stream, histogram uint64) error {
		return c.kernel.probes.Launch(st, c.grid(c.capacity()), &slotsParams{Table: c.table(), Histogram: histogram})
	}, func(live int64) table.Stats {
		far = c.far.bytes()
		return table.Stats{Len: int(live), Capacity: int(c.capacity()), Bytes: c.bytes(c.shape), HostBytes: c.hostBytes(),
			MaxProbes: int(min(max(c.counters.Seen.MaxProbes, probesUntold), uint64(c.shape.buckets())))}
	})
	s.ScratchBytes += far
	return s, err
}

// Close frees the table's memory. A second call does nothing.
func (h *handle) Close() error { return h.made().frame.Close() }

func (c *core) free() error { return errors.Join(c.far.close(c), c.freeMemory(&c.memory)) }

// tries is how many pairs of unknown duplicity are tried at once.
func (c *core) tries() int64 {
	if !c.frame.Device.Info().CUDA() {
		return c.frame.Tries(firstBatch)
	}
	return min(firstBatch, max(leastBatch, crowded*c.capacity()))
}

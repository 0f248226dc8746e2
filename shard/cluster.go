package shard

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

const family table.Family = "shard"

// Mode is where keys go.
type Mode int

const (
	// Distributed gives each key one owner.
	Distributed Mode = iota
	// Independent puts device slices into the table of the device that they are on, and members' batches into the member's own, and asks all tables for keys. See doc.go.
	Independent
)

func (m Mode) String() string {
	if m == Independent {
		return "independent"
	}
	return "distributed"
}

// Options are those of a table over several devices. Capacity and MaxBytes are of all devices together, and divided among them.
type Options struct {
	table.Options
	Mode Mode
	// Copies sends rows by copies between devices where kernels could write to the other's memory themselves. Where there is no peer access, it is always so.
	Copies bool
	// Piece is how many rows of each device's batch are under way at once, at most: while one piece goes in, the next is split and sent,
	// but not where inserts are split by regions. Zero means as many as serve a GPU well, 2²⁸, or less where memory is short.
	Piece int
	// Regions is by how many regions of each device's table inserts of pairs and look-ups are split beside by devices, so that the tables get them in
	// order, and need not bring them so themselves: up to table.MaxParts in all. Zero means as many as the tables would order rows by, which is none on CPU devices; less than 0 none. It is
	// for families whose maps are a table.Orderer, and where there is peer access.
	Regions int
	// AskAll is how many keys a look-up may have to be asked of all devices: nothing is counted or waited for then, and each device looks up all. More go to
	// their owners. Zero means 4096 on GPUs, and none on CPU devices; less than 0 means none.
	AskAll int
	// Apart does one step of an exchange after the other and waits for each, so that Steps tells how long they take, by events: for measuring.
	Apart bool
}

// Steps is how long the steps of exchanges took, with Options.Apart: each as long as on the device where it took longest.
type Steps struct {
	Count time.Duration `json:"count"`
	Split time.Duration `json:"split"` // with remote writes, sending too
	Send  time.Duration `json:"send"`  // copies from outboxes
	Work  time.Duration `json:"work"`  // the tables' own
	Fetch time.Duration `json:"fetch"`
}

// step is one of Steps.
type step int

const (
	countStep step = iota
	splitStep
	sendStep
	workStep
	fetchStep
	steps
)

// member is one of a table's devices, with what it has for exchanges. Of what there are two, successive rounds take one each in turn.
type member struct {
	d     *device.Device
	stage table.Stage
	table table.Table
	peers []bool // may kernels here use the memory of the others, and theirs this device's

	ahead, split, work  *device.Stream   // counting; splitting and fetching; the table's own operations
	splitting, working  *watch           // with Options.Apart: steps on the first two, and on the last
	came                *device.Event    // the end of a caller's stream
	sent, done, fetched [2]*device.Event // the ends of a round's splitting, operations and fetching
	count               device.Kernel[countRows]
	splits              device.Kernel[splitRows]
	gather, merge       device.Kernel[gatherRows]
	spread              device.Kernel[spreadRows]
	regional            regional                   // made when first asked for
	lists               [4]device.Kernel[listRows] // shard_sum, shard_scan, shard_offsets, shard_lists

	counts  device.Slice[uint64] // one a chunk and owner
	landing device.Host[uint64]  // where they come to
	cursors device.Slice[uint64] // one a round and owner
	inbox   [2]device.Slice[byte]
	notes   [2]device.Slice[byte] // places and bases of a round's rows
	outbox  [2]device.Slice[byte] // rows on their way, where there is no peer access

	capacity int // slots of the table as last told
}

// cluster is what tables of all kinds over several devices have.
type cluster struct {
	widths
	members []*member
	opts    Options
	seed    uint64 // of the owner's hash

	mu     sync.Mutex // held while a call decides and queues
	closed bool
	lost   error
	round  int // all that were, so far as it is even or odd
	took   [steps]time.Duration
	// scattered: keys came to devices that do not own them, in the independent mode.
	scattered bool

	changes atomic.Uint64 // calls that may have changed the table
}

// handle is what users hold of a table over several devices. It names cluster instead of embedding it: each instance of a generic type is
// compiled with every method that it embeds, in each package that uses it.
type handle struct{ cluster *cluster }

// newCluster makes the devices' part; each makes the table of one device.
func newCluster(devices []*device.Device, w table.Width, o Options, each func(i int, d *device.Device, o table.Options) (table.Table, error)) (c *cluster, err error) {
	if w.Err != nil {
		return nil, w.Err
	}
	all := o.Options
	if err := all.Complete(1); err != nil {
		return nil, err
	}
	switch {
	case len(devices) == 0:
		return nil, fmt.Errorf("%s: no device (see device.OpenAll)", family)
	case len(devices) > MaxDevices:
		return nil, fmt.Errorf("%s: %d devices (%d at most in one process)", family, len(devices), MaxDevices)
	case o.Mode != Distributed && o.Mode != Independent:
		return nil, fmt.Errorf("%s: mode %d (want Distributed or Independent)", family, o.Mode)
	case o.Regions > 0 && o.Regions*len(devices) > table.MaxParts:
		return nil, fmt.Errorf("%s: %d regions on each of %d devices (%d at most in all)", family, o.Regions, len(devices), table.MaxParts)
	case o.Piece < 0:
		return nil, fmt.Errorf("%s: pieces of %d rows (want 1 or more; 0 for the default)", family, o.Piece)
	}
	c = &cluster{widths: widths{w.Key, w.Value}, opts: o, seed: ownersSeed(all.Seed)}
	defer func(made *cluster) {
		if err != nil {
			handle{made}.Close()
		}
	}(c)
	part := partOf(o.Options, all.Seed, len(devices))
	seen := map[string]bool{}
	for _, d := range devices {
		if d == nil {
			return nil, fmt.Errorf("%s: no device (see device.OpenAll)", family)
		}
		if info := d.Info(); seen[info.Name] {
			return nil, fmt.Errorf("%s: %s is there twice", family, info.Name)
		} else if info.CUDA() != devices[0].Info().CUDA() {
			return nil, fmt.Errorf("%s: %s beside %s: want GPUs, or CPU devices in their place", family, info.Name, devices[0].Info().Name)
		}
		seen[d.Info().Name] = true
		c.members = append(c.members, &member{d: d})
	}
	err = c.together(func(i int) error {
		m := c.members[i]
		if err := m.open(program(w.Key, w.Value), o.Apart); err != nil {
			return err
		}
		t, err := each(i, m.d, part)
		if err == nil {
			m.table = t
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if c.opts.AskAll == 0 && devices[0].Info().CUDA() {
		c.opts.AskAll = askAll
	}
	return c, c.befriend()
}

// askAll is how many keys are asked of all GPUs, unless Options say.
const askAll = 4096

// open makes what the member has from the beginning.
func (m *member) open(p *device.Program, apart bool) error {
	m.stage.Init(m.d)
	module, err := m.d.Compile(p)
	if err != nil {
		return err
	}
	err = errors.Join(device.Bind(module, "shard_count", &m.count), device.Bind(module, "shard_split", &m.splits), device.Bind(module, "shard_gather", &m.gather),
		device.Bind(module, "shard_merge", &m.merge), device.Bind(module, "shard_spread", &m.spread))
	for i, name := range []string{"shard_sum", "shard_scan", "shard_offsets", "shard_lists"} {
		err = errors.Join(err, device.Bind(module, name, &m.lists[i]))
	}
	if err != nil {
		return err
	}
	for _, st := range []**device.Stream{&m.ahead, &m.split, &m.work} {
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
	return []**device.Event{&m.came, &m.sent[0], &m.sent[1], &m.done[0], &m.done[1], &m.fetched[0], &m.fetched[1]}
}

// befriend asks for peer access between all devices. Two use it if each has it to the other.
func (c *cluster) befriend() error {
	can := make([][]bool, len(c.members))
	for i, m := range c.members {
		can[i] = make([]bool, len(c.members))
		for j, other := range c.members {
			var err error
			if can[i][j], err = m.d.PeerAccess(other.d); err != nil {
				return err
			}
		}
	}
	for i, m := range c.members {
		for j := range c.members {
			m.peers = append(m.peers, i == j || can[i][j] && can[j][i] && !c.opts.Copies)
		}
	}
	return nil
}

// ownersSeed is the seed of the owner's hash.
func ownersSeed(seed uint64) uint64 { return kernel.Fmix64(seed ^ 0x5ead0f5ead0f) }

// partOf are the options of the table of one of several members.
func partOf(o table.Options, seed uint64, members int) table.Options {
	o.Seed = kernel.Fmix64(seed+1) | 1
	o.Capacity = share(o.Capacity, members)
	if o.MaxBytes > 0 {
		o.MaxBytes = max(1, o.MaxBytes/int64(members))
	}
	return o
}

// share is how many of n keys one of several members gets, but for one case in a thousand millions.
func share(n, members int) int {
	if members == 1 {
		return n
	}
	mean := float64(n) / float64(members)
	return min(n, int(math.Ceil(mean+7*math.Sqrt(mean)))+8)
}

// together runs do for every member at once, and returns when all are done, with all errors. A panic goes on to the caller then.
func (c *cluster) together(do func(i int) error) error { return together(len(c.members), do) }

func together(n int, do func(i int) error) error {
	var wg sync.WaitGroup
	errs, crashes := make([]error, n), make(chan any, n)
	for i := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() {
				if crash := recover(); crash != nil {
					crashes <- crash
				}
			}()
			errs[i] = do(i)
		}()
	}
	wg.Wait()
	select {
	case crash := <-crashes:
		panic(crash)
	default:
	}
	return table.OneLine(errors.Join(errs...))
}

// locked runs do with the lock held, unless the table is closed or one of its devices is lost.
func (c *cluster) locked(do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("%s: %w", family, table.ErrClosed)
	}
	if c.lost != nil {
		return c.lost
	}
	err := do()
	if fault := (*device.FaultError)(nil); errors.As(err, &fault) {
		c.lost = fmt.Errorf("%s: %s is lost, and the pairs there with it: %w", family, fault.Device, err)
		return c.lost
	}
	return err
}

// Devices are the devices of the table, in the order of their numbers.
func (h handle) Devices() (devices []*device.Device) {
	c := h.cluster
	for _, m := range c.members {
		devices = append(devices, m.d)
	}
	return devices
}

// Steps gives how long the steps of all exchanges took since it was asked last. All are 0 without Options.Apart.
func (h handle) Steps() (s Steps) {
	c := h.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	s = Steps{c.took[countStep], c.took[splitStep], c.took[sendStep], c.took[workStep], c.took[fetchStep]}
	clear(c.took[:])
	return s
}

// Family is that of the members' tables.
func (h handle) Family() table.Family { return h.cluster.members[0].table.Family() }

// Len counts what the table holds, on all devices. It waits for what is queued.
func (h handle) Len() (n int, err error) {
	c := h.cluster
	err = c.locked(func() error { n, err = c.len(); return err })
	return n, err
}

func (c *cluster) len() (n int, err error) {
	lens := make([]int, len(c.members))
	err = c.together(func(i int) (err error) { lens[i], err = c.members[i].table.Len(); return err })
	for _, l := range lens {
		n += l
	}
	return n, err
}

// Clear empties the table on every device and keeps the capacity. It queues.
func (h handle) Clear() error {
	c := h.cluster
	return c.locked(func() error {
		c.changes.Add(1)
		err := c.together(func(i int) error { return c.members[i].table.Clear() })
		c.scattered = c.scattered && err != nil
		return err
	})
}

// Stats measures the table over all devices: sums, and of MaxProbes the largest. Cost: all of it is read.
func (h handle) Stats() (table.Stats, error) {
	each, err := h.StatsEach()
	return added(each), err
}

// added are the sums of what several tables tell.
func added(each []table.Stats) (s table.Stats) {
	probes := 0.0
	for _, x := range each {
		s.Len += x.Len
		s.Capacity += x.Capacity
		s.Tombstones += x.Tombstones
		s.Bytes += x.Bytes
		s.HostBytes += x.HostBytes
		s.StagingBytes += x.StagingBytes
		s.ScratchBytes += x.ScratchBytes
		for i, n := range x.Probes {
			s.Probes[i] += n
		}
		probes += x.MeanProbes * float64(x.Len)
		s.MaxProbes = max(s.MaxProbes, x.MaxProbes)
	}
	if s.Capacity > 0 {
		s.LoadFactor = float64(s.Len) / float64(s.Capacity)
	}
	if s.Len > 0 {
		s.MeanProbes = probes / float64(s.Len)
	}
	return s
}

// StatsEach measures the part of the table on each device, in the order of Devices. What exchanges keep there is among its ScratchBytes.
func (h handle) StatsEach() (each []table.Stats, err error) {
	c := h.cluster
	each = make([]table.Stats, len(c.members))
	err = c.locked(func() error {
		return c.together(func(i int) (err error) {
			m := c.members[i]
			each[i], err = m.table.Stats()
			each[i].ScratchBytes += m.kept()
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return each, nil
}

// kept is the device memory that exchanges keep for the next.
func (m *member) kept() (bytes int64) {
	for i := range m.inbox {
		bytes += m.inbox[i].Bytes() + m.notes[i].Bytes() + m.outbox[i].Bytes()
	}
	return bytes + m.counts.Bytes() + m.cursors.Bytes()
}

// check walks the invariants of every part, and with exported, which gives the keys of one, sees that each is where it belongs.
func (c *cluster) check(exported func(i int) ([]uint64, error)) error {
	return c.locked(func() error {
		return c.together(func(i int) error {
			m := c.members[i]
			if err := m.table.Check(); err != nil {
				return fmt.Errorf("%s: on %s: %w", family, m.d.Info().Name, err)
			}
			keys, err := exported(i)
			if err != nil {
				return err
			}
			for _, k := range keys {
				if c.opts.Mode == Independent {
					break // keys may be anywhere
				}
				if owner := ownerOf(k, c.keyBytes, c.seed, len(c.members)); owner != i {
					return fmt.Errorf("%s: key %#x is on %s, and belongs to %s", family, k, m.d.Info().Name, c.members[owner].d.Info().Name)
				}
			}
			return nil
		})
	})
}

// Grow makes room for at least n pairs or keys in all. Where one device has too little memory, it is an error, and others may have grown already.
func (h handle) Grow(n int) error {
	c := h.cluster
	if n < 0 || n > 1<<46 {
		return fmt.Errorf("%s: grow to %d pairs (want 0 to 2⁴⁶)", family, n)
	}
	return c.locked(func() error {
		c.changes.Add(1)
		return c.together(func(i int) error { return c.members[i].table.Grow(share(n, len(c.members))) })
	})
}

// Close waits for all work on the table, and frees its memory on every device. A second call does nothing.
func (h handle) Close() error {
	c := h.cluster
	defer func() {
		for _, m := range c.members {
			m.stage.Close() // without the lock, which a batch that holds the stage may wait for
		}
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	c.settle()
	return c.together(func(i int) error {
		if err := c.members[i].close(); !errors.Is(err, device.ErrClosed) { // the device freed all
			return err
		}
		return nil
	})
}

// settle waits for all that exchanges have queued; what went wrong there shows where it is waited for next.
func (c *cluster) settle() {
	for _, m := range c.members {
		for _, st := range []*device.Stream{m.ahead, m.split, m.work} {
			if st != nil {
				st.Sync()
			}
		}
	}
}

// close frees what the member has. Nothing uses it any more.
func (m *member) close() (err error) {
	if m.table != nil {
		err = m.table.Close()
	}
	for i := range m.inbox {
		err = errors.Join(err, release(&m.inbox[i]), release(&m.notes[i]), release(&m.outbox[i]))
	}
	err = errors.Join(err, release(&m.counts), release(&m.cursors), m.landing.Free())
	err = errors.Join(err, m.splitting.close(), m.working.close())
	for _, ev := range m.events() {
		if *ev != nil {
			err = errors.Join(err, (*ev).Close())
		}
	}
	for _, st := range []*device.Stream{m.ahead, m.split, m.work} {
		if st != nil {
			err = errors.Join(err, st.Close())
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

package shard

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

const family table.Family = "shard"

// cluster is a table over devices of this process.
type cluster struct {
	widths
	members []*member
	opts    Options
	seed    uint64 // of the owner's hash

	mu     sync.Mutex // held while a call decides and queues
	closed bool
	lost   error
	round  int // all that were, so far as it is even or odd
	vain   int // batches whose rows are not to be combined: see combine
	turn   int // of quick batches, the half that the next one takes
	// atomics: atomic operations of each device work on the memory of all others.
	atomics bool
	took    [steps]time.Duration
	// scattered: keys came to devices that do not own them, in the independent mode.
	scattered bool

	changes atomic.Uint64 // calls that may have changed the table
}

// newCluster makes a cluster over the devices. each makes the table of one device.
func newCluster(devices []*device.Device, w frame.Width, o Options,
	each func(i int, d *device.Device, o table.Options) (table.Table, error)) (c *cluster, err error) {
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
	case o.Regions > 0 && o.Regions*len(devices) > frame.MaxParts:
		return nil, fmt.Errorf("%s: %d regions on each of %d devices (%d at most in all)", family, o.Regions,
			len(devices), frame.MaxParts)
	case o.Piece < 0:
		return nil, fmt.Errorf("%s: pieces of %d rows (want 1 or more; 0 for the default)", family, o.Piece)
	}
	c = &cluster{widths: widths{w.Key, w.Value}, opts: o, seed: ownersSeed(all.Seed)}
	made := false
	defer func(c *cluster) {
		if !made { // after an error, or a panic of each
			c.close()
		}
	}(c)
	part := partOf(o.Options, all.Seed, len(devices))
	seen := map[string]bool{}
	for _, d := range devices {
		if d == nil || d.Stream() == nil {
			return nil, fmt.Errorf("%s: no device (see device.OpenAll)", family)
		}
		if info := d.Info(); seen[info.Name] {
			return nil, fmt.Errorf("%s: %s is there twice", family, info.Name)
		} else if info.CUDA() != devices[0].Info().CUDA() {
			return nil, fmt.Errorf("%s: %s beside %s: want GPUs, or CPU devices in their place", family, info.Name,
				devices[0].Info().Name)
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
	err = c.befriend()
	made = err == nil
	return c, err
}

// befriend decides for each pair of devices whether kernels of one use the memory of the other. With Options.Copies no
// device is asked for access.
func (c *cluster) befriend() error {
	access := func(i, j int) (bool, error) { return c.members[i].d.PeerAccess(c.members[j].d) }
	if c.opts.Copies {
		access = func(i, j int) (bool, error) { return false, nil }
	}
	peers, err := friends(len(c.members), access)
	c.atomics = err == nil
	for i, m := range c.members {
		m.peers = peers[i]
		for k, other := range c.members {
			if c.atomics = c.atomics && m.peers[k]; c.atomics {
				can, e := m.d.PeerAtomics(other.d)
				c.atomics = can && e == nil // without them, batches go another way
			}
		}
	}
	return err
}

// friends returns for each of n devices which others it shares memory with: those where both have access. A device has
// room for few peers, so a pair of which the first has no access takes no room of the second.
func friends(n int, access func(i, j int) (bool, error)) (peers [][]bool, err error) {
	for i := range n {
		peers = append(peers, make([]bool, n))
		peers[i][i] = true
	}
	for i := range n {
		for j := i + 1; j < n; j++ {
			both, err := access(i, j)
			if both && err == nil {
				both, err = access(j, i)
			}
			if err != nil {
				return peers, err
			}
			peers[i][j], peers[j][i] = both, both
		}
	}
	return peers, nil
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

// together runs do for every member concurrently, and returns when all are done, with all errors. Then a panic goes on
// to the caller.
func (c *cluster) together(do func(i int) error) error { return together(len(c.members), do) }

// errExited is the error of a goroutine that did not return.
var errExited = fmt.Errorf("%s: the code of a table ended its goroutine (runtime.Goexit)", family)

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
			errs[i] = errExited // unless do returns
			errs[i] = do(i)
		}()
	}
	wg.Wait()
	select {
	case crash := <-crashes:
		panic(crash)
	default:
	}
	return frame.OneLine(errors.Join(errs...))
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
	if broken(err) { // one part of the table, without which the others must not change
		c.lost = &device.CallError{Broken: true, Err: fmt.Errorf("%s: %w", family, err)}
		return c.lost
	}
	return err
}

// broken tells whether the table of one of the devices is, of which several may have errors.
func broken(err error) bool {
	switch e := err.(type) {
	case *device.CallError:
		return e.Broken || broken(e.Err)
	case interface{ Unwrap() error }:
		return broken(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), broken)
	}
	return false
}

func (c *cluster) family() table.Family {
	if len(c.members) == 0 {
		return family
	}
	return c.members[0].table.Family()
}

func (c *cluster) independent() bool { return c.opts.Mode == Independent }

func (c *cluster) ownerOf(key uint64) int { return ownerOf(key, c.keyBytes, c.seed, len(c.members)) }

func (c *cluster) devices() (devices []*device.Device) {
	for _, m := range c.members {
		devices = append(devices, m.d)
	}
	return devices
}

func (c *cluster) steps() (s Steps) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s = Steps{c.took[countStep], c.took[splitStep], c.took[sendStep], c.took[workStep], c.took[fetchStep]}
	clear(c.took[:])
	return s
}

func (c *cluster) len() (n int, err error) {
	err = c.locked(func() error { n, err = c.held(); return err })
	return n, err
}

func (c *cluster) ownLen() (int, error) { return c.len() }

func (c *cluster) tell(n int, wrong error) ([]int, error) { return []int{n}, wrong }

// held is len for who holds the lock.
func (c *cluster) held() (n int, err error) {
	lens := make([]int, len(c.members))
	err = c.together(func(i int) (err error) { lens[i], err = c.members[i].table.Len(); return err })
	for _, l := range lens {
		n += l
	}
	return n, err
}

func (c *cluster) clear() error {
	return c.locked(func() error {
		c.changes.Add(1)
		err := c.together(func(i int) error { return c.members[i].table.Clear() })
		c.scattered = c.scattered && err != nil
		return err
	})
}

func (c *cluster) statsEach() (each []table.Stats, err error) {
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

func (c *cluster) grow(n int) error {
	if n < 0 || n > 1<<46 {
		return fmt.Errorf("%s: grow to %d pairs (want 0 to 2⁴⁶)", family, n)
	}
	return c.locked(func() error {
		c.changes.Add(1)
		return c.together(func(i int) error { return c.members[i].table.Grow(share(n, len(c.members))) })
	})
}

// check walks the invariants of every part, and sees that each key is where it belongs.
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
				if owner := c.ownerOf(k); owner != i {
					return fmt.Errorf("%s: key %#x is on %s, and belongs to %s", family, k, m.d.Info().Name,
						c.members[owner].d.Info().Name)
				}
			}
			return nil
		})
	})
}

func (c *cluster) close() error {
	if c == unmade {
		return nil
	}
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

// settle waits for all that exchanges have queued, and tells what went wrong there.
func (c *cluster) settle() (err error) {
	for _, m := range c.members {
		err = errors.Join(err, m.settle())
	}
	return frame.OneLine(err)
}

func (c *cluster) export(do func(i int) error) error {
	return c.locked(func() error { return c.together(do) })
}

// chunks goes over each member's table. unchanged comes before each chunk that is given out, and behind each table: an
// error ends that, for a call changed one of the tables. A call that is under way comes before.
func (c *cluster) chunks(over func(i int, unchanged func() error) error) error {
	var before uint64
	if err := c.locked(func() error { before = c.changes.Load(); return nil }); err != nil {
		return err
	}
	unchanged := func() error {
		if c.changes.Load() != before {
			return fmt.Errorf("%s: %w", family, table.ErrChanged)
		}
		return nil
	}
	return c.oneByOne(func(i int) error {
		if err := over(i, unchanged); err != nil || i+1 == len(c.members) {
			return err
		}
		return unchanged()
	})
}

// oneByOne does something with each member's table, without the lock.
func (c *cluster) oneByOne(do func(i int) error) error {
	for i := range c.members {
		if err := c.locked(func() error { return nil }); err != nil {
			return err
		}
		if err := do(i); err != nil {
			return c.locked(func() error { return err })
		}
	}
	return nil
}

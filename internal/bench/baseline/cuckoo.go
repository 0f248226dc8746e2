// Package baseline holds tables that several papers' studies are measured beside: cuckoo hashing as CUDPP has it.
package baseline

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

const (
	cuckooPrime  = 1<<32 - 5
	cuckooStash  = 101 // slots
	cuckooBuilds = 20  // with functions of their own, before it is no use
)

// cuckooParams are the parameters of cuckoo.cu.
type cuckooParams struct {
	Slots, Stash        uint64
	Size                uint64    // slots
	A, B                [5]uint32 // of the hash functions; the last is the stash's
	Evictions           uint64    // of one pair after the other, before the last goes to the stash
	Counters            uint64
	Stashed             uint64 // pairs in the stash
	Keys, Values, Found uint64
	Ops                 uint64 // of a mixed batch
	N                   uint64
}

//go:embed cuckoo.cu
var cuckooCU string

func cuckooProgram() *device.Program {
	return &device.Program{
		Name:  "cuckoo",
		Files: []device.File{{Name: "cuckoo.cu", Text: cuckooCU}},
		Defines: []device.Define{{Name: "CUCKOO_PRIME", Value: fmt.Sprintf("%du", cuckooPrime)}, {Name: "CUCKOO_STASH", Value: cuckooStash},
			{Name: "CUCKOO_FIND", Value: uint8(table.OpFind)}, {Name: "CUCKOO_INSERT", Value: uint8(table.OpInsert)}},
		Layouts: []any{cuckooParams{}},
	}
}

// CuckooNote says what the table is.
const CuckooNote = "cuckoo: CUDPP's table: four functions, up to 7·lg n evictions, a stash of 101, and new functions where that does not do. " +
	"It is built from all pairs at once; the pair of all ones is reserved, and does not occur"

// Cuckoo is a table that is only built from scratch.
type Cuckoo struct {
	d           *device.Device
	load        float64
	slots       device.Slice[uint64] // behind them, the stash
	host        device.Host[uint64]  // the same memory, where it is the host's
	counters    device.Slice[uint32]
	build, find device.Kernel[cuckooParams]
	mixed       struct{ build, find device.Kernel[cuckooParams] }
	rng         *rand.Rand
	p           cuckooParams // the table as built last

	Builds int // how often functions were drawn
}

// cuckooSlots is the size of a table of n pairs.
func cuckooSlots(n int, load float64) int { return max(n, 1, int(math.Ceil(float64(n)/load))) }

// NewCuckoo makes a table for up to n pairs, of that load factor for any number. Errors: too many pairs for hashes of 32 bits; what the
// device says.
func NewCuckoo(d *device.Device, n int, load float64) (c *Cuckoo, err error) {
	return newCuckoo(d, n, load, false)
}

// NewHostCuckoo is NewCuckoo with the slots in pinned host memory, which kernels reach across the bus.
func NewHostCuckoo(d *device.Device, n int, load float64) (c *Cuckoo, err error) {
	return newCuckoo(d, n, load, true)
}

func newCuckoo(d *device.Device, n int, load float64, host bool) (c *Cuckoo, err error) {
	if cuckooSlots(n, load) >= cuckooPrime {
		return nil, fmt.Errorf("cuckoo: %d pairs: hashes of 32 bits do not reach so many slots", n)
	}
	c = &Cuckoo{d: d, load: load, rng: rand.New(rand.NewPCG(1, uint64(n)))}
	m, err := d.Compile(cuckooProgram())
	if err == nil {
		err = errors.Join(device.Bind(m, "cuckoo_build", &c.build), device.Bind(m, "cuckoo_find", &c.find),
			device.Bind(m, "cuckoo_build_mixed", &c.mixed.build), device.Bind(m, "cuckoo_find_mixed", &c.mixed.find))
	}
	if err != nil {
		return nil, err
	}
	if slots := cuckooSlots(n, load) + cuckooStash; host {
		c.host, err = device.MakeMapped[uint64](d, slots)
		c.slots = c.host.Mapped()
	} else {
		c.slots, err = device.Make[uint64](d, slots)
	}
	if err != nil {
		return nil, err
	}
	if c.counters, err = device.Make[uint32](d, 2); err != nil {
		return nil, errors.Join(err, c.freeSlots())
	}
	return c, nil
}

// Clear has nothing to do: a build begins with it.
func (c *Cuckoo) Clear() error { return nil }

// InsertOn builds the table from these pairs alone, whose keys are distinct. It waits for the stream, to know whether all have found a place.
func (c *Cuckoo) InsertOn(st *device.Stream, keys, values device.Slice[uint32]) error {
	for range cuckooBuilds {
		if err := errors.Join(c.Begin(st, keys.Len()), c.AddOn(st, keys, values)); err != nil {
			return err
		}
		if homeless, err := c.Homeless(st); err != nil || homeless == 0 {
			return err
		}
	}
	return fmt.Errorf("cuckoo: pairs without a place in each of %d builds", cuckooBuilds)
}

// Begin empties the table, for n pairs that are to come, and draws new functions.
func (c *Cuckoo) Begin(st *device.Stream, n int) error {
	c.Builds++
	size := cuckooSlots(n, c.load)
	all := c.slots.Slice(0, size+cuckooStash)
	c.p = cuckooParams{
		Slots: all.Addr(), Stash: all.Slice(size, size+cuckooStash).Addr(), Size: uint64(size),
		Evictions: uint64(7 * bits.Len(uint(n))), Counters: c.counters.Addr(),
	}
	for f := range c.p.A {
		c.p.A[f], c.p.B[f] = c.rng.Uint32(), c.rng.Uint32N(cuckooPrime)
	}
	return errors.Join(all.Fill(st, 0xff), c.counters.Fill(st, 0))
}

// AddOn adds pairs, whose keys are distinct and new. Begin comes first, Homeless last.
func (c *Cuckoo) AddOn(st *device.Stream, keys, values device.Slice[uint32]) error {
	c.p.N += uint64(keys.Len())
	p := c.p
	p.Keys, p.Values, p.N = keys.Addr(), values.Addr(), uint64(keys.Len())
	return c.build.Launch(st, device.GridFor(int64(p.N), 256), &p)
}

// Homeless waits for the stream, and is how many pairs found no place since Begin.
func (c *Cuckoo) Homeless(st *device.Stream) (int, error) {
	counts, err := c.counters.Host(st)
	if err != nil {
		return 0, err
	}
	c.p.Stashed = uint64(counts[1])
	return int(counts[0]), nil
}

// MixedOn adds the pairs of a mixed batch whose operation is an insert, and then looks up the keys of its finds: for these, status becomes Present
// or Absent. The two kernels pass over one another's operations, as a table must that cannot do both at a time.
func (c *Cuckoo) MixedOn(st *device.Stream, ops device.Slice[table.Op], keys, values, results device.Slice[uint32], status device.Slice[table.Status]) error {
	p := c.p
	p.Ops, p.Keys, p.Values, p.N = ops.Addr(), keys.Addr(), values.Addr(), uint64(keys.Len())
	q := p
	q.Values, q.Found = results.Addr(), status.Addr()
	grid := device.GridFor(int64(p.N), 256)
	return errors.Join(c.mixed.build.Launch(st, grid, &p), c.mixed.find.Launch(st, grid, &q))
}

// FindOn looks keys up.
func (c *Cuckoo) FindOn(st *device.Stream, keys, values device.Slice[uint32], found device.Slice[bool]) error {
	p := c.p
	p.Keys, p.Values, p.Found, p.N = keys.Addr(), values.Addr(), found.Addr(), uint64(keys.Len())
	return c.find.Launch(st, device.GridFor(int64(p.N), 256), &p)
}

// Stats tells of the table as built last.
func (c *Cuckoo) Stats() (table.Stats, error) {
	n := int(c.p.N)
	s := table.Stats{Len: n, Capacity: int(c.p.Size), LoadFactor: float64(n) / float64(max(1, c.p.Size)), Bytes: c.slots.Bytes()}
	if c.host.Len() > 0 {
		s.HostBytes = s.Bytes
	}
	return s, nil
}

// Close frees the table's memory.
func (c *Cuckoo) Close() error { return errors.Join(c.freeSlots(), c.counters.Free()) }

func (c *Cuckoo) freeSlots() error {
	if c.host.Len() > 0 {
		return c.host.Free()
	}
	return c.slots.Free()
}

package stadium

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// lanes is how a warp inserts (§III-C).
type lanes int

const (
	plain    lanes = iota // Stash: a lane has one pair, and waits for the others
	together              // clStash: lanes that are done take on what others have left
	hybrid                // Stash, and from a share of full buckets on clStash
)

func (l lanes) String() string { return [...]string{"Stash", "clStash", "hybrid"}[l] }

// hybridFrom is that share, by the bits of a ticket, as Figure 13 of an H200 gives it: of 2²⁶ pairs of 8+8 bytes in device memory. The paper takes it from
// its own Figure 13 for each configuration, and prints none.
var hybridFrom = map[int]float64{1: 0.52, 2: 0.50, 4: 0.64, 8: 0.74}

const (
	// mostBuckets keeps sums of two bucket numbers within 32 bits.
	mostBuckets = 1 << 31
	// togetherBlocks of a multiprocessor: warps go through many rows, of which lanes can take each other's.
	togetherBlocks = 8
	blockThreads   = 256
)

// stashParams are the parameters of paper.cu.
type stashParams struct {
	Board, Table, Size           uint64
	Far                          uint64 // not 0: the table is in host memory
	Through                      uint64 // not 0: available tickets do not end a look-up
	Ops                          uint64 // of a slice
	Keys, Values, Results, Found uint64
	Counters                     uint64
	N                            uint64
}

// stashCounters lie in device memory.
type stashCounters struct{ Homeless, Erased uint64 }

//go:embed paper.cu
var paperCU string

// design is what the paper's kernels are compiled for.
type design struct {
	keyBytes, valueBytes, ticket int
	access                       bool
}

// bits of a ticket: with an access bit, two at least.
func (c design) bits() int {
	if c.access {
		return max(2, c.ticket)
	}
	return c.ticket
}

// pairBytes is the size of a pair as C++ lays it out.
func (c design) pairBytes() int {
	to := func(n, bytes int) int { unit := min(bytes, 16); return (n + unit - 1) / unit * unit }
	return to(to(c.keyBytes, c.valueBytes)+c.valueBytes, max(c.keyBytes, c.valueBytes))
}

func (c design) program() *device.Program {
	access := 0
	if c.access {
		access = 1
	}
	return &device.Program{
		Name:  "stash",
		Files: []device.File{{Name: "paper.cu", Text: paperCU}},
		Defines: []device.Define{{Name: "STASH_KEY", Value: c.keyBytes}, {Name: "STASH_VALUE", Value: c.valueBytes}, {Name: "STASH_PAIR", Value: c.pairBytes()},
			{Name: "STASH_TICKET", Value: c.bits()}, {Name: "STASH_ACCESS", Value: access}, {Name: "STASH_FIND", Value: uint8(table.OpFind)}},
		Layouts: []any{stashParams{}, stashCounters{}},
	}
}

// stashOptions say which of the paper's tables.
type stashOptions struct {
	pairs   int
	load    float64
	ticket  int
	lanes   lanes
	host    bool    // the table is in pinned host memory
	access  bool    // tickets have access bits, for slices
	without bool    // look-ups do not use the board
	from    float64 // of the hybrid; 0: hybridFrom
	blocks  int     // whose lanes take each other's pairs, at most; 0: togetherBlocks of each multiprocessor
}

// stash is the paper's table. Its inserts never look for their keys, so that a key may be in it more than once.
type stash[K, V workload.Wide] struct {
	d        *device.Device
	o        stashOptions
	size     int // buckets: a prime number
	board    device.Slice[uint32]
	slots    device.Slice[byte]
	far      device.Host[byte] // the memory of slots, where that is the host's
	counters device.Slice[stashCounters]
	taken    int  // buckets, no fewer than there are
	erased   int  // pairs, as far as taken knows of
	through  bool // there was a deletion since the table was empty

	insert, insertTogether, find, erase, slice, sliceTogether device.Kernel[stashParams]
}

// primeFrom is the smallest prime number that is not below n, and not below 3.
func primeFrom(n int) int {
	for n = max(n, 3) | 1; ; n += 2 {
		prime := true
		for d := 3; prime && d*d <= n; d += 2 {
			prime = n%d != 0
		}
		if prime {
			return n
		}
	}
}

// newStash makes an empty table.
func newStash[K, V workload.Wide](d *device.Device, o stashOptions) (t *stash[K, V], err error) {
	var key K
	var value V
	c := design{int(unsafe.Sizeof(key)), int(unsafe.Sizeof(value)), o.ticket, o.access}
	t = &stash[K, V]{d: d, o: o}
	buckets := math.Ceil(float64(o.pairs) / o.load)
	if buckets >= mostBuckets-1000 {
		return nil, fmt.Errorf("stash: %.0f buckets: hashes of 32 bits are stepped up to %d", buckets, mostBuckets)
	}
	t.size = primeFrom(int(buckets))
	m, err := d.Compile(c.program())
	if err != nil {
		return nil, err
	}
	find := "stash_find"
	if o.without {
		find = "stash_find_without"
	}
	err = errors.Join(device.Bind(m, "stash_insert", &t.insert), device.Bind(m, "stash_insert_together", &t.insertTogether), device.Bind(m, find, &t.find), device.Bind(m, "stash_erase", &t.erase))
	if o.access {
		err = errors.Join(err, device.Bind(m, "stash_slice", &t.slice), device.Bind(m, "stash_slice_together", &t.sliceTogether))
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
			t = nil
		}
	}()
	perWord := 32 / c.bits()
	if t.board, err = device.Make[uint32](d, (t.size+perWord-1)/perWord); err != nil {
		return t, err
	}
	if t.counters, err = device.Make[stashCounters](d, 1); err != nil {
		return t, err
	}
	if bytes := t.size * c.pairBytes(); o.host {
		t.far, err = device.MakeMapped[byte](d, bytes)
		t.slots = t.far.Mapped()
	} else {
		t.slots, err = device.Make[byte](d, bytes)
	}
	if err == nil {
		err = t.Clear()
	}
	return t, err
}

// Clear makes all tickets available. The table itself is only written where its keys tell of empty buckets.
func (t *stash[K, V]) Clear() error {
	st := t.d.Stream()
	t.taken, t.erased, t.through = 0, 0, false
	err := errors.Join(t.board.Fill(st, 0xff), t.counters.Fill(st, 0))
	if t.o.without {
		err = errors.Join(err, t.slots.Fill(st, 0xff))
	}
	return err
}

func (t *stash[K, V]) params(n int) stashParams {
	p := stashParams{Board: t.board.Addr(), Table: t.slots.Addr(), Size: uint64(t.size), Counters: t.counters.Addr(), N: uint64(n)}
	if t.o.host {
		p.Far = 1
	}
	if t.through {
		p.Through = 1
	}
	return p
}

// launch runs a kernel in which each thread has an operation, or one whose warps go from row to row.
func (t *stash[K, V]) launch(st *device.Stream, k device.Kernel[stashParams], rows bool, p stashParams) error {
	if p.N == 0 {
		return nil
	}
	grid := device.GridFor(int64(p.N), blockThreads)
	if rows {
		most := t.o.blocks
		if most == 0 {
			most = togetherBlocks * t.d.Info().Multiprocessors
		}
		grid.Blocks = min(grid.Blocks, int64(most))
	}
	return k.Launch(st, grid, &p)
}

// room refuses more pairs than there are buckets for: then every insert ends.
func (t *stash[K, V]) room(st *device.Stream, n int) error {
	if t.taken+n > t.size {
		if _, err := t.look(st); err != nil {
			return err
		}
	}
	if t.taken+n > t.size {
		return fmt.Errorf("stash: %d pairs for %d buckets, of which %d are taken", n, t.size, t.taken)
	}
	t.taken += n
	return nil
}

// look waits for the stream.
func (t *stash[K, V]) look(st *device.Stream) (homeless int, err error) {
	c, err := t.counters.Host(st)
	if err != nil {
		return 0, err
	}
	t.taken -= int(c[0].Erased) - t.erased
	t.erased = int(c[0].Erased)
	return int(c[0].Homeless), nil
}

// plainly is how many of the next n pairs are inserted by lanes that have one each.
func (t *stash[K, V]) plainly(n int) int {
	switch t.o.lanes {
	case plain:
		return n
	case together:
		return 0
	}
	from := t.o.from
	if from == 0 {
		from = hybridFrom[t.o.ticket]
	}
	return min(n, max(0, int(from*float64(t.size))-t.taken))
}

// InsertOn inserts pairs, equal ones too.
func (t *stash[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	n, first := keys.Len(), t.plainly(keys.Len())
	if err := t.room(st, n); err != nil {
		return err
	}
	part := func(from, to int) stashParams {
		p := t.params(to - from)
		p.Keys, p.Values = keys.Slice(from, to).Addr(), values.Slice(from, to).Addr()
		return p
	}
	return errors.Join(t.launch(st, t.insert, false, part(0, first)), t.launch(st, t.insertTogether, true, part(first, n)))
}

// FindOn looks keys up. After a deletion, a key that is absent has every ticket read.
func (t *stash[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error {
	p := t.params(keys.Len())
	p.Keys, p.Results, p.Found = keys.Addr(), values.Addr(), found.Addr()
	return t.launch(st, t.find, false, p)
}

// DeleteOn removes a pair of each key. One that is absent has every ticket read.
func (t *stash[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	if t.o.without {
		return errors.ErrUnsupported // keys stay in their buckets
	}
	t.through = true
	p := t.params(keys.Len())
	p.Keys, p.Found = keys.Addr(), deleted.Addr()
	return t.launch(st, t.erase, false, p)
}

// MixedOn runs inserts and finds beside one another: rows of 32 operations are of one kind. A find's status becomes Present or Absent. A pair that is
// inserted beside a find of its key may be found. inserts is how many there are.
func (t *stash[K, V]) MixedOn(st *device.Stream, inserts int, ops device.Slice[table.Op], keys device.Slice[K], values, results device.Slice[V], status device.Slice[table.Status]) error {
	if !t.o.access {
		return errors.New("stash: tickets have no access bits")
	}
	alone := t.plainly(inserts) == inserts
	if err := t.room(st, inserts); err != nil {
		return err
	}
	p := t.params(keys.Len())
	p.Ops, p.Keys, p.Values, p.Results, p.Found = ops.Addr(), keys.Addr(), values.Addr(), results.Addr(), status.Addr()
	if alone {
		return t.launch(st, t.slice, false, p)
	}
	return t.launch(st, t.sliceTogether, true, p)
}

// Stats waits for the stream. An insert that found no room is an error.
func (t *stash[K, V]) Stats() (s table.Stats, err error) {
	homeless, err := t.look(t.d.Stream())
	if err == nil && homeless > 0 {
		err = fmt.Errorf("stash: %d pairs found no room: this is a defect of the baseline", homeless)
	}
	s = table.Stats{Len: t.taken, Capacity: t.size, LoadFactor: float64(t.taken) / float64(t.size), Bytes: t.board.Bytes() + t.slots.Bytes()}
	if t.o.host {
		s.HostBytes = t.slots.Bytes()
	}
	return s, err
}

// Close frees the table's memory.
func (t *stash[K, V]) Close() error {
	bench.Free(t.board, t.counters)
	if t.far.Len() > 0 {
		return t.far.Free()
	}
	bench.Free(t.slots)
	return nil
}

package frame

import (
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/warpmap/warpmap/device"
)

// Partition is what the kernels of kernel/partition.cuh work on: N rows, and where they go in the order of their
// parts. It is a field of a family's own parameter struct. Addresses are of device memory.
type Partition struct {
	Keys, Values uint64 // columns; Values may be 0
	N            uint64
	First        uint64 // the position of row 0: rows know where they come from
	Positions    uint64 // u32, those of rows that are not in the batch's order; or 0
	// OutKeys, OutValues and OutPositions are columns of N rows, apart from the input. OutPositions may be 0.
	OutKeys, OutValues, OutPositions uint64
	Parts                            uint64
	// Within and Larger are for rows that come in the order of larger parts. Within is how many parts a larger part
	// has. Larger, u64, is where each larger part begins.
	Within, Larger uint64
	Cursors        uint64 // u64, one a part: its rows; then where it begins; then where its next row goes
	Starts         uint64 // u64, Parts+1: where each part begins in the output, and N
	From           uint64 // the part that has number 0 here: a kernel that takes rows of a range of parts leaves out those before it, and from From+Parts on
	// Paired has bits: PairedIn, that rows are read as pairs (kernel/pairs.cuh) at Keys, and PairedOut, that they are
	// written as pairs at OutKeys.
	Paired uint64
	// Of a chunk of rows (see ChunkSorter): the number of regions of the whole batch, the first region of the chunk,
	// and the region after its last.
	Regions, FromRegion, ToRegion uint64
	Counts                        uint64 // u64, one a part: its rows in the chunk; they begin as 0
}

// Bits of Partition.Paired.
const (
	PairedIn = 1 << iota
	PairedOut
)

// MaxParts is the most parts whose order rows are brought in at once, because so many counters fit a block's shared
// memory. More parts take two passes, of at most MaxParts each.
const MaxParts = 1024

const (
	partitionThreads  = 512     // of a block that sorts on a GPU: one block sorts its tile while another reads or writes
	countThreads      = 1024    // of a block that counts rows of many parts, on a GPU
	pairThreads       = 256     // of a block that counts rows of few parts, which may be pairs, on a GPU
	pairResident      = 1280    // threads of a multiprocessor that count these
	partitionEach     = 8       // rows of a tile for each thread, at most: more make longer streams, and take more registers
	partitionRows     = 1 << 10 // rows of a block, at least
	partitionResident = 2048    // threads of a multiprocessor
)

// PartitionDefines returns the constants that kernel/partition.cuh needs among a program's Defines. The size of a tile is
// not one of them: it follows from the shared memory that a block can have.
func PartitionDefines() []device.Define {
	return []device.Define{
		{Name: "WARPMAP_MAX_PARTS", Value: MaxParts},
		{Name: "WARPMAP_PARTITION_EACH", Value: partitionEach},
		{Name: "WARPMAP_PARTITION_THREADS", Value: partitionThreads},
		{Name: "WARPMAP_PARTITION_COUNT_THREADS", Value: countThreads},
		{Name: "WARPMAP_PARTITION_PAIR_THREADS", Value: pairThreads},
	}
}

// Partitioner launches the kernels of a partition. Their parameters are a family's own struct, with a Partition in it.
type Partitioner struct {
	d                    *device.Device
	count, scan, scatter device.AnyKernel
}

// NewPartitioner finds the kernels partition_count, partition_scan and partition_scatter, which take a P, in a module.
func NewPartitioner[P any](d *device.Device, m *device.Module) (Partitioner, error) {
	return partitioner(d, m, reflect.TypeFor[P]())
}

func partitioner(d *device.Device, m *device.Module, params reflect.Type) (p Partitioner, err error) {
	p.d = d
	err = bind(m, params, named{"partition_count", &p.count}, named{"partition_scan", &p.scan}, named{"partition_scatter", &p.scatter})
	return p, err
}

// named is where a kernel goes that a module has by a name.
type named struct {
	name string
	to   *device.AnyKernel
}

// bind finds kernels that take parameters of a type, and tells of all that the module lacks.
func bind(m *device.Module, params reflect.Type, kernels ...named) (err error) {
	for _, k := range kernels {
		var wrong error
		*k.to, wrong = m.Kernel(k.name, params)
		err = errors.Join(err, wrong)
	}
	return err
}

// Ahead begins to compile the kernels: see device.AnyKernel.Ahead.
func (k Partitioner) Ahead() error { return device.Ahead(k.count, k.scan, k.scatter) }

// Within launches the kernels for rows that come in the order of larger parts. They bring these rows in the order of
// the parts within.
type Within struct{ count, scatter, sum device.AnyKernel }

// NewWithin finds the kernels of WARPMAP_PARTITION_WITHIN, which take a P, in a module.
func NewWithin[P any](m *device.Module) (Within, error) { return within(m, reflect.TypeFor[P]()) }

func within(m *device.Module, params reflect.Type) (w Within, err error) {
	err = bind(m, params, named{"partition_within_count", &w.count}, named{"partition_within_scatter", &w.scatter}, named{"partition_sum", &w.sum})
	return w, err // not at once: Go may take w before the call
}

// Ahead begins to compile the kernels: see device.AnyKernel.Ahead.
func (w Within) Ahead() error { return device.Ahead(w.count, w.scatter, w.sum) }

// Ranges launches the kernels that bring the rows of some of the larger parts in order, out of all rows.
type Ranges struct {
	Within
	some device.AnyKernel
}

// NewRanges finds the kernels of NewWithin and WARPMAP_PARTITION_SOME, which take a P, in a module. They subtract From
// from the part of a key.
func NewRanges[P any](m *device.Module) (r Ranges, err error) {
	params := reflect.TypeFor[P]()
	r.Within, err = within(m, params)
	err = errors.Join(err, bind(m, params, named{"partition_scatter_some", &r.some}))
	return r, err
}

// Grouper launches the kernels that bring rows with equal keys beside one another.
type Grouper struct {
	Within
	group device.AnyKernel
}

// NewGrouper finds the kernels of NewWithin and partition_group in a module.
func NewGrouper[P any](m *device.Module) (g Grouper, err error) {
	params := reflect.TypeFor[P]()
	g.Within, err = within(m, params)
	err = errors.Join(err, bind(m, params, named{"partition_group", &g.group}))
	return g, err
}

// ChunkSorter launches the kernels that sort rows which come in chunks by small parts: see Sorted.
type ChunkSorter struct{ count, scan, scatter device.AnyKernel }

// NewChunkSorter finds the kernels of WARPMAP_PARTITION_CHUNKS, which take a P, in a module.
func NewChunkSorter[P any](m *device.Module) (c ChunkSorter, err error) {
	err = bind(m, reflect.TypeFor[P](), named{"partition_chunk_count", &c.count},
		named{"partition_chunk_scan", &c.scan}, named{"partition_chunk_scatter", &c.scatter})
	return c, err
}

// Ahead begins to compile the kernels: see device.AnyKernel.Ahead.
func (c ChunkSorter) Ahead() error { return device.Ahead(c.count, c.scan, c.scatter) }

// chunkWords is the number of counters that n chunks of rows take: cursors, starts and counts. The counts of each chunk
// begin one further on than those of the chunk before, so that a part that two chunks have is counted in two places.
func chunkWords(parts int64, n int) int64 { return 3*parts + 1 + int64(n) }

// PartitionWords is the number of counters that Run needs.
func PartitionWords(parts int) int { return 2*parts + 1 }

// Run queues a partition of rows. rows is complete but for Cursors and Starts, which become parts of counters. params
// gives the address of a kernel's parameters with such rows. Starts is good once the stream has passed. Cost: the keys
// are read twice, and all else is read and written once, in streams.
func (k Partitioner) Run(st *device.Stream, counters device.Slice[uint64], rows Partition, params func(rows Partition) any) error {
	if rows.Parts < 1 || rows.Parts > MaxParts {
		return fmt.Errorf("table: a partition into %d parts (want 1 to %d)", rows.Parts, MaxParts)
	}
	return k.run(st, counters, rows, params, k.count, k.scatter)
}

// RunWithin does what Run does, for rows that come in the order of larger parts, of rows.Within parts each. The larger
// parts begin at rows.Larger.
func (k Partitioner) RunWithin(st *device.Stream, w Within, counters device.Slice[uint64], rows Partition, params func(rows Partition) any) error {
	if rows.Within < 1 || rows.Within > MaxParts || rows.Parts < 1 || rows.Parts%rows.Within != 0 || rows.Larger == 0 || rows.OutPositions != 0 && rows.Positions == 0 {
		return fmt.Errorf("table: a partition into %d parts, within parts of %d (want 1 to %d, and where these begin)", rows.Parts, rows.Within, MaxParts)
	}
	return k.run(st, counters, rows, params, w.count, w.scatter)
}

func (k Partitioner) run(st *device.Stream, counters device.Slice[uint64], rows Partition, params func(rows Partition) any, count, scatter device.AnyKernel) error {
	if rows.N > math.MaxUint32 {
		return fmt.Errorf("table: a partition of %d rows (want fewer than 2^32)", rows.N)
	}
	if counters.Len() < PartitionWords(int(rows.Parts)) {
		return fmt.Errorf("table: a partition into %d parts with %d counters (want 2·parts+1)", rows.Parts, counters.Len())
	}
	if err := device.Ahead(count, k.scan, scatter); err != nil {
		return err
	}
	return InTurn(
		func() error { return k.countOnly(st, count, counters, rows, params) },
		func() error { return k.scatterOnly(st, scatter, counters, rows, params) },
	)
}

// countOnly queues what a partition begins with: to say where its parts begin.
func (k Partitioner) countOnly(st *device.Stream, count device.AnyKernel, counters device.Slice[uint64], rows Partition, params func(rows Partition) any) error {
	rows.Cursors = counters.Addr()
	rows.Starts = rows.Cursors + 8*rows.Parts
	larger := int64(1)
	if rows.Larger != 0 {
		larger = int64(rows.Parts / rows.Within)
	}
	p := params(rows)
	return InTurn(
		func() error { return counters.Slice(0, int(rows.Parts)).Fill(st, 0) },
		func() error { return count.Launch(st, k.grid(rows, count), p) },
		func() error { return k.scan.Launch(st, device.Grid{Blocks: larger, Threads: Threads}, p) },
	)
}

// counts counts the rows of all small parts of a batch, and of the larger parts, in one pass over the keys, and says
// where all of them begin. small has Within, Parts and the batch's Keys. false: a block has no room for so many
// counters.
func (k Partitioner) counts(st *device.Stream, w Within, small Partition, few, many device.Slice[uint64], params func(rows Partition) any) (bool, error) {
	shared, larger := 4*(int(small.Parts)+1), small.Parts/small.Within
	if int64(shared) > k.d.Info().Shared {
		return false, nil
	}
	if err := device.Ahead(k.count, k.scan, w.sum); err != nil {
		return true, err
	}
	small.Cursors = many.Addr()
	grid := k.grid(small, k.count)
	grid.Shared = shared
	count := params(small)
	sums := small
	sums.Starts = few.Addr()
	large := Partition{Parts: larger, Cursors: few.Addr(), Starts: few.Addr() + 8*larger}
	small.Larger, small.Starts = large.Starts, small.Cursors+8*small.Parts
	return true, InTurn(
		func() error { return many.Slice(0, int(small.Parts)).Fill(st, 0) },
		func() error { return k.count.Launch(st, grid, count) },
		func() error {
			return w.sum.Launch(st, device.Grid{Blocks: int64(larger), Threads: Threads}, params(sums))
		},
		func() error { return k.scan.Launch(st, device.Grid{Blocks: 1, Threads: Threads}, params(large)) },
		func() error {
			return k.scan.Launch(st, device.Grid{Blocks: int64(larger), Threads: Threads}, params(small))
		},
	)
}

// scatterOnly queues what is left of a partition whose rows are counted.
func (k Partitioner) scatterOnly(st *device.Stream, scatter device.AnyKernel, counters device.Slice[uint64], rows Partition, params func(rows Partition) any) error {
	rows.Cursors = counters.Addr()
	rows.Starts = rows.Cursors + 8*rows.Parts
	return scatter.Launch(st, k.grid(rows, scatter), params(rows))
}

// grid is so many blocks of a kernel as are resident, each with many tiles.
func (k Partitioner) grid(rows Partition, kernel device.AnyKernel) device.Grid {
	blocks, threads := max(1, int64((rows.N+partitionRows-1)/partitionRows)), kernel.Threads()
	resident := int64(partitionResident / threads * k.d.Info().Multiprocessors)
	if threads == pairThreads {
		resident = int64(pairResident / threads * k.d.Info().Multiprocessors)
	}
	return device.Grid{Blocks: min(blocks, resident), Threads: threads}
}

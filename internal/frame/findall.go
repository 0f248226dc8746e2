package frame

import (
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// FindAll is what the kernels of kernel/findall.cuh work on: N keys, and all values that a table has of them. It is a
// field of a family's own parameter struct. Addresses are of device memory. A warp works on Chunk keys in a row.
//
// In the outer form, a key without values borrows what another key put aside, and has a count of 1. fill_all writes the
// other key's first value, or nothing, and that is then written over. So fill_all must do with a row's count and stash
// alone, and a search for its key may find nothing.
type FindAll struct {
	Keys    uint64
	Counts  uint64 // u32, one a key
	Stash   uint64 // what the family's count_all puts aside of each key, such as its first value; else 0
	Each    uint64 // the most values of a key that are in Stash, where values are put aside
	Totals  uint64 // u64, one a chunk; after scan_totals, where the chunk's values begin
	Offsets uint64 // u64, N+1
	Values  uint64
	N       uint64
	Chunk   uint64 // a multiple of 32
	Chunks  uint64

	// For the outer form. Kernels of families need not know these:
	Outer uint64    // bytes of a value; 0: a key without values gets none
	Found uint64    // u8, one a key: whether it has values
	None  [2]uint64 // the value of a key that has none
}

// Finder launches the kernels of a FindAll. Their parameters are a family's own struct, with a FindAll in it.
type Finder struct {
	params                          reflect.Type
	count, sum, scan, offsets, fill device.AnyKernel
	aside, fillAside, fillRest      device.AnyKernel // in a few families: see Aside
	fused                           bool

	// If look-ups leave some keys to kernels of the family's, these functions queue those kernels around a count, and
	// behind a fill. Otherwise they are nil.
	Counting, Counted, Filled func() error
}

// launchCount queues a count of rows with the kernel.
func (k *Finder) launchCount(st *device.Stream, count device.AnyKernel, g device.Grid, p any) error {
	return queued(k.Counting, func() error { return count.Launch(st, g, p) }, k.Counted)
}

// queued calls functions one after the other, if there are such.
func queued(functions ...func() error) error {
	for _, f := range functions {
		if f == nil {
			continue
		}
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// Aside finds the kernels for keys that have several values on average. count_all_aside does what count_all does, but
// puts as many values aside as FindAll.Each says. fill_aside writes the offsets and those values, and fill_rest writes
// the values of keys that have more.
func (k *Finder) Aside(m *device.Module) error {
	return bind(m, k.params, named{"count_all_aside", &k.aside}, named{"fill_aside", &k.fillAside}, named{"fill_rest", &k.fillRest})
}

// NewFinder finds the kernels count_all, sum_chunks, scan_totals, write_offsets and fill_all, which take a P, in a
// module. If fused is true, there is no write_offsets: fill_all writes the offsets, and has a chunk to a warp where
// otherwise it has a key to a lane.
func NewFinder[P any](m *device.Module, fused bool) (Finder, error) {
	return newFinder(m, reflect.TypeFor[P](), fused)
}

func newFinder(m *device.Module, params reflect.Type, fused bool) (f Finder, err error) {
	f.params, f.fused = params, fused
	kernels := []named{{"count_all", &f.count}, {"sum_chunks", &f.sum}, {"scan_totals", &f.scan}, {"fill_all", &f.fill}}
	if !fused {
		kernels = append(kernels, named{"write_offsets", &f.offsets})
	}
	err = bind(m, params, kernels...)
	return f, err
}

// Count queues count_all alone. p is the address of its parameters, and rows the FindAll in them, with Keys, Counts and N.
func (k Finder) Count(st *device.Stream, grid func(items int64) device.Grid, rows *FindAll, p any) error {
	if rows.N == 0 {
		return nil
	}
	return k.launchCount(st, k.count, grid(int64(rows.N)), p)
}

// Run finds all values, and returns how many there are. p is the address of the kernels' parameters, and rows the
// FindAll in them, with Keys and N; offsets has one element more than there are keys. Once the number of values is
// known, Run asks values for the address of memory for them. stash is the width of a value if count_all puts the first
// of each key aside, otherwise 0. The caller is in Writing. Run waits for the stream. Cost: two passes over the keys,
// of which the second, where there is a stash, is only over those that have several values; scratch memory of 4 bytes a
// key, and the stash.
func (k Finder) Run(f *Frame, st *device.Stream, grid func(items int64) device.Grid, rows *FindAll, p any,
	stash int, offsets device.Slice[uint64], values func(n int) (uint64, error)) (int, error) {
	if err := device.Ahead(k.count, k.sum, k.scan, k.offsets, k.fill); err != nil {
		return 0, err
	}
	// Each warp takes as many keys as still leave every warp of a large GPU a few chunks. One block goes over the chunks.
	n := int64(rows.N)
	chunk := min(max(n/(1<<14)&^127, 128), 4096)
	chunks := (n + chunk - 1) / chunk
	counts, totals := Align(4*n), Align(8*chunks)
	var mem Lease
	defer func() { mem.Done() }()
	reserve := func(each int64) (err error) {
		mem.Done()
		if mem, err = f.Scratch(counts + totals + Align(each*int64(stash)*n) + outerScratch(rows)); err != nil {
			return err
		}
		base := mem.Mem.Addr()
		rows.Counts, rows.Totals, rows.Each = base, base+uint64(counts), uint64(each)
		if stash > 0 {
			rows.Stash = rows.Totals + uint64(totals)
		}
		return nil
	}
	if err := reserve(1); err != nil {
		return 0, err
	}
	count := k.count
	if stash > 0 && k.aside != (device.AnyKernel{}) && n >= askAside && rows.Outer == 0 {
		each, err := k.valuesAside(f, st, grid, rows, p, n*int64(stash), mem.Mem)
		if err != nil {
			return 0, err
		}
		if each > 1 && reserve(each) == nil {
			count = k.aside
		} else if err := reserve(1); err != nil {
			return 0, err
		}
	}
	rows.Offsets, rows.Chunk, rows.Chunks = offsets.Addr(), uint64(chunk), uint64(chunks)
	warps := f.WarpGrid(chunks, grid)
	var outer outerForm
	if n > 0 {
		g := grid(n)
		if info := f.Device.Info(); rows.Each > 1 && info.CUDA() && !info.Stress {
			const most = Threads * mostOfLane
			g.Blocks = min(g.Blocks, max(asideBlocks*int64(info.Multiprocessors), (n+most-1)/most))
		}
		if err := k.launchCount(st, count, g, p); err != nil {
			return 0, err
		}
		if rows.Outer > 0 {
			var err error
			if outer, err = f.newOuter(st, rows, stash, mem.Mem.Slice(int(counts+totals+Align(int64(stash)*n)), mem.Mem.Len())); err != nil {
				return 0, err
			}
		}
		if err := k.sum.Launch(st, warps, p); err != nil {
			return 0, err
		}
	}
	if err := k.scan.Launch(st, device.Grid{Blocks: 1, Threads: Threads}, p); err != nil {
		return 0, err
	}
	var total [1]uint64
	if err := offsets.Slice(int(n), int(n)+1).Read(st, total[:]); err != nil {
		return 0, err
	}
	all, err := TotalOf(f.Family, total[0])
	if err != nil {
		return 0, err
	}
	if n >= askAside {
		f.perKey = float64(all) / float64(n)
	}
	if rows.Values, err = values(all); err != nil || n == 0 {
		return all, err
	}
	switch {
	case outer.empty: // there is nothing to fill in
	case rows.Each > 1:
		err = InTurn(
			func() error { return k.fillAside.Launch(st, warps, p) },
			func() error { return k.fillRest.Launch(st, grid(n), p) },
		)
	case k.fused:
		err = k.fill.Launch(st, warps, p)
	default:
		err = InTurn(
			func() error { return k.offsets.Launch(st, warps, p) },
			func() error { return k.fill.Launch(st, grid(n), p) },
		)
	}
	if err == nil && !outer.empty {
		err = queued(k.Filled)
	}
	if err == nil && rows.Outer > 0 {
		err = outer.fill(st, rows)
	}
	return all, errors.Join(err, st.SyncOf(f.Device))
}

// TotalOf is how many values all keys have, as scan_totals of kernel/findall.cuh tells it. Errors: a key has more than
// are counted.
func TotalOf(family table.Family, told uint64) (int, error) {
	if told == math.MaxUint64 { // FINDALL_REFUSED
		return 0, fmt.Errorf("%s: a key of the batch has 2³²-1 values or more, which FindAll cannot give (Count tells "+
			"2³²-1 of it): leave it out, and see Chunks or All", family)
	}
	return int(told), nil
}

const (
	// askAside is for how many keys it pays to see how many values some have, before all are counted: so many.
	askAside, askedAside = 1 << 14, 1 << 11
	// So many blocks of a multiprocessor count them: what more lanes put aside at once leaves the L2 cache before it is
	// whole. With 2, an H200 finds 43.8 G/s of 8 values a key and 44.7 of 64, with 4 39.9 and 41.0.
	asideBlocks = 2
	// Of those that have several, half as many more are put aside as they have on average, or stashShare of the free memory allows.
	leastAside, stashShare = 1.5, 8
)

// valuesAside is how many values of each key are to be put aside, where those of all keys, one each, take so many bytes:
// by how many they had on average in the last batch, or where there was none, by a few keys of this one. Then it waits
// for the stream.
func (k Finder) valuesAside(f *Frame, st *device.Stream, grid func(items int64) device.Grid, rows *FindAll, p any, bytes int64, scratch device.Slice[byte]) (int64, error) {
	if f.perKey == 0 {
		n := rows.N
		rows.N = askedAside
		err := k.launchCount(st, k.count, grid(askedAside), p)
		rows.N = n
		if err != nil {
			return 0, err
		}
		counts, err := device.View[uint32](scratch, int(rows.Counts-scratch.Addr()), askedAside).Host(st)
		if err != nil {
			return 0, err
		}
		for _, c := range counts {
			f.perKey += float64(c) / askedAside
		}
	}
	if f.perKey < leastAside {
		return 1, nil
	}
	free, _, err := f.Device.Memory()
	if err != nil {
		return 1, err
	}
	each := int64(min(f.perKey*1.5, 1<<20)+7) &^ 3
	return max(1, min(each, max(free, int64(scratch.Len()))/stashShare/bytes)), nil
}

// findAll runs a family's Finder: rows has Keys and N.
type findAll = func(st *device.Stream, rows FindAll, offsets device.Slice[uint64], values func(n int) (uint64, error)) (int, error)

// FindValues implements FindAll of a multimap.
func FindValues[K, V any](f *Frame, keys []K, find findAll) (offsets []uint64, values []V, err error) {
	if err := f.Usable(); err != nil {
		return nil, nil, err
	}
	in, err := From(f.Device, keys)
	if err != nil {
		return nil, nil, err
	}
	defer in.Free()
	o, v, err := FindValuesOn[K, V](f, nil, in, find)
	if err != nil {
		return nil, nil, err
	}
	defer o.Free()
	defer v.Free()
	if offsets, err = Host(nil, o); err != nil {
		return nil, nil, err
	}
	values, err = Host(nil, v)
	return offsets, values, err
}

// FindValuesOn implements FindAll on the device, in slices of its own making.
func FindValuesOn[K, V any](f *Frame, st *device.Stream, keys device.Slice[K], find findAll) (offsets device.Slice[uint64], values device.Slice[V], err error) {
	if err := f.CheckOn("", st, keys); err != nil {
		return offsets, values, err
	}
	if err := f.Usable(); err != nil {
		return offsets, values, err
	}
	if offsets, err = device.Make[uint64](f.Device, keys.Len()+1); err != nil {
		return offsets, values, err
	}
	_, err = FindValuesInto(f, st, keys, offsets, func(n int) (_ device.Slice[V], err error) {
		values, err = device.Make[V](f.Device, n)
		return values, err
	}, find)
	if err != nil {
		offsets.Free()
		if values.Addr() != 0 {
			values.Free()
		}
		return device.Slice[uint64]{}, device.Slice[V]{}, err
	}
	return offsets, values, nil
}

// FindValuesInto does what FindValuesOn does, into memory of the caller's, and gives the number of values.
func FindValuesInto[K, V any](f *Frame, st *device.Stream, keys device.Slice[K], offsets device.Slice[uint64],
	values func(n int) (device.Slice[V], error), find findAll) (total int, err error) {
	err = InTurn(
		func() error { return f.CheckOn("", st, keys) },
		func() error { return f.CheckOn("", st, offsets) },
		func() error { return f.Family.CheckLens(keys.Len()+1, offsets.Len()) },
	)
	if err != nil {
		return 0, err
	}
	err = f.Alone(st, func(st *device.Stream) (err error) { // it uses the table's scratch memory
		total, err = find(st, FindAll{Keys: keys.Addr(), N: uint64(keys.Len())}, offsets, func(n int) (uint64, error) {
			out, err := values(n)
			if err != nil {
				return 0, err
			}
			return out.Addr(), errors.Join(f.Family.CheckLens(n, out.Len()), out.On(f.Device))
		})
		return err
	})
	return total, err
}

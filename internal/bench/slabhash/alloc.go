package slabhash

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/slab"
)

// allocateParams are the parameters of alloc.cu.
type allocateParams struct {
	Alloc slab.Alloc
	Names uint64 // u32, one for each of N
	N     uint64
}

//go:embed alloc.cu
var allocateCU string

// allocators measures SlabAlloc on its own (§V): o.N slabs, one a thread, from pools of several sizes.
func allocators(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title:   fmt.Sprintf("SlabAlloc: %d slabs of 128 bytes, one a thread", o.N),
		Columns: []string{"allocator", "pool, times as many", "slabs", "allocate G/s", "release G/s", "wrong", "note"},
		Notes: []string{"wrong: threads that got no slab, or another's",
			fmt.Sprintf("malloc: as many blocks of %d bytes; of CUDA's, the pool is the context's heap", slabBytes)},
		Plots: []bench.Plot{
			{Name: "allocate", Title: "SlabAlloc: one slab a thread", X: "pool, times as many", Y: "allocate G/s", Series: "allocator", LogX: true},
			{Name: "release", Title: "SlabAlloc: slabs given back", X: "pool, times as many", Y: "release G/s", Series: "allocator", LogX: true},
		},
	}
	for _, light := range []bool{false, true} {
		name := "SlabAlloc"
		if light {
			name = "SlabAlloc-light"
		}
		for _, times := range []float64{1.25, 2, 4, 8} {
			o.Step(fmt.Sprintf("%s, %v times as many slabs", name, times))
			row, err := allocate(d, o.N, int(times*float64(o.N))+1, light)
			if err != nil {
				note, err := bench.Refusal(err)
				if err != nil {
					return nil, err
				}
				row = []any{nil, nil, nil, nil, note}
			}
			fig.Add(append([]any{name, times}, row...)...)
		}
	}
	o.Step("malloc")
	row, err := mallocRow(d, o.N)
	note := ""
	if err != nil {
		if note, err = bench.Refusal(err); err != nil {
			return nil, err
		}
	}
	fig.Add(append(row, note)...)
	return fig, nil
}

func allocate(d *device.Device, n, slabs int, light bool) (row []any, err error) {
	a, err := slab.NewAllocator(d, slab.AllocatorOptions{Slabs: slabs, Light: light})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	m, err := d.Compile(a.Program("allocate", allocateCU, allocateParams{}))
	if err != nil {
		return nil, err
	}
	take, err := device.KernelOf[allocateParams](m, "allocate_all")
	if err != nil {
		return nil, err
	}
	give, err := device.KernelOf[allocateParams](m, "release_all")
	if err != nil {
		return nil, err
	}
	list, err := device.Make[uint32](d, n)
	if err != nil {
		return nil, err
	}
	defer list.Free()
	st, grid := d.Stream(), device.GridFor(int64(n), 256)
	p := allocateParams{Alloc: a.Use(), Names: list.Addr(), N: uint64(n)}
	allocate := func() error { return take.Launch(st, grid, &p) }
	in, err := bench.Timed(d, st, bench.Runs, a.Reset, allocate)
	if err != nil {
		return nil, err
	}
	names, err := list.Host(st)
	if err != nil {
		return nil, err
	}
	wrong := 0
	slices.Sort(names)
	for i, name := range names {
		if name == math.MaxUint32 || i > 0 && name == names[i-1] {
			wrong++
		}
	}
	out, err := bench.Timed(d, st, bench.Runs, func() error { return errors.Join(a.Reset(), allocate()) }, func() error { return give.Launch(st, grid, &p) })
	if err != nil {
		return nil, err
	}
	return []any{a.Slabs(), bench.Round(bench.Rate(n, in)), bench.Round(bench.Rate(n, out)), wrong, ""}, nil
}

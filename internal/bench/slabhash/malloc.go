package slabhash

import (
	_ "embed"
	"errors"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
)

// mallocParams are the parameters of malloc.cu.
type mallocParams struct {
	Blocks uint64 // u64 addresses, one for each of N
	N      uint64
	Bytes  uint64 // of a block
}

//go:embed malloc.cu
var mallocCU string

func mallocProgram() *device.Program {
	return &device.Program{Name: "malloc", Files: []device.File{{Name: "malloc.cu", Text: mallocCU}}, Layouts: []any{mallocParams{}}}
}

// mallocHeap is the heap that kernels get, in multiples of what they ask for: blocks have heads, and pages are never full.
const mallocHeap = 8

// mallocRow measures n calls of malloc, one a thread, and as many of free. Blocks that lie over one another are wrong, and
// those that are none.
func mallocRow(d *device.Device, n int) (row []any, err error) {
	name, times := "malloc of the host", any(nil)
	if d.Info().CUDA() {
		name, times = "CUDA's malloc", mallocHeap
	}
	fail := func(err error) ([]any, error) { return []any{name, times, nil, nil, nil, nil}, err }
	if err := d.KernelHeap(mallocHeap * int64(n) * slabBytes); err != nil {
		return fail(err)
	}
	m, err := d.Compile(mallocProgram())
	if err != nil {
		return fail(err)
	}
	take, err := device.KernelOf[mallocParams](m, "malloc_all")
	if err != nil {
		return fail(err)
	}
	give, err := device.KernelOf[mallocParams](m, "free_all")
	if err != nil {
		return fail(err)
	}
	list, err := device.Make[uint64](d, n)
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, list.Free()) }()
	st, grid := d.Stream(), device.GridFor(int64(n), 256)
	p := mallocParams{Blocks: list.Addr(), N: uint64(n), Bytes: slabBytes}
	allocate := func() error { return take.Launch(st, grid, &p) }
	release := func() error { return give.Launch(st, grid, &p) }
	if err := list.Fill(st, 0); err != nil {
		return fail(err)
	}
	in, err := bench.Timed(d, st, bench.Runs, release, allocate)
	if err != nil {
		return fail(err)
	}
	blocks, err := list.Host(st)
	if err != nil {
		return fail(err)
	}
	wrong := 0
	slices.Sort(blocks)
	for i, b := range blocks {
		if b == 0 || i > 0 && b-blocks[i-1] < slabBytes {
			wrong++
		}
	}
	if err := release(); err != nil {
		return fail(err)
	}
	out, err := bench.Timed(d, st, bench.Runs, allocate, release)
	if err != nil {
		return fail(err)
	}
	return []any{name, times, nil, bench.Round(bench.Rate(n, in)), bench.Round(bench.Rate(n, out)), wrong}, nil
}

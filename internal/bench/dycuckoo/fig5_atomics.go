package dycuckoo

import (
	_ "embed"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
)

// atomicsParams are the parameters of atomics.cu.
type atomicsParams struct {
	Words     uint64
	N         uint64
	Conflicts uint64
}

//go:embed atomics.cu
var atomicsCU string

func atomicsProgram() *device.Program {
	return &device.Program{Name: "atomics", Files: []device.File{{Name: "atomics.cu", Text: atomicsCU}}, Layouts: []any{atomicsParams{}}}
}

// figure5 is atomic operations under conflicts.
func figure5(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title:   fmt.Sprintf("DyCuckoo, Figure 5: %d operations on words of 4 bytes", o.N),
		Columns: []string{"operation", "conflicts", "G/s"},
		Notes:   []string{"conflicts: threads in a row that work on one word; coalesced: each thread reads and writes a word of its own, whatever the conflicts"},
		Plots:   []bench.Plot{{Title: "DyCuckoo, Figure 5: atomic operations", X: "conflicts", Y: "G/s", Series: "operation", LogX: true, LogY: true}},
	}
	m, err := d.Compile(atomicsProgram())
	if err != nil {
		return nil, err
	}
	words, err := device.Make[uint32](d, o.N)
	if err != nil {
		return nil, err
	}
	defer words.Free()
	st := d.Stream()
	for _, operation := range []string{"atomic_cas", "atomic_exch", "coalesced"} {
		kern, err := device.KernelOf[atomicsParams](m, operation)
		if err != nil {
			return nil, err
		}
		rate := 0.0
		for c := 1; c <= min(o.N, 1<<20); c *= 4 {
			o.Step(fmt.Sprintf("%s, %d conflicts", operation, c))
			if c == 1 || operation != "coalesced" {
				p := atomicsParams{Words: words.Addr(), N: uint64(o.N), Conflicts: uint64(c)}
				t, err := bench.Timed(d, st, bench.Runs, func() error { return words.Fill(st, 0) }, func() error { return kern.Launch(st, device.GridFor(int64(o.N), 256), &p) })
				if err != nil {
					return nil, err
				}
				rate = bench.Round(bench.Rate(o.N, t))
			}
			fig.Add(operation, c, rate)
		}
	}
	return fig, nil
}

package library

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/sketch"
	"github.com/warpmap/warpmap/workload"
)

// sketches measures HyperLogLog's AddOn by the width of keys and by precision: of distinct keys in device memory, into
// an empty sketch.
func sketches(d *device.Device, o bench.FigOptions) (fig *bench.Fig, err error) {
	fig = &bench.Fig{
		Title:   fmt.Sprintf("HyperLogLog of %d distinct keys", o.N),
		Columns: []string{"key bytes", "precision", "keys a batch", "G/s", "GB/s", "error %", "expected %", "wrong"},
		Notes: []string{"device time of AddOn into an empty sketch, the median of 5 runs; error is of the last estimate, expected is the standard error, " +
			"and an estimate is wrong beyond six of them"},
		Plots: []bench.Plot{{Title: "HyperLogLog", X: "precision", Y: "G/s", Series: "key bytes", Only: map[string]any{"keys a batch": o.N}}},
	}
	err = errors.Join(err, sketched[uint32](d, o, fig), sketched[uint64](d, o, fig), sketched[[2]uint64](d, o, fig))
	return fig, err
}

func sketched[K workload.Wide](d *device.Device, o bench.FigOptions, fig *bench.Fig) (err error) {
	width := int(unsafe.Sizeof(*new(K)))
	kind, err := workload.NewKeys("rand", min(8, width), 1)
	if err != nil {
		return err
	}
	keys, values := make([]K, o.N), make([]uint32, o.N)
	workload.Pairs(kind, keys, values)
	on, err := device.From(d, keys)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, on.Free()) }()
	for _, precision := range []int{10, 14, 16, 18} {
		for _, n := range []int{o.N, min(o.N, 1<<16)} {
			o.Step(fmt.Sprintf("%d keys of %d bytes, precision %d", n, width, precision))
			if err := sketchedOnce(d, fig, on.Slice(0, n), width, precision); err != nil {
				return err
			}
		}
	}
	return nil
}

// sketchedOnce adds a row.
func sketchedOnce[K any](d *device.Device, fig *bench.Fig, keys device.Slice[K], width, precision int) (err error) {
	h, err := sketch.NewHyperLogLog[K](d, sketch.HyperLogLogOptions{Precision: precision})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	st := d.Stream()
	t, err := bench.Timed(d, st, bench.Runs, h.Clear, func() error { return h.AddOn(st, keys) })
	if err != nil {
		return err
	}
	s, err := h.Stats()
	if err != nil {
		return err
	}
	n := keys.Len()
	off, wrong := math.Abs(s.Estimate/float64(n)-1), 0
	if off > 6*s.StandardError {
		wrong = 1
	}
	rate := bench.Rate(n, t)
	fig.Add(width, precision, n, bench.Round(rate), bench.Round(rate*float64(width)), bench.Round(100*off), bench.Round(100*s.StandardError), wrong)
	return nil
}

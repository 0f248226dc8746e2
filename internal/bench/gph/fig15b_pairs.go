package gph

import (
	"fmt"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
)

// figure15b is Figure 15(b): inserts by the bytes of a pair, over tables of the sizes of Figure 14. Of keys of 2 bytes there
// are few: pairs of 4 bytes are compared in small tables.
func figure15b(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title:   "GPH, Figure 15(b): inserts into an empty table by the bytes of a pair",
		Columns: []string{"pair bytes", "pairs"},
		Notes: []string{"loads are those of 1.25 to 2 GB for 100 million pairs of 8 bytes; there are 65,536 keys of 2 bytes, so all sizes are measured on few pairs too, " +
			"where launches take most of the time"},
		Plots: []bench.Plot{{Title: "Inserts by the bytes of a pair, mean over four load factors", X: "pair bytes", Y: "mean G/s", Series: "pairs", LogX: true}},
	}
	var loads []float64
	for _, s := range bySize {
		loads = append(loads, loadOf(random, s.GB))
		fig.Columns = append(fig.Columns, fmt.Sprintf("G/s at %.3f", loads[len(loads)-1]))
	}
	fig.Columns = append(fig.Columns, "mean G/s", "against 8 bytes %", "wrong", "note")
	few := min(o.N, 3<<14)
	for _, n := range slices.Compact([]int{few, o.N}) {
		eight := 0.0
		for _, x := range []struct {
			bytes int
			run   func(*device.Device, int, []float64) ([]float64, int, error)
		}{{8, insertRates[uint32, uint32]}, {4, insertRates[uint16, uint16]}, {16, insertRates[uint64, uint64]}} {
			if x.bytes == 4 && n > few {
				continue
			}
			o.Step(fmt.Sprintf("%d pairs of %d bytes", n, x.bytes))
			row := []any{x.bytes, n}
			rates, wrong, err := x.run(d, n, loads)
			if err != nil {
				note, err := bench.Refusal(err)
				if err != nil {
					return nil, err
				}
				fig.Add(append(row, slices.Concat(make([]any, len(loads)+3), []any{note})...)...)
				continue
			}
			mean := 0.0
			for _, r := range rates {
				row = append(row, bench.Round(r))
				mean += r / float64(len(rates))
			}
			if x.bytes == 8 {
				eight = mean
			}
			fig.Add(append(row, bench.Round(mean), bench.Round(100*(mean/eight-1)), wrong, "")...)
		}
	}
	return fig, nil
}

// insertRates measures inserts of n distinct keys for each load factor. Every pair is looked up at the end.
func insertRates[K, V ~uint16 | ~uint32 | ~uint64](d *device.Device, n int, loads []float64) (rates []float64, wrong int, err error) {
	hostKeys, hostValues := make([]K, n), make([]V, n)
	for i := range hostKeys {
		hostKeys[i], hostValues[i] = K(uint64(i)*0x9e3779b97f4a7c15), V(i) // an odd factor makes different keys of any width
	}
	keys, err := device.From(d, hostKeys)
	if err != nil {
		return nil, 0, err
	}
	defer keys.Free()
	values, err := device.From(d, hostValues)
	if err != nil {
		return nil, 0, err
	}
	defer values.Free()
	results, err := device.Make[V](d, n)
	if err != nil {
		return nil, 0, err
	}
	defer results.Free()
	found, err := device.Make[bool](d, n)
	if err != nil {
		return nil, 0, err
	}
	defer found.Free()
	for _, load := range loads {
		speed, _, bad, err := insertRate(d, load, keys, values, results, found, func(i int, v V) bool { return v == hostValues[i] })
		if err != nil {
			return nil, 0, err
		}
		rates, wrong = append(rates, speed), wrong+bad
	}
	return rates, wrong, nil
}

package gph

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/workload"
)

// skewRecords is the number of records of Figure 15(c).
const skewRecords = 50_000_000

// figure15c is Figure 15(c): inserts of records whose keys are drawn from as many by Zipf's law. Records of one key overwrite
// one another, each with a value of its own.
func figure15c(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	n := scaled(skewRecords, o.N)
	fig := &bench.Fig{
		Title:   fmt.Sprintf("GPH, Figure 15(c): inserts of %d records of 4+4 bytes, keys by Zipf's law", n),
		Columns: []string{"s", "records", "distinct", "insert G/s", "wrong", "note"},
		Plots:   []bench.Plot{{Title: "Inserts by skew", X: "s", Y: "insert G/s"}},
	}
	st := d.Stream()
	keys, err := device.Make[uint32](d, n)
	if err != nil {
		return nil, err
	}
	defer keys.Free()
	host, values, expect := make([]uint32, n), make([]uint32, n), make([]byte, n)
	for i := range values {
		values[i] = uint32(i)
	}
	ordinals, err := device.From(d, values)
	if err != nil {
		return nil, err
	}
	defer ordinals.Free()
	results, err := device.Make[uint32](d, n)
	if err != nil {
		return nil, err
	}
	defer results.Free()
	found, err := device.Make[bool](d, n)
	if err != nil {
		return nil, err
	}
	defer found.Free()
	for _, s := range []float64{0, 0.5, 0.8, 1, 1.5, 2, 3, 4} {
		o.Step(fmt.Sprintf("s = %v", s))
		kind := "rand" // drawn uniformly
		if s > 0 {
			kind = fmt.Sprintf("zipf:%v", s)
		}
		k, err := workload.NewKeys(kind, 4, 1)
		if err != nil {
			return nil, err
		}
		workload.Queries(k, uint64(n), 1, host, expect)
		if err := keys.Write(st, host); err != nil {
			return nil, err
		}
		// The value is the number of a record with this key.
		speed, distinct, wrong, err := insertRate(d, tunedLoad, keys, ordinals, results, found, func(i int, v uint32) bool { return int(v) < n && host[v] == host[i] })
		if err != nil {
			note, err := bench.Refusal(err)
			if err != nil {
				return nil, err
			}
			fig.Add(s, n, nil, nil, nil, note)
			continue
		}
		fig.Add(s, n, distinct, bench.Round(speed), wrong, "")
	}
	return fig, nil
}

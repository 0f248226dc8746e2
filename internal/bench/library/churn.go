package library

import (
	"fmt"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
)

// churn fills tables until they refuse at MaxBytes, and then replaces a twentieth of their keys batch by batch, until so
// many operations were done.
func churn(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	operations, batch := o.Operations, max(1, o.N/churnBatch)
	if operations == 0 {
		operations = 200 * o.N
		if d.Info().CUDA() {
			operations = 1_000_000_000
		}
	}
	many := max(1, operations/(4*batch))
	if keys := 5*float64(o.N) + float64(many)*float64(batch); keys > mostAged {
		return nil, fmt.Errorf("%d operations on %d pairs want more keys than 2³¹", operations, o.N)
	}
	fig := &bench.Fig{
		Title:   fmt.Sprintf("full tables at MaxBytes: %d operations, in batches that replace %d keys", operations, batch),
		Columns: slices.Clone(agingColumns),
		Notes: []string{fmt.Sprintf("MaxBytes is what a table made for %d pairs takes; it is filled until it refuses; then a batch "+
			"deletes the oldest keys, inserts as many new ones, and looks up twice as many, half of them keys of "+
			"those that were inserted; the keys of multimaps have %d values", o.N, eachKey),
			"rates: of the device's time since the row before; slowest ms: of these batches; ×: the last row over the second, " +
				"by when all keys have been replaced"},
		Plots: []bench.Plot{{Name: "insert", Title: "Inserts into full tables", X: "slices", Y: "insert G/s", Series: "table"}},
	}
	return eachAged(d, o, fig, func(name string, kind table.Kind, family table.Family) error {
		with := table.Options{Capacity: o.N, Seed: AgingSeed}
		made, err := NewAged(d, kind, family, with)
		if err != nil {
			return err
		}
		s, err := made.Table.Stats()
		made.Table.Close()
		if err != nil {
			return err
		}
		with.MaxBytes = s.Bytes
		a, err := NewAged(d, kind, family, with)
		if err != nil {
			return err
		}
		return fillAndRun(d, o, fig, a, name, batch, many, func(l *Life) (int, error) {
			switch {
			case l.refused > 0:
				return 0, nil
			case l.rows > 3*o.N:
				return 0, fmt.Errorf("with %d pairs in %d bytes it refuses none", l.rows, with.MaxBytes)
			}
			return l.batch, nil
		})
	})
}

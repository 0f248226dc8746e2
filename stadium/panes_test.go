package stadium

import (
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/tabletest"
)

// places are where a table's slots may lie, in panes of next to nothing.
var places = map[string]Options{
	"host":  {DeviceBytes: -1, pane: 4 << 10},
	"split": {DeviceBytes: 16 << 10, pane: 4 << 10},
}

// farSuite lists all batches that a table in panes gets, and serves panes in windows that some rows want.
func farSuite[K, V any](o Options, made *[]*core) *tabletest.Suite {
	return tabletest.Map(func(d *device.Device, t table.Options) (table.Map[K, V], error) {
		x := o
		x.Options = t
		m, err := New[K, V](d, x)
		if err != nil {
			return nil, err
		}
		m.far.listedFrom, m.far.rowBytes = 1, 100
		m.staged.minRows, m.staged.minRegions, m.staged.rowShare = 1, 1, 1<<40
		*made = append(*made, m.core)
		return m, nil
	})
}

func TestPanes(t *testing.T) {
	for _, name := range devices {
		for where, o := range places {
			var made []*core
			for what, s := range map[string]*tabletest.Suite{
				"4+4": farSuite[uint32, uint32](o, &made), "8+8": farSuite[uint64, uint64](o, &made), "20+100": farSuite[[5]uint32, [25]uint32](o, &made),
			} {
				t.Run(name+"/"+where+"/"+what, func(t *testing.T) {
					made = nil
					s.Run(t, tabletest.Widths, open(t, name), open(t, "cpu"))
					if !slices.ContainsFunc(made, func(c *core) bool { return c.far.served > 0 }) {
						t.Error("nothing was served pane by pane: this tests nothing")
					}
				})
			}
		}
	}
}

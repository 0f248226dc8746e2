package warpcore

import (
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// A key that has 2³² values or more is refused by FindAll, and counted as far as 32 bits go: its number is not cut off.
func TestMoreValuesThanACountHolds(t *testing.T) {
	t.Parallel()
	onDevices(t, func(t *testing.T, d *device.Device) {
		const rows = 6000
		m, err := NewMultiMap[uint32, uint32](d, Options{Options: table.Options{Capacity: 2 * rows, Seed: 3}, Window: 4})
		must(t, err)
		defer m.Close()
		keys, values := make([]uint32, rows), make([]uint32, rows)
		for i := range keys {
			keys[i], values[i] = 7, uint32(i)
		}
		must(t, m.Insert(keys, values))
		c := m.core
		more := uint64(0) // values that the kernels behind a look-up are told of besides
		find := func(st *device.Stream, rows frame.FindAll, offsets device.Slice[uint64], values func(n int) (uint64, error)) (int, error) {
			p := findAllParams{Table: c.t, Rows: rows}
			all, err := c.finder(st, &p)
			if err != nil {
				return 0, err
			}
			if p.Longs.Keys == 0 {
				t.Fatal("no chain is long")
			}
			all.Counting = func() error {
				if err := c.ask(st, &p.Longs); err != nil || more == 0 {
					return err
				}
				hints := int(c.t.HintMask + 1 + sideHints)
				words := make([]uint64, 3*hints)
				for i := range hints {
					words[3*i] = more
				}
				return device.View[uint64](c.long, int(p.Longs.Keys-c.long.Addr()), len(words)).Write(st, words)
			}
			return all.Run(&c.frame, st, c.grid, &p.Rows, &p, c.cfg.stashBytes(), offsets, values)
		}
		asked := []uint32{1, 7, 2}
		offsets, got, err := frame.FindValues[uint32, uint32](&c.frame, asked, find)
		must(t, err)
		if len(got) != rows || offsets[3] != rows {
			t.Fatalf("%d values, offsets %d (want %d)", len(got), offsets, rows)
		}
		for _, more = range []uint64{1 << 32, 3 << 32, 1<<32 - 1 - rows} {
			if offsets, got, err := frame.FindValues[uint32, uint32](&c.frame, asked, find); err == nil || !strings.Contains(err.Error(), "2³²-1 values") {
				t.Errorf("%d values more: %d values by offsets %d (%v), want an error", more, len(got), offsets, err)
			}
		}
		more = 0
		_, got, err = m.FindAll(asked) // the table is as it was
		must(t, err)
		if len(got) != rows {
			t.Errorf("%d values, want %d", len(got), rows)
		}
	})
}

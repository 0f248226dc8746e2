package gph

import (
	"testing"

	"github.com/warpmap/warpmap/internal/tabletest"
)

// An order that is missing is found by the memory model.
func TestModelFindsMissingOrder(t *testing.T) {
	header := gphCUH
	by := func(group int) func(text string, seed uint64) error {
		return func(text string, seed uint64) error {
			defer func() { gphCUH = header }()
			gphCUH = text
			_, _, err := overStress[uint32, [2]uint64](t, crowded(group), seed)
			return err
		}
	}
	tabletest.FindMissingOrder(t, 200, []tabletest.MissingOrder{
		tabletest.Missing("a group does not meet behind what it needs", header, "virtual_bucket<C>(w.bits[n], mapping));\n        g.sync();",
			"virtual_bucket<C>(w.bits[n], mapping));", by(8)),
	})
}

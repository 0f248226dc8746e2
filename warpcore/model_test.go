package warpcore

import (
	"testing"

	"github.com/warpmap/warpmap/internal/tabletest"
)

// An order that is missing is found by the memory model.
func TestModelFindsMissingOrder(t *testing.T) {
	by := func(x mixer, group int) func(text string, seed uint64) error {
		return func(text string, seed uint64) error {
			x.cuh = text
			ops, check := x.run(t, "cpu", group, seed)
			return judge(ops, check, group)
		}
	}
	stretches, story := stretchMultiCU, multiStress(t)
	runs := func(text string, seed uint64) error {
		defer func() { stretchMultiCU = stretches }()
		stretchMultiCU = text
		return story(seed)
	}
	tabletest.FindMissingOrder(t, 200, []tabletest.MissingOrder{
		tabletest.Missing("a value is read before its key is acquired", warpcoreCUH, "        if constexpr (!C::PACKED) load_acquire(Access<C>::word_at(slots, index));\n        return value();",
			"        return value();", by(mixers[3], 1)),
		tabletest.Missing("rows are put while their order is made", stretchMultiCU, "order[add(counts + part_of(i), 1u)] = (u16)i;\n        block_sync();",
			"order[add(counts + part_of(i), 1u)] = (u16)i;", runs),
	})
}

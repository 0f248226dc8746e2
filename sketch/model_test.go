package sketch

import (
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
)

// An order that is missing is found by the memory model.
func TestModelFindsMissingOrder(t *testing.T) {
	with := func(text *string, tell func(seed uint64) error) func(string, uint64) error {
		return func(now string, seed uint64) error {
			defer func(was string) { *text = was }(*text)
			*text = now
			return tell(seed)
		}
	}
	counts, registers := with(&countMinCU, stressedCounts), with(&hyperLogLogCU, stressed)
	top := with(&topCU, func(seed uint64) error { return stressedTop(seed, device.WithStress(seed)) })
	tabletest.FindMissingOrder(t, 60, []tabletest.MissingOrder{
		tabletest.Missing("who takes the lock of a key does not see its counters", countMinCU,
			"            continue;\n        }\n        fence();\n", "            continue;\n        }\n", counts),
		tabletest.Missing("who gives it back does not hand them on", countMinCU,
			"        fence();\n        store_release(lock, 0u);\n", "        store_relaxed(lock, 0u);\n", counts),
		tabletest.Missing("own counters are added before they are empty", countMinCU,
			"own[c] = 0;\n    block_sync();", "own[c] = 0;", counts),
		tabletest.Missing("rows of a tile are put in before all have counted", countMinCU,
			"            sum += times;\n        }\n        block_sync();", "            sum += times;\n        }", counts),
		tabletest.Missing("own registers are read before they are there", hyperLogLogCU,
			"to[w] = load_relaxed(all + w);\n        block_sync();", "to[w] = load_relaxed(all + w);", registers),
		tabletest.Missing("own registers are merged before all keys are in", hyperLogLogCU,
			"if (!p.own) return;\n    block_sync();", "if (!p.own) return;", registers),
		tabletest.Missing("a slot is handed on before its key", topCU,
			"store_release(&s.tag, (u32)TAKEN);", "store_relaxed(&s.tag, (u32)TAKEN);", top),
		tabletest.Missing("a slot is taken for another's before its key is seen", topCU,
			"        u32 tag = load_acquire(&s.tag);\n        if (tag == FREE)", "        u32 tag = load_relaxed(&s.tag);\n        if (tag == FREE)",
			top),
		tabletest.Missing("rows are read before they are together", topCU,
			"s.together(n, p.table.seed);\n        block_sync();", "s.together(n, p.table.seed);", top),
	})
}

package dycuckoo

import (
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
)

// An order that is missing is found by the memory model.
func TestModelFindsMissingOrder(t *testing.T) {
	header := dycuckooCUH
	by := func(o Options) func(text string, seed uint64) error {
		return func(text string, seed uint64) error {
			defer func() { dycuckooCUH = header }()
			dycuckooCUH = text
			return crowd(open(t, "cpu", device.WithStress(seed)), o)
		}
	}
	tabletest.FindMissingOrder(t, 100, []tabletest.MissingOrder{
		tabletest.Missing("locks are taken without an acquire", header, "            return false;\n        }\n        fence_acq_rel();\n        return true;",
			"            return false;\n        }\n        return true;", by(Options{Layout: PackedLocked})),
		tabletest.Missing("locks are given back before what was changed is there", header, "void release() {\n        fence_acq_rel();", "void release() {",
			by(Options{Layout: PackedLocked})),
		tabletest.Missing("a warp does not meet behind its leader's locks", header, "            g.sync(); // the leader has acquired", "            // the leader has acquired",
			by(voters[0])),
	})
}

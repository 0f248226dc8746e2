package stadium

import (
	"testing"

	"github.com/warpmap/warpmap/internal/tabletest"
)

// An order that is missing is found by the memory model.
func TestModelFindsMissingOrder(t *testing.T) {
	by := func(s story) func(text string, seed uint64) error {
		return func(text string, seed uint64) error {
			s.kernels = text
			return s.tell(seed)
		}
	}
	tabletest.FindMissingOrder(t, 200, []tabletest.MissingOrder{
		tabletest.Missing("an access bit is taken without an acquire", stadiumCUH, "!(or_acquire(at<u32>(t.access)", "!(or_of(at<u32>(t.access)",
			by(stories[0])),
		tabletest.Missing("an access bit is given back before what was changed is there", stadiumCUH, "if (t.near) fence_acq_rel();", "if (t.near) ;",
			by(stories[0])),
	})
}

package slab

import (
	"testing"

	"github.com/warpmap/warpmap/internal/tabletest"
)

// An order that is missing is found by the memory model.
func TestModelFindsMissingOrder(t *testing.T) {
	by := func(h historian) func(text string, seed uint64) error {
		return func(text string, seed uint64) error {
			h.files = map[string]string{"slab.cuh": text}
			return h.judge(t, seed)
		}
	}
	tabletest.FindMissingOrder(t, 200, []tabletest.MissingOrder{
		tabletest.Missing("a value is read before its key is acquired", slabCUH, "if (acquired) load_acquire(A::word_at(slab, slot));", "",
			by(historians[5])),
	})
}

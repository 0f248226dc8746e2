package tabletest

import (
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// MissingOrder is a fence, an acquire, a release or a meeting that a test takes out of a text of kernels.
type MissingOrder struct {
	name, text, old, now string
	tell                 func(text string, seed uint64) error
}

// Missing is a MissingOrder: in the text, old becomes now. tell is a story under stress, by kernels with the text it is given.
func Missing(name, text, old, now string, tell func(text string, seed uint64) error) MissingOrder {
	return MissingOrder{name, text, old, now, tell}
}

// FindMissingOrder wants the memory model to find what is missing: one of so many seeds tells of each, and none of a few
// tells of the text as it is. Short runs only see that it can be taken out.
func FindMissingOrder(t *testing.T, seeds uint64, missing []MissingOrder) {
	t.Helper()
	for _, m := range missing {
		if n := strings.Count(m.text, m.old); n != 1 {
			t.Errorf("%s: the kernels have %d times\n%s", m.name, n, m.old)
		}
	}
	testenv.ByTurns(t)
	testenv.UnderModel(t)
	for _, m := range missing {
		t.Run(m.name, func(t *testing.T) {
			for seed := range uint64(4) {
				if err := m.tell(m.text, seed); err != nil {
					t.Fatalf("nothing is missing, but seed %d tells %v", seed, err)
				}
			}
			for seed := range seeds {
				if err := m.tell(strings.Replace(m.text, m.old, m.now, 1), seed); err != nil {
					t.Logf("seed %d: %.300v", seed, err)
					return
				}
			}
			t.Fatalf("none of %d seeds finds it", seeds)
		})
	}
}

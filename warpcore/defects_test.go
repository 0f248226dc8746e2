package warpcore

import (
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// defect is a change of a source, old to now, and the story that tells of it. Each costs the compilation of all kernels that its story needs, so a
// story is of one table. Those that are long are of a sort that others of their list are of, too: short runs leave them out.
type defect struct {
	name     string
	long     bool
	text     *string
	old, now string
	story    func(seed uint64) error
}

// from is a story that begins with that seed: one that others have shown to find the defect, for each before it costs compilations, too.
func from(first uint64, story func(seed uint64) error) func(seed uint64) error {
	return func(seed uint64) error { return story(first + seed) }
}

// findDefects plants the defects, of which short runs leave out most.
func findDefects(t *testing.T, seeds uint64, defects []defect) {
	canBePlanted(t, defects) // those that are left out, too
	if !testenv.Long() {
		defects = slices.DeleteFunc(defects, func(c defect) bool { return c.long })
	}
	findAll(t, seeds, testenv.Some(defects, 1))
}

// canBePlanted wants what the defects change to be in the kernels.
func canBePlanted(t *testing.T, defects []defect) {
	t.Helper()
	for _, c := range defects {
		if n := strings.Count(*c.text, c.old); n != 1 {
			t.Errorf("%s: the kernels have %d times\n%s", c.name, n, c.old)
		}
	}
}

// findAll plants each defect alone, and wants one of so many seeds to tell of it.
func findAll(t *testing.T, seeds uint64, defects []defect) {
	canBePlanted(t, defects)
	for _, c := range defects {
		t.Run(c.name, func(t *testing.T) {
			text := *c.text
			defer func() { *c.text = text }()
			*c.text = strings.Replace(text, c.old, c.now, 1)
			for seed := range seeds {
				if err := c.story(seed); err != nil {
					t.Logf("seed %d: %.200v", seed, err)
					return
				}
			}
			t.Fatalf("none of %d seeds finds the defect", seeds)
		})
	}
}

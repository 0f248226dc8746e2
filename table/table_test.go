package table_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/table"
)

// A seed that is not set is random; one that is set stays.
func TestSeedsAreRandomUnlessSet(t *testing.T) {
	var a, b table.Options
	if err := errors.Join(a.Complete(0.5), b.Complete(0.5)); err != nil {
		t.Fatal(err)
	}
	if a.Seed == 0 || a.Seed == b.Seed {
		t.Errorf("seeds %#x and %#x", a.Seed, b.Seed)
	}
	a.Seed = 7
	if err := a.Complete(0.5); err != nil || a.Seed != 7 {
		t.Errorf("seed 7 became %d, %v", a.Seed, err)
	}
}

// A load factor that no table could serve is refused by name.
func TestAbsurdLoadFactors(t *testing.T) {
	nan := 0.0
	nan /= nan
	for _, load := range []float64{1e-9, -1, 1.1, nan} {
		o := table.Options{LoadFactor: load}
		if err := o.Complete(0.5); err == nil || !strings.Contains(err.Error(), "load factor") {
			t.Errorf("%v: %v", load, err)
		}
	}
}

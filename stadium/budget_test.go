package stadium

import (
	"errors"
	"testing"

	"github.com/warpmap/warpmap/table"
)

// Check refuses a table that is larger than MaxBytes, and none is made that would be.
func TestMaxBytesIsChecked(t *testing.T) {
	d := open(t, "cpu")
	m, err := New[uint32, uint32](d, Options{Options: table.Options{MaxBytes: 1 << 20}})
	must(t, err)
	must(t, m.Check())
	m.core.frame.MaxBytes = 10
	if err := m.Check(); !errors.Is(err, table.ErrMaxBytes) {
		t.Errorf("Check of a table that is too large: %v", err)
	}
	if err = m.core.allocate(d.Stream(), m.core.shape); !errors.Is(err, table.ErrMaxBytes) {
		t.Errorf("a table that is too large is made: %v", err)
	}
	m.core.frame.MaxBytes = 1 << 20
	must(t, m.Close())
}

package dycuckoo

import (
	"errors"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Check refuses a table that is larger than MaxBytes, and none is made that would be.
func TestMaxBytesIsChecked(t *testing.T) {
	d := open(t, "cpu")
	m, err := New[uint32, uint32](d, Options{Options: table.Options{MaxBytes: 1 << 20, Capacity: 10_000}})
	must(t, err)
	must(t, m.Check())
	m.core.frame.MaxBytes = 1000
	locks := m.core.locks
	if err := m.Check(); !errors.Is(err, table.ErrMaxBytes) {
		t.Errorf("Check of a table that is too large: %v", err)
	}
	if _, err = m.core.allocate(5); !errors.Is(err, table.ErrMaxBytes) {
		t.Errorf("a table that is too large is made: %v", err)
	}
	if _, err := m.core.halve(d.Stream()); !errors.Is(err, table.ErrMaxBytes) {
		t.Errorf("a table that is halved is still too large: %v", err)
	}
	m.core.locks = device.Slice[uint32]{} // as if there had been no memory for more
	if err := m.core.fitLocks(d.Stream()); !errors.Is(err, table.ErrMaxBytes) {
		t.Errorf("a table gets locks that it has no room for: %v", err)
	}
	m.core.frame.MaxBytes, m.core.locks = 1<<20, locks
	must(t, m.Close())
}

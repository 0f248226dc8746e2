package dycuckoo

import (
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/table"
)

func TestMaxBytesIsChecked(t *testing.T) {
	d := open(t, "cpu")
	m, err := New[uint32, uint32](d, Options{Options: table.Options{MaxBytes: 1 << 20, Capacity: 10_000}})
	must(t, err)
	tabletest.MaxBytesIsChecked(t, &m.core.frame, m.Check, map[string]func() error{
		"allocate": func() error {
			_, err := m.core.allocate(5)
			return err
		},
		"halve": func() error {
			_, err := m.core.halve(d.Stream())
			return err
		},
		"fitLocks": func() error {
			locks := m.core.locks
			defer func() { m.core.locks = locks }()
			m.core.locks = device.Slice[uint32]{} // as if there had been no memory for more
			return m.core.fitLocks(d.Stream())
		},
	})
	must(t, m.Close())
}

package stadium

import (
	"testing"

	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/table"
)

func TestMaxBytesIsChecked(t *testing.T) {
	d := open(t, "cpu")
	m, err := New[uint32, uint32](d, Options{Options: table.Options{MaxBytes: 1 << 20}})
	must(t, err)
	tabletest.MaxBytesIsChecked(t, &m.core.frame, m.Check, map[string]func() error{
		"allocate": func() error { return m.core.allocate(d.Stream(), m.core.shape) },
	})
	must(t, m.Close())
}

package text

import (
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/siphash"
)

// NewTogether is New with lanes that work together on long keys, which the CPU device leaves to each alone.
func NewTogether[V any](d *device.Device, o Options, index Index) (*Map[V], error) {
	return open[V](d, o, index, true)
}

// Hash is a map's hash of a key.
func (m *Map[V]) Hash(key []byte) uint64 { return m.c.hash.of(key) }

// Program is the kernels' program.
func Program(valueBytes int, together bool) *device.Program { return program(valueBytes, together) }

// SipHash is SipHash-1-3.
func SipHash(k0, k1 uint64, key []byte) uint64 {
	s := siphash.New(k0, k1)
	return s.Of(key)
}

// SetPart has batches done in parts of so many rows.
func (m *Map[V]) SetPart(rows int64) { m.c.rows = rows }

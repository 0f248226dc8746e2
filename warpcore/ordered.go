package warpcore

import (
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

func _[K, V any](m *Map[K, V]) table.Orderer[K, V] { return m }

// Ordering tells how the table would bring a batch of n rows in order: see table.Orderer. Tables whose hash function is
// not Murmur's do that themselves.
func (m *Map[K, V]) Ordering(n int) (o table.Ordering) {
	if m.core == nil || m.core.cfg.hash != kernel.HashMurmur {
		return o
	}
	m.made().frame.Guard(func() {
		o = table.Ordering{Regions: int(m.made().regions.Count(int64(n), int64(m.made().mem.Len()))), Seed: m.made().t.Seed}
	})
	return o
}

// FindOrderedOn does what FindOn does, for rows that are already in the order of regions: see table.Orderer.
func (m *Map[K, V]) FindOrderedOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error {
	return frame.FindOn(&m.made().frame, st, keys, values, found, m.made().findOrdered)
}

func (c *core) findOrdered(st *device.Stream, b frame.Rows) error {
	b.Ordered = true
	return c.find(st, b)
}

// InsertOrderedOn does what InsertOn does, for rows that are already in the order of regions: see table.Orderer.
func (m *Map[K, V]) InsertOrderedOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	x := m.made().insertion(m.made().kernel.insert)
	put := x.Put
	x.Put = func(st *device.Stream, b frame.Rows) (refused []int, why, err error) {
		b.Ordered = true
		return put(st, b)
	}
	return frame.InsertOn(&m.made().frame, st, keys, values, device.Slice[bool]{}, x)
}

package slab

import (
	"context"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Set is the slab hash of keys alone (paper, §IV-B): a slab holds 31 keys of 4 bytes, or 15 of 8. All methods take
// whole batches and are safe for use by several goroutines.
//
// Set implements table.Set, whose comments are the contract of the methods.
type Set[K any] struct{ handle }

func _[K any](s *Set[K]) table.Set[K] { return s }

// NewSet makes an empty set on the device: see New.
func NewSet[K any](d *device.Device, o Options) (*Set[K], error) {
	c, err := newCore(d, frame.WidthOfKeys[K](), o, false)
	return frame.Made(&Set[K]{handle{c}}, err)
}

// Insert puts in the keys that are absent: see table.Set. For each key it reads one slab and writes one sector while
// chains are short.
func (s *Set[K]) Insert(keys []K, added []bool) (int, error) {
	return frame.InsertKeys(&s.made().frame, keys, added, s.made().insertion(s.made().kernel.insertNew))
}

// InsertOn does what Insert does, with slices on the device. It waits for the stream, to know that every key found its
// slab.
func (s *Set[K]) InsertOn(st *device.Stream, keys device.Slice[K], added device.Slice[bool]) error {
	return frame.InsertOn(&s.made().frame, st, keys, frame.NoValues(), added, s.made().insertion(s.made().kernel.insertNew))
}

// Contains tells for each key whether it is in.
func (s *Set[K]) Contains(keys []K, found []bool) error {
	return frame.Find[K, byte](&s.made().frame, keys, nil, found, s.made().find)
}

// ContainsOn does what Contains does, with slices on the device.
func (s *Set[K]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return frame.FindOn(&s.made().frame, st, keys, device.Slice[byte]{}, found, s.made().find)
}

// Delete removes keys: see table.Map.
func (s *Set[K]) Delete(keys []K, deleted []bool) (int, error) {
	return frame.Delete(&s.made().frame, keys, deleted, s.made().erase)
}

// DeleteOn does what Delete does, with slices on the device.
func (s *Set[K]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return frame.DeleteOn(&s.made().frame, st, keys, deleted, s.made().erase)
}

// Mixed runs operations of all kinds side by side in one kernel: see table.Mixed. An insert puts a key in only if it is
// absent. status may be nil.
func (s *Set[K]) Mixed(ops []table.Op, keys []K, status []table.Status) error {
	return frame.MixKeys(&s.made().frame, ops, keys, status, s.made().mix, s.made().size)
}

// MixedOn does what Mixed does, with slices on the device. It waits for the stream.
func (s *Set[K]) MixedOn(st *device.Stream, ops device.Slice[table.Op], keys device.Slice[K], status device.Slice[table.Status]) error {
	return frame.MixOn(&s.made().frame, st, ops, keys, frame.NoValues(), frame.NoValues(), status, s.made().mix, s.made().size)
}

// All exports every key, in no order.
func (s *Set[K]) All() ([]K, error) {
	keys, _, err := frame.All[K, byte](&s.made().frame, true, s.made().exporting)
	return keys, err
}

// Chunks calls do with every key, in chunks: see table.Set.
func (s *Set[K]) Chunks(ctx context.Context, do func(keys []K) error) error {
	return frame.KeyChunks(ctx, &s.made().frame, s.made().exporting, do)
}

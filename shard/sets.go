package shard

import (
	"context"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Set is a set over several devices: see table.Set, whose comments are the contract of the methods, and Map.
type Set[K any] struct {
	handle
	tables setTables[K]
}

var _ table.Set[uint32] = (*Set[uint32])(nil)

// setTables are the tables of a set, one a device, and the operations on them as jobs.
type setTables[K any] []table.Set[K]

// NewSet makes an empty set over the devices: see NewMap.
func NewSet[K any](devices []*device.Device, o Options, newTable func(d *device.Device, o table.Options) (table.Set[K], error)) (*Set[K], error) {
	s := &Set[K]{tables: make(setTables[K], len(devices))}
	var err error
	s.cluster, err = newCluster(devices, table.WidthOfKeys[K](), o, func(i int, d *device.Device, o table.Options) (table.Table, error) {
		t, err := newTable(d, o)
		s.tables[i] = t
		return t, err
	})
	return table.Made(s, err)
}

func (t setTables[K]) inserting(added bool, why *error) job {
	return job{flags: added, full: fullFor(why), run: func(j int, st *device.Stream, r received) error {
		keys := device.View[K](r.keys, 0, r.n)
		if r.when.Addr() != 0 {
			return t.insertIf(j, st, keys, device.View[bool](r.when, 0, r.n), flagsOf(r))
		}
		return t[j].InsertOn(st, keys, flagsOf(r))
	}}
}

func (t setTables[K]) finding() job {
	return job{asks: true, flags: true, run: func(j int, st *device.Stream, r received) error {
		return t[j].ContainsOn(st, device.View[K](r.keys, 0, r.n), flagsOf(r))
	}}
}

func (t setTables[K]) deleting(deleted bool) job {
	return job{asks: true, erases: true, flags: deleted, run: func(j int, st *device.Stream, r received) error {
		return t[j].DeleteOn(st, device.View[K](r.keys, 0, r.n), flagsOf(r))
	}}
}

// keyed is how a set takes batches in.
func (s *Set[K]) keyed() keyed[K] {
	return keyed[K]{insert: s.tables.inserting, absence: s.tables.finding, contains: s.Contains}
}

// Insert puts the keys that are absent: see table.Set.
func (s *Set[K]) Insert(keys []K, added []bool) (int, error) {
	if err := family.CheckLens(len(keys), table.OptionalLen(added)); err != nil {
		return 0, err
	}
	return counted(len(keys), added, func(added []bool) error {
		return insertKeyed(s.cluster, hostBatch[K, byte]{keys: keys, flags: added}, s.keyed())
	})
}

// InsertOn is Insert on the device of the slices: see table.Set.
func (s *Set[K]) InsertOn(st *device.Stream, keys device.Slice[K], added device.Slice[bool]) error {
	return s.InsertEach([]Part[K, byte]{{Stream: st, Keys: keys, Flags: added}})
}

// InsertEach is InsertOn of a batch that is on several devices. FullError counts positions from the first part on.
func (s *Set[K]) InsertEach(parts []Part[K, byte]) error {
	return insertParts(s.cluster, parts, true, false, s.keyed())
}

// Contains tells of each key whether it is in: see table.Set.
func (s *Set[K]) Contains(keys []K, found []bool) error {
	if err := family.CheckLens(len(keys), len(found)); err != nil {
		return err
	}
	return look(s.cluster, hostBatch[K, byte]{keys: keys, flags: found}, s.tables.finding())
}

// ContainsOn is Contains on the device of the slices: see table.Set.
func (s *Set[K]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return s.ContainsEach([]Part[K, byte]{{Stream: st, Keys: keys, Flags: found}})
}

// ContainsEach is ContainsOn of a batch that is on several devices.
func (s *Set[K]) ContainsEach(parts []Part[K, byte]) error {
	return lookParts(s.cluster, parts, true, s.tables.finding())
}

// Delete removes keys: see table.Set.
func (s *Set[K]) Delete(keys []K, deleted []bool) (int, error) {
	if err := family.CheckLens(len(keys), table.OptionalLen(deleted)); err != nil {
		return 0, err
	}
	return counted(len(keys), deleted, func(deleted []bool) error {
		return look(s.cluster, hostBatch[K, byte]{keys: keys, flags: deleted}, s.tables.deleting(true))
	})
}

// DeleteOn is Delete on the device of the slices: see table.Set.
func (s *Set[K]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return lookParts(s.cluster, []Part[K, byte]{{Stream: st, Keys: keys, Flags: deleted}}, false, s.tables.deleting(deleted.Addr() != 0))
}

// All exports every key, in no order.
func (s *Set[K]) All() (keys []K, err error) {
	err = s.cluster.locked(func() (err error) {
		keys, _, err = allPairs(s.cluster, func(i int) ([]K, []byte, error) { k, err := s.tables[i].All(); return k, nil, err })
		return err
	})
	return keys, err
}

// Chunks gives every key to do, in chunks, one device's after the other's: see table.Map. In the independent mode a key may come once for each device.
func (s *Set[K]) Chunks(ctx context.Context, do func(keys []K) error) error {
	return s.cluster.chunks(func(i int, unchanged func() error) error {
		return s.tables[i].Chunks(ctx, func(keys []K) error {
			if err := unchanged(); err != nil {
				return err
			}
			return do(keys)
		})
	})
}

// Check walks the invariants of every device's set, and in the distributed mode sees that each key is where it belongs. Slow.
func (s *Set[K]) Check() error {
	return s.cluster.check(func(i int) ([]uint64, error) {
		keys, err := s.tables[i].All()
		return patterns(keys), err
	})
}

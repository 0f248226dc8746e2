package join

import (
	"context"
	"math/rand/v2"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// fakeMakers open tables that are Go maps, so that tests of joins need no device and no compiler. Of equal keys in one
// batch any may win, as on a device.
var fakeMakers = &makers{
	k4r4: fakeTable[uint32, uint32],
	k8r4: fakeTable[uint64, uint32],
	k8r8: fakeTable[uint64, uint64],
}

// tuned are options with what tests set beside them.
type tuned struct {
	Options
	tuning
}

func runWith(ctx context.Context, d *device.Device, o tuned) (Summary, error) {
	return runTuned(ctx, d, o.Options, o.tuning)
}

func joinWith(ctx context.Context, d *device.Device, build, probe array.RecordReader, o tuned,
	sink func(arrow.RecordBatch) error) (Summary, error) {
	return joinTuned(ctx, d, build, probe, o.Options, o.tuning, sink)
}

type fake[K comparable, V any] struct {
	table.Map[K, V] // the methods that joins do not use
	m               map[K]V
}

func fakeTable[K comparable, V any](*device.Device, table.Family, table.Options) (table.Map[K, V], error) {
	return &fake[K, V]{m: map[K]V{}}, nil
}

func (f *fake[K, V]) InsertNew(keys []K, values []V, added []bool) (n int, err error) {
	for _, i := range rand.Perm(len(keys)) {
		if _, there := f.m[keys[i]]; !there {
			f.m[keys[i]] = values[i]
			n++
			if added != nil {
				added[i] = true
			}
		}
	}
	return n, nil
}

func (f *fake[K, V]) Find(keys []K, values []V, found []bool) error {
	for i, k := range keys {
		values[i], found[i] = f.m[k]
	}
	return nil
}

func (f *fake[K, V]) Close() error { return nil }

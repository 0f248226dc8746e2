package warpcore

import (
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/tabletest"
)

// openFor opens a device that a test may do without, and closes it.
func openFor(t *testing.T, name string, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open(name, opts...)
	if name == "cpu" {
		must(t, err)
	}
	testenv.Require(t, "cuda", err)
	t.Cleanup(func() {
		tabletest.NoneForgotten(t, d)
		must(t, d.Close())
	})
	return d
}

// bucketLists is the suite of the bucket lists with those options.
func bucketLists[K, V any](o ListOptions) *tabletest.Suite {
	return tabletest.MultiMap(func(d *device.Device, base table.Options) (table.MultiMap[K, V], error) {
		o := o
		o.Options = base
		m, err := NewBucketList[K, V](d, o)
		if err != nil {
			return nil, err
		}
		return m, nil
	})
}

func TestBucketList(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			openFor(t, name)
			for _, c := range []struct {
				name  string
				part  tabletest.Part
				suite *tabletest.Suite
			}{
				{"4+4", tabletest.Whole, bucketLists[uint32, uint32](ListOptions{})},
				{"8+16", tabletest.Widths, bucketLists[uint64, [2]uint64](ListOptions{InitialBucket: 3, Growth: 1.1})},
				{"4+8", tabletest.Widths, bucketLists[uint32, uint64](ListOptions{Growth: 1, FindGroup: 4, InsertGroup: 4})},
				{"8+4", tabletest.Types, bucketLists[uint64, float32](ListOptions{InitialBucket: 100})},
			} {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.suite.Run(t, c.part, openFor(t, name), openFor(t, "cpu"))
				})
			}
		})
	}
}

package warpcore

import (
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/tabletest"
)

// multiBuckets is the suite of the multi-bucket tables with those options.
func multiBuckets[K, V any](o MultiBucketOptions) *tabletest.Suite {
	return tabletest.MultiMap(func(d *device.Device, base table.Options) (table.MultiMap[K, V], error) {
		o := o
		o.Options = base
		m, err := NewMultiBucket[K, V](d, o)
		if err != nil {
			return nil, err
		}
		return m, nil
	})
}

func TestMultiBucket(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			openFor(t, name)
			for _, c := range []struct {
				name  string
				part  tabletest.Part
				suite *tabletest.Suite
			}{
				{"4+4", tabletest.Whole, multiBuckets[uint32, uint32](MultiBucketOptions{})},
				{"8+16", tabletest.Widths, multiBuckets[uint64, [2]uint64](MultiBucketOptions{Bucket: 2, Window: 1})},
				{"4+8", tabletest.Types, multiBuckets[uint32, uint64](MultiBucketOptions{Bucket: 1, FindGroup: 4, InsertGroup: 4})},
				{"8+4", tabletest.Types, multiBuckets[uint64, float32](MultiBucketOptions{Bucket: 14, FindGroup: 2, InsertGroup: 1})},
				{"8+8", tabletest.Types, multiBuckets[uint64, uint64](MultiBucketOptions{Window: 8, FindGroup: 1, InsertGroup: 2})},
			} {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.suite.Run(t, c.part, openFor(t, name), openFor(t, "cpu"))
				})
			}
		})
	}
}

// The same with lanes switched at random, at every access.
func TestMultiBucketUnderStress(t *testing.T) {
	open := func(seed uint64) *device.Device {
		d, err := device.Open("cpu", device.WithStress(seed))
		must(t, err)
		return d
	}
	seeds := testenv.Seeds(20)
	multiBuckets[uint32, uint32](MultiBucketOptions{}).Stress(t, open, table.Options{}, seeds)
	multiBuckets[uint32, uint32](MultiBucketOptions{Bucket: 2, Window: 1}).Stress(t, open, table.Options{MaxBytes: 4 << 10, LoadFactor: 1}, seeds)
	multiBuckets[uint64, [2]uint64](MultiBucketOptions{InsertGroup: 2, FindGroup: 4}).Stress(t, open, table.Options{}, seeds)
}

func TestMultiBucketDegenerateHashes(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) { multiBuckets[uint32, uint32](MultiBucketOptions{}).Degenerate(t, openFor(t, name)) })
	}
}

package dycuckoo

import (
	"fmt"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, name string, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open(name, opts...)
	if name == "cpu" && err != nil {
		t.Fatal(err)
	}
	testenv.Require(t, "cuda", err)
	t.Cleanup(func() {
		tabletest.NoneForgotten(t, d)
		must(t, d.Close())
	})
	return d
}

var devices = []string{"cpu", "cuda:0"}

// suiteOf is the suite of Maps over tables made with the options.
func suiteOf[K, V any](o Options) *tabletest.Suite {
	return tabletest.Map(func(d *device.Device, t table.Options) (table.Map[K, V], error) {
		x := o
		x.Options = t
		return New[K, V](d, x)
	})
}

type suiteCase struct {
	name  string
	o     Options
	suite *tabletest.Suite
}

func caseOf[K, V any](o Options) suiteCase {
	return suiteCase{fmt.Sprintf("%T,%T,%v,d=%d,bucket=%d,%v,%v,groups=%d,%d", *new(K), *new(V), o.Layout, o.Subtables, o.Bucket, o.Balance, o.Coordination, o.InsertGroup, o.FindGroup), o, suiteOf[K, V](o)}
}

// cases have every layout, width, bucket size, number of subtables, balance, coordination and size of groups.
func cases() []suiteCase {
	list := []suiteCase{
		caseOf[uint32, uint32](Options{Subtables: 2, Bucket: 32, InsertGroup: 2, FindGroup: 1}),
		caseOf[uint64, uint64](Options{Subtables: 3, Bucket: 128, InsertGroup: 4, FindGroup: 8, Balance: Theorem1}),
		caseOf[uint64, uint32](Options{Layout: PackedLocked, Subtables: 8, FindGroup: 32}),
		caseOf[[16]byte, [4]uint32](Options{}),
		caseOf[[4]uint64, [4]uint64](Options{Subtables: 2}),
		caseOf[uint32, [2]uint64](Options{Bucket: 32}),
		caseOf[uint64, uint32](Options{Layout: PackedLocked, Subtables: 3, Coordination: Voter}),
	}
	if testenv.Long() {
		for i, d := range []int{2, 3, 4, 5, 7, 8} {
			list = append(list, caseOf[uint32, uint32](Options{Subtables: d, Bucket: 32 << (i % 3), FindGroup: 1 << i, Balance: Balance(i % 2)}))
		}
		list = append(list, caseOf[uint32, uint32](Options{Layout: Wide}), caseOf[uint64, [8]uint32](Options{Bucket: 128}),
			caseOf[[16]byte, uint32](Options{Bucket: 64, Subtables: 7}), caseOf[[8]float32, float64](Options{}),
			caseOf[uint32, uint32](Options{Layout: Wide, Bucket: 128, Balance: Theorem1, Coordination: Voter}), caseOf[[4]uint64, [4]uint64](Options{Coordination: Voter}))
	}
	return list
}

func TestVariants(t *testing.T) {
	for i, c := range cases() {
		part := tabletest.Widths
		if i > 2 {
			part = tabletest.Types // of each layout one had more
		}
		for _, name := range devices {
			if name == "cpu" && !testenv.Long() && (i == 4 || i == 6) {
				continue // wide, as the one before; and votes have tests of their own
			}
			t.Run(c.name+"/"+name, func(t *testing.T) {
				testenv.Turn(t)
				t.Parallel()
				c.suite.Run(t, part, open(t, name), open(t, "cpu"))
			})
		}
	}
}

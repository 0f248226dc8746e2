package cuckoo_test

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/cuckoo"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Sessions that are open: each is put in when it begins and taken out when it ends.
func ExampleFilter() {
	d, err := device.Open("auto")
	check(err)
	defer d.Close()
	open, err := cuckoo.New[uint64](d, cuckoo.Options{FilterOptions: table.FilterOptions{Capacity: 1000, Seed: 7}})
	check(err)
	defer open.Close()
	check(open.Insert([]uint64{11, 12, 13}))
	_, err = open.Delete([]uint64{12}, nil)
	check(err)
	found := make([]bool, 3)
	check(open.Contains([]uint64{11, 12, 13}, found))
	n, err := open.Len()
	check(err)
	fmt.Println(found, n)
	// Output: [true false true] 2
}

// A filter that is full is followed by a larger one, which takes its keys.
func ExampleFilter_Larger() {
	d, err := device.Open("auto")
	check(err)
	defer d.Close()
	keys := make([]uint64, 10_000)
	for i := range keys {
		keys[i] = uint64(i)
	}
	f, err := cuckoo.New[uint64](d, cuckoo.Options{FilterOptions: table.FilterOptions{Capacity: 6000, Seed: 7}})
	check(err)
	defer func() { check(f.Close()) }()
	if full := (*table.FullError)(nil); errors.As(f.Insert(keys), &full) {
		large, err := f.Larger(2)
		check(err)
		check(large.Merge(f))
		check(f.Close())
		f = large
		rest := make([]uint64, len(full.Positions))
		for i, p := range full.Positions {
			rest[i] = keys[p]
		}
		check(f.Insert(rest))
	}
	n, err := f.Len()
	check(err)
	fmt.Println(n)
	// Output: 10000
}

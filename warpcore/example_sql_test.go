package warpcore_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// SELECT city, SUM(price) FROM sales GROUP BY city: the sums are made as the rows come, equal cities of a batch too.
func ExampleMap_Update() {
	d, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	sums, err := warpcore.New[uint32, int64](d, warpcore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer sums.Close()
	for _, sales := range []struct {
		city  []uint32
		price []int64
	}{
		{[]uint32{1, 2, 1, 1}, []int64{10, 20, 30, -5}},
		{[]uint32{3, 2}, []int64{7, 22}},
	} {
		if err := sums.Update(sales.city, sales.price, table.Add); err != nil {
			log.Fatal(err)
		}
	}
	of := make([]int64, 3)
	err = sums.Find([]uint32{1, 2, 3}, of, nil)
	fmt.Println(of, err)
	// Output: [35 42 7] <nil>
}

// SELECT COUNT(DISTINCT visitor) … WHERE paid: InsertIf puts in those rows alone that passed, and tells how many were new.
func ExampleSet_InsertIf() {
	d, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	visitors, err := warpcore.NewSet[uint64](d, warpcore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer visitors.Close()
	n, err := visitors.InsertIf([]uint64{7, 8, 7, 9, 10}, []bool{true, true, true, false, true}, nil)
	fmt.Println(n, "different visitors paid", err)
	// Output: 3 different visitors paid <nil>
}

// A join with a filter in front: most rows of a fact table have no partner, and a few bits a key tell of nearly all of these. The others alone
// are looked up. All stays on the device.
func ExampleMap_FindIfOn() {
	d, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	build, prices := []uint32{10, 20, 30}, []uint32{100, 200, 300}
	m, err := warpcore.New[uint32, uint32](d, warpcore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	filter, err := warpcore.NewFilter[uint32](d, warpcore.FilterOptions{FilterOptions: table.FilterOptions{Capacity: len(build)}})
	if err != nil {
		log.Fatal(err)
	}
	defer filter.Close()
	if err := errors.Join(m.Insert(build, prices), filter.Insert(build)); err != nil {
		log.Fatal(err)
	}
	facts, err := device.From(d, []uint32{5, 20, 21, 22, 30, 20, 40})
	if err != nil {
		log.Fatal(err)
	}
	price, err := device.Make[uint32](d, facts.Len())
	if err != nil {
		log.Fatal(err)
	}
	joins, err := device.Make[bool](d, facts.Len())
	if err != nil {
		log.Fatal(err)
	}
	// What the filter lets through, joins says first; then which of them have a partner.
	if err := errors.Join(filter.ContainsOn(nil, facts, joins), m.FindIfOn(nil, facts, joins, price, joins)); err != nil {
		log.Fatal(err)
	}
	found, err := joins.Host(nil)
	if err != nil {
		log.Fatal(err)
	}
	values, err := price.Host(nil)
	fmt.Println(found)
	fmt.Println(values, err)
	// Output:
	// [false true false false true true false]
	// [0 200 0 0 300 200 0] <nil>
}

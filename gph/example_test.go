package gph_test

import (
	"fmt"
	"log"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/table"
)

func open() *device.Device {
	d, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	return d
}

// A table that is made for its pairs, and what a look-up costs in it.
func ExampleMap() {
	d := open()
	defer d.Close()
	m, err := gph.New[uint32, float32](d, gph.Options{Options: table.Options{Capacity: 1000}})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.Insert([]uint32{1, 2, 3}, []float32{0.1, 0.2, 0.3}); err != nil {
		log.Fatal(err)
	}
	values, found := make([]float32, 3), make([]bool, 3)
	err = m.Find([]uint32{3, 4, 1}, values, found)
	fmt.Println(values, found, err)
	s, err := m.IndexStats()
	fmt.Println("buckets read:", s.MaxProbes, err)
	// Output:
	// [0.3 0 0.1] [true false true] <nil>
	// buckets read: 1 <nil>
}

// SumParams are the parameters of the kernel in ExampleMap_Use.
type SumParams struct {
	Table gph.Table
	Keys  uint64 // address of u32 keys
	N     uint64
	Sum   uint64 // address of a u64
}

// A kernel of your own adds up the values of the keys that are there.
func ExampleMap_Use() {
	d := open()
	defer d.Close()
	m, err := gph.New[uint32, uint32](d, gph.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.Insert([]uint32{10, 20, 30}, []uint32{1, 2, 3}); err != nil {
		log.Fatal(err)
	}

	program := m.Program("sum", `
		#include "config.h"
		#include "gph.cuh"
		WARPMAP_KERNEL(sum, gph_test::SumParams) {
			tile<1> g;
			for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
				u32 v;
				if (gph::find<config>(p.table, g, at<u32>(p.keys)[i], v)) add(at<u64>(p.sum), (u64)v);
			}
		}`)
	program.Layouts = append(program.Layouts, SumParams{})
	module, err := d.Compile(program)
	if err != nil {
		log.Fatal(err)
	}
	kernel, err := device.KernelOf[SumParams](module, "sum")
	if err != nil {
		log.Fatal(err)
	}
	keys, err := device.From(d, []uint32{30, 40, 20})
	if err != nil {
		log.Fatal(err)
	}
	sum, err := device.From(d, []uint64{0})
	if err != nil {
		log.Fatal(err)
	}
	err = m.Use(nil, func(t gph.Table) error {
		p := SumParams{Table: t, Keys: keys.Addr(), N: uint64(keys.Len()), Sum: sum.Addr()}
		return kernel.Launch(nil, device.GridFor(int64(keys.Len()), 256), &p)
	})
	if err != nil {
		log.Fatal(err)
	}
	got, err := sum.Host(nil)
	fmt.Println(got, err)
	// Output: [5] <nil>
}

// A histogram of the values of some keys, made on the device.
func ExampleMap_ForEach() {
	d := open()
	defer d.Close()
	m, err := gph.New[uint32, uint32](d, gph.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.Insert([]uint32{10, 20, 30, 40}, []uint32{1, 2, 2, 3}); err != nil {
		log.Fatal(err)
	}
	histogram, err := device.From(d, make([]uint32, 4))
	if err != nil {
		log.Fatal(err)
	}
	keys, err := device.From(d, []uint32{20, 30, 40, 50})
	if err != nil {
		log.Fatal(err)
	}
	if err := m.ForEach(nil, keys, `add(&histogram[value], 1u);`, gph.Args{"histogram": histogram}); err != nil {
		log.Fatal(err)
	}
	counts, err := histogram.Host(nil)
	fmt.Println(counts, err)
	// Output: [0 0 2 1] <nil>
}

// The sum of keys times values, in pairs of two bytes each.
func ExampleMap_ForAll() {
	d := open()
	defer d.Close()
	m, err := gph.New[uint16, int16](d, gph.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.Insert([]uint16{1, 2, 65535}, []int16{-10, -20, 1}); err != nil {
		log.Fatal(err)
	}
	sum, err := device.From(d, []uint64{0})
	if err != nil {
		log.Fatal(err)
	}
	if err := m.ForAll(nil, `add(sum, (u64)((i64)key * value));`, gph.Args{"sum": sum}); err != nil {
		log.Fatal(err)
	}
	got, err := sum.Host(nil)
	fmt.Println(int64(got[0]), err)
	// Output: 65485 <nil>
}

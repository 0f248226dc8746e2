package slab_test

import (
	"fmt"
	"log"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/slab"
	"github.com/warpmap/warpmap/table"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Operations of all kinds in one call. Those on different keys do not depend on one another.
func ExampleMap_Mixed() {
	d, err := device.Open("cpu") // "auto" takes a GPU where there is one
	check(err)
	defer d.Close()
	m, err := slab.New[uint32, float32](d, slab.Options{})
	check(err)
	defer m.Close()
	check(m.Insert([]uint32{1, 2, 3}, []float32{0.1, 0.2, 0.3}))

	ops := []table.Op{table.OpFind, table.OpDelete, table.OpInsertNew, table.OpInsert, table.OpFind}
	keys := []uint32{1, 2, 3, 4, 5}
	values, results, status := []float32{0, 0, 9.3, 9.4, 0}, make([]float32, 5), make([]table.Status, 5)
	check(m.Mixed(ops, keys, values, results, status))
	for i := range ops {
		fmt.Println(ops[i], keys[i], results[i], status[i])
	}
	// Output:
	// find 1 0.1 present
	// delete 2 0 present
	// insert-new 3 0 present
	// insert 4 0 added
	// find 5 0 absent
}

// RenameParams are the parameters of the kernel in ExampleMap_Use.
type RenameParams struct {
	Table slab.Table
	Keys  uint64
	N     uint64
}

// A kernel of one's own renames keys: it erases each, and inserts its value under the key plus 100.
func ExampleMap_Use() {
	d, err := device.Open("cpu")
	check(err)
	defer d.Close()
	m, err := slab.New[uint32, uint32](d, slab.Options{})
	check(err)
	defer m.Close()
	check(m.Insert([]uint32{1, 2, 3}, []uint32{11, 22, 33}))

	program := m.Program("rename_keys", `
#include "config.h"
#include "layout.h"
#include "slab.cuh"
WARPMAP_KERNEL(rename_keys, slab_test::RenameParams) {
    tile<8> g; // eight lanes for each key
    slab::Resident r;
    for (u64 i = grid_thread() / 8; i < p.n; i += grid_threads() / 8) {
        u32 key = at<u32>(p.keys)[i], value;
        if (!slab::find<config>(p.table, g, key, value)) continue;
        if (slab::erase<config>(p.table, g, key)) slab::insert<config>(p.table, g, r, key + 100, value);
    }
}`)
	program.Layouts = append(program.Layouts, RenameParams{})
	module, err := d.Compile(program)
	check(err)
	rename, err := device.KernelOf[RenameParams](module, "rename_keys")
	check(err)
	keys, err := device.From(d, []uint32{1, 3, 5})
	check(err)
	defer keys.Free()
	check(m.Use(nil, keys.Len(), func(t slab.Table) error {
		return rename.Launch(nil, device.GridFor(8*3, 64), &RenameParams{Table: t, Keys: keys.Addr(), N: 3})
	}))

	values, found := make([]uint32, 4), make([]bool, 4)
	check(m.Find([]uint32{1, 2, 101, 103}, values, found))
	fmt.Println(values, found)
	// Output: [0 22 11 33] [false true true true]
}

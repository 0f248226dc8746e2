package warpmap_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// A map of numbers to numbers.
func Example() {
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	d, err := warpmap.Open("cpu") // "auto" takes a GPU where there is one
	check(err)
	defer d.Close()
	m, err := warpmap.New[uint64, float32](d, warpmap.WarpCore, warpmap.Options{})
	check(err)
	defer m.Close()
	check(m.Insert([]uint64{1, 2, 3}, []float32{0.1, 0.2, 0.3}))
	values, found := make([]float32, 2), make([]bool, 2)
	check(m.Find([]uint64{3, 4}, values, found))
	fmt.Println(values, found) // [0.3 0] [true false]
	// Output: [0.3 0] [true false]
}

// A table goes into a file, and comes back as one of another family.
func ExampleLoadMap() {
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	d, err := device.Open("cpu")
	check(err)
	defer d.Close()
	m, err := warpmap.New[uint32, uint32](d, warpmap.Slab, table.Options{})
	check(err)
	defer m.Close()
	check(m.Insert([]uint32{1, 2, 3}, []uint32{10, 20, 30}))

	dir, err := os.MkdirTemp("", "warpmap")
	check(err)
	defer os.RemoveAll(dir)
	ctx, path := context.Background(), filepath.Join(dir, "numbers")
	check(snapshot.Map(m).SaveFile(ctx, path))

	file, err := os.Open(path)
	check(err)
	defer file.Close()
	loaded, err := warpmap.LoadMap[uint32, uint32](ctx, file, d, warpmap.GPH, table.Options{})
	check(err)
	defer loaded.Close()
	value, found, err := warpmap.Get(loaded, 2)
	check(err)
	fmt.Println(value, found, loaded.Family())
	// Output: 20 true gph
}

// Keys are strings, which are hashed, kept and compared on the device.
func ExampleNewStrings() {
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	d, err := device.Open("cpu") // "auto" takes a GPU where there is one
	check(err)
	defer d.Close()
	m, err := warpmap.NewStrings[uint32](d, warpmap.WarpCore, warpmap.StringsOptions{})
	check(err)
	defer m.Close()
	check(m.Insert(warpmap.KeysOf("Hamburg", "Köln", ""), []uint32{20095, 50667, 0}))
	values, found := make([]uint32, 3), make([]bool, 3)
	check(m.Find(warpmap.KeysOf("Köln", "Koln", ""), values, found))
	fmt.Println(values, found) // [50667 0 0] [true false true]
	// Output: [50667 0 0] [true false true]
}

// A loop over a table's pairs.
func ExampleNew_pairs() {
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	d, err := device.Open("cpu")
	check(err)
	defer d.Close()
	m, err := warpmap.New[uint32, uint32](d, warpmap.WarpCore, table.Options{})
	check(err)
	defer m.Close()
	check(m.Insert([]uint32{1, 2, 3}, []uint32{10, 20, 30}))
	sum := uint32(0)
	pairs, failed := warpmap.Pairs(context.Background(), m)
	for _, value := range pairs {
		sum += value
	}
	check(failed())
	fmt.Println(sum)
	// Output: 60
}

// One map over two devices.
func Example_severalDevices() {
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	devices, err := device.OpenAll("cpu:0,cpu:1") // "all" is every GPU
	check(err)
	m, err := shard.NewMap(devices, shard.Options{}, func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
		return warpmap.New[uint32, uint32](d, warpmap.WarpCore, o)
	})
	check(err)
	check(m.Insert([]uint32{1, 2, 3}, []uint32{10, 20, 30}))
	n, err := m.Len()
	check(err)
	fmt.Println(n, "pairs on", len(m.Devices()), "devices")
	check(m.Close())
	for _, d := range devices {
		check(d.Close())
	}
	// Output: 3 pairs on 2 devices
}

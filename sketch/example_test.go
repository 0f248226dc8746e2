package sketch_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/sketch"
	"github.com/warpmap/warpmap/table/snapshot"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Visitors of two days are counted each, and together, from 16 KiB a day.
func ExampleHyperLogLog() {
	d, err := device.Open("auto")
	check(err)
	defer d.Close()
	days := make([]*sketch.HyperLogLog[uint64], 2)
	for day := range days {
		days[day], err = sketch.NewHyperLogLog[uint64](d, sketch.HyperLogLogOptions{Seed: 7})
		check(err)
		defer days[day].Close()
		visits := make([]uint64, 100_000)
		for i := range visits {
			visits[i] = uint64(i%1000 + 500*day)
		}
		check(days[day].Add(visits))
	}
	check(days[0].Merge(days[1])) // users 500 to 999 came on both
	s, err := days[0].Stats()
	check(err)
	fmt.Println(math.Abs(s.Estimate-1500) < 5*s.StandardError*1500, s.Bytes)
	// Output: true 16384
}

// A sketch of strings goes from process to process as a file.
func ExampleLoadHyperLogLog() {
	ctx, dir := context.Background(), os.TempDir()
	d, err := device.Open("auto")
	check(err)
	defer d.Close()
	h, err := sketch.NewHyperLogLog[string](d, sketch.HyperLogLogOptions{Seed: 7})
	check(err)
	defer h.Close()
	check(h.Add([]string{"Hamburg", "Köln", "Hamburg"}))
	path := filepath.Join(dir, fmt.Sprintf("cities-%d.sketch", os.Getpid()))
	defer os.Remove(path)
	check(snapshot.Sketch[string](h).SaveFile(ctx, path))

	file, err := os.Open(path)
	check(err)
	defer file.Close()
	again, err := sketch.LoadHyperLogLog[string](ctx, file, d)
	check(err)
	defer again.Close()
	check(again.Add([]string{"Köln", "Bonn"}))
	n, err := again.Estimate()
	check(err)
	fmt.Printf("%.0f cities\n", n)
	// Output: 3 cities
}

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

// A key that comes a tenth of the time among others that come once is found by a hundred counters.
func ExampleTop() {
	d, err := device.Open("auto")
	check(err)
	defer d.Close()
	hot, err := sketch.NewTop[uint32](d, sketch.TopOptions{Counters: 100})
	check(err)
	defer hot.Close()
	keys := make([]uint32, 1_000_000)
	for i := range keys {
		if keys[i] = uint32(i); i%10 == 0 { // a tenth of all
			keys[i] = 7
		}
	}
	check(hot.Add(keys))
	top, err := hot.Top(1)
	check(err)
	k := top[0]
	fmt.Println(k.Key, k.Count <= 100_001, k.Count+k.Error >= 100_001, k.Error <= 10_000)
	// Output: 7 true true true
}

// No estimate is too low, and few are too high by more than a share of Epsilon of all keys.
func ExampleCountMin() {
	d, err := device.Open("auto")
	check(err)
	defer d.Close()
	counts, err := sketch.NewCountMin[uint32](d, sketch.CountMinOptions{Epsilon: 0.001, Seed: 7})
	check(err)
	defer counts.Close()
	keys := make([]uint32, 1_000_000)
	for i := range keys {
		keys[i] = uint32(i % 1000)
	}
	check(counts.Add(keys))
	about := make([]uint64, 2)
	check(counts.Estimate([]uint32{5, 1_000_000}, about))
	fmt.Println(about[0] >= 1000, about[0] < 2000, about[1] < 1000)
	// Output: true true true
}

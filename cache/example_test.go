package cache_test

import (
	"fmt"
	"log"

	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/device"
)

// A cache that keeps what the caller says, and tells what goes out.
func ExampleCache_InsertOut() {
	d, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	m, err := cache.New[uint32, float32](d, cache.Options{Capacity: 12, Policy: cache.Scored})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	keys, values, scores := make([]uint32, 13), make([]float32, 13), make([]uint32, 13)
	for i := range keys {
		keys[i], values[i], scores[i] = uint32(i), float32(i)/2, uint32(100+i)
	}
	fmt.Println(m.InsertOut(keys, values, scores))
	fmt.Println(m.InsertOut([]uint32{77}, []float32{7.7}, []uint32{50}))
	// Output:
	// [0] [0] [100] <nil>
	// [77] [7.7] [50] <nil>
}

package warpcore_test

import (
	"fmt"
	"hash/fnv"
	"log"
	"slices"
	"strings"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// CountParams are the parameters of the kernel in ExampleMap_Use.
type CountParams struct {
	Table warpcore.Table
	Words uint64 // address of u32 words
	N     uint64
}

// A kernel of your own keeps one position of each word: the first lane that finds it absent puts it in.
func ExampleMap_Use() {
	d, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	m, err := warpcore.New[uint32, uint32](d, warpcore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	program := m.Program("count", `
		#include "config.h"
		#include "warpcore.cuh"
		WARPMAP_KERNEL(first_seen, warpcore_test::CountParams) {
			tile<1> g;
			for (u64 i = grid_thread(); i < p.n; i += grid_threads())
				warpcore::insert_new<config>(p.table, g, at<u32>(p.words)[i], (u32)i);
		}`)
	program.Layouts = append(program.Layouts, CountParams{})
	module, err := d.Compile(program)
	if err != nil {
		log.Fatal(err)
	}
	kernel, err := device.KernelOf[CountParams](module, "first_seen")
	if err != nil {
		log.Fatal(err)
	}
	words, err := device.From(d, []uint32{7, 8, 7, 9, 9, 9})
	if err != nil {
		log.Fatal(err)
	}
	err = m.Use(nil, words.Len(), func(t warpcore.Table) error {
		p := CountParams{Table: t, Words: words.Addr(), N: uint64(words.Len())}
		return kernel.Launch(nil, device.GridFor(int64(words.Len()), 256), &p)
	})
	if err != nil {
		log.Fatal(err)
	}
	n, err := m.Len()
	fmt.Println(n, "different words", err)
	// Output: 3 different words <nil>
}

// A histogram of the values of some keys, made on the device.
func ExampleMap_ForEach() {
	d, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	m, err := warpcore.New[uint32, uint32](d, warpcore.Options{})
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
	if err := m.ForEach(nil, keys, `add(&histogram[value], 1u);`, warpcore.Args{"histogram": histogram}); err != nil {
		log.Fatal(err)
	}
	counts, err := histogram.Host(nil)
	fmt.Println(counts, err)
	// Output: [0 0 2 1] <nil>
}

// A multimap keeps every value of a key.
func ExampleMultiMap() {
	d, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	m, err := warpcore.NewMultiMap[uint64, int32](d, warpcore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.Insert([]uint64{1, 2, 1}, []int32{-1, -2, -3}); err != nil {
		log.Fatal(err)
	}
	offsets, values, err := m.FindAll([]uint64{1, 5, 2})
	for i := range 3 {
		of := values[offsets[i]:offsets[i+1]]
		slices.Sort(of)
		fmt.Println(of)
	}
	fmt.Println(err)
	// Output:
	// [-3 -1]
	// []
	// [-2]
	// <nil>
}

// Two filters with one seed are made apart and united: then few keys that are in neither have to be looked for elsewhere.
func ExampleFilter() {
	d, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	var filters [2]*warpcore.Filter[uint64]
	for i := range filters {
		o := table.FilterOptions{Capacity: 1000, FalsePositives: 0.001, Seed: 1}
		filters[i], err = warpcore.NewFilter[uint64](d, warpcore.FilterOptions{FilterOptions: o})
		if err != nil {
			log.Fatal(err)
		}
		defer filters[i].Close()
		if err := filters[i].Insert([]uint64{uint64(i), 10 + uint64(i)}); err != nil {
			log.Fatal(err)
		}
	}
	if err := filters[0].Union(filters[1]); err != nil {
		log.Fatal(err)
	}
	found := make([]bool, 5)
	err = filters[0].Contains([]uint64{0, 1, 10, 11, 12}, found)
	fmt.Println(found, err)
	// Output: [true true true true false] <nil>
}

// An outer join: a key without values gets one that is given.
func ExampleMultiMap_FindAllOuter() {
	d, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	orders, err := warpcore.NewMultiMap[uint32, int32](d, warpcore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer orders.Close()
	if err := orders.Insert([]uint32{7, 9, 7}, []int32{100, 300, 200}); err != nil {
		log.Fatal(err)
	}
	customers, found := []uint32{7, 8, 9}, make([]bool, 3)
	offsets, values, err := orders.FindAllOuter(customers, -1, found)
	for i, c := range customers {
		of := values[offsets[i]:offsets[i+1]]
		slices.Sort(of)
		fmt.Println(c, of, found[i])
	}
	fmt.Println(err)
	// Output:
	// 7 [100 200] true
	// 8 [-1] false
	// 9 [300] true
	// <nil>
}

// An inverted index: in which documents a word is. Built at once, each word's documents lie beside one another; more may come later.
func ExampleBucketList_Build() {
	d, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	index, err := warpcore.NewBucketList[uint64, uint32](d, warpcore.ListOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer index.Close()
	postings := func(first uint32, documents ...string) (words []uint64, in []uint32) {
		for i, text := range documents {
			seen := map[uint64]bool{}
			for word := range strings.FieldsSeq(text) {
				h := fnv.New64a()
				h.Write([]byte(word))
				if w := h.Sum64(); !seen[w] {
					seen[w] = true
					words, in = append(words, w), append(in, first+uint32(i))
				}
			}
		}
		return words, in
	}
	words, in := postings(0, "the cat sat", "the dog sat", "a cat and a dog")
	if err := index.Build(words, in); err != nil {
		log.Fatal(err)
	}
	words, in = postings(3, "the end")
	if err := index.Insert(words, in); err != nil {
		log.Fatal(err)
	}
	asked, _ := postings(0, "the cat bird")
	offsets, documents, err := index.FindAll(asked)
	for i, word := range []string{"the", "cat", "bird"} {
		of := documents[offsets[i]:offsets[i+1]]
		slices.Sort(of)
		fmt.Println(word, of)
	}
	fmt.Println(err)
	// Output:
	// the [0 1 3]
	// cat [0 2]
	// bird []
	// <nil>
}

// A bucket list keeps the values of a key beside one another.
func ExampleBucketList() {
	d, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	m, err := warpcore.NewBucketList[uint32, uint32](d, warpcore.ListOptions{InitialBucket: 2, Growth: 1.5})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.Insert([]uint32{7, 8, 7}, []uint32{1, 2, 3}); err != nil {
		log.Fatal(err)
	}
	if err := m.Shrink(); err != nil {
		log.Fatal(err)
	}
	counts := make([]uint32, 3)
	err = m.Count([]uint32{7, 8, 9}, counts)
	fmt.Println(counts, err)
	// Output: [2 1 0] <nil>
}

// SpreadParams are the parameters of the kernel in ExampleMultiBucket.
type SpreadParams struct {
	Table warpcore.Table
	Sums  uint64 // address of u32, one a key
	Keys  uint64 // how many
}

// A kernel of your own goes through the few values of each key.
func ExampleMultiBucket() {
	d, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	m, err := warpcore.NewMultiBucket[uint32, uint32](d, warpcore.MultiBucketOptions{Bucket: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.Insert([]uint32{0, 2, 0, 0, 2}, []uint32{1, 10, 2, 3, 20}); err != nil {
		log.Fatal(err)
	}

	program := m.Program("spread", `
		#include "config.h"
		#include "multibucket.cuh"
		WARPMAP_KERNEL(spread, warpcore_test::SpreadParams) {
			tile<2> g;
			for (u64 k = grid_thread() / 2; k < p.keys; k += grid_threads() / 2)
				warpcore::buckets::for_values<config>(p.table, g, k, [&](u32 value) { add(at<u32>(p.sums) + k, value); });
		}`)
	program.Layouts = append(program.Layouts, SpreadParams{})
	module, err := d.Compile(program)
	if err != nil {
		log.Fatal(err)
	}
	kernel, err := device.KernelOf[SpreadParams](module, "spread")
	if err != nil {
		log.Fatal(err)
	}
	sums, err := device.From(d, make([]uint32, 3))
	if err != nil {
		log.Fatal(err)
	}
	err = m.Use(nil, 0, func(t warpcore.Table) error {
		return kernel.Launch(nil, device.GridFor(6, 256), &SpreadParams{Table: t, Sums: sums.Addr(), Keys: 3})
	})
	if err != nil {
		log.Fatal(err)
	}
	got, err := sums.Host(nil)
	fmt.Println(got, err)
	// Output: [6 0 30] <nil>
}

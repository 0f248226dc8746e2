package warpmap

import (
	"fmt"
	"reflect"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Auto lets New and its like choose a family, by the types and by what Options.Work says of the work. The empty name
// does the same, except in LoadMap and its like, where it means the family of the table that was saved. Stats tells
// which family it is, and why. A later version may choose another family. A CPU device gets what a GPU would, because
// the figures are of GPUs.
const Auto table.Family = "auto"

// rates are what was measured of a map: billions of keys a second.
type rates struct {
	family            table.Family
	insert, once      float64 // in batches of a million; all in one
	found, foundBuilt float64 // look-ups that hit; of a table that was built by one batch
	missed            float64
}

// measured are maps of 100 million pairs of 4+4 bytes in 1.0 to 1.1 GB of an H200 each, at a load factor of 0.8, dycuckoo at 0.75. The figures are of
// bench/results/h200: warpcore-4-4, gph-4-4-batch1M, gph-4-4-hits1, gph-4-4-hits0, gph-4-4-build, dycuckoo-4-4, whose look-ups are of all kinds
// there (at 0.85 those that hit are a tenth faster), and stadium-4-4-hits1 and -hits0. slab has 16.2 and 25.8 (slab-4-4), less than warpcore in
// both. Pairs of 8+8 come in the same order.
var measured = []rates{
	{WarpCore, 18.2, 18.2, 29.0, 29.0, 29.0},
	{GPH, 1.5, 4.8, 32.3, 34.5, 32.4},
	{DyCuckoo, 24.5, 24.5, 29.7, 29.7, 29.7},
	{Stadium, 13.6, 13.6, 18.3, 18.3, 39.4},
}

// time is what the work takes, in billionths of a second a key.
func (r *rates) time(w table.Work) float64 {
	insert, found, missed := r.insert, r.found, r.missed
	if w.Once {
		insert, found = r.once, r.foundBuilt
		missed = max(missed, found*r.missed/r.found)
	}
	return w.Inserts/insert + w.Finds*((1-w.Misses)/found+w.Misses/missed)
}

// churns is the share of deletions from which a table is taken that is good at them: in batches of a million inserts, a million look-ups and 200,000
// deletions, a tenth of all, growing and shrinking, warpcore does 9.4 G/s, slab 7.6 and dycuckoo 7.2 (fig-dycuckoo-12), though dycuckoo both inserts
// and finds faster in a table that stands.
const churns = 0.05

// fill is the share of a table's memory that pairs fill, about: to know whether they fit.
const fill = 0.8

// chooseMap chooses a family for a map of such keys and values.
func chooseMap(d *device.Device, key, value reflect.Type, o *table.Options) (table.Family, string) {
	w, bytes := o.Work, int64(key.Size()+value.Size())
	free := int64(0)
	if d != nil {
		free, _, _ = d.Memory() // a device that is closed is an error of New
	}
	need := int64(float64(int64(o.Capacity)*bytes) / fill)
	all := w.Inserts + w.Finds + w.Deletes
	switch {
	case key.Size() == 2 && value.Size() == 2:
		return GPH, "it alone has pairs of 2-byte keys and values"
	case !usual(key, 4, 8) || !usual(value, 4, 8, 16):
		// stadium finds 10.3 G/s of 16+64 bytes (stadium-16-64), dycuckoo 6.3 of 16+8 (dycuckoo-16-8).
		return Stadium, fmt.Sprintf("keys of %d bytes and values of %d are large, and it finds them fastest", key.Size(), value.Size())
	case free > 0 && need > free:
		return Stadium, fmt.Sprintf("%d pairs take about %s, %s are free on the device, and it also has tables in the host's memory", o.Capacity, device.Bytes(need), device.Bytes(free))
	case all == 0:
		return WarpCore, "nothing was said of the work (Options.Work), and it does all well"
	case w.Deletes >= churns*all && o.MaxBytes > 0:
		return DyCuckoo, "pairs come and go within MaxBytes, and it alone gives memory back: it holds 14 bytes a pair of 8 where warpcore holds 22"
	case w.Deletes >= churns*all:
		return WarpCore, "pairs come and go, and it is the fastest at that"
	}
	best := &measured[0]
	for i := range measured {
		if measured[i].time(w) < best.time(w) {
			best = &measured[i]
		}
	}
	return best.family, fmt.Sprintf("for %v inserts and %v look-ups, %.0f%% of which miss, it takes the least time, %.0f%% of that of warpcore (as measured on an H200)",
		w.Inserts, w.Finds, 100*w.Misses, 100*best.time(w)/measured[0].time(w))
}

// usual tells whether a type has one of these sizes.
func usual(t reflect.Type, sizes ...uintptr) bool {
	for _, s := range sizes {
		if t.Size() == s {
			return true
		}
	}
	return false
}

// listsFrom is the number of values a key from which a BucketList is the best multimap. Of 1, 8 and 64 values a key, a MultiMap takes in 12.4, 10.4 and 9.4
// billion pairs a second and gives back 13.0, 27.8 and 34.7 billion values; a BucketList 9.1, 12.7, 15.4 and 15.2, 69.4, 147.0; a MultiBucket 11.4, 9.2, 5.4 and 20.8,
// 24.3, 35.4, in 5.6, 2.2 and 1.5 GB for 100 million pairs where a BucketList takes 1.7, 0.66 and 0.43 and a MultiMap 1.0 (bench/results/h200, warpcore-multimap-1 and
// so on). So at 8 a BucketList is ahead in all, and at 1 it is slower to take in than to give back.
const listsFrom = 8

// chooseMultiMap chooses a multimap.
func chooseMultiMap(o *table.Options) (table.Kind, table.Family, string) {
	if v := o.Work.Values; v >= listsFrom {
		return table.KindBucketList, WarpCore, fmt.Sprintf("with %v values a key, a bucket list has each key once, and gives values back fastest", v)
	}
	return table.KindMultiMap, WarpCore, fmt.Sprintf("with fewer than %d values a key, or nobody knows how many (Options.Work), a slot for each pair is small, and takes pairs in fastest", listsFrom)
}

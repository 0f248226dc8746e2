package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/dycuckoo"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/stadium"
	tables "github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// kinds are those that bench measures: all.
var (
	kinds = slices.Concat([]tables.Kind{tables.KindMap, tables.KindSet}, multiMaps,
		[]tables.Kind{tables.KindCounter, tables.KindFilter, warpmap.KindCache})
	multiMaps = tables.MultiMapKinds()
)

func kindNames() []string { return namesOf(kinds) }

func namesOf(kinds []tables.Kind) (names []string) {
	for _, k := range kinds {
		names = append(names, k.String())
	}
	return names
}

// kindList says which families have which kind.
func kindList() string {
	var list []string
	for _, k := range kinds {
		list = append(list, fmt.Sprintf("%v (%s)", k, strings.Join(familiesOf(k), ", ")))
	}
	return strings.Join(list, ", ")
}

func kindOf(name string) (tables.Kind, error) {
	at := slices.Index(kindNames(), name)
	if at < 0 {
		return 0, fmt.Errorf("no kind of table %q: want %s", name, kindList())
	}
	return kinds[at], nil
}

// kindsBut are all kinds but some.
func kindsBut(not ...tables.Kind) []tables.Kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k tables.Kind) bool { return slices.Contains(not, k) })
}

// flagKinds are the flags that some kinds alone take.
var flagKinds = []struct {
	flag  string
	kinds []tables.Kind
}{
	{"build", []tables.Kind{tables.KindMap}},
	{"device-bytes", []tables.Kind{tables.KindMap}},
	{"update", []tables.Kind{tables.KindMap}},
	{"chosen", []tables.Kind{tables.KindMap}},
	{"each", multiMaps},
	{"values-per-key", multiMaps},
	{"value-bytes", kindsBut(tables.KindSet, tables.KindFilter)},
	{"load", kindsBut(tables.KindFilter, warpmap.KindCache)},
	{"distinct", kindsBut(warpmap.KindCache)},
	{"policy", []tables.Kind{warpmap.KindCache}},
	{"host-values", []tables.Kind{warpmap.KindCache}},
	{"hits", kindsBut(tables.KindFilter)},
	{"false-positives", []tables.Kind{tables.KindFilter}},
	{"bytes", []tables.Kind{tables.KindFilter}},
}

// settle refuses flags that another kind takes, and sets what the kind has where a flag is not given.
func settle(cmd *cobra.Command, kind tables.Kind, perKey int, o *bench.TableOptions) error {
	given := cmd.Flags().Changed
	for _, f := range flagKinds {
		if given(f.flag) && !slices.Contains(f.kinds, kind) {
			return fmt.Errorf("--%s is not for a %v: want --kind %s", f.flag, kind,
				strings.Join(namesOf(f.kinds), ", "))
		}
	}
	switch {
	case given("values-per-key") && (perKey < 1 || perKey > o.N):
		return fmt.Errorf("--values-per-key %d: want 1 to the number of pairs, %d", perKey, o.N)
	case given("distinct") && (o.Distinct < 1 || o.Distinct > o.N):
		return fmt.Errorf("--distinct %d: want 1 to the number of pairs, %d", o.Distinct, o.N)
	case given("chosen") && !(o.Chosen > 0 && o.Chosen <= 1):
		return fmt.Errorf("--chosen %v: want over 0, to 1", o.Chosen)
	}
	many := slices.Contains(multiMaps, kind)
	once := many && o.Queries == 0 && !given("hits")
	if perKey > 0 {
		o.Distinct = o.N / perKey
	}
	if once {
		o.Hits = 1
	}
	switch kind {
	case tables.KindMap:
		if o.Update && o.Distinct == 0 && o.N > 0 {
			o.Distinct = max(1, o.N/10)
		}
	case tables.KindCounter:
		if o.Distinct == 0 && o.N > 0 {
			o.Distinct = max(1, o.N/10)
		}
	case tables.KindFilter:
		o.Loads, o.Hits = []float64{0}, 1 // it has no load factor, and is asked for what is in and what is not, in turn
	case warpmap.KindCache:
		o.Loads = []float64{1}
		if !given("hits") {
			o.Hits = 1 // absent keys are measured beside
		}
		if o.Queries == 0 {
			o.Queries = max(1, o.N/2)
		}
	}
	if o.Queries == 0 && !once {
		o.Queries = 2 * o.N
	}
	return nil
}

func benchTable(d *device.Device, family tables.Family, kind tables.Kind, o bench.TableOptions) ([]bench.Row, error) {
	switch {
	case o.DeviceBytes != 0 && family != warpmap.Stadium:
		return nil, wrongUsage("--device-bytes is for maps of %s: no other table lies in host memory", warpmap.Stadium)
	case kind == tables.KindCounter && o.ValueBytes != 4 && o.ValueBytes != 8:
		return nil, wrongUsage("counts of %d bytes: want 4 or 8", o.ValueBytes)
	}
	if slices.Contains(multiMaps, kind) {
		switch [2]int{o.KeyBytes, o.ValueBytes} {
		case [2]int{4, 4}:
			return benchMultiMap[uint32, uint32](d, family, kind, o)
		case [2]int{4, 8}:
			return benchMultiMap[uint32, uint64](d, family, kind, o)
		case [2]int{8, 4}:
			return benchMultiMap[uint64, uint32](d, family, kind, o)
		case [2]int{8, 8}:
			return benchMultiMap[uint64, uint64](d, family, kind, o)
		}
		return nil, wrongUsage("multimaps of %d+%d bytes: want 4 or 8 each, whose answers can be counted", o.KeyBytes,
			o.ValueBytes)
	}
	if kind == warpmap.KindCache {
		switch o.KeyBytes {
		case 4:
			return benchCache[uint32](d, o)
		case 8:
			return benchCache[uint64](d, o)
		}
		return nil, wrongUsage("keys of %d bytes: want 4 or 8", o.KeyBytes)
	}
	switch o.KeyBytes {
	case 4:
		return benchKeyed(d, family, kind, o, allFamilies[uint32](family))
	case 8:
		return benchKeyed(d, family, kind, o, allFamilies[uint64](family))
	case 16:
		return benchKeyed(d, family, kind, o, wideFamilies[[2]uint64](family))
	case 32:
		return benchKeyed(d, family, kind, o, wideFamilies[[4]uint64](family))
	}
	return nil, wrongUsage("keys of %d bytes: want 4, 8, 16 or 32", o.KeyBytes)
}

// benchKeyed measures a table of a kind whose keys are K.
func benchKeyed[K workload.Wide](d *device.Device, family tables.Family, kind tables.Kind, o bench.TableOptions,
	maps mapMakers[K]) ([]bench.Row, error) {
	switch kind {
	case tables.KindMap:
		return benchMap(d, family, o, maps)
	case tables.KindCounter:
		if o.ValueBytes == 4 {
			return benchCounter[K, uint32](d, family, o)
		}
		return benchCounter[K, uint64](d, family, o)
	}
	return bench.Table(d, o, func(w *bench.Work[K, uint32], load float64) (s bench.Subject, err error) {
		switch kind {
		case tables.KindSet:
			t, err := warpmap.NewSet[K](d, family, tables.Options{Capacity: o.Room(), LoadFactor: load})
			if err != nil {
				return s, err
			}
			return bench.Set(w, t), nil
		case tables.KindFilter:
			room := o.Room()
			if family == warpmap.Cuckoo {
				room = o.N // a key that comes twice is in twice
			}
			f, err := warpmap.NewFilter[K](d, family,
				tables.FilterOptions{Capacity: room, FalsePositives: o.FalsePositives, Bytes: o.FilterBytes})
			if err != nil {
				return s, err
			}
			s, err = bench.Filter(w, f)
			return orClosed(s, err, f)
		}
		return s, fmt.Errorf("no %v to measure", kind)
	})
}

// mapMakers make maps with values of the widths that all families have.
type mapMakers[K any] struct {
	four    mapMaker[K, uint32]
	eight   mapMaker[K, uint64]
	sixteen mapMaker[K, [2]uint64]
}

func allFamilies[K any](family tables.Family) mapMakers[K] {
	return mapMakers[K]{newMap[K, uint32](family), newMap[K, uint64](family), newMap[K, [2]uint64](family)}
}

// wideFamilies are for wide keys: what other families would make of them is an error, but would be compiled.
func wideFamilies[K any](family tables.Family) mapMakers[K] {
	return mapMakers[K]{newWide[K, uint32](family), newWide[K, uint64](family), newWide[K, [2]uint64](family)}
}

func benchMap[K workload.Wide](d *device.Device, family tables.Family, o bench.TableOptions,
	maps mapMakers[K]) ([]bench.Row, error) {
	switch o.ValueBytes {
	case 4:
		return benchMapOf(d, o, maps.four)
	case 8:
		return benchMapOf(d, o, maps.eight)
	case 16:
		return benchMapOf(d, o, maps.sixteen)
	case 32:
		return benchMapOf(d, o, newWide[K, [4]uint64](family))
	case 64:
		return benchMapOf(d, o, newWide[K, [8]uint64](family))
	}
	return nil, wrongUsage("values of %d bytes: want 4, 8, 16, 32 or 64", o.ValueBytes)
}

func benchMapOf[K, V workload.Wide](d *device.Device, o bench.TableOptions, newMap mapMaker[K, V]) ([]bench.Row,
	error) {
	return bench.Table(d, o, func(w *bench.Work[K, V], load float64) (s bench.Subject, err error) {
		m, err := newMap(d, tables.Options{Capacity: o.Room(), LoadFactor: load}, o.DeviceBytes)
		if err != nil {
			return s, err
		}
		switch {
		case o.Build:
			s, err = bench.Built(w, m)
		case o.Update:
			s, err = bench.Updated(w, m)
		case o.Chosen > 0:
			s, err = bench.Choosing(w, m)
		default:
			s = w.Map(m)
		}
		return orClosed(s, err, m)
	})
}

// mapMaker makes a map; of a stadium's slots so many bytes are in device memory, where it is not 0.
type mapMaker[K, V any] func(d *device.Device, o tables.Options, deviceBytes int64) (tables.Map[K, V], error)

func newMap[K, V any](family tables.Family) mapMaker[K, V] {
	return func(d *device.Device, o tables.Options, deviceBytes int64) (tables.Map[K, V], error) {
		if deviceBytes != 0 {
			return newStadium[K, V](d, o, deviceBytes)
		}
		return warpmap.New[K, V](d, family, o)
	}
}

// newWide is newMap of the families whose maps have wide keys and values, without those whose error says that theirs do
// not.
func newWide[K, V any](family tables.Family) mapMaker[K, V] {
	return func(d *device.Device, o tables.Options, deviceBytes int64) (tables.Map[K, V], error) {
		switch family {
		case warpmap.Stadium, warpmap.Auto: // which is what it chooses for them
			return newStadium[K, V](d, o, deviceBytes)
		case warpmap.DyCuckoo:
			return dycuckoo.New[K, V](d, dycuckoo.Options{Options: o})
		}
		return nil, wrongUsage("%w; or --table stadium or dycuckoo", frame.WidthsOf[K, V]().Err)
	}
}

func newStadium[K, V any](d *device.Device, o tables.Options, deviceBytes int64) (tables.Map[K, V], error) {
	return stadium.New[K, V](d, stadium.Options{Options: o, DeviceBytes: deviceBytes})
}

// benchMultiMap measures a multimap.
func benchMultiMap[K, V workload.Wide](d *device.Device, family tables.Family, kind tables.Kind,
	o bench.TableOptions) ([]bench.Row, error) {
	return bench.Table(d, o, func(w *bench.Work[K, V], load float64) (s bench.Subject, err error) {
		t, err := warpmap.NewMultiMapOf[K, V](d, kind, family,
			tables.MultiMapOptions{Options: tables.Options{Capacity: o.N, LoadFactor: load}, Keys: w.Different()})
		if err != nil {
			return s, err
		}
		return bench.MultiMap(w, t), nil
	})
}

func benchCounter[K workload.Wide, C uint32 | uint64](d *device.Device, family tables.Family,
	o bench.TableOptions) ([]bench.Row, error) {
	return bench.Table(d, o, func(w *bench.Work[K, C], load float64) (s bench.Subject, err error) {
		c, err := warpmap.NewCounter[K, C](d, family,
			tables.CounterOptions{Options: tables.Options{Capacity: o.Distinct, LoadFactor: load}})
		if err != nil {
			return s, err
		}
		s, err = bench.Counter(w, c)
		return orClosed(s, err, c)
	})
}

// policies are a cache's, by name.
var policies = []cache.Policy{cache.LRU, cache.LFU, cache.Aged, cache.Scored}

func policyNames() (names []string) {
	for _, p := range policies {
		names = append(names, p.String())
	}
	return names
}

// benchCache measures caches with keys K.
func benchCache[K workload.Word](d *device.Device, o bench.TableOptions) ([]bench.Row, error) {
	at := slices.Index(policyNames(), o.Policy)
	if at < 0 {
		return nil, fmt.Errorf("--policy %s: want %s", o.Policy, strings.Join(policyNames(), ", "))
	}
	switch p := policies[at]; o.ValueBytes {
	case 4:
		return benchCacheOf[K, uint32](d, o, p)
	case 8:
		return benchCacheOf[K, uint64](d, o, p)
	case 16:
		return benchCacheOf[K, [2]uint64](d, o, p)
	case 32:
		return benchCacheOf[K, [4]uint64](d, o, p)
	case 64:
		return benchCacheOf[K, [8]uint64](d, o, p)
	}
	return nil, wrongUsage("values of %d bytes: want 4, 8, 16, 32 or 64", o.ValueBytes)
}

// cacheShare: a cache holds one in so many of the pairs that are inserted.
const cacheShare = 4

func benchCacheOf[K workload.Word, V workload.Wide](d *device.Device, o bench.TableOptions,
	p cache.Policy) ([]bench.Row, error) {
	if o.Batch == 0 { // in one batch all pairs would have been used at the same time
		o.Batch = max(1, o.N/(4*cacheShare))
	}
	return bench.Table(d, o, func(w *bench.Work[K, V], _ float64) (s bench.Subject, err error) {
		c, err := warpmap.NewCache[K, V](d, cache.Options{Capacity: max(1, o.N/cacheShare), Policy: p,
			HostValues: o.HostValues})
		if err != nil {
			return s, err
		}
		s, err = bench.Cache(w, c)
		return orClosed(s, err, c)
	})
}

// orClosed closes the table where there is an error.
func orClosed(s bench.Subject, err error, table interface{ Close() error }) (bench.Subject, error) {
	if err != nil {
		table.Close()
	}
	return s, err
}

// about says what was measured, for people.
func about(kind tables.Kind, o bench.TableOptions) string {
	what := fmt.Sprintf("keys (%d bytes, %s)", o.KeyBytes, o.Keys)
	if kind == tables.KindMap || kind == warpmap.KindCache || slices.Contains(multiMaps, kind) {
		what = fmt.Sprintf("pairs (%d+%d bytes, %s)", o.KeyBytes, o.ValueBytes, o.Keys)
	}
	if o.Distinct > 0 {
		what += fmt.Sprintf(" drawn from %d", o.Distinct)
	}
	if o.Chosen > 0 {
		what += fmt.Sprintf(", %.0f%% of the rows chosen", 100*o.Chosen)
	}
	switch {
	case kind == warpmap.KindCache:
		return fmt.Sprintf("%s, %d %s for %d places, in batches of %d, %d look-ups, %.0f%% hits", o.Policy, o.N, what,
			max(1, o.N/cacheShare), cmp.Or(o.Batch, max(1, o.N/(4*cacheShare))), o.Queries, 100*o.Hits)
	case kind == tables.KindFilter:
		return fmt.Sprintf("%d %s, %d look-ups of them, as many of others", o.N, what, o.Queries)
	case o.Queries == 0:
		return fmt.Sprintf("%d %s, each key looked up once", o.N, what)
	}
	return fmt.Sprintf("%d %s, %d look-ups, %.0f%% hits", o.N, what, o.Queries, 100*o.Hits)
}

// column is one of the printed table.
type column struct {
	name string
	of   func(bench.Row) any
}

// columns are those of a kind, which has the map's where it does the same.
func columns(kind tables.Kind, o bench.TableOptions) []column {
	fill := "insert G/s"
	switch {
	case o.Build:
		fill = "build G/s"
	case o.Update:
		fill = "update G/s"
	}
	load := column{"load", func(r bench.Row) any { return r.Load }}
	filled := column{"filled", func(r bench.Row) any { return fmt.Sprintf("%.3f", r.Filled) }}
	inserted := []column{
		{fill, func(r bench.Row) any { return rate(r.Filling()) }},
		{"of limit", func(r bench.Row) any { return share(r.InsertShare) }},
	}
	found := []column{
		{"find G/s", func(r bench.Row) any { return rate(r.Find) }},
		{"of limit", func(r bench.Row) any { return share(r.FindShare) }},
	}
	bytes := column{"table", func(r bench.Row) any { return tableBytes(r) }}
	probes := column{"probes", func(r bench.Row) any { return fmt.Sprintf("%.2f", r.MeanProbes) }}
	wrong := column{"wrong", func(r bench.Row) any { return r.Wrong }}
	switch kind {
	case tables.KindSet:
		found = append(found, column{"delete G/s", func(r bench.Row) any { return rate(r.Delete) }})
		inserted = append(inserted, column{"with added G/s", func(r bench.Row) any { return rate(r.InsertAdded) }})
	case warpmap.KindCache:
		inserted = append(inserted,
			column{"told G/s", func(r bench.Row) any { return rate(r.Cache.Told) }},
			column{"overwrite G/s", func(r bench.Row) any { return rate(r.Cache.Overwrite) }})
		found = append(found, column{"quiet G/s", func(r bench.Row) any { return rate(r.Cache.Quiet) }},
			column{"absent G/s", func(r bench.Row) any { return rate(r.Cache.Absent) }})
		probes = column{"evicted", func(r bench.Row) any { return share(r.Cache.Evicted) }}
	case tables.KindFilter:
		load = column{"bits a key", func(r bench.Row) any { return fmt.Sprintf("%.2f", r.Filter.BitsPerKey) }}
		found = append(found, column{"absent G/s", func(r bench.Row) any { return rate(r.Filter.Absent) }},
			column{"delete G/s", func(r bench.Row) any { return rate(r.Filter.Delete) }})
		probes = column{"false positives", func(r bench.Row) any {
			return fmt.Sprintf("%.4f%%, estimate %.4f%%, ideal %.4f%%", 100*r.Filter.FalsePositives,
				100*r.Filter.Estimate, 100*r.Filter.Ideal)
		}}
	}
	if slices.Contains(multiMaps, kind) {
		found = append(found, column{"values G/s", func(r bench.Row) any { return rate(r.Values) }},
			column{"count G/s", func(r bench.Row) any { return rate(r.Count) }})
	}
	if kind == tables.KindBucketList {
		inserted = append(inserted, column{"build G/s", func(r bench.Row) any { return rate(r.Build) }})
	}
	return slices.Concat([]column{load, filled}, inserted, found, []column{bytes, probes, wrong})
}

func rate(x float64) string { return fmt.Sprintf("%.3f", x) }

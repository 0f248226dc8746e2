package warpmap

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/cuckoo"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/dycuckoo"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/slab"
	"github.com/warpmap/warpmap/stadium"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// The families of tables.
const (
	DyCuckoo table.Family = "dycuckoo"
	GPH      table.Family = "gph"
	Slab     table.Family = "slab"
	Stadium  table.Family = "stadium"
	WarpCore table.Family = "warpcore"
	Cuckoo   table.Family = "cuckoo" // of filters
	Caches   table.Family = "cache"  // of NewCache alone
)

// The lists of tables, one for each kind, are the only ones: tests, benchmarks and the command line range over them. Each is a
// function of its own, for a program that makes maps alone has the other kinds' code compiled with it otherwise.

// maker makes a table of one family: T is table.Map[K, V], table.Set[K], … and O its kind's options.
type maker[T, O any] func(*device.Device, O) (T, error)

func mapMakers[K, V any]() map[table.Family]maker[table.Map[K, V], table.Options] {
	return map[table.Family]maker[table.Map[K, V], table.Options]{
		DyCuckoo: func(d *device.Device, o table.Options) (table.Map[K, V], error) {
			return made[table.Map[K, V]](dycuckoo.New[K, V](d, dycuckoo.Options{Options: o}))
		},
		GPH: func(d *device.Device, o table.Options) (table.Map[K, V], error) {
			return made[table.Map[K, V]](gph.New[K, V](d, gph.Options{Options: o}))
		},
		Slab: func(d *device.Device, o table.Options) (table.Map[K, V], error) {
			return made[table.Map[K, V]](slab.New[K, V](d, slab.Options{Options: o}))
		},
		Stadium: func(d *device.Device, o table.Options) (table.Map[K, V], error) {
			return made[table.Map[K, V]](stadium.New[K, V](d, stadium.Options{Options: o}))
		},
		WarpCore: func(d *device.Device, o table.Options) (table.Map[K, V], error) {
			return made[table.Map[K, V]](warpcore.New[K, V](d, warpcore.Options{Options: o}))
		},
	}
}

func setMakers[K any]() map[table.Family]maker[table.Set[K], table.Options] {
	return map[table.Family]maker[table.Set[K], table.Options]{
		Slab: func(d *device.Device, o table.Options) (table.Set[K], error) {
			return made[table.Set[K]](slab.NewSet[K](d, slab.Options{Options: o}))
		},
		WarpCore: func(d *device.Device, o table.Options) (table.Set[K], error) {
			return made[table.Set[K]](warpcore.NewSet[K](d, warpcore.Options{Options: o}))
		},
	}
}

// multiMapMakers are those of one of table.MultiMapKinds.
func multiMapMakers[K, V any](kind table.Kind) map[table.Family]maker[table.MultiMap[K, V], table.MultiMapOptions] {
	switch kind {
	case table.KindMultiMap:
		return map[table.Family]maker[table.MultiMap[K, V], table.MultiMapOptions]{
			Slab: func(d *device.Device, o table.MultiMapOptions) (table.MultiMap[K, V], error) {
				return made[table.MultiMap[K, V]](slab.NewMultiMap[K, V](d, slab.Options{Options: o.Options}))
			},
			WarpCore: func(d *device.Device, o table.MultiMapOptions) (table.MultiMap[K, V], error) {
				return made[table.MultiMap[K, V]](warpcore.NewMultiMap[K, V](d, warpcore.Options{Options: o.Options}))
			},
		}
	case table.KindMultiBucket:
		return map[table.Family]maker[table.MultiMap[K, V], table.MultiMapOptions]{
			WarpCore: func(d *device.Device, o table.MultiMapOptions) (table.MultiMap[K, V], error) {
				return made[table.MultiMap[K, V]](warpcore.NewMultiBucket[K, V](d, warpcore.MultiBucketOptions{Options: o.Options, Keys: o.Keys}))
			},
		}
	case table.KindBucketList:
		return map[table.Family]maker[table.MultiMap[K, V], table.MultiMapOptions]{
			WarpCore: func(d *device.Device, o table.MultiMapOptions) (table.MultiMap[K, V], error) {
				return made[table.MultiMap[K, V]](warpcore.NewBucketList[K, V](d, warpcore.ListOptions{Options: o.Options, Keys: o.Keys}))
			},
		}
	}
	return nil
}

func counterMakers[K any, C uint32 | uint64]() map[table.Family]maker[table.Counter[K, C], table.CounterOptions] {
	return map[table.Family]maker[table.Counter[K, C], table.CounterOptions]{
		WarpCore: func(d *device.Device, o table.CounterOptions) (table.Counter[K, C], error) {
			return made[table.Counter[K, C]](warpcore.NewCounter[K, C](d, warpcore.CounterOptions{Options: warpcore.Options{Options: o.Options}, Saturate: o.Saturate}))
		},
	}
}

func filterMakers[K any]() map[table.Family]maker[table.Filter[K], table.FilterOptions] {
	return map[table.Family]maker[table.Filter[K], table.FilterOptions]{
		Cuckoo: func(d *device.Device, o table.FilterOptions) (table.Filter[K], error) {
			return made[table.Filter[K]](NewCuckooFilter[K](d, o))
		},
		WarpCore: func(d *device.Device, o table.FilterOptions) (table.Filter[K], error) {
			return made[table.Filter[K]](warpcore.NewFilter[K](d, warpcore.FilterOptions{FilterOptions: o}))
		},
	}
}

func filterFormMakers[K any]() map[table.Family]maker[table.Filter[K], table.FilterForm] {
	return map[table.Family]maker[table.Filter[K], table.FilterForm]{
		Cuckoo: func(d *device.Device, form table.FilterForm) (table.Filter[K], error) {
			return made[table.Filter[K]](cuckoo.NewOf[K](d, form))
		},
		WarpCore: func(d *device.Device, form table.FilterForm) (table.Filter[K], error) {
			return made[table.Filter[K]](warpcore.NewFilterOf[K](d, form))
		},
	}
}

// made keeps a nil table from becoming an interface that is not nil.
func made[T any](t T, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return t, nil
}

// families are those that have tables of each kind, sorted. Only what stands here is made by the functions above. A list of names is apart from
// them because a call of theirs has every table compiled for some types.
var families = map[table.Kind][]table.Family{
	table.KindMap:         {DyCuckoo, GPH, Slab, Stadium, WarpCore},
	table.KindSet:         {Slab, WarpCore},
	table.KindMultiMap:    {Slab, WarpCore},
	table.KindBucketList:  {WarpCore},
	table.KindMultiBucket: {WarpCore},
	table.KindCounter:     {WarpCore},
	table.KindFilter:      {Cuckoo, WarpCore},
	KindCache:             {Caches},
}

// Families lists the families that have tables of the kind, sorted. New and its like take these names.
func Families(kind table.Kind) []table.Family { return slices.Clone(families[kind]) }

// auto tells whether a family is to be chosen.
func auto(name table.Family) bool { return name == "" || name == Auto }

// from makes a table of the family with that name, if it has the kind.
func from[T, O any](list map[table.Family]maker[T, O], kind table.Kind, name table.Family, d *device.Device, o O) (none T, err error) {
	f := list[name]
	if f == nil || !slices.Contains(families[kind], name) {
		return none, noFamily(kind, name)
	}
	return f(d, o)
}

func noFamily(kind table.Kind, name table.Family) error {
	var have []string
	for _, f := range families[kind] {
		if strings.EqualFold(string(f), string(name)) {
			return fmt.Errorf("warpmap: no %v %q: want %q, in lower case", kind, string(name), string(f))
		}
		have = append(have, string(f))
	}
	return fmt.Errorf("warpmap: no %v %q (want one of: %s)", kind, string(name), strings.Join(have, ", "))
}

// New makes an empty map of the given family on the device. The family's own options have their defaults. Auto and ""
// choose a family. To set a family's own options, call its New instead. Cost: nothing beside the memory. Each method's
// kernels are compiled when it is first called on a machine, side by side, in up to a second or two; those of look-ups
// from New on, in the background, unless o.Work has inserts and no look-ups. From then on they are in a cache on disk,
// and take milliseconds.
//
// Errors: a family that does not exist; K or V of a width the family does not have, or with pointers or padding;
// options out of range, such as a MaxBytes that is too small for any table; *device.OutOfMemoryError; device.ErrClosed,
// if the device is closed. If kernels must be compiled: device.ErrNoCompiler on the CPU device, or device.ErrNoNVRTC on
// a GPU, if there is nothing to compile them with. Where a compiler fails, the method that needs the kernel tells:
// *device.CompileError with the compiler's words; context.Cause of the context of device.WithContext, if that has ended.
func New[K, V any](d *device.Device, name table.Family, o table.Options) (table.Map[K, V], error) {
	if auto(name) {
		name, o.Why = chooseMap(d, reflect.TypeFor[K](), reflect.TypeFor[V](), &o)
	}
	return from(mapMakers[K, V](), table.KindMap, name, d, o)
}

// NewSet makes an empty set; see New.
func NewSet[K any](d *device.Device, name table.Family, o table.Options) (table.Set[K], error) {
	if auto(name) {
		name, o.Why = WarpCore, "sets were measured of it alone: it inserts 24.8 and looks up 37.5 billion keys a second (bench/results/h200/warpcore-set.json)"
	}
	return from(setMakers[K](), table.KindSet, name, d, o)
}

// NewMultiMap makes an empty multimap; see New. With Auto, it chooses a kind, too.
func NewMultiMap[K, V any](d *device.Device, name table.Family, o table.Options) (table.MultiMap[K, V], error) {
	kind, keys := table.KindMultiMap, 0
	if auto(name) {
		kind, name, o.Why = chooseMultiMap(&o)
		if o.Work.Values > 1 {
			keys = int(float64(o.Capacity) / o.Work.Values)
		}
	}
	return NewMultiMapOf[K, V](d, kind, name, table.MultiMapOptions{Options: o, Keys: keys})
}

// NewMultiMapOf makes an empty multimap of the given kind, which is one of table.MultiMapKinds; see New.
func NewMultiMapOf[K, V any](d *device.Device, kind table.Kind, name table.Family, o table.MultiMapOptions) (table.MultiMap[K, V], error) {
	if !slices.Contains(table.MultiMapKinds(), kind) {
		return nil, fmt.Errorf("warpmap: a %v is no multimap (want one of: %v)", kind, table.MultiMapKinds())
	}
	if auto(name) {
		name, o.Why = WarpCore, "it alone has multimaps of every kind"
	}
	return from(multiMapMakers[K, V](kind), kind, name, d, o)
}

// NewCounter makes an empty counter; see New.
func NewCounter[K any, C uint32 | uint64](d *device.Device, name table.Family, o table.CounterOptions) (table.Counter[K, C], error) {
	if auto(name) {
		name, o.Why = WarpCore, "it alone has counters"
	}
	return from(counterMakers[K, C](), table.KindCounter, name, d, o)
}

// NewFilter makes an empty filter; see New.
func NewFilter[K any](d *device.Device, name table.Family, o table.FilterOptions) (table.Filter[K], error) {
	if auto(name) {
		name = WarpCore // the faster one, with less memory for rates of 1 in 100 and more
	}
	return from(filterMakers[K](), table.KindFilter, name, d, o)
}

// NewCuckooFilter makes an empty filter from which keys can be taken out: see cuckoo.New. As a Filter, without deletions,
// it is NewFilter with Cuckoo.
func NewCuckooFilter[K any](d *device.Device, o table.FilterOptions) (*cuckoo.Filter[K], error) {
	return cuckoo.New[K](d, cuckoo.Options{FilterOptions: o})
}

// NewCache makes an empty cache, of fixed size, on the device: see cache.New. There is one family of caches, which has no
// other kind.
func NewCache[K, V any](d *device.Device, o cache.Options) (*cache.Cache[K, V], error) {
	return cache.New[K, V](d, o)
}

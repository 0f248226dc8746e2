package warpmap

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

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
)

// maker makes a table of one family and kind: T is table.Map[K, V], table.Set[K], …
type maker[T any] func(*device.Device, table.Options) (T, error)

// family is a family's makers, one for each kind that it has.
type family[K, V any] struct {
	name      table.Family
	newMap    maker[table.Map[K, V]]
	set       maker[table.Set[K]]
	multiMaps multiMapMakers[K, V]
	counter   counterMakers[K]
	filter    func(*device.Device, table.FilterOptions) (table.Filter[K], error)
	filterOf  func(*device.Device, table.FilterForm) (table.Filter[K], error)
}

// multiMapMakers make a family's multimaps, one for each of table.MultiMapKinds that it has.
type multiMapMakers[K, V any] map[table.Kind]func(*device.Device, table.MultiMapOptions) (table.MultiMap[K, V], error)

// counterMakers make a family's counters, one for each type of the counts.
type counterMakers[K any] struct {
	u32 counterMaker[K, uint32]
	u64 counterMaker[K, uint64]
}

type counterMaker[K any, C uint32 | uint64] func(*device.Device, table.CounterOptions) (table.Counter[K, C], error)

// families is the only list of tables, by name: tests, benchmarks and the command line range over it.
func families[K, V any]() []family[K, V] {
	return []family[K, V]{
		{
			name: DyCuckoo,
			newMap: func(d *device.Device, o table.Options) (table.Map[K, V], error) {
				return made[table.Map[K, V]](dycuckoo.New[K, V](d, dycuckoo.Options{Options: o}))
			},
		},
		{
			name: GPH,
			newMap: func(d *device.Device, o table.Options) (table.Map[K, V], error) {
				return made[table.Map[K, V]](gph.New[K, V](d, gph.Options{Options: o}))
			},
		},
		{
			name: Slab,
			newMap: func(d *device.Device, o table.Options) (table.Map[K, V], error) {
				return made[table.Map[K, V]](slab.New[K, V](d, slab.Options{Options: o}))
			},
			set: func(d *device.Device, o table.Options) (table.Set[K], error) {
				return made[table.Set[K]](slab.NewSet[K](d, slab.Options{Options: o}))
			},
			multiMaps: multiMapMakers[K, V]{
				table.KindMultiMap: func(d *device.Device, o table.MultiMapOptions) (table.MultiMap[K, V], error) {
					return made[table.MultiMap[K, V]](slab.NewMultiMap[K, V](d, slab.Options{Options: o.Options}))
				},
			},
		},
		{
			name: Stadium,
			newMap: func(d *device.Device, o table.Options) (table.Map[K, V], error) {
				return made[table.Map[K, V]](stadium.New[K, V](d, stadium.Options{Options: o}))
			},
		},
		{
			name: WarpCore,
			newMap: func(d *device.Device, o table.Options) (table.Map[K, V], error) {
				return made[table.Map[K, V]](warpcore.New[K, V](d, warpcore.Options{Options: o}))
			},
			set: func(d *device.Device, o table.Options) (table.Set[K], error) {
				return made[table.Set[K]](warpcore.NewSet[K](d, warpcore.Options{Options: o}))
			},
			multiMaps: multiMapMakers[K, V]{
				table.KindMultiMap: func(d *device.Device, o table.MultiMapOptions) (table.MultiMap[K, V], error) {
					return made[table.MultiMap[K, V]](warpcore.NewMultiMap[K, V](d, warpcore.Options{Options: o.Options}))
				},
				table.KindMultiBucket: func(d *device.Device, o table.MultiMapOptions) (table.MultiMap[K, V], error) {
					return made[table.MultiMap[K, V]](warpcore.NewMultiBucket[K, V](d, warpcore.MultiBucketOptions{Options: o.Options, Keys: o.Keys}))
				},
				table.KindBucketList: func(d *device.Device, o table.MultiMapOptions) (table.MultiMap[K, V], error) {
					return made[table.MultiMap[K, V]](warpcore.NewBucketList[K, V](d, warpcore.ListOptions{Options: o.Options, Keys: o.Keys}))
				},
			},
			counter: counterMakers[K]{warpcoreCounter[K, uint32], warpcoreCounter[K, uint64]},
			filter: func(d *device.Device, o table.FilterOptions) (table.Filter[K], error) {
				return made[table.Filter[K]](warpcore.NewFilter[K](d, warpcore.FilterOptions{FilterOptions: o}))
			},
			filterOf: func(d *device.Device, form table.FilterForm) (table.Filter[K], error) {
				return made[table.Filter[K]](warpcore.NewFilterOf[K](d, form))
			},
		},
	}
}

func warpcoreCounter[K any, C uint32 | uint64](d *device.Device, o table.CounterOptions) (table.Counter[K, C], error) {
	return made[table.Counter[K, C]](warpcore.NewCounter[K, C](d, warpcore.CounterOptions{Options: warpcore.Options{Options: o.Options}, Saturate: o.Saturate}))
}

// made keeps a nil table from becoming an interface that is not nil.
func made[T any](t T, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return t, nil
}

// has tells whether the family has tables of the kind.
func (f *family[K, V]) has(kind table.Kind) bool {
	switch kind {
	case table.KindMap:
		return f.newMap != nil
	case table.KindSet:
		return f.set != nil
	case table.KindCounter:
		return f.counter.u32 != nil
	case table.KindFilter:
		return f.filter != nil
	}
	return f.multiMaps[kind] != nil
}

// Families are the families that have tables of the kind, sorted: what New and its like take.
func Families(kind table.Kind) (names []table.Family) {
	for _, f := range families[uint32, uint32]() {
		if f.has(kind) {
			names = append(names, f.name)
		}
	}
	return names
}

// find is the family with that name, if it has the kind.
func find[K, V any](name table.Family, kind table.Kind) (family[K, V], error) {
	for _, f := range families[K, V]() {
		if f.name == name && f.has(kind) {
			return f, nil
		}
	}
	var names []string
	for _, f := range Families(kind) {
		names = append(names, string(f))
	}
	return family[K, V]{}, fmt.Errorf("warpmap: no %v %q (want one of: %s)", kind, string(name), strings.Join(names, ", "))
}

// New makes an empty map of the given family on the device, with the family's defaults beside o; Auto chooses one. Programs that want a
// family's own options call its New instead.
//
// Errors: a family that does not exist; K or V of a width the family does not have, or with pointers or padding; options out
// of range; *device.OutOfMemoryError; what device.Compile returns.
func New[K, V any](d *device.Device, name table.Family, o table.Options) (table.Map[K, V], error) {
	if name == Auto {
		name, o.Why = chooseMap(d, reflect.TypeFor[K](), reflect.TypeFor[V](), &o)
	}
	f, err := find[K, V](name, table.KindMap)
	if err != nil {
		return nil, err
	}
	return f.newMap(d, o)
}

// NewSet makes an empty set; see New.
func NewSet[K any](d *device.Device, name table.Family, o table.Options) (table.Set[K], error) {
	if name == Auto {
		name, o.Why = WarpCore, "sets were measured of it alone: it inserts 24.8 and looks up 37.5 billion keys a second (bench/results/h200/warpcore-set.json)"
	}
	f, err := find[K, uint32](name, table.KindSet)
	if err != nil {
		return nil, err
	}
	return f.set(d, o)
}

// NewMultiMap makes an empty multimap; see New. Auto chooses a kind, too.
func NewMultiMap[K, V any](d *device.Device, name table.Family, o table.Options) (table.MultiMap[K, V], error) {
	kind, keys := table.KindMultiMap, 0
	if name == Auto {
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
	f, err := find[K, V](name, kind)
	if err != nil {
		return nil, err
	}
	return f.multiMaps[kind](d, o)
}

// NewCounter makes an empty counter; see New.
func NewCounter[K any, C uint32 | uint64](d *device.Device, name table.Family, o table.CounterOptions) (table.Counter[K, C], error) {
	f, err := find[K, C](name, table.KindCounter)
	if err != nil {
		return nil, err
	}
	m, ok := any(f.counter.u32).(counterMaker[K, C])
	if !ok {
		m = any(f.counter.u64).(counterMaker[K, C])
	}
	return m(d, o)
}

// NewFilter makes an empty filter; see New.
func NewFilter[K any](d *device.Device, name table.Family, o table.FilterOptions) (table.Filter[K], error) {
	f, err := find[K, uint32](name, table.KindFilter)
	if err != nil {
		return nil, err
	}
	return f.filter(d, o)
}

package operations

import (
	"errors"
	"fmt"
	"strings"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/cuckoo"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/dycuckoo"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/slab"
	"github.com/warpmap/warpmap/stadium"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
	"github.com/warpmap/warpmap/warpcore"
)

// GroundsOf are the grounds of files that name none: every family that has the kind, on one device, on shards of two and
// three, under stress and with little memory.
func GroundsOf(kind, key string) (out []Settings) {
	for _, family := range familiesOf(kind, key) {
		one := Settings{}.With("family", family)
		out = append(out, one, one.With("stress", 1), one.With("memory", 1<<20))
		if sharded(kind, key) {
			out = append(out, one.With("shards", 2), one.With("shards", 3).With("piece", 100))
		}
	}
	return out
}

// familiesOf are those that have the kind with such keys.
func familiesOf(kind, key string) []table.Family {
	if kind == "cache" {
		return []table.Family{warpmap.Caches}
	}
	if key == "16" && kind == "map" {
		return []table.Family{warpmap.DyCuckoo, warpmap.Stadium}
	}
	for _, k := range []table.Kind{table.KindMap, table.KindSet, table.KindMultiMap, table.KindBucketList,
		table.KindMultiBucket, table.KindCounter, table.KindFilter} {
		if k.String() == kind {
			return warpmap.Families(k)
		}
	}
	return warpmap.Families(table.KindMap) // strings
}

// sharded tells whether tables of the kind stand on several devices.
func sharded(kind, key string) bool {
	return kind != "filter" && kind != "strings" && kind != "cache" && key != "16"
}

// over are the devices of this process, or a member of a job, that a table stands on.
type over struct {
	devices []*device.Device
	member  *shard.Member
}

func (o over) d() *device.Device { return o.devices[0] }

// several tells whether the table is one of package shard.
func (o over) several() bool { return o.member != nil || len(o.devices) > 1 }

// openDevices opens those of a ground. name is the device of grounds that have one.
func openDevices(g Settings, name string) (o over, err error) {
	var with []device.Option
	if g.Get("stress") != "" {
		with = append(with, device.WithStress(g.seed("stress")))
	}
	if bytes := g.number64("memory"); bytes > 0 {
		with = append(with, device.WithMemory(bytes))
	}
	if g.Get("kept") == "none" {
		with = append(with, device.WithKept(0))
	}
	shards := max(1, g.number("shards"))
	for i := range shards {
		if shards > 1 { // on as many devices of the kind, each with one shard
			kind, _, _ := strings.Cut(name, ":")
			name = fmt.Sprintf("%s:%d", kind, i)
		}
		d, err := device.Open(name, with...)
		if err != nil {
			return o, errors.Join(err, o.close())
		}
		o.devices = append(o.devices, d)
	}
	return o, nil
}

// close tells what is left on the devices, and closes them.
func (o over) close() (err error) {
	for _, d := range o.devices {
		if live := d.Live(); len(live) > 0 && err == nil {
			err = fmt.Errorf("%d allocations are left, the first: %v", len(live), live[0])
		}
		err = errors.Join(err, d.Close())
	}
	return err
}

// newSubject makes the table. An error says that its options are refused.
func newSubject(f *File, g Settings, o over) (subject, error) {
	k32, k64 := plain[uint32](), plain[uint64]()
	switch types := f.Kind + " " + f.Table.Get("key") + " " + f.Table.Get("value"); types {
	case "map u32 u32":
		return newMap(f, g, o, k32, k32, true)
	case "map u64 u64":
		return newMap(f, g, o, k64, k64, true)
	case "map u32 16":
		return newMap(f, g, o, k32, wideValue(), false)
	case "map 16 u64":
		return newMap(f, g, o, wideKey(), k64, true)
	case "set u32 ":
		return newSet(f, g, o, k32)
	case "set u64 ":
		return newSet(f, g, o, k64)
	case "multimap u32 u32", "bucketlist u32 u32", "multibucket u32 u32":
		return newMulti(f, g, o, k32, k32)
	case "multimap u64 u32", "bucketlist u64 u32", "multibucket u64 u32":
		return newMulti(f, g, o, k64, k32)
	case "multimap u32 u64", "bucketlist u32 u64", "multibucket u32 u64":
		return newMulti(f, g, o, k32, k64)
	case "counter u32 u32":
		return newCounter(f, g, o, k32, k32)
	case "counter u64 u64":
		return newCounter(f, g, o, k64, k64)
	case "counter u64 u32":
		return newCounter(f, g, o, k64, k32)
	case "filter u32 ":
		return newFilter(f, g, o, k32)
	case "filter u64 ":
		return newFilter(f, g, o, k64)
	case "filter 16 ":
		return newFilter(f, g, o, wideKey())
	case "cache u64 u64":
		return newCache(f, o, k64, k64, true)
	case "cache u32 64":
		return newCache(f, o, k32, lineValue(), false)
	case "cache u32 ":
		return newCache(f, o, k32, noValue(), false)
	case "strings  ":
		x := text.Options{Options: options(f), KeyBytes: f.Table.number("keybytes")}
		m, err := warpmap.NewStrings[uint32](o.d(), table.Family(g.Get("family")), x)
		return &stringsOf{m, o.d(), f.Table.number("long")}, err
	default:
		return nil, fmt.Errorf("no table %q is tried", types)
	}
}

// options are those that every family has.
func options(f *File) table.Options {
	t := f.Table
	return table.Options{Capacity: t.number("capacity"), LoadFactor: t.fraction("load"), MaxBytes: t.number64("maxbytes"),
		Hash: t.number("hash"), Seed: t.seed("seed") | 1}
}

func sharing(f *File, g Settings) shard.Options {
	return shard.Options{Options: options(f), Piece: g.number("piece"), AskAll: g.number("askall"),
		Regions: g.number("regions"), Copies: g.number("copies") > 0}
}

// onShards makes a table of package shard by one of its functions, for devices or for a member.
func onShards[T, S any](o over, x shard.Options, each func(*device.Device, table.Options) (S, error),
	devices func([]*device.Device, shard.Options, func(*device.Device, table.Options) (S, error)) (T, error),
	member func(*shard.Member, shard.Options, func(*device.Device, table.Options) (S, error)) (T, error)) (T, error) {
	if o.member != nil {
		return member(o.member, x, each)
	}
	return devices(o.devices, x, each)
}

func newMap[K, V comparable](f *File, g Settings, o over, key codec[K], value codec[V], sums bool) (subject, error) {
	m, err := mapOn[K, V](f, g, o)
	return &mapOf[K, V]{m, o.d(), key, value, sums, f.Table.Get("key") == "16"}, err
}

func mapOn[K, V any](f *File, g Settings, o over) (table.Map[K, V], error) {
	family, x := table.Family(g.Get("family")), options(f)
	if o.several() {
		each := func(d *device.Device, o table.Options) (table.Map[K, V], error) {
			return warpmap.New[K, V](d, family, o)
		}
		return onShards(o, sharing(f, g), each, shard.NewMap[K, V, []*device.Device], shard.NewMap[K, V, *shard.Member])
	}
	switch family {
	case warpmap.WarpCore:
		return warpcore.New[K, V](o.d(), warpcoreOptions(x, g))
	case warpmap.DyCuckoo:
		return dycuckoo.New[K, V](o.d(), dycuckoo.Options{Options: x, Low: g.fraction("low"),
			Balance: dycuckoo.Balance(g.number("balance")), Subtables: g.number("subtables"), Bucket: g.number("bucket"),
			Layout: dycuckoo.Layout(g.number("layout")), InsertGroup: g.number("insert"), FindGroup: g.number("find")})
	case warpmap.Slab:
		return slab.New[K, V](o.d(), slabOptions(x, g))
	case warpmap.GPH:
		return gph.New[K, V](o.d(), gph.Options{Options: x, KeysPerCell: g.fraction("percell"), Bucket: g.number("bucket"),
			VirtualBuckets: g.number("virtual"), CellBytes: g.number("cell"), InsertGroup: g.number("insert"),
			FindGroup: g.number("find")})
	case warpmap.Stadium:
		return stadium.New[K, V](o.d(), stadium.Options{Options: x, DeviceBytes: g.number64("device"),
			HostBytes: g.number64("host"), Ticket: g.number("ticket")})
	}
	return nil, fmt.Errorf("no family %q", family)
}

func warpcoreOptions(x table.Options, g Settings) warpcore.Options {
	return warpcore.Options{Options: x, Layout: warpcore.Layout(g.number("layout")), Window: g.number("window"),
		InsertGroup: g.number("insert"), FindGroup: g.number("find")}
}

func slabOptions(x table.Options, g Settings) slab.Options {
	return slab.Options{Options: x, Light: g.number("light") > 0, NoPolicy: g.number("nopolicy") > 0, Group: g.number("group")}
}

func newSet[K comparable](f *File, g Settings, o over, key codec[K]) (subject, error) {
	family, x := table.Family(g.Get("family")), options(f)
	var s table.Set[K]
	var err error
	switch {
	case o.several():
		each := func(d *device.Device, o table.Options) (table.Set[K], error) { return warpmap.NewSet[K](d, family, o) }
		s, err = onShards(o, sharing(f, g), each, shard.NewSet[K, []*device.Device], shard.NewSet[K, *shard.Member])
	case family == warpmap.Slab:
		s, err = slab.NewSet[K](o.d(), slabOptions(x, g))
	default:
		s, err = warpcore.NewSet[K](o.d(), warpcoreOptions(x, g))
	}
	return &setOf[K]{s, o.d(), key}, err
}

func newMulti[K, V comparable](f *File, g Settings, o over, key codec[K], value codec[V]) (subject, error) {
	m, err := multiOn[K, V](f, g, o)
	return &multiOf[K, V]{m, o.d(), key, value}, err
}

func multiOn[K, V any](f *File, g Settings, o over) (table.MultiMap[K, V], error) {
	family, x, distinct := table.Family(g.Get("family")), options(f), f.Table.number("distinct")
	kind := table.KindMultiMap
	for _, k := range table.MultiMapKinds() {
		if k.String() == f.Kind {
			kind = k
		}
	}
	insert, find, window := g.number("insert"), g.number("find"), g.number("window")
	switch {
	case o.several():
		each := func(d *device.Device, o table.Options) (table.MultiMap[K, V], error) {
			return warpmap.NewMultiMapOf[K, V](d, kind, family, table.MultiMapOptions{Options: o, Keys: distinct})
		}
		return onShards(o, sharing(f, g), each, shard.NewMultiMap[K, V, []*device.Device],
			shard.NewMultiMap[K, V, *shard.Member])
	case family == warpmap.Slab:
		return slab.NewMultiMap[K, V](o.d(), slabOptions(x, g))
	case kind == table.KindMultiBucket:
		return warpcore.NewMultiBucket[K, V](o.d(), warpcore.MultiBucketOptions{Options: x, Keys: distinct,
			InsertGroup: insert, FindGroup: find, Window: window, Bucket: g.number("bucket")})
	case kind == table.KindBucketList:
		return warpcore.NewBucketList[K, V](o.d(), warpcore.ListOptions{Options: x, Keys: distinct, InsertGroup: insert,
			FindGroup: find, InitialBucket: g.number("initial"), Growth: g.fraction("growth")})
	}
	return warpcore.NewMultiMap[K, V](o.d(), warpcoreOptions(x, g))
}

func newCounter[K comparable, C integer](f *File, g Settings, o over, key codec[K], count codec[C]) (subject, error) {
	saturate := f.Table.number("saturate") > 0
	var c table.Counter[K, C]
	var err error
	if o.several() {
		each := func(d *device.Device, o table.Options) (table.Counter[K, C], error) {
			return warpmap.NewCounter[K, C](d, warpmap.WarpCore, table.CounterOptions{Options: o, Saturate: saturate})
		}
		c, err = onShards(o, sharing(f, g), each, shard.NewCounter[K, C, []*device.Device],
			shard.NewCounter[K, C, *shard.Member])
	} else {
		c, err = warpcore.NewCounter[K, C](o.d(),
			warpcore.CounterOptions{Options: warpcoreOptions(options(f), g), Saturate: saturate})
	}
	return &counterOf[K, C]{c, o.d(), key, count}, err
}

func newFilter[K comparable](f *File, g Settings, o over, key codec[K]) (subject, error) {
	var x warpcore.FilterOptions
	x.Capacity, x.FalsePositives, x.Bytes = f.Table.number("capacity"), f.Table.fraction("positives"), f.Table.number64("bytes")
	x.Hash, x.Seed = f.Table.number("hash"), f.Table.seed("seed")|1
	if g.Get("family") == string(warpmap.Cuckoo) {
		c := cuckoo.Options{FilterOptions: x.FilterOptions, TagBits: g.number("tag")}
		if c.Bytes > 0 { // as many keys as that has room for
			c.Capacity, c.Bytes = 0, max(c.Bytes, 64)
		}
		if c.TagBits > 0 {
			c.FalsePositives = 0
		}
		t, err := cuckoo.New[K](o.d(), c)
		return &filterOf[K]{t, t, o.d(), key}, err
	}
	x.Block, x.Hashes = g.number("block"), g.number("hashes")
	t, err := warpcore.NewFilter[K](o.d(), x)
	return &filterOf[K]{t, nil, o.d(), key}, err
}

package warpmap

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// LoadMap makes a map from what snapshot.Map(m).Save wrote, on any device and of any family. It reads r to its end. o
// are the options of the new map, which becomes large enough whatever its Capacity, as far as MaxBytes allows.
//
// name is the family of the new map. The empty name means the family of the map that was saved. Auto means that LoadMap
// chooses one by K, V and o.Work, as New does, whatever family was saved. A map over several devices was saved as one
// of its devices' family.
//
// K and V must be the types that were saved, up to the names of types and fields. int is the same as int64, and uint
// the same as uint64. Other types are an error, even if they have the same width: uint32 is not int32. A file of
// another kind, such as of a set or a multimap, is an error, too.
//
// Errors: those of New; a file that is damaged, cut off, of another kind or of other types; *table.FullError, if
// MaxBytes or the device's memory does not allow all pairs; context.Cause(ctx). After an error there is no map.
func LoadMap[K, V any](ctx context.Context, r io.Reader, d *device.Device, name table.Family, o table.Options) (table.Map[K, V], error) {
	return loaded(ctx, r, snapshot.Map[K, V], func(h *snapshot.Header) (table.Map[K, V], error) {
		return New[K, V](d, cmp.Or(name, h.Family), o)
	})
}

// LoadSet makes a set from what snapshot.Set(s).Save wrote: see LoadMap. With Auto it is a set of warpcore.
func LoadSet[K any](ctx context.Context, r io.Reader, d *device.Device, name table.Family, o table.Options) (table.Set[K], error) {
	return loaded(ctx, r, snapshot.Set[K], func(h *snapshot.Header) (table.Set[K], error) {
		return NewSet[K](d, cmp.Or(name, h.Family), o)
	})
}

// LoadMultiMap makes a multimap from what snapshot.MultiMap(m).Save wrote: see LoadMap. A file does not tell which of
// table.MultiMapKinds was saved. With Auto, LoadMultiMap chooses a kind by o.Work, as NewMultiMap does. With any other
// name, the empty one among them, the new multimap is of KindMultiMap, whatever was saved: use LoadMultiMapOf for
// another kind.
func LoadMultiMap[K, V any](ctx context.Context, r io.Reader, d *device.Device, name table.Family, o table.Options) (table.MultiMap[K, V], error) {
	return loaded(ctx, r, snapshot.MultiMap[K, V], func(h *snapshot.Header) (table.MultiMap[K, V], error) {
		return NewMultiMap[K, V](d, cmp.Or(name, h.Family), o)
	})
}

// LoadMultiMapOf makes a multimap of the given kind from what snapshot.MultiMap(m).Save wrote: see LoadMap. The kind
// need not be that of the multimap that was saved. If the name is empty, and the family that was saved does not have
// the kind, that is an error. The new multimap grows as it is loaded. To save that time, set o.Capacity, and for
// KindBucketList and KindMultiBucket also o.Keys.
func LoadMultiMapOf[K, V any](ctx context.Context, r io.Reader, d *device.Device, kind table.Kind, name table.Family, o table.MultiMapOptions) (table.MultiMap[K, V], error) {
	return loaded(ctx, r, snapshot.MultiMap[K, V], func(h *snapshot.Header) (table.MultiMap[K, V], error) {
		return NewMultiMapOf[K, V](d, kind, cmp.Or(name, h.Family), o)
	})
}

// LoadCounter makes a counter from what snapshot.Counter(c).Save wrote: see LoadMap. C must be the type of the counts
// that were saved.
func LoadCounter[K any, C uint32 | uint64](ctx context.Context, r io.Reader, d *device.Device, name table.Family, o table.CounterOptions) (table.Counter[K, C], error) {
	return loaded(ctx, r, snapshot.Counter[K, C], func(h *snapshot.Header) (table.Counter[K, C], error) {
		return NewCounter[K, C](d, cmp.Or(name, h.Family), o)
	})
}

// LoadFilter makes a filter from what snapshot.Filter(f).Save wrote: see LoadMap. The file says all that makes the
// filter answer as the one that was saved: size, hash functions and seed. So there are no options, and a name other
// than "" and Auto must be that of the file's family.
func LoadFilter[K any](ctx context.Context, r io.Reader, d *device.Device, name table.Family) (table.Filter[K], error) {
	return loaded(ctx, r, snapshot.Filter[K], func(h *snapshot.Header) (table.Filter[K], error) {
		if h.Form == nil || h.Kind != table.KindFilter.String() {
			return nil, errors.New("warpmap: the file is of a " + h.Kind + ", and not of a filter: load it as what it is")
		}
		if !auto(name) && name != h.Family {
			return nil, fmt.Errorf("warpmap: a filter of %s is loaded as one of it, and not of %q: want \"\"", h.Family, string(name))
		}
		return from(filterFormMakers[K](), table.KindFilter, h.Family, d, *h.Form)
	})
}

// LoadCache makes a cache from what snapshot.Cache(c).Save wrote: see LoadMap. o says how large it is, by Capacity or
// Bytes. Its Policy is not used: the cache has that of the file, if the file says it. If pairs of the file end, the cache
// has Lives. Without a Seed in o, the cache has the seed of the file, so that a cache of the same size holds all pairs of
// a full one. With another size or seed, pairs whose buckets are full do not go in. Errors: also those of Cache.Restore.
func LoadCache[K, V any](ctx context.Context, r io.Reader, d *device.Device, o cache.Options) (*cache.Cache[K, V], error) {
	return loaded(ctx, r, func(c *cache.Cache[K, V]) *snapshot.Table { return snapshot.Cache(c) },
		func(h *snapshot.Header) (*cache.Cache[K, V], error) {
			if h.Kind != KindCache.String() {
				return nil, errors.New("warpmap: the file is of a " + h.Kind + ", and not of a cache: load it as what it is")
			}
			var saved cache.Saved
			if h.Cache != nil { // older files say nothing
				if err := json.Unmarshal(h.Cache, &saved); err != nil {
					return nil, fmt.Errorf("warpmap: what the file says of its cache: %w", err)
				}
			}
			o, err := o.For(saved)
			if err != nil {
				return nil, err
			}
			return NewCache[K, V](d, o)
		})
}

// loaded makes a table by what a file's header says, and loads it.
func loaded[T io.Closer](ctx context.Context, r io.Reader, as func(T) *snapshot.Table, make func(h *snapshot.Header) (T, error)) (t T, err error) {
	var none T
	file, err := snapshot.NewReader(r)
	if err != nil {
		return none, err
	}
	if t, err = make(&file.Header); err != nil {
		return none, err
	}
	if err := file.Load(ctx, as(t)); err != nil {
		return none, errors.Join(err, t.Close())
	}
	return t, nil
}

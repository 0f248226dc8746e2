package warpmap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// LoadMap makes a map from what snapshot.Map(m).Save wrote, on any device and of any family; the name "" means the
// family of the map that was saved. o are the options of the new map, which becomes large enough whatever its Capacity.
// Errors: those of New, and of snapshot.Reader.Load.
func LoadMap[K, V any](ctx context.Context, r io.Reader, d *device.Device, name table.Family, o table.Options) (table.Map[K, V], error) {
	return loaded(ctx, r, snapshot.Map[K, V], func(h *snapshot.Header) (table.Map[K, V], error) {
		return New[K, V](d, cmp.Or(name, h.Family), o)
	})
}

// LoadSet makes a set from what snapshot.Set(s).Save wrote: see LoadMap.
func LoadSet[K any](ctx context.Context, r io.Reader, d *device.Device, name table.Family, o table.Options) (table.Set[K], error) {
	return loaded(ctx, r, snapshot.Set[K], func(h *snapshot.Header) (table.Set[K], error) {
		return NewSet[K](d, cmp.Or(name, h.Family), o)
	})
}

// LoadMultiMap makes a multimap from what snapshot.MultiMap(m).Save wrote: see LoadMap. With Auto, it chooses a kind,
// too.
func LoadMultiMap[K, V any](ctx context.Context, r io.Reader, d *device.Device, name table.Family, o table.Options) (table.MultiMap[K, V], error) {
	return loaded(ctx, r, snapshot.MultiMap[K, V], func(h *snapshot.Header) (table.MultiMap[K, V], error) {
		return NewMultiMap[K, V](d, cmp.Or(name, h.Family), o)
	})
}

// LoadMultiMapOf makes a multimap of the given kind from what snapshot.MultiMap(m).Save wrote: see LoadMap. The kind
// need not be that of the multimap that was saved. The new multimap grows as it is loaded. To save that time, set
// o.Capacity, and for kinds in which each key stands once also o.Keys.
func LoadMultiMapOf[K, V any](ctx context.Context, r io.Reader, d *device.Device, kind table.Kind, name table.Family, o table.MultiMapOptions) (table.MultiMap[K, V], error) {
	return loaded(ctx, r, snapshot.MultiMap[K, V], func(h *snapshot.Header) (table.MultiMap[K, V], error) {
		return NewMultiMapOf[K, V](d, kind, cmp.Or(name, h.Family), o)
	})
}

// LoadCounter makes a counter from what snapshot.Counter(c).Save wrote: see LoadMap.
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
		if h.Form == nil {
			return nil, errors.New("warpmap: the file is of a " + h.Kind + ", and not of a filter: load it as what it is")
		}
		if !auto(name) && name != h.Family {
			return nil, fmt.Errorf("warpmap: a filter of %s is loaded as one of it, and not of %q: want \"\"", h.Family, string(name))
		}
		return from(filterFormMakers[K](), table.KindFilter, h.Family, d, *h.Form)
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

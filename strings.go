package warpmap

import (
	"cmp"
	"context"
	"io"
	"reflect"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
	"github.com/warpmap/warpmap/table/text"
)

// Strings is a map whose keys are strings, or bytes of any kind and length. Package text describes it and its keys.
type Strings[V any] = text.Map[V]

// NewStrings makes an empty Strings over a table of the given family; Auto and "" choose one. V is plain data of 4, 8
// or 16 bytes. Errors: see New.
func NewStrings[V any](d *device.Device, name table.Family, o text.Options) (*Strings[V], error) {
	if auto(name) {
		name, o.Why = chooseMap(d, reflect.TypeFor[uint64](), reflect.TypeFor[uint64](), &o.Options)
	}
	return text.New[V](d, o, func(d *device.Device, o table.Options) (table.Map[uint64, uint64], error) {
		return New[uint64, uint64](d, name, o)
	})
}

// LoadStrings makes a Strings from what snapshot.Strings(m).Save wrote: see LoadMap.
func LoadStrings[V any](ctx context.Context, r io.Reader, d *device.Device, name table.Family, o text.Options) (*Strings[V], error) {
	return loaded(ctx, r, snapshot.Strings[V], func(h *snapshot.Header) (*Strings[V], error) {
		return NewStrings[V](d, cmp.Or(name, h.Family), o)
	})
}

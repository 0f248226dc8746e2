package warpmap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/slab"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// maker makes a table of one family.
type maker[K, V any] func(*device.Device, table.Options) (table.Map[K, V], error)

// families is the only list of tables: tests, benchmarks and the command line range over it.
func families[K, V any]() map[string]maker[K, V] {
	return map[string]maker[K, V]{
		"gph": func(d *device.Device, o table.Options) (table.Map[K, V], error) {
			return made(gph.New[K, V](d, gph.Options{Options: o}))
		},
		"slab": func(d *device.Device, o table.Options) (table.Map[K, V], error) {
			return made(slab.New[K, V](d, slab.Options{Options: o}))
		},
		"warpcore": func(d *device.Device, o table.Options) (table.Map[K, V], error) {
			return made(warpcore.New[K, V](d, warpcore.Options{Options: o}))
		},
	}
}

// made keeps a nil map from becoming a non-nil interface.
func made[K, V any, M table.Map[K, V]](m M, err error) (table.Map[K, V], error) {
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Kinds are the names that New takes, sorted.
func Kinds() []string {
	var names []string
	for name := range families[uint32, uint32]() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// New makes an empty map of the given kind on the device, with the family's defaults beside o. Programs that want a
// family's own options call its New instead.
//
// Errors: an unknown kind; K or V of a width the family does not have, or with pointers or padding; options out of range;
// *device.OutOfMemoryError; what device.Compile returns.
func New[K, V any](d *device.Device, kind string, o table.Options) (table.Map[K, V], error) {
	make, ok := families[K, V]()[kind]
	if !ok {
		return nil, fmt.Errorf("warpmap: no table %q (want one of: %s)", kind, strings.Join(Kinds(), ", "))
	}
	return make(d, o)
}

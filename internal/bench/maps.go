package bench

import (
	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// NewMap makes a map of four-byte keys and values: warpmap.New, but for its code, which Go compiles for each package that calls that,
// and for this one alone if they call this.
//
//go:noinline
func NewMap(d *device.Device, family table.Family, o table.Options) (table.Map[uint32, uint32], error) {
	return warpmap.New[uint32, uint32](d, family, o)
}

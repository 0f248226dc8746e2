package join

import (
	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// ownMakers opens the module's tables.
var ownMakers = makers{
	k4r4: warpmap.New[uint32, uint32],
	k8r4: warpmap.New[uint64, uint32],
	k8r8: warpmap.New[uint64, uint64],
	f4:   filterOf[uint32],
	f8:   filterOf[uint64],
}

func filterOf[K any](d *device.Device, o table.FilterOptions) (table.Filter[K], error) {
	return warpmap.NewFilter[K](d, warpmap.WarpCore, o)
}

package join

import (
	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
)

// ownMakers opens the module's tables.
var ownMakers = makers{
	k4r4: warpmap.New[uint32, uint32],
	k8r4: warpmap.New[uint64, uint32],
	k8r8: warpmap.New[uint64, uint64],
	t4:   textsOf[uint32],
	t8:   textsOf[uint64],
	f4:   filterOf[uint32],
	f8:   filterOf[uint64],
}

func filterOf[K any](d *device.Device, o table.FilterOptions) (table.Filter[K], error) {
	return warpmap.NewFilter[K](d, warpmap.WarpCore, o)
}

func textsOf[R uint32 | uint64](d *device.Device, family table.Family, o text.Options) (textMap[R], error) {
	m, err := warpmap.NewStrings[R](d, family, o)
	if err != nil {
		return nil, err // no map that is nil, as an interface that is not
	}
	return m, nil
}

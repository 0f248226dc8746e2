package join

import "github.com/warpmap/warpmap"

// ownMakers opens the module's tables.
var ownMakers = makers{
	k4r4: warpmap.New[uint32, uint32],
	k8r4: warpmap.New[uint64, uint32],
	k8r8: warpmap.New[uint64, uint64],
}

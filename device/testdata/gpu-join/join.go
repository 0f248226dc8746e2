// Package join is not named as its folder is.
package join

import params "github.com/warpmap/warpmap/device/testdata/a/params"

type Params struct {
	Out  uint64
	Each [2]params.Part
}

package table

import "github.com/warpmap/warpmap/device"

func ReleaseStaging(d *device.Device)                        {}
func StagingBytes(d *device.Device) (onDevice, pinned int64) { return 0, 0 }

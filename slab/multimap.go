package slab

import "github.com/warpmap/warpmap/device"

type findAllKernels struct{}

func (findAllKernels) find(*device.Module) error { return nil }

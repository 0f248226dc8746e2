package shard

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// CompileAhead compiles, on a device of device.OpenAhead, the kernels that spread rows of these types over several
// devices and bring results back, in one process or in many, for a table of a kind. V is the type of the values or
// counts; for a set any will do. To compile the kernels of the tables on each device, use warpmap.CompileAhead. Cost: a
// few seconds of compiling.
//
// Errors: types that no such table has; a kind that has no table over several devices (filters); *device.CompileError.
func CompileAhead[K, V any](d *device.Device, kind table.Kind) error {
	w := frame.WidthOfKeys[K]()
	if kind != table.KindSet {
		w = frame.WidthsOf[K, V]()
	}
	return compileAhead(d, kind, w)
}

func compileAhead(d *device.Device, kind table.Kind, w frame.Width) error {
	if w.Err != nil {
		return w.Err
	}
	if kind == table.KindFilter {
		return fmt.Errorf("%s: no %v over several devices", family, kind)
	}
	_, err := d.Compile(program(w.Key, w.Value))
	if kind != table.KindCounter { // rows may be sorted by regions
		_, regions := d.Compile(regionsProgram(w.Key, w.Value, d.Info().Shared))
		_, sorts := d.Compile(sortProgram(w.Key, w.Value))
		err = errors.Join(err, regions, sorts)
	}
	return err
}

package shard

import (
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// CompileAhead compiles, on a device of device.OpenAhead, the kernels that spread rows of such widths over several devices and bring results back, in one
// process or in many: table.WidthsOf for maps, multimaps and counters, table.WidthOfKeys for sets. The kernels of the tables on each device are
// warpmap.CompileAhead's. Cost: that of compiling, some seconds.
//
// Errors: w.Err; *device.CompileError.
func CompileAhead(d *device.Device, w table.Width) error {
	if w.Err != nil {
		return w.Err
	}
	_, err := d.Compile(program(w.Key, w.Value))
	if w.Value > 0 {
		_, wrong := d.Compile(regionsProgram(w.Key, w.Value, d.Info().Shared))
		err = errors.Join(err, wrong)
	}
	return err
}

package shard

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// CompileAhead compiles, on a device of device.OpenAhead, the kernels that spread rows of such widths over several
// devices and bring results back, in one process or in many, for a table of a kind: with frame.WidthsOf its keys and
// values or counts, with frame.WidthOfKeys a set's. The kernels of the tables on each device are
// warpmap.CompileAhead's. Cost: that of compiling, some seconds.
//
// Errors: w.Err; a kind that there is not over several devices, which is filters; *device.CompileError.
func CompileAhead(d *device.Device, kind table.Kind, w frame.Width) error {
	if w.Err != nil {
		return w.Err
	}
	if kind == table.KindFilter {
		return fmt.Errorf("%s: no %v over several devices", family, kind)
	}
	_, err := d.Compile(program(w.Key, w.Value))
	if kind == table.KindMap { // whose rows may be split by regions, too
		_, wrong := d.Compile(regionsProgram(w.Key, w.Value, d.Info().Shared))
		err = errors.Join(err, wrong)
	}
	return err
}

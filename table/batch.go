package table

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/warpmap/warpmap/device"
)

// Family is a family's name, which begins the errors that its tables return for bad arguments.
type Family string

// CheckLens checks that a batch's Go slices have as many elements as it has keys. A length below 0 stands for a slice
// that is left out.
func (f Family) CheckLens(n int, lens ...int) error { return f.CheckNamed("", n, lens...) }

// CheckNamed does what CheckLens does, for slices with these names, such as "values found". Its error tells the name.
func (f Family) CheckNamed(names string, n int, lens ...int) error {
	for i, l := range lens {
		if l < 0 || l == n {
			continue
		}
		if names := strings.Fields(names); i < len(names) {
			return fmt.Errorf("%s: slice %s has %d elements, keys %d", f, names[i], l, n)
		}
		return fmt.Errorf("%s: %d keys beside a slice of %d elements", f, n, l)
	}
	return nil
}

// deviceSlice is every device.Slice, as DeviceSlice of internal/frame, which this package must not import.
type deviceSlice = interface {
	On(*device.Device) error
	Addr() uint64
	Len() int
}

// CheckOn checks the device arguments of a batch before anything is queued: the stream and the slices can be used on
// the device, and all slices are as long as the first, the keys. If several are wrong, the error is of the lengths,
// else of the stream.
func (f Family) CheckOn(d *device.Device, st *device.Stream, slices ...deviceSlice) error {
	return f.CheckNamedOn("", d, st, slices...)
}

// CheckNamedOn does what CheckOn does, for keys and slices with these names.
func (f Family) CheckNamedOn(names string, d *device.Device, st *device.Stream, slices ...deviceSlice) error {
	var lens []int
	err := st.On(d)
	for _, s := range slices {
		lens = append(lens, s.Len())
		if err == nil {
			err = s.On(d)
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", f, err)
	}
	if len(lens) > 0 {
		err = cmp.Or(f.CheckNamed(names, lens[0], lens[1:]...), err)
	}
	return err
}

// Exported returns an error if an export wrote n pairs, and the table has another number of them, `live`.
func (f Family) Exported(n, live int64) error {
	if n != live {
		return fmt.Errorf("%s: %d pairs exported of %d: this is a defect of warpmap", f, n, live)
	}
	return nil
}

package host

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
)

// measured is a Strings with what its operations work on.
type measured struct {
	d               *device.Device
	m               *warpmap.Strings[uint64]
	n               int
	keys, others    text.Keys // those that are in, and as many that are not
	on, othersOn    text.KeysOn
	values, out     []uint64
	found           []bool
	valuesOn, outOn device.Slice[uint64]
	foundOn         device.Slice[bool]
}

// stringRates measures maps of strings over every family, by lengths of keys: on the device's memory and on Go's.
func stringRates(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title:   fmt.Sprintf("Strings: %d keys of equal length, values of 8 bytes", o.N),
		Columns: []string{"table", "key bytes", "operation", "M keys/s", "GB/s of keys", "wrong"},
		Plots:   []bench.Plot{{Title: "Strings, by the length of keys", X: "operation", Y: "M keys/s", Series: "table", Facet: "key bytes"}},
	}
	for _, length := range []int{12, 32, 100} {
		for _, family := range warpmap.Families(table.KindMap) {
			if o.Step != nil {
				o.Step(fmt.Sprintf("%s, keys of %d bytes", family, length))
			}
			if err := stringRows(d, fig, family, o.N, length); err != nil {
				return nil, fmt.Errorf("%s, keys of %d bytes: %w", family, length, err)
			}
		}
	}
	return fig, nil
}

// hexKeys are n keys of one length, the same but for their last 12 bytes, from number first on.
func hexKeys(first, n, length int) text.Keys {
	const digits = "0123456789abcdef"
	k := text.Keys{Bytes: []byte(strings.Repeat(strings.Repeat("warpmap/", length/8+1)[:length], n)), Offsets: make([]int64, n+1)}
	for i := range n {
		x := uint64(first+i) * 0x9e3779b97f4a7c15 // of which the low 48 bits differ, too
		for j := range 12 {
			k.Bytes[(i+1)*length-1-j] = digits[x>>(4*j)&15]
		}
		k.Offsets[i+1] = int64((i + 1) * length)
	}
	return k
}

func stringRows(d *device.Device, fig *bench.Fig, family table.Family, n, length int) (err error) {
	x := &measured{d: d, n: n, keys: hexKeys(0, n, length), others: hexKeys(n, n, length), values: make([]uint64, n), out: make([]uint64, n), found: make([]bool, n)}
	for i := range x.values {
		x.values[i] = uint64(i) + 1
	}
	if x.m, err = warpmap.NewStrings[uint64](d, family, text.Options{Options: table.Options{Capacity: n}, KeyBytes: length}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.free(), x.m.Close()) }()
	if err := x.upload(); err != nil {
		return err
	}
	for _, op := range x.operations() {
		took, wrong := time.Duration(0), 0
		if took, err = bench.Timed(d, d.Stream(), bench.Runs, op.before, op.run); err == nil && op.wrong != nil {
			wrong, err = op.wrong()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", op.name, err)
		}
		rate := 1000 * bench.Rate(n, took)
		fig.Add(string(family), length, op.name, bench.Round(rate), bench.Round(rate*float64(length)/1000), wrong)
	}
	return nil
}

func (x *measured) upload() (err error) {
	if x.on, err = x.keys.Upload(x.d); err == nil {
		x.othersOn, err = x.others.Upload(x.d)
	}
	if err == nil {
		x.valuesOn, err = device.From(x.d, x.values)
	}
	if err == nil {
		x.outOn, err = device.Make[uint64](x.d, x.n)
	}
	if err == nil {
		x.foundOn, err = device.Make[bool](x.d, x.n)
	}
	return err
}

func (x *measured) free() (err error) {
	return errors.Join(x.on.Bytes.FreeAfter(), x.on.Offsets.FreeAfter(), x.othersOn.Bytes.FreeAfter(), x.othersOn.Offsets.FreeAfter(),
		x.valuesOn.FreeAfter(), x.outOn.FreeAfter(), x.foundOn.FreeAfter())
}

// stringOp is an operation that is measured. before is not timed.
type stringOp struct {
	name        string
	before, run func() error
	wrong       func() (int, error)
}

func (x *measured) operations() []stringOp {
	st, none := x.d.Stream(), device.Slice[bool]{}
	fill := func() error { return x.m.InsertOn(st, x.on, x.valuesOn) }
	length := func() (int, error) {
		have, err := x.m.Len()
		return max(have, x.n) - min(have, x.n), err
	}
	here := func() (int, error) {
		err := errors.Join(x.outOn.Read(st, x.out), x.foundOn.Read(st, x.found))
		return x.missing(), err
	}
	return []stringOp{
		{"insert", x.m.Clear, fill, length},
		{"insert of keys that are in", nil, fill, length},
		{"find", nil, func() error { return x.m.FindOn(st, x.on, x.outOn, x.foundOn) }, here},
		{"find, none is in", nil, func() error { return x.m.FindOn(st, x.othersOn, x.outOn, x.foundOn) }, func() (int, error) {
			err := x.foundOn.Read(st, x.found)
			return frame.Count(x.found), err
		}},
		{"insert, from Go", x.m.Clear, func() error { return x.m.Insert(x.keys, x.values) }, length},
		{"find, from Go", nil, func() error { return x.m.Find(x.keys, x.out, x.found) }, func() (int, error) { return x.missing(), nil }},
		{"delete", fill, func() error { return x.m.DeleteOn(st, x.on, none) }, x.m.Len},
	}
}

// missing counts the keys that were not found with their values.
func (x *measured) missing() (wrong int) {
	for i, v := range x.out {
		if !x.found[i] || v != x.values[i] {
			wrong++
		}
	}
	return wrong
}

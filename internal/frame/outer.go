package frame

import (
	_ "embed"
	"errors"
	"fmt"
	"unsafe"

	"github.com/warpmap/warpmap/device"
)

//go:embed outer.cu
var outerCU string

// outerParams are the parameters of the kernels outer_found, outer_counts and outer_values.
type outerParams struct {
	Rows  FindAll
	Stash uint64 // words of 4 bytes that are put aside of a key
	Lends uint64 // u64: 1 and the number of a key that has values; 0: there is none
}

func outerProgram() *device.Program {
	return &device.Program{Name: "outer", Files: []device.File{{Name: "outer.cu", Text: outerCU}}, Layouts: []any{outerParams{}}}
}

// outerForm is what the outer form does beside a family's kernels: before the offsets are made of the counts, a count of 0 becomes 1; when all is
// filled in, None is written there.
type outerForm struct {
	params outerParams
	values device.Kernel[outerParams]
	grid   device.Grid
	empty  bool // no key has values
}

// outerScratch is how much scratch memory the outer form takes; else 0.
func outerScratch(rows *FindAll) int64 {
	if rows.Outer == 0 {
		return 0
	}
	return 256 + Align(int64(rows.N))
}

// newOuter changes the counts of keys without values. stash is how many bytes are put aside of each. It waits for the stream.
func (f *Frame) newOuter(st *device.Stream, rows *FindAll, stash int, scratch device.Slice[byte]) (o outerForm, err error) {
	m, err := f.Device.Compile(outerProgram())
	if err != nil {
		return o, err
	}
	var found, counts device.Kernel[outerParams]
	if err := errors.Join(device.Bind(m, "outer_found", &found), device.Bind(m, "outer_counts", &counts), device.Bind(m, "outer_values", &o.values)); err != nil {
		return o, err
	}
	lends := device.View[uint64](scratch, 0, 1)
	if rows.Found == 0 {
		rows.Found = scratch.Addr() + 256
	}
	o.grid = f.Grid(int64(rows.N), 8)
	o.params = outerParams{*rows, uint64(stash / 4), lends.Addr()}
	if err := InTurn(
		func() error { return lends.Fill(st, 0) },
		func() error { return found.Launch(st, o.grid, &o.params) },
		func() error { return counts.Launch(st, o.grid, &o.params) },
	); err != nil {
		return o, err
	}
	lender, err := lends.Host(st)
	if err != nil {
		return o, err
	}
	o.empty = lender[0] == 0
	return o, nil
}

// fill writes None, and if no key has values the offsets, too.
func (o *outerForm) fill(st *device.Stream, rows *FindAll) error {
	o.params.Rows = *rows
	return o.values.Launch(st, o.grid, &o.params)
}

// outerly finds all values in the outer form.
func outerly[V any](none V, found device.Slice[bool], find findAll) findAll {
	return func(st *device.Stream, rows FindAll, offsets device.Slice[uint64], values func(n int) (uint64, error)) (int, error) {
		rows.Outer, rows.Found = uint64(unsafe.Sizeof(none)), found.Addr()
		if rows.Outer > uint64(unsafe.Sizeof(rows.None)) {
			return 0, fmt.Errorf("table: an outer form with values of %d bytes (want 16 at most)", rows.Outer)
		}
		*(*V)(unsafe.Pointer(&rows.None)) = none
		return find(st, rows, offsets, values)
	}
}

// FindOuter implements FindAllOuter of a multimap: see OuterFinder.
func FindOuter[K, V any](f *Frame, keys []K, none V, found []bool, find findAll) (offsets []uint64, values []V, err error) {
	if err := f.Family.CheckNamed("found", len(keys), OptionalLen(found)); err != nil {
		return nil, nil, err
	}
	if found == nil {
		return FindValues[K, V](f, keys, outerly(none, device.Slice[bool]{}, find))
	}
	if err := f.Usable(); err != nil {
		return nil, nil, err
	}
	flags, err := device.Make[bool](f.Device, len(keys))
	if err != nil {
		return nil, nil, err
	}
	if offsets, values, err = FindValues[K, V](f, keys, outerly(none, flags, find)); err == nil && len(keys) > 0 {
		err = flags.Read(nil, found)
	}
	if err = errors.Join(err, flags.Free()); err != nil {
		return nil, nil, OneLine(err)
	}
	return offsets, values, nil
}

// FindOuterOn implements FindAllOuter on the device, in slices of its own making; found may be the zero Slice.
func FindOuterOn[K, V any](f *Frame, st *device.Stream, keys device.Slice[K], none V, found device.Slice[bool],
	find findAll) (offsets device.Slice[uint64], values device.Slice[V], err error) {
	if err := f.CheckOn("found", st, keys, Optional(found)); err != nil {
		return offsets, values, err
	}
	return FindValuesOn[K, V](f, st, keys, outerly(none, found, find))
}

package table

import (
	_ "embed"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/warpmap/warpmap/device"
)

// Combine says what Update makes of the value that a key has, `old`, and the one that comes, `value`: an expression of CUDA C++, of the values'
// own type. It must give the same in whatever order the values of a key come.
//
//	table.Combine("old + value * value")
//
// The constants are faster than what one writes for them.
type Combine string

// What Combine is most often. And and Or are for integers.
const (
	Add Combine = "old + value"
	Min Combine = "value < old ? value : old"
	Max Combine = "old < value ? value : old"
	And Combine = "old & value"
	Or  Combine = "old | value"
)

// Updater is a Map that combines values: see Map for what holds of all batches.
type Updater[K, V any] interface {
	Map[K, V]

	// Update combines the value of each key that is there with the one that comes, and puts the pairs whose keys are absent as they are. Equal
	// keys in one batch are all combined, in no order. The table grows as it must; *FullError names exactly the positions whose values were
	// not combined: their keys are not in.
	//
	// Errors: values that are no integers or floats of 4 or 8 bytes; *device.CompileError with the compiler's words. Cost: compiling an operation
	// once; an atomic operation for each key, rows of one key that are near in the batch together; with code of one's own, one compare-and-swap
	// after the other where many rows have the same key.
	Update(keys []K, values []V, with Combine) error
	UpdateOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], with Combine) error

	// FindOrInsert puts the pairs whose keys are absent, and writes to out what each key has then: the value that was there, or one that came
	// with it. added[i] tells whether position i went in (of equal new keys in one batch, exactly one does); added may be nil. The count is
	// theirs. out may be values. Positions that *FullError names have the zero value in a Go slice, and what there was in a device slice.
	FindOrInsert(keys []K, values, out []V, added []bool) (int, error)
	FindOrInsertOn(st *device.Stream, keys device.Slice[K], values, out device.Slice[V], added device.Slice[bool]) error
}

// CombineHeader is the file combine.h of an operation on values of a type: see kernel/combine.cuh.
func CombineHeader(c Combine, v reflect.Type) (device.File, error) {
	if c == "" {
		return device.File{}, errors.New("table: values are to be combined by no operation")
	}
	which, ok := map[Combine]string{Add: "BY_ADD", Min: "BY_MIN", Max: "BY_MAX", And: "BY_AND", Or: "BY_OR"}[c]
	if !ok {
		which = "BY_CODE"
	}
	return combineHeader(c, which, v)
}

// CountHeader is the file combine.h of a counter.
func CountHeader[C uint32 | uint64]() (device.File, error) {
	return combineHeader(Add, "BY_COUNT", reflect.TypeFor[C]())
}

func combineHeader(c Combine, which string, v reflect.Type) (device.File, error) {
	number, ok := scalar(v)
	size, float := v.Size(), v.Kind() == reflect.Float32 || v.Kind() == reflect.Float64
	if !ok || size != 4 && size != 8 || v.Kind() == reflect.Bool {
		return device.File{}, fmt.Errorf("table: values of %v cannot be combined (want integers or floats of 4 or 8 bytes)", v)
	}
	if float && (c == And || c == Or) {
		return device.File{}, fmt.Errorf("table: %q is for integers, and the values are %v", string(c), v)
	}
	atomic := map[uintptr]string{4: "u32", 8: "u64"}[size]
	if float {
		atomic = number
	}
	return device.File{Name: "combine.h", Text: fmt.Sprintf(`#pragma once
#define WARPMAP_COMBINE %s
typedef %s number;
typedef %s number_atomic;
__device__ __forceinline__ number merge(number old, number value) {
    return (number)(
#line 1 "combine"
%s
    );
}
`, which, number, atomic, string(c))}, nil
}

// Merges tells of an operation's header whether values that come may be combined with one another first: those of code of the user's may not.
func Merges(header device.File) bool {
	return !strings.Contains(header.Text, "#define WARPMAP_COMBINE BY_CODE\n")
}

//go:embed gather.cuh
var gatherCUH string

// Gathering is the file gather.cuh, for programs of operations that bring rows of one key together.
func Gathering() device.File { return device.File{Name: "gather.cuh", Text: gatherCUH} }

// Operations are the kernels of a table's operations, K for each, compiled when they are first asked for.
type Operations[K any] map[string]K // by the text of their combine.h

// Of is the kernels that bind finds in the program of an operation. The caller holds the table's lock.
func (o *Operations[K]) Of(d *device.Device, header device.File, program func(header device.File) *device.Program, bind func(m *device.Module, k *K) error) (k K, err error) {
	if k, ok := (*o)[header.Text]; ok {
		return k, nil
	}
	m, err := d.Compile(program(header))
	if err == nil {
		err = bind(m, &k)
	}
	if err != nil {
		return k, err
	}
	if *o == nil {
		*o = Operations[K]{}
	}
	(*o)[header.Text] = k
	return k, nil
}

// Named finds a kernel by its name, for Operations of one each.
func Named[P any](name string) func(m *device.Module, k *device.Kernel[P]) error {
	return func(m *device.Module, k *device.Kernel[P]) error { return device.Bind(m, name, k) }
}

// Updating runs Update of a map: with has the operation's header, and gives how a batch goes in.
func Updating[K, V any](f *Frame, keys []K, values []V, with Combine, x func(header device.File) Insertion) error {
	return updating(f, In(keys), In(values), len(values), reflect.TypeFor[V](), with, x)
}

func updating(f *Frame, keys, values Column, valuesLen int, value reflect.Type, with Combine, x func(header device.File) Insertion) error {
	header, err := CombineHeader(with, value)
	if err != nil {
		return err
	}
	return insert(f, keys, values, valuesLen, nil, x(header))
}

// UpdatingOn is Updating on the device.
func UpdatingOn[K, V any](f *Frame, st *device.Stream, keys device.Slice[K], values device.Slice[V], with Combine, x func(header device.File) Insertion) error {
	return updatingOn(f, st, keys, sizeOf[K](), values, reflect.TypeFor[V](), with, x)
}

func updatingOn(f *Frame, st *device.Stream, keys DeviceSlice, keyBytes int, values DeviceSlice, value reflect.Type, with Combine, x func(header device.File) Insertion) error {
	header, err := CombineHeader(with, value)
	if err != nil {
		return err
	}
	return insertOn(f, st, keys, keyBytes, values, Optional(device.Slice[bool]{}), x(header))
}

// FindOrInsert is FindOrInsert of a map: Put of the insertion has rows with Out.
func FindOrInsert[K, V any](f *Frame, keys []K, values, out []V, added []bool, x Insertion) (int, error) {
	return findOrInsert(f, In(keys), In(values), Out(out), added, x)
}

func findOrInsert(f *Frame, keys, values, out Column, added []bool, x Insertion) (int, error) {
	if err := f.Family.CheckNamed("values out added", keys.n, values.n, out.n, OptionalLen(added)); err != nil {
		return 0, err
	}
	return counted(keys.n, added, func(added []bool) error {
		err := InsertColumns(f, keys, []Column{keys, values, Out(added), out}, func(st *device.Stream, n int64, addr []uint64) ([]int, error, error) {
			return x.Put(st, Rows{Keys: addr[0], Values: addr[1], Flags: addr[2], Out: addr[3], N: n})
		}, x)
		if full := (*FullError)(nil); errors.As(err, &full) {
			for _, i := range full.Positions {
				clear(out.bytes(i, 1))
				added[i] = false
			}
		}
		return err
	})
}

// FindOrInsertOn is FindOrInsert on the device.
func FindOrInsertOn[K, V any](f *Frame, st *device.Stream, keys device.Slice[K], values, out device.Slice[V], added device.Slice[bool], x Insertion) error {
	return findOrInsertOn(f, st, keys, values, out, Optional(added), x)
}

func findOrInsertOn(f *Frame, st *device.Stream, keys, values, out, added DeviceSlice, x Insertion) error {
	if err := f.Family.CheckNamedOn("values out added", f.Device, st, keys, values, out, added); err != nil {
		return err
	}
	return f.Writing(st, func(st *device.Stream) error {
		if keys.Len() == 0 {
			return nil
		}
		refused, why, err := x.Put(st, Rows{Keys: keys.Addr(), Values: values.Addr(), Flags: added.Addr(), Out: out.Addr(), N: int64(keys.Len())})
		if err != nil {
			return err
		}
		return x.full(refused, why)
	})
}

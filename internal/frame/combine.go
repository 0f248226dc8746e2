package frame

import (
	_ "embed"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// CombineHeader makes the file combine.h of an operation on values of a type: see kernel/combine.cuh.
func CombineHeader(c table.Combine, v reflect.Type) (device.File, error) {
	if c == "" {
		return device.File{}, errors.New("table: values are to be combined by no operation")
	}
	which, ok := map[table.Combine]string{table.Add: "BY_ADD", table.Min: "BY_MIN", table.Max: "BY_MAX", table.And: "BY_AND", table.Or: "BY_OR"}[c]
	if !ok {
		which = "BY_CODE"
	}
	return combineHeader(c, which, v)
}

// headers keeps the combine.h of the operations that have names: a batch of few rows takes less time than the text.
var headers sync.Map // of headerOf → device.File

type headerOf struct {
	which string
	v     reflect.Type
}

// CountHeader makes the file combine.h of a counter.
func CountHeader[C uint32 | uint64]() (device.File, error) {
	return combineHeader(table.Add, "BY_COUNT", reflect.TypeFor[C]())
}

func combineHeader(c table.Combine, which string, v reflect.Type) (device.File, error) {
	if kept, ok := headers.Load(headerOf{which, v}); ok {
		return kept.(device.File), nil
	}
	number, ok := Scalar(v)
	size, float := v.Size(), v.Kind() == reflect.Float32 || v.Kind() == reflect.Float64
	if !ok || size != 4 && size != 8 || v.Kind() == reflect.Bool {
		return device.File{}, fmt.Errorf("table: values of %v cannot be combined (want integers or floats of 4 or 8 bytes)", v)
	}
	if float && (c == table.And || c == table.Or) {
		return device.File{}, fmt.Errorf("table: %q is for integers, and the values are %v", string(c), v)
	}
	atomic := map[uintptr]string{4: "u32", 8: "u64"}[size]
	if float {
		atomic = number
	}
	header := device.File{Name: "combine.h", Text: fmt.Sprintf(`#pragma once
#define WARPMAP_COMBINE %s
typedef %s number;
typedef %s number_atomic;
__device__ __forceinline__ number merge(number old, number value) {
    return (number)(
#line 1 "combine"
%s
    );
}
`, which, number, atomic, string(c))}
	if which != "BY_CODE" {
		headers.Store(headerOf{which, v}, header)
	}
	return header, nil
}

// Merges tells, by an operation's header, whether values that come may be combined with one another first. They may not
// if the operation is code of the user's.
func Merges(header device.File) bool {
	return !strings.Contains(header.Text, "#define WARPMAP_COMBINE BY_CODE\n")
}

//go:embed gather.cuh
var gatherCUH string

// Gathering gives the file gather.cuh, for programs of operations that bring rows of one key together.
func Gathering() device.File { return device.File{Name: "gather.cuh", Text: gatherCUH} }

// Operations are the kernels of a table's operations, one K for each operation. They are compiled when they are first
// asked for.
type Operations[K any] map[string]K // by the text of their combine.h

// Of gives the kernels that bind finds in the program of an operation. The caller holds the table's lock.
func (o *Operations[K]) Of(d *device.Device, header device.File, program func(header device.File) *device.Program, bind func(m *device.Module, k *K) error) (k K, err error) {
	if k, ok := (*o)[header.Text]; ok {
		return k, nil
	}
	compile := d.CompileApart
	if !Merges(header) { // code of the user's, whose errors come before anything is done
		compile = d.Compile
	}
	m, err := compile(program(header))
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

// Named makes a bind that finds a kernel by its name, for Operations of one kernel each.
func Named[P any](name string) func(m *device.Module, k *device.Kernel[P]) error {
	return func(m *device.Module, k *device.Kernel[P]) error { return device.Bind(m, name, k) }
}

// Updating implements Update of a map: x gets the operation's header, and says how a batch goes in.
func Updating[K, V any](f *Frame, keys []K, values []V, with table.Combine, x func(header device.File) Insertion) error {
	return updating(f, In(keys), In(values), len(values), reflect.TypeFor[V](), with, x)
}

func updating(f *Frame, keys, values Column, valuesLen int, value reflect.Type, with table.Combine, x func(header device.File) Insertion) error {
	header, err := CombineHeader(with, value)
	if err != nil {
		return err
	}
	return insert(f, keys, values, valuesLen, nil, x(header))
}

// UpdatingOn implements Update on the device.
func UpdatingOn[K, V any](f *Frame, st *device.Stream, keys device.Slice[K], values device.Slice[V], with table.Combine, x func(header device.File) Insertion) error {
	return updatingOn(f, st, keys, sizeOf[K](), values, reflect.TypeFor[V](), with, x)
}

func updatingOn(f *Frame, st *device.Stream, keys DeviceSlice, keyBytes int, values DeviceSlice, value reflect.Type, with table.Combine, x func(header device.File) Insertion) error {
	header, err := CombineHeader(with, value)
	if err != nil {
		return err
	}
	return insertOn(f, st, keys, keyBytes, values, Optional(device.Slice[bool]{}), x(header))
}

// FindOrInsert implements FindOrInsert of a map: Put of the insertion gets rows with Out.
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
		if full := (*table.FullError)(nil); errors.As(err, &full) {
			for _, i := range full.Positions {
				clear(out.bytes(i, 1))
				added[i] = false
			}
		}
		return err
	})
}

// FindOrInsertOn implements FindOrInsert on the device. values and out may be Optional, where pairs have no values.
func FindOrInsertOn(f *Frame, st *device.Stream, keys, values, out DeviceSlice, flags device.Slice[bool],
	x Insertion) error {
	added := Optional(flags)
	if err := f.CheckOn("values out added", st, keys, values, out, added); err != nil {
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

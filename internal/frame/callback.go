package frame

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// MaxArgs is the number of words that the parameters of a callback's kernel have for arguments.
const MaxArgs = 16

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Caller is what a family brings for callbacks.
type Caller struct {
	// Program makes a program with the kernels for_each and for_all. They call a function of the header "callback.h"
	// for the pairs of n given keys, and for those of all n slots.
	Program func(header device.File) *device.Program
	// Params gives the address of the kernels' parameters, a struct that has the words of the arguments.
	Params func(keys, n uint64, words [MaxArgs]uint64) any
	Grid   func(n int64) device.Grid
	Slots  func() int64
}

// CallEach queues a callback for the pairs of the keys. Its body is compiled once for a table.
func CallEach[K, V any](f *Frame, st *device.Stream, keys device.Slice[K], body string, args table.Args, c Caller) error {
	return callEach(f, st, keys, pairOf[K, V](), body, args, c)
}

func callEach(f *Frame, st *device.Stream, keys DeviceSlice, types pairTypes, body string, args table.Args, c Caller) error {
	if err := f.CheckOn("", st, keys); err != nil {
		return err
	}
	return call(f, st, types, body, args, c, &callKeys{keys.Addr(), int64(keys.Len())})
}

// CallAll queues a callback for all pairs.
func CallAll[K, V any](f *Frame, st *device.Stream, body string, args table.Args, c Caller) error {
	return call(f, st, pairOf[K, V](), body, args, c, nil)
}

// callKeys are the keys that a callback is for.
type callKeys struct {
	addr uint64
	n    int64
}

// pairTypes are what a body sees. They are values, so that the code below is not compiled for each pair of types.
type pairTypes struct{ key, value reflect.Type }

func pairOf[K, V any]() pairTypes { return pairTypes{reflect.TypeFor[K](), reflect.TypeFor[V]()} }

// NoValue stands for the type of a set's values. A body then sees no value.
type NoValue struct{}

// callback is a compiled body.
type callback struct{ each, all device.AnyKernel }

// call queues a callback for some keys, or without them for all pairs.
func call(f *Frame, st *device.Stream, types pairTypes, body string, args table.Args, by Caller, keys *callKeys) error {
	if err := f.CheckOn("", st); err != nil {
		return err
	}
	header, words, err := writeCallback(f.Device, types, body, args)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Family, err)
	}
	return f.Reading(st, func(st *device.Stream) error {
		p := by.Program(device.File{Name: "callback.h", Text: header})
		key := ""
		for _, file := range p.Files { // the table's type may change, too
			if strings.HasSuffix(file.Name, ".h") {
				key += file.Text
			}
		}
		addr, n := uint64(0), by.Slots()
		if keys != nil {
			addr, n = keys.addr, keys.n
		}
		params := by.Params(addr, uint64(n), words)
		c, ok := f.callbacks[key]
		if !ok {
			of := reflect.TypeOf(params).Elem()
			p.Layouts = append(p.Layouts, reflect.Zero(of).Interface())
			m, err := f.Device.Compile(p)
			if err != nil {
				return err
			}
			if err := bind(m, of, named{"for_each", &c.each}, named{"for_all", &c.all}); err != nil {
				return err
			}
			if f.callbacks == nil {
				f.callbacks = map[string]callback{}
			}
			f.callbacks[key] = c
		}
		if n == 0 {
			return nil
		}
		kernel := c.all
		if keys != nil {
			kernel = c.each
		}
		return kernel.Launch(st, by.Grid(n), params)
	})
}

// writeCallback writes a header with a function of the given body, for a family's kernels to call for pairs:
//
//	callback(const forEachParams& p, C::key key_bits, C::value value_bits, u64 index)
//
// The body sees key and value as their Go types, where V is NoValue no value, index, and the arguments by their names. args are the bits of the
// arguments, which the function takes from p.args.
func writeCallback(d *device.Device, types pairTypes, body string, named table.Args) (header string, args [MaxArgs]uint64, err error) {
	if len(named) > MaxArgs {
		return "", args, fmt.Errorf("callback: %d arguments (at most %d)", len(named), MaxArgs)
	}
	var b strings.Builder
	b.WriteString("#pragma once\n__device__ __forceinline__ void callback(const forEachParams& p, C::key key_bits, C::value value_bits, u64 index) {\n")
	writeBits(&b, "key", types.key)
	if types.value != reflect.TypeFor[NoValue]() {
		writeBits(&b, "value", types.value)
		b.WriteString("    (void)value;\n")
	}
	for i, name := range slices.Sorted(maps.Keys(named)) {
		if !identifier.MatchString(name) || name == "key" || name == "value" || name == "index" || name == "p" {
			return "", args, fmt.Errorf("callback: an argument cannot be named %q", name)
		}
		c, bits, err := argument(d, named[name])
		if err != nil {
			return "", args, fmt.Errorf("callback: argument %s: %w", name, err)
		}
		args[i] = bits
		fmt.Fprintf(&b, "    %s %s; memcpy(&%s, &p.args[%d], sizeof %s); (void)%s;\n", c, name, name, i, name, name)
	}
	fmt.Fprintf(&b, "    (void)key; (void)index;\n#line 1 \"callback\"\n%s\n}\n", body)
	return b.String(), args, nil
}

// writeBits declares a key or value of its own type, from its bits.
func writeBits(b *strings.Builder, name string, t reflect.Type) {
	if c, ok := Scalar(t); ok {
		fmt.Fprintf(b, "    %s %s; memcpy(&%s, &%s_bits, sizeof %s);\n", c, name, name, name, name)
		return
	}
	fmt.Fprintf(b, "    C::%s %s = %s_bits;\n", name, name, name)
}

// Scalar is the name that a number of a Go type has in kernels.
func Scalar(t reflect.Type) (string, bool) {
	switch t.Kind() {
	case reflect.Uint8:
		return "u8", true
	case reflect.Uint16:
		return "u16", true
	case reflect.Uint32:
		return "u32", true
	case reflect.Uint64, reflect.Uint:
		return "u64", true
	case reflect.Int8:
		return "signed char", true
	case reflect.Int16:
		return "short", true
	case reflect.Int32:
		return "i32", true
	case reflect.Int64, reflect.Int:
		return "i64", true
	case reflect.Float32:
		return "float", true
	case reflect.Float64:
		return "double", true
	case reflect.Bool:
		return "bool", true
	}
	return "", false
}

// onDevice is what every device.Slice is.
type onDevice interface {
	On(*device.Device) error
	Addr() uint64
	Elem() reflect.Type
}

// argument is the C type and the bits of an argument.
func argument(d *device.Device, x any) (c string, bits uint64, err error) {
	if s, ok := x.(onDevice); ok {
		if err := s.On(d); err != nil {
			return "", 0, err
		}
		c, ok := Scalar(s.Elem())
		if !ok {
			switch s.Elem().Size() {
			case 16:
				c = "u128"
			default:
				return "", 0, fmt.Errorf("a device slice of %v: want integers, floats or 16-byte elements", s.Elem())
			}
		}
		return c + "*", s.Addr(), nil
	}
	v := reflect.ValueOf(x)
	if !v.IsValid() {
		return "", 0, fmt.Errorf("nil: want a device slice, an integer or a float")
	}
	c, ok := Scalar(v.Type())
	switch {
	case !ok || v.Kind() == reflect.Bool:
		return "", 0, fmt.Errorf("a %v: want a device slice, an integer or a float", v.Type())
	case v.Kind() == reflect.Float32:
		return c, uint64(math.Float32bits(float32(v.Float()))), nil
	case v.CanFloat():
		return c, math.Float64bits(v.Float()), nil
	case v.CanInt():
		return c, uint64(v.Int()), nil
	}
	return c, v.Uint(), nil
}

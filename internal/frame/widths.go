package frame

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// KeyBytes tells the width of a key type, 4 or 8 bytes: integers, floats, and arrays or structs of them without
// padding or pointers. Other types get an error with the reason.
func KeyBytes[K any]() (int, error) { return WidthOf[K]("key", 4, 8) }

// ValueBytes tells the width of a value type: 4, 8 or 16 bytes, of the same kinds as keys.
func ValueBytes[V any]() (int, error) { return WidthOf[V]("value", 4, 8, 16) }

// Width is the widths of a table's keys and values, or why a type has none. The width of a set's values is 0.
type Width struct {
	Key, Value int
	Err        error
}

// WidthsOf gives the widths of a map or a multimap: see KeyBytes and ValueBytes.
func WidthsOf[K, V any]() (w Width) {
	w = WidthOfKeys[K]()
	if w.Err == nil {
		w.Value, w.Err = ValueBytes[V]()
	}
	return w
}

// WidthOfKeys gives the widths of a set: see KeyBytes.
func WidthOfKeys[K any]() (w Width) {
	w.Key, w.Err = KeyBytes[K]()
	return w
}

// Made gives a new table, or nil with an error.
func Made[T any](t *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}

// WidthOf tells the width of a type whose values a table holds as plain bytes, one of the widths given. Errors name the
// type by `what`. Other types get an error with the reason.
func WidthOf[T any](what string, widths ...int) (int, error) {
	return width(reflect.TypeFor[T](), what, func(n int) bool { return slices.Contains(widths, n) }, fmt.Sprintf("one of %v", widths))
}

// WidthBetween does what WidthOf does, for all multiples of step between two widths.
func WidthBetween[T any](what string, least, most, step int) (int, error) {
	return width(reflect.TypeFor[T](), what, func(n int) bool { return n >= least && n <= most && n%step == 0 }, fmt.Sprintf("a multiple of %d from %d to %d", step, least, most))
}

func width(t reflect.Type, what string, good func(int) bool, want string) (int, error) {
	n, err := plainBytes(t)
	size := int(t.Size())
	switch {
	case err != nil:
		return 0, fmt.Errorf("table: %v cannot be a %s: %w", t, what, err)
	case !good(size):
		return 0, fmt.Errorf("table: %v cannot be a %s: it has %d bytes (want %s)", t, what, size, want)
	case n != size:
		return 0, fmt.Errorf("table: %v cannot be a %s: it has %d bytes of padding, whose content is undefined; add fields for them", t, what, size-n)
	}
	return size, nil
}

// plainBytes counts the bytes that fields fill, and refuses what is no plain data.
func plainBytes(t reflect.Type) (int, error) {
	switch t.Kind() {
	case reflect.Int8, reflect.Uint8, reflect.Int16, reflect.Uint16, reflect.Int32, reflect.Uint32, reflect.Int64, reflect.Uint64,
		reflect.Int, reflect.Uint, reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return int(t.Size()), nil
	case reflect.Array:
		n, err := plainBytes(t.Elem())
		return n * t.Len(), err
	case reflect.Struct:
		sum := 0
		for i := range t.NumField() {
			n, err := plainBytes(t.Field(i).Type)
			if err != nil {
				return 0, fmt.Errorf("field %s: %w", t.Field(i).Name, err)
			}
			sum += n
		}
		return sum, nil
	case reflect.Bool:
		return 0, errors.New("a bool has one byte of which one bit counts; use an integer")
	case reflect.String, reflect.Slice, reflect.Map, reflect.Pointer, reflect.Interface, reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Uintptr:
		return 0, fmt.Errorf("a %s holds a pointer, and the GPU cannot follow it", t.Kind())
	}
	return 0, fmt.Errorf("a %s is not plain data", t.Kind())
}

package device

import (
	"fmt"
	"path"
	"reflect"
	"strings"
)

// maxParams is the largest parameter struct that CUDA takes by value on every GPU we support.
const maxParams = 4096

// layoutHeader writes the C header that a program's kernels include as "layout.h": its macros and its structs, with
// a static_assert on the size and every offset, so that Go and the kernel cannot disagree about a byte.
func layoutHeader(defines []Define, layouts []any) (string, error) {
	var b strings.Builder
	b.WriteString("#pragma once\n#include \"types.cuh\"\n")
	for _, d := range defines {
		fmt.Fprintf(&b, "#define %s %v\n", d.Name, d.Value)
	}
	done := map[reflect.Type]bool{}
	for _, l := range layouts {
		if err := writeStruct(&b, reflect.TypeOf(l), done); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// checkLayout tells whether a Go struct can be a kernel's parameter.
func checkLayout(t reflect.Type) error {
	if t.Size() > maxParams {
		return fmt.Errorf("%v: %d bytes of parameters, more than %d", t, t.Size(), maxParams)
	}
	return writeStruct(&strings.Builder{}, t, map[reflect.Type]bool{})
}

func writeStruct(b *strings.Builder, t reflect.Type, done map[reflect.Type]bool) error {
	if t == nil || t.Kind() != reflect.Struct {
		return fmt.Errorf("layout %v: not a struct", t)
	}
	if done[t] {
		return nil
	}
	done[t] = true
	for i := range t.NumField() {
		if f := elem(t.Field(i).Type); f.Kind() == reflect.Struct {
			if err := writeStruct(b, f, done); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(b, "namespace %s {\nstruct %s {\n", namespace(t), t.Name())
	for i := range t.NumField() {
		f := t.Field(i)
		c, err := cType(elem(f.Type))
		if err != nil {
			return fmt.Errorf("layout %s.%s: %w", t.Name(), f.Name, err)
		}
		dims := ""
		for a := f.Type; a.Kind() == reflect.Array; a = a.Elem() {
			dims += fmt.Sprintf("[%d]", a.Len())
		}
		fmt.Fprintf(b, "    %s %s%s;\n", c, cName(f.Name), dims)
	}
	b.WriteString("};\n")
	fmt.Fprintf(b, "static_assert(sizeof(%s) == %d, \"size of %s\");\n", t.Name(), t.Size(), t.Name())
	for i := range t.NumField() {
		f := t.Field(i)
		fmt.Fprintf(b, "static_assert(__builtin_offsetof(%s, %s) == %d, \"offset of %s.%s\");\n",
			t.Name(), cName(f.Name), f.Offset, t.Name(), f.Name)
	}
	b.WriteString("} // namespace\n")
	return nil
}

// namespace is the C++ namespace of a Go struct: the last element of its package's path.
func namespace(t reflect.Type) string { return path.Base(t.PkgPath()) }

func elem(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Array {
		t = t.Elem()
	}
	return t
}

// cName is a Go field's name as kernels spell it: MaxProbes is max_probes.
func cName(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func cType(t reflect.Type) (string, error) {
	switch t.Kind() {
	case reflect.Uint8:
		return "u8", nil
	case reflect.Uint16:
		return "u16", nil
	case reflect.Uint32:
		return "u32", nil
	case reflect.Uint64:
		return "u64", nil
	case reflect.Int32:
		return "i32", nil
	case reflect.Int64:
		return "i64", nil
	case reflect.Float32:
		return "float", nil
	case reflect.Float64:
		return "double", nil
	case reflect.Struct:
		return namespace(t) + "::" + t.Name(), nil
	}
	return "", fmt.Errorf("%v has no fixed width", t)
}

package device

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// maxParams is the largest parameter struct that CUDA takes by value on every GPU we support.
const maxParams = 4096

// layoutHeader writes the C header that a program's kernels include as "layout.h": its macros and its structs, with
// a static_assert on the size and every offset, so that Go and the kernel cannot disagree about a byte.
func layoutHeader(defines []Define, layouts []any) (string, error) {
	var w strings.Builder
	w.WriteString("#pragma once\n#include \"types.cuh\"\n")
	for _, d := range defines {
		fmt.Fprintf(&w, "#define %s %v\n", d.Name, d.Value)
	}
	structs := &written
	for _, l := range layouts {
		structs = structs.behind(reflect.TypeOf(l))
	}
	text, err := structs.text()
	w.WriteString(text)
	return w.String(), err
}

// layoutList is a list of structs, and their text, which is written once: every table that is made asks for some.
type layoutList struct {
	types []reflect.Type
	once  sync.Once
	of    string
	err   error
	next  sync.Map // of reflect.Type → *layoutList
}

var written layoutList

func (l *layoutList) behind(t reflect.Type) *layoutList {
	if n, ok := l.next.Load(t); ok {
		return n.(*layoutList)
	}
	n, _ := l.next.LoadOrStore(t, &layoutList{types: append(slices.Clone(l.types), t)})
	return n.(*layoutList)
}

func (l *layoutList) text() (string, error) {
	l.once.Do(func() {
		w := layoutWriter{done: map[string]reflect.Type{}}
		for _, t := range l.types {
			if l.err = w.write(t); l.err != nil {
				return
			}
		}
		l.of = w.String()
	})
	return l.of, l.err
}

// checkLayout returns an error if a Go type cannot be a kernel's parameter.
func checkLayout(t reflect.Type) error {
	if t != nil && t.Size() > maxParams {
		return fmt.Errorf("%v: %d bytes of parameters, more than %d", t, t.Size(), maxParams)
	}
	_, err := written.behind(t).text()
	return err
}

type layoutWriter struct {
	strings.Builder
	done map[string]reflect.Type // what each C++ name stands for
}

// write writes a struct, after the structs that it holds.
func (w *layoutWriter) write(t reflect.Type) error {
	if t == nil || t.Kind() != reflect.Struct {
		return fmt.Errorf("layout %v: not a struct", t)
	}
	space, name := cStruct(t)
	full := space + "::" + name
	if other := w.done[full]; other == t {
		return nil
	} else if other != nil {
		return fmt.Errorf("layouts %s of %s and of %s would both be %s in C++: rename one", t.Name(), other.PkgPath(), t.PkgPath(), full)
	}
	w.done[full] = t
	fields := map[string]string{}
	for i := range t.NumField() {
		f := t.Field(i)
		c := cField(f, i)
		switch _, err := cType(elem(f.Type)); {
		case err != nil:
			return fmt.Errorf("layout %s.%s: %w", t.Name(), f.Name, err)
		case f.Type.Size() == 0:
			return fmt.Errorf("layout %s.%s: %v is empty, which C++ has not", t.Name(), f.Name, f.Type)
		case fields[c] != "":
			return fmt.Errorf("layout %s: %s and %s would both be %s in C++: rename one", t.Name(), fields[c], f.Name, c)
		case !ascii(c):
			return fmt.Errorf("layout %s.%s: compilers want names in ASCII", t.Name(), f.Name)
		}
		fields[c] = f.Name
		if e := elem(f.Type); e.Kind() == reflect.Struct {
			if err := w.write(e); err != nil {
				return err
			}
		}
	}
	if name == "" || !ascii(full) || strings.Contains(name, "[") {
		return fmt.Errorf("layout %v: C++ cannot name it (nor generic types, nor what is not in ASCII): declare a type for it", t)
	}
	fmt.Fprintf(w, "namespace %s {\nstruct %s {\n", space, name)
	for i := range t.NumField() {
		f := t.Field(i)
		c, _ := cType(elem(f.Type))
		dims := ""
		for a := f.Type; a.Kind() == reflect.Array; a = a.Elem() {
			dims += fmt.Sprintf("[%d]", a.Len())
		}
		fmt.Fprintf(w, "    %s %s%s;\n", c, cField(f, i), dims)
	}
	w.WriteString("};\n")
	fmt.Fprintf(w, "static_assert(sizeof(%s) == %d, \"size of %s\");\n", name, t.Size(), name)
	for i := range t.NumField() {
		f := t.Field(i)
		fmt.Fprintf(w, "static_assert(__builtin_offsetof(%s, %s) == %d, \"offset of %s.%s\");\n", name, cField(f, i), f.Offset, name, f.Name)
	}
	w.WriteString("} // namespace\n")
	return nil
}

// cStruct is a Go struct's namespace, the name of its package (which need not be the last element of its path), and its
// name there.
func cStruct(t reflect.Type) (space, name string) {
	space, _, _ = strings.Cut(t.String(), ".")
	return cWord(space), cWord(t.Name())
}

// cField is a Go field's name as kernels spell it: MaxProbes is max_probes, and a blank field is _ and its index.
func cField(f reflect.StructField, index int) string {
	if f.Name == "_" {
		return fmt.Sprintf("_%d", index)
	}
	var b strings.Builder
	for i, r := range f.Name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return cWord(b.String())
}

// taken are C++17's and CUDA's words, and the types of types.cuh.
var taken = strings.Fields(`alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class
	compl const const_cast constexpr continue decltype default delete do double dynamic_cast else enum explicit export extern
	false final float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq
	override private protected public register reinterpret_cast return short signed sizeof static static_assert static_cast
	struct switch template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile
	wchar_t while xor xor_eq std u8 u16 u32 u64 u128 i32 i64`)

// cWord puts an underscore behind a name that is taken.
func cWord(name string) string {
	if slices.Contains(taken, name) {
		return name + "_"
	}
	return name
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > 127 })
}

func elem(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Array {
		t = t.Elem()
	}
	return t
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
		space, name := cStruct(t)
		return "::" + space + "::" + name, nil
	}
	return "", fmt.Errorf("%v has no fixed width", t)
}

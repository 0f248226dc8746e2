package device_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	aparams "github.com/warpmap/warpmap/device/testdata/a/params"
	bparams "github.com/warpmap/warpmap/device/testdata/b/params"
	join "github.com/warpmap/warpmap/device/testdata/gpu-join"
	"github.com/warpmap/warpmap/device/testdata/template"
)

// namesProgram reads structs of a package that is not called as its folder, of two packages with one name, and whose
// names are words of C++.
var namesProgram = &device.Program{
	Name: "names",
	Files: []device.File{{Name: "names.cu", Text: `
#include "warpmap.cuh"
#include "layout.h"
WARPMAP_KERNEL(joined, join::Params) {
    params::Other other = {1};
    if (grid_thread() == 0) at<u64>(p.out)[0] = p.each[0].a + p.each[1].b + other.c;
}
WARPMAP_KERNEL(words, template_::Int) {
    if (grid_thread() == 0) at<u64>(p.out)[0] = p.default_ + p.u32_ + p.new_ + p.class_.while_ + p.class_.and_ + p.class_.this_;
}`}},
	Layouts: []any{join.Params{}, bparams.Other{}, template.Int{}},
}

func TestLayoutNamesAreThoseOfPackages(t *testing.T) {
	d := openCPU(t)
	m, err := d.Compile(namesProgram)
	must(t, err)
	out, err := device.Make[uint64](d, 1)
	must(t, err)
	joined, err := device.KernelOf[join.Params](m, "joined")
	must(t, err)
	p := join.Params{Out: out.Addr()}
	p.Each[0].A, p.Each[1].B = 10, 100
	must(t, joined.Launch(nil, device.Grid{Blocks: 1, Threads: 32}, &p))
	if got, err := out.Host(nil); err != nil || got[0] != 111 {
		t.Errorf("%v, %v, want 111", got, err)
	}
	words, err := device.KernelOf[template.Int](m, "words")
	must(t, err)
	w := template.Int{Default: 1, U32: 10, New: 100, Out: out.Addr(), Class: template.Struct{While: 1000, And: 10000, This: 100000}}
	must(t, words.Launch(nil, device.Grid{Blocks: 1, Threads: 32}, &w))
	if got, err := out.Host(nil); err != nil || got[0] != 111111 {
		t.Errorf("%v, %v, want 111111", got, err)
	}
	if _, err := device.CompileFor("sm_80", namesProgram); !errors.Is(err, device.ErrNoNVRTC) {
		must(t, err)
	}
}

type (
	generic[T any] struct{ A T }
	groß           struct{ A uint32 }
	twice          struct{ MaxProbes, Max_probes uint32 }
	umlaut         struct{ Größe uint32 }
	empty          struct{ A [0]uint32 }
)

// What C++ cannot name, or would name twice, is an error by its name before anything is compiled.
func TestLayoutNamesThatCannotBe(t *testing.T) {
	d := openCPU(t)
	local := func() any {
		type twice struct{ B uint64 }
		return twice{}
	}
	for _, c := range []struct {
		layouts []any
		wants   []string
	}{
		{[]any{aparams.Both{}, bparams.Both{}}, []string{"a/params", "b/params", "params::Both", "rename one"}},
		{[]any{twice{}}, []string{"MaxProbes and Max_probes", "max_probes"}},
		{[]any{struct{ A struct{ A uint32 } }{}}, []string{"declare a type"}},
		{[]any{generic[uint32]{}}, []string{"generic[uint32]", "declare a type"}},
		{[]any{groß{}}, []string{"groß", "ASCII"}},
		{[]any{umlaut{}}, []string{"umlaut.Größe", "ASCII"}},
		{[]any{empty{}}, []string{"empty.A", "[0]uint32 is empty"}},
		{[]any{struct{ A uint32 }{}}, []string{"declare a type"}},
	} {
		_, err := d.Compile(&device.Program{Name: "names", Files: cpuProgram.Files, Layouts: c.layouts})
		contains(t, err, append(c.wants, "program names")...)
	}
	// The same struct may come twice.
	_, err := d.Compile(&device.Program{Name: "names", Files: cpuProgram.Files, Layouts: []any{addParams{}, local(), addParams{}}})
	must(t, err)
}

// The first line of a compiler's errors names a struct that a kernel takes and that is not among the layouts.
func TestForgottenLayout(t *testing.T) {
	d := openCPU(t)
	text := `
#include "warpmap.cuh"
#include "layout.h"
WARPMAP_KERNEL(add, device_test::addParams) { if (thread_index() == 0) *at<u64>(p.addr) = p.n; }
`
	forgotten := "device_test::addParams, which kernel add takes, is not among the program's Layouts\n"
	for _, c := range []struct {
		file, want string
		layouts    []any
	}{
		{text, forgotten, nil},
		{text, forgotten, []any{device.HostLaunch{}}},
		{text + "WARPMAP_KERNEL_WIDE(two, other::Params, 64, u128) { mistake(); }", "other::Params, which kernel two takes, is", []any{addParams{}}},
		{text + "mistake", "", []any{addParams{}}},
		{"#include \"types.cuh\"\nnamespace other { struct Params { u64 n; }; }\n" + text + "WARPMAP_KERNEL(two, other::Params) { mistake(); }", "", []any{addParams{}}},
	} {
		_, err := d.Compile(&device.Program{Name: "forgotten", Files: []device.File{{Name: "forgotten.cu", Text: c.file}}, Layouts: c.layouts})
		var e *device.CompileError
		if !errors.As(err, &e) {
			t.Fatal(err)
		}
		if c.want == "" && strings.Contains(e.Log, "Layouts") || !strings.HasPrefix(e.Log, c.want) {
			t.Errorf("%.200q, want it to begin with %q", e.Log, c.want)
		}
	}
}

// A nil Module has no kernels.
func TestKernelOfNil(t *testing.T) {
	k, err := device.KernelOf[addParams](nil, "add")
	contains(t, err, "Module is nil")
	contains(t, (*device.Module)(nil).Ready(), "Module is nil")
	m, err := openCPU(t).Compile(cpuProgram)
	must(t, err)
	_, err = m.Kernel("add", nil)
	contains(t, err, "not a struct")
	if k.Threads() != 0 {
		t.Errorf("a kernel of no module has %d threads", k.Threads())
	}
	contains(t, k.Launch(nil, device.GridFor(1, 32), &addParams{}), "not compiled")
}

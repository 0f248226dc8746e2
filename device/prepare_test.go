package device

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

type preparedParams struct{ A uint64 }

type preparedOther struct{ B uint64 }

// size is a macro's value that is written otherwise than its kind is, and not plain.
type size struct{ n *int }

func (s size) String() string { return fmt.Sprint(*s.n) }

// A device puts equal programs together once, and no other program is taken for one of them.
func TestProgramsArePreparedOnce(t *testing.T) {
	d, err := Open("cpu", WithCache(""))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	of := func(change func(p *Program)) *Program {
		p := &Program{Name: "p", Files: []File{{"p.cu", "int x;"}, {"p.h", "int y;"}}, Defines: []Define{{"A", 1}, {"B", true}},
			Layouts: []any{preparedParams{}}}
		change(p)
		return p
	}
	prepare := func(p *Program, how parting) *prepared {
		x, err := d.prepare(p, how)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	same := func(*Program) {}
	given := of(same)
	first := prepare(given, together)
	given.Files[0].Text, given.Defines[0].Value = "int z;", 7 // the caller's own, later
	if prepare(of(same), together) != first {
		t.Error("an equal program is put together again")
	}
	keys := []string{first.key}
	for i, change := range []func(p *Program){
		func(p *Program) { p.Files[1].Text = "int v;" },
		func(p *Program) { p.Files[1].Name = "q.h" },
		func(p *Program) { p.Files = p.Files[:1] },
		func(p *Program) { p.Defines[0].Value = 2 },
		func(p *Program) { p.Defines[1].Value = 1 },
		func(p *Program) { p.Defines[0].Name = "C" },
		func(p *Program) { p.Layouts = []any{preparedOther{}} },
		func(p *Program) { p.Layouts = nil },
		func(p *Program) { p.Name = "q" },
	} {
		x := prepare(of(change), together)
		if slices.Contains(keys, x.key) {
			t.Errorf("change %d: a program is taken for another", i)
		}
		keys = append(keys, x.key)
	}
	if x := prepare(of(func(p *Program) { p.Threads = 512 }), together); x == first {
		t.Error("a program is taken for one of other blocks")
	}
	if x := prepare(of(same), apart); x == first {
		t.Error("a program in one is taken for one whose kernels are apart")
	}
	n := 1
	grows := of(func(p *Program) { p.Defines[0].Value = size{&n} })
	before := prepare(grows, together)
	if n++; prepare(grows, together).key == before.key {
		t.Error("a macro whose value changes has the old one")
	}
}

// Goroutines that ask for one program at a time get one module and one kernel, beside others that take small pieces of pinned memory.
func TestPreparedConcurrently(t *testing.T) {
	d, err := Open("cpu", WithCache(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var wg sync.WaitGroup
	kernels := make([]Kernel[preparedParams], 8)
	for i := range kernels {
		wg.Go(func() {
			for range 20 {
				h, err := MakeHost[uint64](d, 64)
				if err == nil {
					h.Slice()[0] = uint64(i)
					err = h.Free()
				}
				if err != nil {
					t.Error(err)
				}
				m, err := d.CompileApart(&Program{Name: "many", Files: []File{{"many.cu", "#include \"layout.h\"\n#include \"warpmap.cuh\"\n" +
					"WARPMAP_KERNEL(nothing, device::preparedParams) {}\n"}}, Layouts: []any{preparedParams{}}})
				if err == nil {
					kernels[i], err = KernelOf[preparedParams](m, "nothing")
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, k := range kernels {
		if k.k == nil || k.k.m != kernels[0].k.m {
			t.Error("one program has several modules")
		}
	}
	if len(d.prepared["many"]) != 1 || len(d.Live()) != 0 {
		t.Errorf("one program is prepared %d times; %d pieces of memory are left", len(d.prepared["many"]), len(d.Live()))
	}
}

// A Device that Open has not made compiles nothing, and says so.
func TestNoDeviceCompiles(t *testing.T) {
	p := &Program{Name: "p", Files: []File{{"p.cu", "int x;"}}}
	var d Device
	for _, compile := range []func(*Program) (*Module, error){d.Compile, d.CompileApart, (*Device)(nil).Compile} {
		if _, err := compile(p); err != errUnmade {
			t.Errorf("it gives %v", err)
		}
	}
}

package device

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/quick"
	"github.com/warpmap/warpmap/internal/witness"
)

// CompileApart gives a module of a program whose kernels are compiled apart from one another, each when it is first
// launched, or before that, in the background, where AnyKernel.Ahead asks for it. So the first run of a program
// compiles the kernels that it needs alone, side by side. Kernels may have nothing in common but code and constants: a
// variable of the source is there once for each. Cost: nothing until then; the compiler reads the source once for each
// kernel, 30 to 50 ms with NVRTC.
//
// Errors: a program that is none; ErrClosed. What else Compile returns comes from the first launch of a kernel.
// KernelOf does not tell that a kernel is missing, or takes other parameters: the launch does.
func (d *Device) CompileApart(p *Program) (*Module, error) {
	switch {
	case d.infos.CUDA():
		return d.module(p, apart)
	case quick.Kernels: // tests launch most kernels, and to have the compiler read the source for each would take longer
		return d.module(p, mostly)
	case d.cfg.stress:
		return d.module(p, together)
	}
	return d.module(p, apart)
}

// How the kernels of a program are compiled.
type parting int

const (
	together parting = iota
	apart            // from one another
	mostly           // together but for quick.Rare: in short runs of tests
)

// split gives the source without the program's rare kernels, and for the name of each of these, the source of its group.
func (s *source) split() (most *source, rare map[string]*source) {
	groups := quick.Rare[s.program]
	if groups == nil {
		return s, nil
	}
	rare = map[string]*source{}
	for _, g := range groups {
		few := s.with("#define WARPMAP_APART\n" + wants(g, 1))
		few.program += "." + g[0]
		for _, kernel := range g {
			rare[kernel] = few
		}
	}
	without := wants(slices.Concat(groups...), 0)
	return s.with("#define WARPMAP_APART\n#define WARPMAP_REST\n" + without), rare
}

// ahead tells whether the device compiles for others: then every kernel that KernelOf gives is one that they may launch.
func (d *Device) ahead() bool {
	_, ahead := d.b.(*aheadBackend)
	return ahead && !witness.AsOnGPU
}

func init() {
	witness.ForOthers = func(d any) bool { return d.(*Device).ahead() }
}

// single is a kernel that is compiled apart.
type single struct {
	began atomic.Bool // in the background
	mu    sync.Mutex  // held while it is compiled
	h     uintptr
}

func (m *Module) single(kernel string) *single {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.singles[kernel]
	if p == nil {
		p = &single{}
		m.singles[kernel] = p
	}
	return p
}

// load gives the back end's module that has the kernel. Who comes while it is compiled waits.
func (m *Module) load(kernel string) (uintptr, error) {
	var p *single
	src := m.rare[kernel]
	switch {
	case src != nil:
		p = m.single(src.program) // all of the group
	case m.src != nil:
		p = m.single(kernel)
	default:
		return m.h, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.h != 0 {
		return p.h, nil
	}
	if src == nil {
		src = m.src.only(kernel)
	}
	c := m.d.b.compiler()
	err := m.d.do(func() (err error) {
		p.h, err = m.d.build(src, c, src.key(c))
		return err
	})
	return p.h, err
}

// only is the source with one of its kernels: see kernel/wanted.cuh.
func (s *source) only(kernel string) *source {
	one := s.with("#define WARPMAP_APART\n" + wants([]string{kernel}, 1))
	one.program, one.kernel = s.program+"."+kernel, kernel
	return one
}

// wants defines whether kernels are wanted.
func wants(kernels []string, wanted int) (text string) {
	for _, k := range kernels {
		text += fmt.Sprintf("#define WARPMAP_WANTED_%s ~, %d\n", k, wanted)
	}
	return text
}

// with is the source with these lines in its layout.
func (s *source) with(lines string) *source {
	one := *s
	one.files = slices.Clone(s.files)
	for i, f := range one.files {
		if f.Name == layoutFile {
			one.files[i].Text = strings.Replace(f.Text, "\n", "\n"+lines, 1)
		}
	}
	return &one
}

// turns are for as many compilers in the background as there are cores. Who waits for a kernel compiles it without.
var turns = make(chan struct{}, runtime.NumCPU())

// Compile compiles the kernel, if nobody has: for code that can do without it. Errors: those of Device.Compile.
func (k AnyKernel) Compile() error {
	if k.k == nil || k.k.m == nil {
		return errors.New("a kernel that is not compiled")
	}
	_, err := k.k.entry()
	return err
}

// Ready compiles the kernels that KernelOf has given of a module of CompileApart, side by side, and waits for them. It
// is for code that can do without them. Errors: those of Compile.
func (m *Module) Ready() error {
	if m == nil {
		return errNoModule
	}
	m.mu.Lock()
	bound := slices.Collect(maps.Keys(m.singles))
	m.mu.Unlock()
	var work crash.Group
	work.SetLimit(runtime.NumCPU())
	for _, kernel := range bound {
		work.Go(func() error {
			_, err := m.load(kernel)
			return err
		})
	}
	return work.Wait()
}

// Ready does what Module.Ready does for all modules of the device. The Close of a device of OpenAhead does so, too.
func (d *Device) Ready() (err error) {
	d.modMu.Lock()
	modules := slices.Collect(maps.Values(d.modules))
	d.modMu.Unlock()
	for _, m := range modules {
		if err = m.Ready(); err != nil {
			return err // what fails by the disk or the compiler says so once
		}
	}
	return nil
}

// Ahead does what AnyKernel.Ahead does, for several kernels.
func Ahead(kernels ...interface{ Ahead() error }) (err error) {
	for _, k := range kernels {
		err = errors.Join(err, k.Ahead())
	}
	return err
}

// Ahead begins to compile a kernel of CompileApart in the background, if nobody has: call it once it is known that the
// kernel will be launched. It returns at once, and of a kernel that is there costs nothing. What is wrong with the
// kernel comes from its launch. But where there is no compiler, Ahead loads the kernel from the cache, and returns
// what Compile does.
func (k AnyKernel) Ahead() error {
	if k.k == nil || k.k.m == nil || k.k.ready.Load() != nil {
		return nil
	}
	m := k.k.m
	p := m.single(k.k.kernel)
	if p.began.Load() {
		return nil
	}
	if m.d.b.compiler().ident() == "" {
		_, err := k.k.entry()
		return err
	}
	if p.began.Swap(true) {
		return nil
	}
	crash.Go(func() {
		turns <- struct{}{}
		defer func() { <-turns }()
		m.load(k.k.kernel) // an error comes again where it is launched
	})
	return nil
}

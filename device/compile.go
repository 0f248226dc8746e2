package device

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/planted"
	"github.com/warpmap/warpmap/internal/quick"
	"github.com/warpmap/warpmap/internal/witness"
	"github.com/warpmap/warpmap/kernel"
)

// File is one source file of a program, as #include names it.
type File struct {
	Name string
	Text string
}

// Define is a preprocessor macro; its value is written with %v.
type Define struct {
	Name  string
	Value any
}

// Program is what Compile compiles: CUDA C++ written in the vocabulary of package kernel.
//
// Files[0] is the translation unit; it and the others include one another by name. They also find the vocabulary
// ("warpmap.cuh") and "layout.h", which is made of Defines and of the parameter structs in Layouts.
//
// In "layout.h", the struct P of package p is p::P, whatever the path of the package, and its field MaxProbes is
// max_probes. A name that is a word of C++, or a type of the vocabulary, gets an underscore behind it: package new,
// field Default and field U32 are new_, default_ and u32_. A blank field is _ and its index. Two structs of one such
// name are an error.
type Program struct {
	Name    string
	Files   []File
	Defines []Define
	Layouts []any // zero values of the structs that kernels take or read
	// Threads is the most threads of a block of the program's kernels on a GPU, up to 1024. 0 means 256, which is the
	// most on the CPU device. The more threads, the fewer registers each has.
	Threads int
}

// threads is the most threads of a block.
func (p *Program) threads(cuda bool) int {
	if cuda && p.Threads > 0 {
		return p.Threads
	}
	return maxThreads
}

const layoutFile = "layout.h"

// source is a program with everything it includes: what a compiler gets.
type source struct {
	program string
	kernel  string // the one that is compiled of it; "" for all
	files   []File // the translation unit first
	mode    mode
}

// compiler turns a source into the image of a module. NVRTC makes a cubin; the C++ compiler makes a shared object.
type compiler interface {
	target() string // the architecture
	options(m mode) []string
	olderToo() []compiler // this, and those for older processors whose programs run here, too; the newest first
	ident() string        // tells compilers and their versions apart; empty where none is found
	extension() string    // of the cache's files
	compile(src *source) ([]byte, error)
}

// mode is how a program for the CPU device is made.
type mode int

const (
	fast      mode = iota
	stressed       // WithStress
	modelling      // WithMemoryModel
)

func (c *config) mode() mode {
	switch {
	case c.model:
		return modelling
	case c.stress:
		return stressed
	}
	return fast
}

// source puts the program together for a kind of device, whose blocks can have that many bytes of shared memory.
func (p *Program) source(cuda bool, shared int64, m mode) (*source, error) {
	if len(p.Files) == 0 {
		return nil, fmt.Errorf("program %s has no files", p.Name)
	}
	if p.Threads < 0 || p.Threads > 1024 || p.Threads%32 != 0 {
		return nil, fmt.Errorf("program %s: blocks of up to %d threads (want 32, 64, … 1024, or 0)", p.Name, p.Threads)
	}
	layouts := []any{HostLaunch{}}
	if m == modelling {
		layouts = append(layouts, hostModel{})
	}
	header, err := layoutHeader(append(hostDefines(p.threads(cuda), shared), p.Defines...), append(layouts, p.Layouts...))
	if err != nil {
		return nil, fmt.Errorf("program %s: %w", p.Name, err)
	}
	src := &source{program: p.Name, files: append([]File(nil), p.Files...), mode: m}
	src.files = append(src.files, File{layoutFile, header})
	for _, f := range kernel.Files() {
		src.files = append(src.files, File{f.Name, f.Text})
	}
	for i, f := range src.files {
		src.files[i].Text = planted.In(p.Name, f.Name, f.Text)
	}
	return src, nil
}

var kernelTakes = regexp.MustCompile(`(?m)^\s*WARPMAP_KERNEL\w*\(\s*(\w+)\s*,\s*(\w+)::(\w+)`)

// compile makes the image. If that fails and a kernel takes a struct that nothing declares, the compiler's log, which
// has a hundred lines then, begins with its name.
func (s *source) compile(c compiler) ([]byte, error) {
	image, err := c.compile(s)
	if e := (*CompileError)(nil); errors.As(err, &e) {
		for _, takes := range kernelTakes.FindAllStringSubmatch(s.files[0].Text, -1) {
			declared := func(f File) bool { return strings.Contains(f.Text, "struct "+takes[3]+" ") }
			if !slices.ContainsFunc(s.files, declared) {
				e.Log = fmt.Sprintf("%s::%s, which kernel %s takes, is not among the program's Layouts\n%s", takes[2], takes[3], takes[1], e.Log)
				break
			}
		}
	}
	return image, err
}

// Module is a compiled and loaded program, or one whose kernels are compiled apart.
type Module struct {
	d       *Device
	name    string
	threads int // of a block, at most
	h       uintptr

	// Where kernels are compiled apart:
	src  *source
	rare map[string]*source // in short runs of tests, of those that few launch

	mu        sync.Mutex
	singles   map[string]*single        // by the kernel, where kernels are compiled apart
	functions map[functionKey]*function // those that Kernel has given
}

var errNoModule = errors.New("the Module is nil")

// functionKey is what Kernel is asked for.
type functionKey struct {
	kernel string
	p      reflect.Type
}

// Compile compiles a program for the device, or takes it from the cache on disk, and loads it. It loads the same
// program once. Several goroutines compile different programs beside one another. Cost: up to a few seconds the first
// time on a machine, with NVRTC as with a C++ compiler; a millisecond from disk; nothing again.
//
// Errors: *CompileError with the compiler's own words; ErrNoNVRTC (GPU) or ErrNoCompiler (CPU device), if the program
// is not in the cache and there is nothing to compile it with; context.Cause of the context of WithContext; ErrClosed.
// It is no error if the cache cannot be read or written, if others may write it (see WithCache), or if it holds damaged
// files: the program is then compiled all the same.
func (d *Device) Compile(p *Program) (*Module, error) {
	return d.module(p, together)
}

// module gives the module of a program, which is made once. Programs are compiled side by side.
func (d *Device) module(p *Program, how parting) (m *Module, err error) {
	if p == nil {
		return nil, errors.New("device.Compile: no Program")
	}
	if !d.made() {
		return nil, errUnmade
	}
	x, err := d.prepare(p, how)
	if err != nil {
		return nil, err
	}
	err = d.do(func() error {
		c, src, key := d.b.compiler(), x.src, x.key
		name := key
		if how == apart {
			name += " apart"
		}
		d.modMu.Lock()
		m = d.modules[name]
		if m == nil {
			m = &Module{d: d, name: p.Name, threads: p.threads(d.infos.CUDA()), rare: x.rare, singles: map[string]*single{},
				functions: map[functionKey]*function{}}
			if how == apart {
				m.src = src
			}
			d.modules[name] = m
		}
		d.modMu.Unlock()
		if how == apart {
			return nil
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.h == 0 {
			m.h, err = d.build(src, c, key)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// prepared is a program as the device compiles it. Every table that is made asks for some, so a program is put together and hashed, which takes
// hundreds of microseconds, once for a device.
type prepared struct {
	of   Program
	how  parting
	src  *source
	rare map[string]*source
	key  string
}

// prepare puts a program together, or gives what an equal one has become.
func (d *Device) prepare(p *Program, how parting) (*prepared, error) {
	find := func() *prepared {
		for _, x := range d.prepared[p.Name] {
			if x.how == how && x.of.equal(p) {
				return x
			}
		}
		return nil
	}
	d.modMu.Lock()
	x := find()
	d.modMu.Unlock()
	if x != nil {
		return x, nil
	}
	m := fast
	if !d.infos.CUDA() {
		m = d.cfg.mode()
	}
	x = &prepared{how: how, of: *p}
	x.of.Files, x.of.Defines, x.of.Layouts = slices.Clone(p.Files), slices.Clone(p.Defines), slices.Clone(p.Layouts)
	var err error
	if x.src, err = x.of.source(d.infos.CUDA(), d.infos.Shared, m); err != nil {
		return nil, err
	}
	if how == mostly {
		x.src, x.rare = x.src.split()
	}
	x.key = x.src.key(d.b.compiler())
	d.modMu.Lock()
	defer d.modMu.Unlock()
	if other := find(); other != nil { // somebody was faster
		return other, nil
	}
	if x.of.plain() {
		d.prepared[p.Name] = append(d.prepared[p.Name], x)
	}
	return x, nil
}

// plain tells whether the values of all macros are such that equal ones are written alike, now and later.
func (p *Program) plain() bool {
	return !slices.ContainsFunc(p.Defines, func(d Define) bool {
		k := reflect.ValueOf(d.Value).Kind()
		return k != reflect.Bool && k != reflect.String && (k < reflect.Int || k > reflect.Uint64)
	})
}

// equal tells whether a plain program is the same as another. Texts are mostly constants, whose comparison ends at once.
func (p *Program) equal(o *Program) bool {
	return p.Threads == o.Threads && slices.Equal(p.Files, o.Files) &&
		slices.EqualFunc(p.Defines, o.Defines, func(a, b Define) bool {
			return a.Name == b.Name && reflect.TypeOf(a.Value) == reflect.TypeOf(b.Value) && a.Value == b.Value // which compares no maps: plain
		}) &&
		slices.EqualFunc(p.Layouts, o.Layouts, func(a, b any) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) })
}

var compiling sync.Map // a *sync.Mutex for each key: another device of this process may be compiling the same

// build loads the program from the cache, else compiles it, and keeps it there. Of several who want one program at a time, in this process or others,
// one compiles it.
func (d *Device) build(src *source, c compiler, key string) (uintptr, error) {
	mu, _ := compiling.LoadOrStore(key, &sync.Mutex{})
	mu.(*sync.Mutex).Lock()
	defer mu.(*sync.Mutex).Unlock()
	h, _, err := d.cached(src, c, key)
	if h != 0 || err != nil {
		return h, err
	}
	defer d.cfg.cache.lock(d.cfg.ctx, key)()
	h, unloadable, err := d.cached(src, c, key)
	if h != 0 || err != nil {
		return h, err
	}
	done := witness.Begin(src.program, src.kernel)
	var image []byte
	if !witness.Nothing {
		image, err = src.compile(c)
	}
	done()
	if err != nil {
		if unloadable != nil {
			err = fmt.Errorf("%w (and what the cache holds does not load: %v)", err, unloadable)
		}
		return 0, err
	}
	return d.b.load(src.program, image, d.cfg.cache.keep(key, c, image))
}

// cached loads the program from WithKernels or from the cache, or gives 0; unloadable is what is wrong with one that is
// there. Programs for older processors of the kind are taken, too, but from the cache only where there is no compiler.
func (d *Device) cached(src *source, c compiler, key string) (h uintptr, unloadable, err error) {
	for _, older := range c.olderToo() {
		if d.cfg.kernels == nil {
			break
		}
		if image := d.cfg.kernels.find(src.key(older), c.extension()); image != nil {
			h, err := d.b.load(src.program, image, "")
			if err == nil || errors.As(err, new(*FaultError)) {
				return h, nil, err
			}
			unloadable = err
		}
	}
	if h, other, err := d.cachedAs(src, c, key); h != 0 || err != nil || c.ident() != "" {
		return h, errors.Join(unloadable, other), err
	}
	for _, older := range c.olderToo() {
		if h, other, err := d.cachedAs(src, older, src.key(older)); h != 0 || err != nil {
			return h, errors.Join(unloadable, other), err
		}
	}
	return 0, unloadable, nil
}

func (d *Device) cachedAs(src *source, c compiler, key string) (h uintptr, unloadable, err error) {
	for _, file := range d.cfg.cache.files(key, c) {
		image, ok := readCached(file)
		if !ok {
			continue
		}
		h, err := d.b.load(src.program, image, file)
		if err == nil || errors.As(err, new(*FaultError)) {
			return h, nil, err
		}
		unloadable = err
	}
	return 0, unloadable, nil
}

// CompileFor compiles a program for a CUDA architecture such as "sm_80" with NVRTC, without a GPU, and returns the
// cubin. It is the way to check every kernel on a machine that has no GPU. A kernel whose blocks need more shared memory
// or more registers than the architecture has is an error.
func CompileFor(arch string, p *Program) ([]byte, error) {
	c, err := openNVRTC(context.Background(), "", arch, 0)
	if err != nil {
		return nil, err
	}
	c.checks = quick.Checks
	src, err := p.source(true, sharedOf(arch), fast)
	if err != nil {
		return nil, err
	}
	return src.compile(c)
}

// InfoFor describes a GPU of an architecture as far as CompileFor decides it: Arch, Compiler, the shared memory of a
// block, and whether kernels have a 128-bit compare-and-swap. Errors: ErrNoNVRTC.
func InfoFor(arch string) (Info, error) {
	c, err := openNVRTC(context.Background(), "", arch, 0)
	if err != nil {
		return Info{}, err
	}
	return Info{Name: "cuda:0", Arch: arch, Compiler: c.lib.String(), Shared: sharedOf(arch), CAS128: c.swap128(arch)}, nil
}

// Kernel is an entry point of a module that takes one P by value.
type Kernel[P any] struct{ AnyKernel }

// KernelOf finds a kernel by its name in the source. A P of another size than the kernel's parameter is an error.
func KernelOf[P any](m *Module, name string) (Kernel[P], error) {
	k, err := m.Kernel(name, reflect.TypeFor[P]())
	return Kernel[P]{k}, err
}

// AnyKernel is a Kernel for code that is the same whatever P is. Such code is compiled once, and not for each P.
type AnyKernel struct{ k *function }

type function struct {
	m      *Module // nil: it is not compiled
	kernel string
	name   string // with the program's
	p      reflect.Type
	ready  atomic.Pointer[entry] // nil until it is compiled
}

// Kernel does what KernelOf does, with the type of the parameters as a value.
func (m *Module) Kernel(name string, p reflect.Type) (AnyKernel, error) {
	switch {
	case m == nil:
		return AnyKernel{}, fmt.Errorf("kernel %s: %w", name, errNoModule)
	case m.d == nil:
		return AnyKernel{}, errUnmade
	}
	key := functionKey{name, p}
	late := m.src != nil || m.rare[name] != nil // it is compiled when it is launched
	m.mu.Lock()
	k := m.functions[key]
	m.mu.Unlock()
	if k == nil {
		k = &function{kernel: name, name: m.name + "." + name, p: p}
		if err := checkLayout(p); err != nil {
			return AnyKernel{k}, err
		}
		k.m = m
		if late {
			m.single(name)
		} else if _, err := k.entry(); err != nil {
			k.m = nil
			return AnyKernel{k}, err
		}
		m.mu.Lock()
		m.functions[key] = k
		m.mu.Unlock()
	}
	switch {
	case !late:
		return AnyKernel{k}, m.d.do(func() error { return nil }) // it may be closed since
	case m.d.ahead():
		return AnyKernel{k}, AnyKernel{k}.Ahead()
	}
	return AnyKernel{k}, nil
}

// entry gives the compiled kernel, which it compiles where it must.
func (k *function) entry() (*entry, error) {
	if e := k.ready.Load(); e != nil {
		return e, nil
	}
	d := k.m.d
	h, err := k.m.load(k.kernel)
	if err != nil {
		return nil, err
	}
	var e entry
	if err := d.do(func() (err error) { e, err = d.b.kernel(h, k.kernel); return err }); err != nil {
		return nil, err
	}
	if e.takes != int64(k.p.Size()) && e.takes != anyBytes {
		return nil, fmt.Errorf("kernel %s takes %d bytes of parameters, not the %d of %v", k.name, e.takes, k.p.Size(), k.p)
	}
	if e.threads == 0 {
		e.threads, e.shared = k.m.threads, 0
	}
	k.ready.Store(&e)
	return &e, nil
}

// entry is what a back end knows of a kernel.
type entry struct {
	handle  uintptr
	takes   int64 // bytes of parameters
	threads int   // of a block, at most; 0: as its program says
	shared  int   // bytes of dynamic shared memory that a block always has
}

// Threads is the most threads that a block of the kernel has, which is compiled for that if it must.
func (k AnyKernel) Threads() int {
	if k.k == nil || k.k.m == nil {
		return 0
	}
	e, err := k.k.entry()
	if err != nil {
		return k.k.m.threads // the launch says why
	}
	return e.threads
}

// maxThreads is the most threads of a block, unless a program says: kernels are compiled for no more, to leave each the registers it
// wants.
const maxThreads = 256

// Grid is the shape of a launch: Blocks of Threads threads each, in one dimension.
type Grid struct {
	Blocks  int64
	Threads int
	// Shared is the bytes of dynamic shared memory of a block, which kernels see as dynamic_shared(). It is at most
	// Info.Shared, less what the kernel has of __shared__ variables. A WARPMAP_KERNEL_WIDE gets what it
	// wants whatever Shared is.
	Shared int
}

// GridFor covers n threads by blocks of the given number of threads.
func GridFor(n int64, threads int) Grid {
	return Grid{Blocks: max(1, (n+int64(threads)-1)/int64(threads)), Threads: threads}
}

// Launches is how many kernels were launched on the device until now, by anybody. It shows what an operation costs
// beside its rows.
func (d *Device) Launches() uint64 { return d.launches.Load() }

// Launch queues the kernel on the stream with a copy of *p. Addresses inside p must stay allocated until the stream has
// passed it. Errors of the kernel itself show at the stream's next Sync (on the CPU device, here).
func (k Kernel[P]) Launch(st *Stream, grid Grid, p *P) error {
	return k.k.launch(st, grid, unsafe.Pointer(p))
}

// Launch does what Launch of a Kernel[P] does. p is a *P; another type is an error.
func (k AnyKernel) Launch(st *Stream, grid Grid, p any) error {
	if k.k == nil {
		return k.k.launch(st, grid, nil)
	}
	v := reflect.ValueOf(p)
	if v.Kind() != reflect.Pointer || v.Type().Elem() != k.k.p {
		return fmt.Errorf("kernel %s: parameters of type %T (want *%v)", k.k.name, p, k.k.p)
	}
	return k.k.launch(st, grid, v.UnsafePointer())
}

// unloadedError is of a launch for which the kernel could not be compiled or loaded. Whoever has launched others before,
// which belong together, asks for its method.
type unloadedError struct{ err error }

func (e *unloadedError) Error() string { return e.err.Error() }
func (e *unloadedError) Unwrap() error { return e.err }
func (e *unloadedError) Unloaded()     {}

func (k *function) launch(st *Stream, grid Grid, p unsafe.Pointer) error {
	switch {
	case k == nil:
		return errors.New("a kernel that is not compiled")
	case k.m == nil:
		return fmt.Errorf("kernel %q is not compiled", k.name)
	}
	d := k.m.d
	if err := st.On(d); err != nil {
		return err
	}
	e, err := k.entry()
	if err == nil && faults.Any() { // a test may have it that the kernel was not there yet, and does not load
		err = d.do(func() error { return d.met(faults.Load, 0) })
	}
	if err != nil {
		return &unloadedError{err}
	}
	if grid.Blocks < 1 || grid.Blocks > 1<<31-1 || grid.Threads < 32 || grid.Threads > e.threads || grid.Threads%32 != 0 {
		return fmt.Errorf("kernel %s: a grid of %d blocks of %d threads (want 1 to 2³¹-1 blocks of 32, 64, … %d)", k.name, grid.Blocks, grid.Threads, e.threads)
	}
	if grid.Shared >= 0 {
		grid.Shared = max(grid.Shared, e.shared)
	}
	if most := d.infos.Shared; grid.Shared < 0 || int64(grid.Shared) > most {
		return fmt.Errorf("kernel %s: blocks with %d bytes of shared memory (want 0 to %d)", k.name, grid.Shared, most)
	}
	h := st.handleOn(d)
	err = d.use(func() error {
		d.launches.Add(1)
		return d.call(faults.Launch, 0, func() error { return d.b.launch(h.h, e.handle, grid, p, int64(k.p.Size())) })
	}, h)
	runtime.KeepAlive(p)
	return err
}

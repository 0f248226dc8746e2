// Package device gives tables a GPU, or the CPU in its place: devices, memory, streams, events, and kernels that are
// compiled when first used.
//
// Two back ends stand behind one small interface: cuda.go drives a GPU through libcuda and NVRTC without cgo, and
// cpu.go compiles the same kernel sources with the system's C++ compiler and runs the 32 lanes of a warp as fibers. A
// kernel cannot tell which of the two runs it.
//
// On a GPU, the driver is libcuda.so.1 of the loader's path, or the library that the environment's WARPMAP_LIBCUDA
// names. NVRTC is the library that WithCompiler or WARPMAP_NVRTC names, else the first that will do in the loader's
// path, in a CUDA toolkit, or in Python's nvidia wheels.
//
// Everything here is safe to call from several goroutines, except the methods of a Range. Close is idempotent. After
// the Close of a device, a stream or an event, calls that need it return ErrClosed. After the Free of memory, calls
// that need it return ErrFreed. The Close of a device also closes and frees what was made through it.
package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/warpmap/warpmap/internal/quick"
)

// Errors that callers may test for with errors.Is.
//
// ErrNoDevices is of systems on which the module compiles and finds no device: all but Linux on amd64 and arm64.
//
// ErrClosed is of a device, a stream or an event that was used after Close, and ErrFreed of memory that was used, or
// freed again, after Free. A call that takes a stream and device memory looks at the stream first, then at the memory,
// then at the device. (WriteAsync and ReadAsync look at the host memory before all these.) So Read, Write, Fill,
// CopyFrom and Slice.On return ErrFreed after the device's Close, because that has freed the memory. Free and FreeAfter
// look at the device first: after its Close they return ErrClosed, as Make does. A table that is closed returns
// neither, but table.ErrClosed.
var (
	ErrClosed     = errors.New("already closed")
	ErrNoDevices  = errors.New("no devices on this system")
	ErrNoDriver   = errors.New("no CUDA driver")
	ErrNoGPU      = errors.New("no such CUDA GPU")
	ErrNoNVRTC    = errors.New("no NVRTC")
	ErrNoCompiler = errors.New("no C++ compiler")
	ErrFreed      = errors.New("memory is already freed")
)

// errUnmade is of zero values, and of a nil Device.
var errUnmade = errors.New("device: a Device, Stream, Event, Module or Range that Open, NewStream, NewEvent, Compile or " +
	"Reserve has not made")

// OutOfMemoryError says how much was asked for and how much there was, in bytes.
type OutOfMemoryError struct {
	Device string
	Asked  int64
	Free   int64
}

func (e *OutOfMemoryError) Error() string {
	return fmt.Sprintf("%s: out of memory: %s asked, %s free", e.Device, Bytes(e.Asked), Bytes(e.Free))
}

// FaultError says that a kernel broke: a bad address, a divergent warp operation, a trap. The device is lost from
// then on: what its memory holds is not to be trusted, and every later call returns the same error.
type FaultError struct {
	Device string
	Kernel string // the kernel, where the back end knows it
	What   string
}

func (e *FaultError) Error() string {
	k := ""
	if e.Kernel != "" {
		k = "kernel " + e.Kernel + ": "
	}
	again := "close it and open it again"
	if strings.HasPrefix(e.Device, "cuda") {
		again = "CUDA forgives no fault, so start the process again"
	}
	return fmt.Sprintf("%s: %s%s (the device is lost: %s)", e.Device, k, e.What, again)
}

// CallError says that the driver, or the system, refused a call that was to put work on a stream or to wait for it, such
// as a launch for which it had no memory of its own; or an allocation for another reason than short memory. Nothing of
// that call is done, and the device goes on.
type CallError struct {
	Err error // what the driver said
	// Broken says that the call was in the middle of a change to a table, of which nobody knows now what it holds, or
	// that a kernel was, which could not be compiled or loaded. From then on all operations of the table but Close
	// return this error: make a new table. Otherwise no table has changed by the call; but of several devices, some may
	// have done their part of a batch, each key wholly.
	Broken bool
}

func (e *CallError) Error() string { return e.Err.Error() }
func (e *CallError) Unwrap() error { return e.Err }

// CompileError holds what the compiler said of a kernel.
type CompileError struct {
	Program  string
	Compiler string
	Log      string
}

func (e *CompileError) Error() string {
	return fmt.Sprintf("compiling %s with %s:\n%s", e.Program, e.Compiler, strings.TrimRight(e.Log, "\n"))
}

// Info describes a device.
type Info struct {
	Name            string // what Open takes: "cuda:0", "cpu"
	Model           string // "NVIDIA H200"
	Arch            string // "sm_90", "amd64"
	Driver          string // version of the driver; empty on the CPU
	Compiler        string // what compiles kernels: "NVRTC 12.4", "/usr/bin/g++"; empty where none is found
	Multiprocessors int    // streaming multiprocessors, or hardware threads on the CPU
	Memory          int64  // bytes
	L2              int64  // bytes of last-level cache; 0 where unknown
	Shared          int64  // bytes of shared memory that a block can have
	HugePages       bool   // of the CPU: the system gives large memory pages of 2 MiB, so that random accesses seldom miss the TLB
	CAS128          bool   // has a 128-bit compare-and-swap, and a compiler that knows it
	Stress          bool   // lanes of the CPU device lose the thread at random: see WithStress
	UUID            string // of a GPU, the same in every process: what CUDA_VISIBLE_DEVICES takes, "GPU-…", or "MIG-…" of a MIG instance
	PCI             string // of a GPU, its place on the bus: "0000:1b:00.0"
	NUMA            int    // the node whose memory and cores are near a GPU; -1 where the system does not tell
}

// CUDA tells whether the device is a GPU.
func (i Info) CUDA() bool { return strings.HasPrefix(i.Name, "cuda:") }

// backend is all that differs between a GPU and the CPU. Addresses are device addresses; streams, events, modules
// and kernels are handles of the back end's own. Work put on a stream runs in order; the CPU runs it within the call.
type backend interface {
	info() Info
	memory() (free, total int64, err error)
	kernelHeap(bytes int64) error

	alloc(bytes int64) (uint64, error)
	free(addr uint64) error // waits for all work
	// Memory of allocPooled can be given back in the order of a stream: freeAfter does not wait where it is pooled. It makes room once
	// the streams have passed what is on them now, and the event, where there is one, passes then.
	allocPooled(bytes int64) (addr uint64, pooled bool, err error)
	freeAfter(addr uint64, pooled bool, streams []uintptr, passed uintptr) error
	// Memory of a Range: reserve errors with errors.ErrUnsupported where there is none. unback and unreserve are for what nothing uses.
	reserve(bytes int64) (addr uint64, granule int64, err error)
	back(addr uint64, bytes int64) (memory uintptr, err error)
	unback(addr uint64, p part) error
	unreserve(addr uint64, bytes int64) error
	// Memory of others and for others: wrap says why bytes at an address are none of the device's. share names the allocation of allocShared, or
	// another that can be shared, by which another process opens it; closeShared closes that, and free what allocShared made.
	wrap(addr uint64, bytes int64) error
	allocShared(bytes int64) (uint64, error)
	share(addr uint64) (base uint64, memory []byte, err error)
	openShared(memory []byte, bytes int64) (base uint64, err error)
	closeShared(base uint64) error
	syncAll() error
	allocHost(bytes int64, mapped bool) (host unsafe.Pointer, dev uint64, err error)
	freeHost(host unsafe.Pointer) error

	copyIn(stream uintptr, dst uint64, src unsafe.Pointer, bytes int64) error
	copyOut(stream uintptr, dst unsafe.Pointer, src uint64, bytes int64) error
	copyWithin(stream uintptr, dst, src uint64, bytes int64) error
	// peer lets kernels and copies here use the other's memory of alloc, and tells whether they can.
	peer(other backend) (bool, error)
	peerAtomics(other backend) (bool, error)
	// copyAcross copies between two devices of this kind; the stream is this one's.
	copyAcross(stream uintptr, dst uint64, to backend, src uint64, from backend, bytes int64) error
	fill(stream uintptr, dst uint64, value byte, bytes int64) error

	newStream() (uintptr, error)
	newUrgentStream() (uintptr, error)
	freeStream(stream uintptr) error
	syncStream(stream uintptr) error
	lend()                      // before others get a stream's handle
	adopt(stream uintptr) error // says why a stream of others cannot be used
	capturing(stream uintptr) (bool, error)

	newEvent() (uintptr, error)
	freeEvent(event uintptr) error
	record(event, stream uintptr) error
	wait(stream, event uintptr) error
	syncEvent(event uintptr) error
	passed(event uintptr) (bool, error)
	elapsed(from, to uintptr) (time.Duration, error)

	current(call func() error) error // with the device as CUDA's current one

	compiler() compiler
	load(program string, image []byte, file string) (module uintptr, err error)
	kernel(module uintptr, name string) (entry, error)
	launch(stream, kernel uintptr, grid Grid, params unsafe.Pointer, bytes int64) error

	close() error
}

// Device is an open GPU or the CPU. Its zero value is of no use: see Open.
type Device struct {
	infos  Info
	why    string
	cfg    config
	b      backend
	number uint64  // of all that this process opened: the order in which several are locked
	stream *Stream // used where the caller gives none

	mu     sync.RWMutex // held for reading during every call, for writing by Close
	closed bool

	lost     atomic.Pointer[error]
	launches atomic.Uint64

	liveMu  sync.Mutex
	live    map[*allocation]struct{}
	pinned  map[*allocation]struct{} // those of live that are host memory
	used    int64                    // bytes of device memory in live and in leaving
	leaving []leaving                // where the memory is bounded
	handles map[*handle]struct{}     // open streams and events
	lines   lines                    // of small allocations of host memory

	modMu    sync.Mutex
	modules  map[string]*Module
	prepared map[string][]*prepared // by the program's name

	carriedMu sync.Mutex
	carried   map[reflect.Type]interface{ Close() } // see Carried
	closing   bool
	closes    sync.Once
	lent      sync.WaitGroup // calls of Current, which Close waits for
}

type config struct {
	ctx       context.Context
	cacheDir  string
	noCache   bool
	cache     cache
	uncached  error // why there is no cache, though one was wanted
	stress    bool
	model     bool // and its memory model is checked
	seed      uint64
	toolchain string
	workers   int
	memory    int64
	kept      int64        // -1: as the device likes
	kernels   *kernelFiles // nil without WithKernels

	kernelsErr error
}

// Option changes how Open opens a device.
type Option func(*config)

// WithCache keeps compiled kernels in dir instead of the user's cache directory; with an empty dir, none are kept.
// Their code runs in this process. So dir and every folder on the way to it must belong to this user or root, and
// nobody else may write to a folder unless it is sticky, as /tmp is. Other folders, and files of others, are left
// aside: kernels are then compiled anew in every process, and String says why.
func WithCache(dir string) Option {
	return func(c *config) { c.cacheDir, c.noCache = dir, dir == "" }
}

// WithKernels takes compiled kernels from a file system, such as one that go:embed has put into the program, before it
// looks into the cache and before it compiles: for machines without a compiler. OpenAhead and `warpmap compile` make
// such files, by the same version of warpmap. They run in this process, so they must be yours. A kernel that is not
// among them is taken from the cache, or compiled. Files that cannot be listed, or among which there is no kernel at
// all, are an error of Open.
func WithKernels(files fs.FS) Option {
	return func(c *config) { c.kernels, c.kernelsErr = openKernels(files) }
}

// WithStress makes the CPU device switch lanes at random at every atomic operation and every global load or store, by
// seed, in one thread. The same seed gives the same schedule. It has no effect on a GPU.
func WithStress(seed uint64) Option {
	return func(c *config) { c.stress, c.seed, c.model = true, seed+quick.Seeds, quick.Model }
}

// WithMemoryModel has the CPU device run as WithStress does, and check kernels by the memory model of a GPU. A relaxed
// load may see any value that the model allows, also one that is no longer there, so that a missing fence, acquire or
// release is seen as what it does. Two accesses of one launch to one byte, of which one writes, which nothing orders and
// which are not both of kernel/warpmap.cuh's memory operations, end the launch with a FaultError that names the lines of
// both. So does load_readonly of what the launch has written. It is meant for small launches: an access costs about a
// microsecond, and all that a launch does is kept in memory. The C++ compiler must be g++, or clang 16 or newer. It has
// no effect on a GPU.
func WithMemoryModel(seed uint64) Option {
	return func(c *config) { c.stress, c.model, c.seed = true, true, seed }
}

// WithContext ends compiling for the CPU device when ctx is done: the C++ compiler is killed with all it has started,
// and Compile returns context.Cause(ctx). Everything else on the device goes on. On a GPU,
// NVRTC compiles those programs to their end that it has begun, and begins no others.
func WithContext(ctx context.Context) Option { return func(c *config) { c.ctx = ctx } }

// WithCompiler names the C++ compiler (CPU device), with arguments after it if it needs some, or the NVRTC library
// (GPU).
func WithCompiler(path string) Option { return func(c *config) { c.toolchain = path } }

// WithWorkers bounds the threads that the CPU device runs a kernel on; 0 means one for each hardware thread.
func WithWorkers(n int) Option { return func(c *config) { c.workers = n } }

// WithMemory bounds how many bytes of device memory this Device's allocations have at any one time, all together: to
// leave some to others, or to see what a program does where there is less. An allocation beyond the bound is an
// OutOfMemoryError.
func WithMemory(bytes int64) Option { return func(c *config) { c.memory = bytes } }

// WithKept bounds the free memory that a GPU's pool keeps, in bytes. The driver takes long to map new memory, so tables
// that grow and shrink, and batches that come one after the other, take what is there. Without this option, or below 0,
// the bound is 1/32 of the GPU's memory. What is kept counts as free in Memory, and goes back to the GPU when an
// allocation of the device needs it; other processes cannot have it.
func WithKept(bytes int64) Option { return func(c *config) { c.kept = bytes } }

// Open opens a device by name. "cuda:N" is the GPU with index N, "cuda" the first GPU, and "cpu" the CPU. "cpu:N" is
// the CPU as a device that shares nothing with those of other names, as one of several GPUs does. "auto" (or "") is the
// first GPU that works, else the CPU; String then says which and why.
//
// Without a compiler (NVRTC for a GPU; c++, g++ or clang++ for the CPU), a device opens only if the cache holds kernels
// for its kind of device, of whatever program. It then runs what is in the cache. The first kernel that is not there is
// ErrNoNVRTC or ErrNoCompiler where it is needed: in Compile, or in the New of a table. If the cache holds no kernel at
// all, Open returns that error itself. For the CPU it also does if WithCompiler or CXX names a compiler that is not
// there, whatever the cache holds. WithKernels gives kernels beside the cache: with them, Open needs no compiler.
//
// Each Device is closed by itself, has its own options, and frees what was made through it. Devices of one name are one
// piece of hardware: slices, streams and events of one can be given to another, so libraries that open "cuda:0" each
// can work together.
//
// Open needs no CUDA toolkit, and runs no compiler. Errors: ErrNoDriver, ErrNoGPU, ErrNoNVRTC and ErrNoCompiler, each
// wrapped in what to install; ErrNoDevices on every system but Linux on amd64 and arm64.
func Open(name string, opts ...Option) (*Device, error) {
	cfg := newConfig(opts)
	if cfg.kernelsErr != nil {
		return nil, cfg.kernelsErr
	}
	kind, number, err := parseName(name)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "auto":
		if errSystem != nil {
			return nil, errSystem
		}
		var gpu error // why the first cannot be used
		for i := 0; ; i++ {
			b, err := openCUDA(i, &cfg)
			if err == nil {
				return finish(b, cfg, "the first CUDA GPU that works")
			}
			if gpu == nil {
				gpu = err
			}
			if errors.Is(err, ErrNoGPU) || errors.Is(err, ErrNoDriver) {
				break
			}
		}
		c, err := openCPU("cpu", &cfg)
		if err != nil {
			return nil, fmt.Errorf("no device: no GPU (%v), and no CPU device either: %w", gpu, err)
		}
		return finish(c, cfg, fmt.Sprintf("the CPU, because no GPU can be used: %v", gpu))
	case "cpu":
		if name != kind { // it has one name, however the number was written
			name = fmt.Sprintf("cpu:%d", number)
		}
		b, err := openCPU(name, &cfg)
		if err != nil {
			return nil, err
		}
		return finish(b, cfg, "")
	}
	b, err := openCUDA(number, &cfg)
	if err != nil {
		return nil, err
	}
	return finish(b, cfg, "")
}

// parseName reads a device's name: its kind, auto, cpu or cuda, and its number, 0 if it has none.
func parseName(name string) (kind string, number int, err error) {
	kind, text, numbered := strings.Cut(name, ":")
	switch {
	case name == "" || name == "auto":
		return "auto", 0, nil
	case kind != "cpu" && kind != "cuda":
		return "", 0, fmt.Errorf("device %q: want auto, cpu, cpu:N, or cuda:N", name)
	case !numbered:
		return kind, 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil && kind == "cpu" {
		return "", 0, fmt.Errorf("device %q: want cpu, or cpu:N with N = 0, 1, …", name)
	} else if err != nil {
		return "", 0, fmt.Errorf("device %q: want cuda:N with N = 0, 1, …", name)
	}
	return kind, int(n), nil
}

func newConfig(opts []Option) config {
	quick.Asked()
	cfg := config{ctx: context.Background(), kept: -1}
	for _, o := range opts {
		o(&cfg)
	}
	if cfg.noCache {
		return cfg
	}
	var err error
	if cfg.cacheDir == "" {
		cfg.cacheDir, err = defaultCacheDir()
	}
	if err == nil {
		cfg.cache, err = openCache(cfg.cacheDir)
	}
	if err != nil {
		cfg.uncached = fmt.Errorf("no cache of compiled kernels, each process compiles its own: %w", err)
	}
	return cfg
}

var openings atomic.Uint64

func finish(b backend, cfg config, why string) (*Device, error) {
	d := &Device{infos: b.info(), number: openings.Add(1), why: why, cfg: cfg, b: b, live: map[*allocation]struct{}{}, pinned: map[*allocation]struct{}{},
		handles: map[*handle]struct{}{}, modules: map[string]*Module{}, prepared: map[string][]*prepared{}, carried: map[reflect.Type]interface{ Close() }{}}
	s, err := d.NewStream()
	if err != nil {
		b.close()
		return nil, err
	}
	d.stream = s
	return d, nil
}

// List describes every device that Open could open, GPUs first. problems tells the reason for each device that it could
// not open, and why there is no cache of compiled kernels where there is none.
func List() (found []Info, problems []error) {
	if errSystem != nil {
		return nil, []error{errSystem}
	}
	cfg := newConfig(nil)
	if cfg.uncached != nil {
		problems = append(problems, cfg.uncached)
	}
	for i := 0; ; i++ {
		b, err := openCUDA(i, &cfg)
		if err != nil {
			if i == 0 || !errors.Is(err, ErrNoGPU) {
				problems = append(problems, err)
			}
			if errors.Is(err, ErrNoGPU) || errors.Is(err, ErrNoDriver) {
				break
			}
			continue
		}
		found = append(found, b.info())
		b.close()
	}
	b, err := openCPU("cpu", &cfg)
	if err != nil {
		return found, append(problems, err)
	}
	found = append(found, b.info())
	b.close()
	return found, problems
}

// same tells whether both are one piece of hardware: a GPU's primary context or this process. The driver numbers GPUs once.
func (d *Device) same(o *Device) bool {
	return d == o || d.made() && o.made() && d.infos.Name == o.infos.Name
}

// made tells whether Open has made the device.
func (d *Device) made() bool { return d != nil && d.b != nil }

// Info describes the device.
func (d *Device) Info() Info { return d.infos }

// String names the device. It also says why "auto" chose the device, if it did, and why kernels are not kept, if they
// are not.
func (d *Device) String() string {
	s := fmt.Sprintf("%s (%s)", d.infos.Name, d.infos.Model)
	if d.why != "" {
		s += ": " + d.why
	}
	if d.cfg.uncached != nil {
		s += "; " + d.cfg.uncached.Error()
	}
	return s
}

// Memory tells how many bytes of the device's memory are free, and how many there are. What FreeAfter has queued is not
// free before its streams have passed it.
func (d *Device) Memory() (free, total int64, err error) {
	err = d.do(func() error {
		if free, total, err = d.b.memory(); err != nil || d.cfg.memory <= 0 {
			return err
		}
		d.liveMu.Lock()
		defer d.liveMu.Unlock()
		err = d.settle(0)
		free, total = max(0, min(free, d.cfg.memory-d.used)), min(total, d.cfg.memory)
		return err
	})
	return free, total, err
}

// Carried is the value of type T that the device carries for the package that T belongs to. It is made when first asked
// for. The device's Close closes it first, while all that it holds is still there; from then on values are closed at
// once.
func Carried[T interface{ Close() }](d *Device, make func(*Device) T) T {
	if !d.made() {
		panic(errUnmade.Error())
	}
	d.carriedMu.Lock()
	defer d.carriedMu.Unlock()
	key := reflect.TypeFor[T]()
	x, ok := d.carried[key].(T)
	if !ok {
		x = make(d)
		d.carried[key] = x
		if d.closing {
			x.Close()
		}
	}
	return x
}

// KernelHeap sets how many bytes malloc gives to kernels, in all. On a GPU, this holds for as long as the device is
// open, and is possible only before a kernel that calls malloc or free is compiled. On the CPU device, malloc is the
// process's own, without a limit.
func (d *Device) KernelHeap(bytes int64) error {
	if bytes < 0 {
		return fmt.Errorf("a kernel heap of %d bytes", bytes)
	}
	return d.do(func() error { return d.b.kernelHeap(bytes) })
}

// Close frees every allocation, stream, event and kernel that was made through this Device. It waits for calls under
// way, and for tables' batches, which end at their next chunk.
func (d *Device) Close() (err error) {
	if !d.made() {
		return nil
	}
	d.closes.Do(func() { err = d.close() })
	return err
}

func (d *Device) close() (err error) {
	if d.ahead() {
		err = d.Ready()
	}
	d.carriedMu.Lock()
	d.closing = true
	carried := slices.Collect(maps.Values(d.carried))
	d.carriedMu.Unlock()
	for _, x := range carried {
		x.Close()
	}
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.lent.Wait() // without the lock, for which calls within Current wait, too
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.openHandles() {
		h.shut()
	}
	d.liveMu.Lock()
	for a := range d.live {
		a.freed.Store(true)
		switch {
		case a.line: // goes with the others, below
		case a.host != nil:
			d.b.freeHost(a.host)
		case a.release != nil:
			d.b.syncAll()
			a.release()
		default:
			d.b.free(a.addr)
		}
	}
	d.lines.close(d.b)
	for _, l := range d.leaving {
		d.b.freeEvent(l.passed)
	}
	clear(d.live)
	clear(d.pinned)
	d.leaving = nil
	d.liveMu.Unlock()
	return errors.Join(err, d.b.close())
}

// do runs one call of the back end: not after Close, not on a lost device, and a fault marks the device lost.
func (d *Device) do(call func() error) error {
	return d.alive(func() error { return d.noted(call()) })
}

// noted marks the device lost where an error is of a fault of its own.
func (d *Device) noted(err error) error {
	if f := (*FaultError)(nil); errors.As(err, &f) && f.Device == d.infos.Name { // not that of another device
		lost := err
		d.lost.CompareAndSwap(nil, &lost)
	}
	return err
}

// alive runs a call that Close waits for: not after it, and not on a lost device.
func (d *Device) alive(call func() error) error {
	if !d.made() {
		return errUnmade
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed {
		return fmt.Errorf("%s: %w", d.infos.Name, ErrClosed)
	}
	if lost := d.lost.Load(); lost != nil {
		return *lost
	}
	return call()
}

// Bytes writes a number of bytes for people: 1536 is "1.5 KiB".
func Bytes(n int64) string {
	if n < 1024 && n > -1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n), -1
	for (f >= 1024 || f <= -1024) && i < 4 {
		f /= 1024
		i++
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[i])
}

func defaultCacheDir() (string, error) {
	if dir := os.Getenv("WARPMAP_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w: name a folder in WARPMAP_CACHE", err)
	}
	return filepath.Join(dir, "warpmap"), nil
}

// On a GPU, the driver is libcuda.so.1 of the loader's path, or the library that the environment's WARPMAP_LIBCUDA
// names. NVRTC, which is needed only to compile, is the library that WithCompiler or WARPMAP_NVRTC names, else the
// first found in the loader's path, in a CUDA toolkit, or in Python's nvidia wheels.
package device

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/warpmap/warpmap/device/internal/cu"
	"github.com/warpmap/warpmap/device/internal/nvrtc"
)

// libcudaEnv names the driver library to use in place of cu.Library.
const libcudaEnv = "WARPMAP_LIBCUDA"

const (
	installDriver = "install NVIDIA's driver, which brings " + cu.Library + " (a container must be started with its GPUs), or name the library in " + libcudaEnv
	installNVRTC  = "install it (Debian and Ubuntu: apt install libnvrtc12, of non-free or multiverse; Python: pip install nvidia-cuda-nvrtc; or the CUDA toolkit), or name libnvrtc in " + nvrtc.Env
)

// oldest is the compute capability below which the lanes of a warp cannot diverge and meet again as kernels need.
const oldest = 70

// gpu is the CUDA back end: the primary context of one GPU. A context belongs to a thread, so every call locks its
// thread and makes the context current, which is far cheaper than handing calls to a thread of our own.
type gpu struct {
	drv       *cu.Driver
	dev       int32
	ctx       uintptr
	about     Info
	toolchain string

	mu   sync.Mutex
	comp compiler
	live map[resource]struct{} // what close has to free: others may hold the primary context too
	most map[uintptr]int       // dynamic shared memory that each kernel may be launched with, where that was set
}

type resource struct {
	kind   byte // of stream, event, module
	handle uintptr
}

// openCUDA opens the GPU with that index. Errors: ErrNoDriver; ErrNoGPU; a GPU that is too old.
func openCUDA(index int, cfg *config) (backend, error) {
	name := "cuda:" + strconv.Itoa(index)
	drv, err := cu.Open(os.Getenv(libcudaEnv))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %v: %s", name, ErrNoDriver, err, installDriver)
	}
	count := 0
	if err = drv.Init(); err == nil {
		count, err = drv.DeviceGetCount()
	}
	if e := (*cu.Error)(nil); errors.As(err, &e) && e.Code == cu.ErrorStubLibrary {
		return nil, fmt.Errorf("%s: %w: %s is the toolkit's stub: %s", name, ErrNoDriver, drv.Path(), installDriver)
	} else if err != nil && (e == nil || e.Code != cu.ErrorNoDevice) {
		return nil, fmt.Errorf("%s: %w that works: %v: %s", name, ErrNoDriver, err, installDriver)
	}
	switch {
	case count == 0:
		return nil, fmt.Errorf("%s: %w: the driver finds no GPU (CUDA_VISIBLE_DEVICES can hide them)", name, ErrNoGPU)
	case index >= count:
		return nil, fmt.Errorf("%s: %w: there are %d, from cuda:0 to cuda:%d", name, ErrNoGPU, count, count-1)
	}

	g := &gpu{drv: drv, live: map[resource]struct{}{}, most: map[uintptr]int{}, toolchain: cfg.toolchain}
	capability, err := g.describe(name, index)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if capability < oldest {
		return nil, fmt.Errorf("%s: %s has compute capability %d.%d: kernels need %d.%d or newer, where the lanes of a warp are scheduled independently",
			name, g.about.Model, capability/10, capability%10, oldest/10, oldest%10)
	}
	if g.ctx, err = drv.DevicePrimaryCtxRetain(g.dev); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if _, err := g.compiler(); err == nil {
		g.about.Compiler = g.comp.(*rtc).lib.String()
	}
	return g, nil
}

// describe fills in g.dev and g.about, and returns the compute capability: 90 is 9.0.
func (g *gpu) describe(name string, index int) (capability int, err error) {
	if g.dev, err = g.drv.DeviceGet(index); err != nil {
		return 0, err
	}
	model, err := g.drv.DeviceGetName(g.dev)
	if err != nil {
		return 0, err
	}
	memory, err := g.drv.DeviceTotalMem(g.dev)
	if err != nil {
		return 0, err
	}
	version, err := g.drv.DriverGetVersion()
	if err != nil {
		return 0, err
	}
	var major, minor, sms, l2, shared int
	for a, v := range map[int]*int{cu.AttributeMajor: &major, cu.AttributeMinor: &minor, cu.AttributeMultiprocessors: &sms, cu.AttributeL2Bytes: &l2,
		cu.AttributeSharedBytes: &shared} {
		if *v, err = g.drv.DeviceGetAttribute(a, g.dev); err != nil {
			return 0, err
		}
	}
	g.about = Info{
		Name:            name,
		Model:           model,
		Arch:            fmt.Sprintf("sm_%d%d", major, minor),
		Driver:          fmt.Sprintf("CUDA %d.%d", version/1000, version%1000/10),
		Multiprocessors: sms,
		Memory:          int64(memory),
		L2:              int64(l2),
		Shared:          int64(shared),
		CAS128:          major >= 9,
	}
	if v, err := os.ReadFile("/sys/module/nvidia/version"); err == nil {
		g.about.Driver += ", driver " + strings.TrimSpace(string(v))
	}
	return major*10 + minor, nil
}

func (g *gpu) info() Info { return g.about }

// in runs driver calls in the context, and turns what breaks the context into a *FaultError.
func (g *gpu) in(calls func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := g.drv.CtxSetCurrent(g.ctx)
	if err == nil {
		err = calls()
	}
	return g.explain(err)
}

func (g *gpu) explain(err error) error {
	var e *cu.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e) && e.Code.Sticky():
		return &FaultError{Device: g.about.Name, What: fmt.Sprintf("%s (%s)", e.Text, e.Name)}
	case e != nil:
		return fmt.Errorf("%s: %w", g.about.Name, err)
	}
	return err
}

func outOfMemory(err error) bool {
	var e *cu.Error
	return errors.As(err, &e) && e.Code == cu.ErrorOutOfMemory
}

func (g *gpu) memory() (free, total int64, err error) {
	err = g.in(func() error {
		f, t, err := g.drv.MemGetInfo()
		free, total = int64(f), int64(t)
		return err
	})
	return free, total, err
}

func (g *gpu) kernelHeap(bytes int64) error {
	return g.in(func() error { return g.drv.CtxSetLimit(cu.LimitMallocHeap, uint64(bytes)) })
}

func (g *gpu) alloc(bytes int64) (addr uint64, err error) {
	err = g.in(func() (err error) {
		addr, err = g.drv.MemAlloc(uint64(bytes))
		if outOfMemory(err) {
			free, _, _ := g.drv.MemGetInfo()
			return &OutOfMemoryError{g.about.Name, bytes, int64(free)}
		}
		return err
	})
	return addr, err
}

// free waits for all work first, as memory.go promises; the driver mostly does so itself, but does not promise to.
func (g *gpu) free(addr uint64) error {
	return g.in(func() error {
		return firstErr(g.drv.CtxSynchronize(), g.drv.MemFree(addr))
	})
}

func (g *gpu) allocHost(bytes int64, mapped bool) (host unsafe.Pointer, dev uint64, err error) {
	flags := uint32(cu.HostPortable)
	if mapped {
		flags |= cu.HostDeviceMap
	}
	err = g.in(func() (err error) {
		host, err = g.drv.MemHostAlloc(uint64(bytes), flags)
		if outOfMemory(err) {
			return &OutOfMemoryError{"host memory pinned for " + g.about.Name, bytes, hostFree()}
		}
		if err != nil || !mapped {
			return err
		}
		if dev, err = g.drv.MemHostGetDevicePointer(host); err != nil {
			g.drv.MemFreeHost(host)
		}
		return err
	})
	return host, dev, err
}

func (g *gpu) freeHost(host unsafe.Pointer) error {
	return g.in(func() error {
		return firstErr(g.drv.CtxSynchronize(), g.drv.MemFreeHost(host))
	})
}

// firstErr is the first error of two calls that are both made.
func firstErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// hostFree is the host memory that can be allocated, in bytes; 0 where the system does not say.
func hostFree() int64 {
	info, _ := os.ReadFile("/proc/meminfo")
	_, after, _ := strings.Cut(string(info), "MemAvailable:")
	var kib int64
	fmt.Sscan(after, &kib)
	return kib << 10
}

func (g *gpu) copyIn(stream uintptr, dst uint64, src unsafe.Pointer, bytes int64) error {
	return g.in(func() error { return g.drv.MemcpyHtoDAsync(dst, src, uint64(bytes), stream) })
}

func (g *gpu) copyOut(stream uintptr, dst unsafe.Pointer, src uint64, bytes int64) error {
	return g.in(func() error { return g.drv.MemcpyDtoHAsync(dst, src, uint64(bytes), stream) })
}

func (g *gpu) copyWithin(stream uintptr, dst, src uint64, bytes int64) error {
	return g.in(func() error { return g.drv.MemcpyDtoDAsync(dst, src, uint64(bytes), stream) })
}

func (g *gpu) fill(stream uintptr, dst uint64, value byte, bytes int64) error {
	return g.in(func() error { return g.drv.MemsetD8Async(dst, value, uint64(bytes), stream) })
}

// make and drop keep g.live in step with what there is.
func (g *gpu) make(kind byte, create func() (uintptr, error)) (h uintptr, err error) {
	err = g.in(func() (err error) { h, err = create(); return err })
	if err == nil {
		g.mu.Lock()
		g.live[resource{kind, h}] = struct{}{}
		g.mu.Unlock()
	}
	return h, err
}

func (g *gpu) drop(kind byte, h uintptr) error {
	r := resource{kind, h}
	g.mu.Lock()
	_, ok := g.live[r]
	delete(g.live, r)
	g.mu.Unlock()
	if !ok {
		return fmt.Errorf("%s: a stream or event that is closed already: %w", g.about.Name, ErrClosed)
	}
	return g.in(func() error { return g.destroy(r) })
}

func (g *gpu) destroy(r resource) error {
	switch r.kind {
	case 's':
		return firstErr(g.drv.StreamSynchronize(r.handle), g.drv.StreamDestroy(r.handle))
	case 'e':
		return g.drv.EventDestroy(r.handle)
	}
	return g.drv.ModuleUnload(r.handle)
}

func (g *gpu) newStream() (uintptr, error) {
	return g.make('s', func() (uintptr, error) { return g.drv.StreamCreate(cu.StreamNonBlocking) })
}

func (g *gpu) freeStream(stream uintptr) error { return g.drop('s', stream) }

func (g *gpu) syncStream(stream uintptr) error {
	return g.in(func() error { return g.drv.StreamSynchronize(stream) })
}

func (g *gpu) newEvent() (uintptr, error) {
	return g.make('e', func() (uintptr, error) { return g.drv.EventCreate(cu.EventDefault) })
}

func (g *gpu) freeEvent(event uintptr) error { return g.drop('e', event) }

func (g *gpu) record(event, stream uintptr) error {
	return g.in(func() error { return g.drv.EventRecord(event, stream) })
}

func (g *gpu) wait(stream, event uintptr) error {
	return g.in(func() error { return g.drv.StreamWaitEvent(stream, event) })
}

func (g *gpu) syncEvent(event uintptr) error {
	return g.in(func() error { return g.drv.EventSynchronize(event) })
}

func (g *gpu) elapsed(from, to uintptr) (t time.Duration, err error) {
	err = g.in(func() error {
		ms, err := g.drv.EventElapsedTime(from, to)
		t = time.Duration(float64(ms) * float64(time.Millisecond))
		return err
	})
	return t, err
}

// compiler looks for NVRTC until it has found one.
func (g *gpu) compiler() (compiler, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.comp == nil {
		c, err := openNVRTC(g.toolchain, g.about.Arch)
		if err != nil {
			return nil, err
		}
		g.comp = c
	}
	return g.comp, nil
}

func (g *gpu) load(program string, image []byte, file string) (uintptr, error) {
	m, err := g.make('m', func() (uintptr, error) { return g.drv.ModuleLoadData(image) })
	if err != nil {
		return 0, fmt.Errorf("loading %s: %w", program, err)
	}
	return m, nil
}

func (g *gpu) kernel(module uintptr, name string) (k uintptr, err error) {
	err = g.in(func() (err error) { k, err = g.drv.ModuleGetFunction(module, name); return err })
	if err != nil {
		return 0, fmt.Errorf("kernel %s: %w", name, err)
	}
	return k, nil
}

// launch needs no size: the driver knows each kernel's own, which the layout header holds equal to Go's.
func (g *gpu) launch(stream, kernel uintptr, grid Grid, params unsafe.Pointer, bytes int64) error {
	return g.in(func() error {
		if err := g.allow(kernel, grid.Shared); err != nil {
			return err
		}
		return g.drv.LaunchKernel(kernel, uint32(grid.Blocks), uint32(grid.Threads), uint32(grid.Shared), stream, params)
	})
}

// allow lets a kernel be launched with so many bytes of dynamic shared memory, and more is never taken back: a launch of
// another goroutine may be about to use it. Such a kernel would rather have shared memory for many blocks than an L1 cache.
func (g *gpu) allow(kernel uintptr, bytes int) error {
	if bytes == 0 {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if bytes <= g.most[kernel] {
		return nil
	}
	err := firstErr(g.drv.FuncSetAttribute(kernel, cu.FuncDynamicSharedBytes, int32(bytes)),
		g.drv.FuncSetAttribute(kernel, cu.FuncSharedCarveout, 100))
	if err == nil {
		g.most[kernel] = bytes
	}
	return err
}

// close gives the context back. What a fault has left cannot be freed; it goes with the context.
func (g *gpu) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.in(func() error {
		err := g.drv.CtxSynchronize()
		for r := range g.live {
			err = firstErr(err, g.destroy(r))
		}
		clear(g.live)
		err = firstErr(err, g.drv.CtxSetCurrent(0))
		return firstErr(err, g.drv.DevicePrimaryCtxRelease(g.dev))
	})
	if errors.As(err, new(*FaultError)) {
		return nil // whoever waited for the work has heard of it
	}
	return err
}

// rtc compiles with NVRTC for one architecture.
type rtc struct {
	lib  *nvrtc.Library
	arch string
}

var rtcOptions = []string{"--std=c++17"}

// openNVRTC finds the NVRTC at path, or one that compiles for the architecture (see nvrtc.Find). Errors: ErrNoNVRTC,
// with where it looked.
func openNVRTC(path, arch string) (compiler, error) {
	lib, target, err := nvrtc.Find(path, arch)
	if err != nil {
		return nil, fmt.Errorf("%w for %s: %v: %s", ErrNoNVRTC, arch, err, installNVRTC)
	}
	return &rtc{lib, target}, nil
}

func (c *rtc) ident() string {
	return fmt.Sprintf("%v %s %s", c.lib, c.arch, strings.Join(rtcOptions, " "))
}

func (c *rtc) extension() string { return "cubin" }

func (c *rtc) compile(src *source) ([]byte, error) {
	headers := make([]nvrtc.Header, len(src.files)-1)
	for i, f := range src.files[1:] {
		headers[i] = nvrtc.Header(f)
	}
	image, err := c.lib.Compile(src.files[0].Name, src.files[0].Text, headers, c.arch, rtcOptions...)
	if e := (*nvrtc.Error)(nil); errors.As(err, &e) {
		log := e.Log
		if !e.Source() || log == "" {
			log = e.Error()
		}
		return nil, &CompileError{src.program, fmt.Sprintf("%v for %s", c.lib, c.arch), log}
	}
	return image, err
}

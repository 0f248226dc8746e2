package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/warpmap/warpmap/device/internal/cu"
	"github.com/warpmap/warpmap/device/internal/nvrtc"
	"github.com/warpmap/warpmap/internal/quick"
)

// libcudaEnv names the driver library to use in place of cu.Library.
const libcudaEnv = "WARPMAP_LIBCUDA"

const (
	installDriver = "install NVIDIA's driver, which brings " + cu.Library + " (a container must be started with its GPUs), or name the library in " + libcudaEnv
	installNVRTC  = "install NVRTC 11.8 or newer (Debian 12: apt install libnvrtc11.2, later ones and Ubuntu 24.04: libnvrtc12, of non-free or multiverse; Python: pip install nvidia-cuda-nvrtc; or the CUDA toolkit), or name libnvrtc in " + nvrtc.Env
)

// oldest is the compute capability below which the lanes of a warp cannot diverge and meet again as kernels need.
const oldest = 70

// gpu is the CUDA back end: the primary context of one GPU. A context belongs to a thread, so every call locks its
// thread and makes the context current, which is far cheaper than handing calls to a thread of our own.
type gpu struct {
	drv   *cu.Driver
	dev   int32
	ctx   uintptr
	about Info
	comp  *rtc

	mu      sync.Mutex
	modules []uintptr       // which close has to free: others may hold the primary context too
	most    map[uintptr]int // dynamic shared memory that each kernel may be launched with, where that was set
	pool    pool

	lent atomic.Bool // see lend
}

// pool is memory that the driver gives and takes in the order of streams. What is free in it goes back to the GPU at the next wait.
type pool struct {
	sync.Mutex
	tried         bool
	h             uintptr // 0: the driver has no pools
	kept          int64   // see WithKept
	allocs, frees uintptr // streams: nothing runs on the first but allocations, and on the second but waits and frees
}

// keptShare: a pool keeps one part in so many of a GPU's memory, unless WithKept says.
const keptShare = 32

// openCUDA opens the GPU with that index. Errors: ErrNoDevices; ErrNoDriver; ErrNoGPU; a GPU that is too old;
// ErrNoNVRTC.
func openCUDA(index int, cfg *config) (backend, error) {
	name := "cuda:" + strconv.Itoa(index)
	if errSystem != nil {
		return nil, fmt.Errorf("%s: %w", name, errSystem)
	}
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

	g := &gpu{drv: drv, most: map[uintptr]int{}}
	g.pool.kept = cfg.kept
	capability, driver, err := g.describe(name, index)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if capability < oldest {
		return nil, fmt.Errorf("%s: %s has compute capability %d.%d: kernels need %d.%d or newer, where the lanes of a warp are scheduled independently",
			name, g.about.Model, capability/10, capability%10, oldest/10, oldest%10)
	}
	if g.comp, err = openNVRTC(cfg.ctx, cfg.toolchain, g.about.Arch, driver); err != nil {
		if cfg.kernels == nil && !cfg.cache.holds(g.comp.extension()) {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		g.comp = &rtc{arch: g.about.Arch, missing: err} // what is compiled already will do
	}
	g.comp.shared = g.about.Shared
	g.about.Compiler = g.comp.ident()
	g.about.CAS128 = g.comp.swap128(g.about.Arch)
	if g.ctx, err = drv.DevicePrimaryCtxRetain(g.dev); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return g, nil
}

// describe fills in g.dev and g.about. It returns the compute capability, 90 for 9.0, and the major version of the
// driver's CUDA.
func (g *gpu) describe(name string, index int) (capability, driver int, err error) {
	if g.dev, err = g.drv.DeviceGet(index); err != nil {
		return 0, 0, err
	}
	model, err := g.drv.DeviceGetName(g.dev)
	if err != nil {
		return 0, 0, err
	}
	memory, err := g.drv.DeviceTotalMem(g.dev)
	if err != nil {
		return 0, 0, err
	}
	version, err := g.drv.DriverGetVersion()
	if err != nil {
		return 0, 0, err
	}
	id, err := g.drv.DeviceGetUUID(g.dev)
	if err != nil {
		return 0, 0, err
	}
	whole, err := g.drv.DeviceGetWholeUUID(g.dev)
	if err != nil {
		return 0, 0, err
	}
	kind := "GPU"
	if whole != id {
		kind = "MIG"
	}
	place, err := g.drv.DeviceGetPCIBusID(g.dev)
	if err != nil {
		return 0, 0, err
	}
	var major, minor, sms, l2, shared int
	for a, v := range map[int]*int{cu.AttributeMajor: &major, cu.AttributeMinor: &minor, cu.AttributeMultiprocessors: &sms, cu.AttributeL2Bytes: &l2,
		cu.AttributeSharedBytes: &shared} {
		if *v, err = g.drv.DeviceGetAttribute(a, g.dev); err != nil {
			return 0, 0, err
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
		UUID:            fmt.Sprintf("%s-%x-%x-%x-%x-%x", kind, id[:4], id[4:6], id[6:8], id[8:10], id[10:]),
		PCI:             strings.ToLower(place),
		NUMA:            numaOf(strings.ToLower(place)),
	}
	if v, err := os.ReadFile("/sys/module/nvidia/version"); err == nil {
		g.about.Driver += ", driver " + strings.TrimSpace(string(v))
	}
	return major*10 + minor, version / 1000, nil
}

// numaOf is the NUMA node of a PCI device; -1 where the system does not tell.
func numaOf(pci string) int {
	text, err := os.ReadFile("/sys/bus/pci/devices/" + pci + "/numa_node")
	if err != nil {
		return -1
	}
	node, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return -1
	}
	return node
}

func (g *gpu) info() Info { return g.about }

// in runs driver calls in the context, and turns what breaks the context into a *FaultError.
func (g *gpu) in(calls func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := g.drv.CtxSetCurrent(g.ctx)
	switch {
	case err != nil:
	case g.lent.Load():
		err = g.relaxed(calls)
	default:
		err = calls()
	}
	if e := (*cu.Error)(nil); errors.As(err, &e) && e.Code.Unclear() {
		if _, _, again := g.drv.MemGetInfo(); again != nil { // a call that asks the GPU and needs nothing
			return g.fault(e)
		}
	}
	return g.explain(err)
}

func (g *gpu) fault(e *cu.Error) error {
	return &FaultError{Device: g.about.Name, What: fmt.Sprintf("%s (%s)", e.Text, e.Name)}
}

func (g *gpu) explain(err error) error {
	var e *cu.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e) && e.Code.Sticky():
		return g.fault(e)
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
		kept, err := g.kept()
		if err != nil {
			return err
		}
		f, t, err := g.drv.MemGetInfo()
		free, total = int64(f)+kept, int64(t)
		return err
	})
	return free, total, err
}

// kept tells how many bytes are free in the pool, and leaves them there. Where the driver cannot tell, they go back to
// the GPU.
func (g *gpu) kept() (int64, error) {
	h := g.pool.handle()
	if h == 0 {
		return 0, nil
	}
	if n, err := g.drv.MemPoolUnused(h); err == nil {
		return int64(n), nil
	}
	return 0, g.trim()
}

func (g *gpu) kernelHeap(bytes int64) error {
	return g.in(func() error { return g.drv.CtxSetLimit(cu.LimitMallocHeap, uint64(bytes)) })
}

func (g *gpu) alloc(bytes int64) (addr uint64, err error) {
	err = g.in(func() error {
		return g.orTrim(bytes, func() (e error) { addr, e = g.drv.MemAlloc(words(bytes)); return e })
	})
	return addr, err
}

// words returns the bytes of whole words of 8 bytes. Kernels read bytes of texts by words. The driver's memory has no end
// within a word, but compute-sanitizer's has.
func words(bytes int64) uint64 { return (uint64(bytes) + 7) &^ 7 }

// trimming runs a call of the driver, and once more if memory is short and the pool may have some.
func (g *gpu) trimming(call func() error) error {
	err := call()
	if err != nil && outOfMemory(err) && g.pool.handle() != 0 {
		if err = firstErr(g.drv.CtxSynchronize(), g.trim()); err == nil {
			err = call()
		}
	}
	return err
}

// orTrim runs an allocation by trimming. Its error is an *OutOfMemoryError if there is too little memory.
func (g *gpu) orTrim(bytes int64, alloc func() error) error {
	err := g.trimming(alloc)
	if outOfMemory(err) {
		free, _, _ := g.drv.MemGetInfo()
		return &OutOfMemoryError{g.about.Name, bytes, int64(free)}
	}
	return err
}

// free waits for all work first, as memory.go promises; the driver mostly does so itself, but does not promise to.
func (g *gpu) free(addr uint64) error {
	return g.in(func() error {
		return firstErr(g.drv.CtxSynchronize(), g.drv.MemFree(addr))
	})
}

func (p *pool) handle() uintptr {
	p.Lock()
	defer p.Unlock()
	return p.h
}

// trim gives back to the GPU what is free in the pool.
func (g *gpu) trim() error {
	if h := g.pool.handle(); h != 0 {
		return g.drv.MemPoolTrimTo(h, 0)
	}
	return nil
}

// openPool makes the pool when it is first asked for. Its handle is 0 if the driver has none, or refuses to make it.
// Allocations must not wait for the work of others, so memory whose free has not passed is not given out.
func (g *gpu) openPool() (h uintptr, err error) {
	p := &g.pool
	p.Lock()
	defer p.Unlock()
	if p.tried {
		return p.h, nil
	}
	if has, err := g.drv.DeviceGetAttribute(cu.AttributeMemoryPools, g.dev); err != nil || has == 0 || !g.drv.HasPools() {
		p.tried = true // older drivers do not know the attribute
		return 0, nil
	}
	var made [2]uintptr
	for i := range made {
		if made[i], err = g.drv.StreamCreate(cu.StreamNonBlocking); err != nil {
			break
		}
	}
	if err == nil {
		if h, err = g.drv.MemPoolCreate(g.dev); err == nil {
			kept := p.kept
			if kept < 0 {
				kept = g.about.Memory / keptShare
			}
			err = firstErr(g.drv.MemPoolSetAttribute(h, cu.PoolInternalDependencies, 0), g.drv.MemPoolKeep(h, uint64(kept)))
		}
	}
	if err != nil {
		if h != 0 {
			g.drv.MemPoolDestroy(h)
		}
		for _, st := range made {
			if st != 0 {
				g.drv.StreamDestroy(st)
			}
		}
		e := (*cu.Error)(nil)
		if !errors.As(err, &e) || e.Code.Sticky() || e.Code.Unclear() {
			return 0, err
		}
		p.tried = e.Code != cu.ErrorOutOfMemory // there may be memory later
		return 0, nil
	}
	p.tried, p.h, p.allocs, p.frees = true, h, made[0], made[1]
	return h, nil
}

// allocPooled waits for its allocation, so that every stream can use the memory.
func (g *gpu) allocPooled(bytes int64) (addr uint64, pooled bool, err error) {
	err = g.in(func() error {
		h, err := g.openPool()
		if err != nil {
			return err
		}
		pooled = h != 0
		return g.orTrim(bytes, func() (e error) {
			if !pooled {
				addr, e = g.drv.MemAlloc(words(bytes))
				return e
			}
			if addr, e = g.drv.MemAllocFromPoolAsync(words(bytes), h, g.pool.allocs); e != nil {
				return e
			}
			if e = g.drv.StreamSynchronize(g.pool.allocs); e != nil {
				g.drv.MemFreeAsync(addr, g.pool.allocs) // nobody has it
			}
			return e
		})
	})
	return addr, pooled, err
}

// freeAfter waits only where the memory is not of the pool, or a call is refused that would free it without a wait.
func (g *gpu) freeAfter(addr uint64, pooled bool, streams []uintptr, passed uintptr) error {
	return g.in(func() error {
		if pooled {
			on, err := g.behind(streams)
			if err == nil {
				err = g.drv.MemFreeAsync(addr, on)
			}
			if err == nil {
				if passed != 0 && g.drv.EventRecord(passed, on) != nil { // an event without a record has passed: so has the stream then
					g.drv.StreamSynchronize(on)
				}
				return nil
			}
		}
		for _, st := range streams {
			if err := g.drv.StreamSynchronize(st); err != nil {
				return err
			}
		}
		return g.drv.MemFree(addr)
	})
}

// behind is a stream whose later work comes behind what is on all of these now: the only one, or else a stream of its own, so that
// none of them waits for another.
func (g *gpu) behind(streams []uintptr) (uintptr, error) {
	if len(streams) == 1 {
		return streams[0], nil
	}
	for _, st := range streams {
		if err := g.follow(g.pool.frees, st); err != nil {
			return 0, err
		}
	}
	return g.pool.frees, nil
}

// reserve wants the GPU to have virtual memory management, and the driver to know it: from CUDA 10.2 on.
func (g *gpu) reserve(bytes int64) (addr uint64, granule int64, err error) {
	has, err := g.drv.DeviceGetAttribute(cu.AttributeVirtualMemory, g.dev)
	if err != nil || has == 0 || !g.drv.HasRanges() {
		return 0, 0, fmt.Errorf("%s: memory that grows in place: %w", g.about.Name, errors.ErrUnsupported)
	}
	err = g.in(func() error {
		n, err := g.drv.MemGetAllocationGranularity(g.dev)
		if err != nil {
			return err
		}
		granule = int64(n)
		addr, err = g.drv.MemAddressReserve(g.reservation(bytes, granule))
		if outOfMemory(err) {
			return &OutOfMemoryError{"addresses of " + g.about.Name, bytes, 0}
		}
		return err
	})
	return addr, granule, err
}

// reservation is a whole number of granules.
func (g *gpu) reservation(bytes, granule int64) uint64 {
	return uint64((bytes + granule - 1) / granule * granule)
}

func (g *gpu) back(addr uint64, bytes int64) (memory uintptr, err error) {
	err = g.in(func() error {
		return g.orTrim(bytes, func() (err error) {
			if memory, err = g.drv.MemCreate(g.dev, uint64(bytes)); err != nil {
				return err
			}
			if err = g.drv.MemMap(addr, uint64(bytes), memory); err == nil {
				if err = g.drv.MemSetAccess(addr, uint64(bytes), g.dev); err != nil {
					g.drv.MemUnmap(addr, uint64(bytes))
				}
			}
			if err != nil {
				g.drv.MemRelease(memory)
			}
			return err
		})
	})
	return memory, err
}

func (g *gpu) unback(addr uint64, p part) error {
	return g.in(func() error { return firstErr(g.drv.MemUnmap(addr, uint64(p.bytes)), g.drv.MemRelease(p.memory)) })
}

func (g *gpu) unreserve(addr uint64, bytes int64) error {
	return g.in(func() error {
		n, err := g.drv.MemGetAllocationGranularity(g.dev)
		if err != nil {
			return err
		}
		return g.drv.MemAddressFree(addr, g.reservation(bytes, int64(n)))
	})
}

func (g *gpu) syncAll() error { return g.in(g.drv.CtxSynchronize) }

// follow holds back a stream's later work until another has passed its present end.
func (g *gpu) follow(stream, other uintptr) error {
	e, err := g.drv.EventCreate(cu.EventDisableTiming)
	if err != nil {
		return err
	}
	err = firstErr(g.drv.EventRecord(e, other), g.drv.StreamWaitEvent(stream, e))
	return firstErr(err, g.drv.EventDestroy(e)) // the driver keeps it until it has passed
}

func (g *gpu) allocHost(bytes int64, mapped bool) (host unsafe.Pointer, dev uint64, err error) {
	flags := uint32(cu.HostPortable)
	if mapped {
		flags |= cu.HostDeviceMap
	}
	err = g.in(func() (err error) {
		host, err = g.drv.MemHostAlloc(uint64(bytes), flags)
		if outOfMemory(err) {
			free, _ := hostMemory("/")
			return &OutOfMemoryError{"host memory pinned for " + g.about.Name, bytes, free}
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

func (g *gpu) copyIn(stream uintptr, dst uint64, src unsafe.Pointer, bytes int64) error {
	return g.in(func() error { return g.drv.MemcpyHtoDAsync(dst, src, uint64(bytes), stream) })
}

func (g *gpu) copyOut(stream uintptr, dst unsafe.Pointer, src uint64, bytes int64) error {
	return g.in(func() error { return g.drv.MemcpyDtoHAsync(dst, src, uint64(bytes), stream) })
}

func (g *gpu) copyWithin(stream uintptr, dst, src uint64, bytes int64) error {
	return g.in(func() error { return g.drv.MemcpyDtoDAsync(dst, src, uint64(bytes), stream) })
}

// peer enables access once for the process: the context is the primary one, and others may have asked before. A driver
// that has no room for one more peer (without NVSwitch a GPU has at most eight) only means that there is no access.
func (g *gpu) peer(other backend) (bool, error) {
	o, ok := other.(*gpu)
	if !ok {
		return false, nil
	}
	if o.dev == g.dev {
		return true, nil
	}
	can, err := g.drv.DeviceCanAccessPeer(g.dev, o.dev)
	if err != nil || !can {
		return false, g.explain(err)
	}
	err = g.in(func() error { return g.drv.CtxEnablePeerAccess(o.ctx) })
	if e := (*cu.Error)(nil); errors.As(err, &e) {
		switch e.Code {
		case cu.ErrorPeerEnabled:
			return true, nil
		case cu.ErrorTooManyPeers, cu.ErrorPeerUnsupported:
			return false, nil
		}
	}
	return err == nil, err
}

// peerAtomics reports whether atomic operations reach memory of another GPU.
func (g *gpu) peerAtomics(other backend) (bool, error) {
	o, ok := other.(*gpu)
	if !ok {
		return false, nil
	}
	if o.dev == g.dev {
		return true, nil
	}
	can, err := g.drv.DeviceHasPeerAtomics(g.dev, o.dev)
	return can && err == nil, g.explain(err)
}

func (g *gpu) copyAcross(stream uintptr, dst uint64, to backend, src uint64, from backend, bytes int64) error {
	return g.in(func() error {
		return g.drv.MemcpyPeerAsync(dst, to.(*gpu).ctx, src, from.(*gpu).ctx, uint64(bytes), stream)
	})
}

func (g *gpu) fill(stream uintptr, dst uint64, value byte, bytes int64) error {
	return g.in(func() error { return g.drv.MemsetD8Async(dst, value, uint64(bytes), stream) })
}

func (g *gpu) newStream() (st uintptr, err error) {
	err = g.in(func() (err error) { st, err = g.drv.StreamCreate(cu.StreamNonBlocking); return err })
	return st, err
}

func (g *gpu) newUrgentStream() (st uintptr, err error) {
	err = g.in(func() (err error) { st, err = g.drv.StreamCreateWithPriority(cu.StreamNonBlocking, -1); return err })
	return st, err
}

func (g *gpu) freeStream(stream uintptr) error {
	return g.in(func() error { return firstErr(g.drv.StreamSynchronize(stream), g.drv.StreamDestroy(stream)) })
}

func (g *gpu) syncStream(stream uintptr) error {
	return g.in(func() error { return g.drv.StreamSynchronize(stream) })
}

func (g *gpu) newEvent() (e uintptr, err error) {
	err = g.in(func() (err error) { e, err = g.drv.EventCreate(cu.EventDefault); return err })
	return e, err
}

func (g *gpu) freeEvent(event uintptr) error {
	return g.in(func() error { return g.drv.EventDestroy(event) })
}

func (g *gpu) record(event, stream uintptr) error {
	return g.in(func() error { return g.drv.EventRecord(event, stream) })
}

func (g *gpu) wait(stream, event uintptr) error {
	return g.in(func() error { return g.drv.StreamWaitEvent(stream, event) })
}

func (g *gpu) syncEvent(event uintptr) error {
	return g.in(func() error { return g.drv.EventSynchronize(event) })
}

func (g *gpu) passed(event uintptr) (done bool, err error) {
	err = g.in(func() (err error) { done, err = g.drv.EventQuery(event); return err })
	return done, err
}

func (g *gpu) elapsed(from, to uintptr) (t time.Duration, err error) {
	err = g.in(func() error {
		ms, err := g.drv.EventElapsedTime(from, to)
		t = time.Duration(float64(ms) * float64(time.Millisecond))
		return err
	})
	return t, err
}

func (g *gpu) current(call func() error) error { return g.in(call) }

func (g *gpu) compiler() compiler { return g.comp }

func (g *gpu) load(program string, image []byte, file string) (m uintptr, err error) {
	err = g.in(func() error {
		return g.trimming(func() (err error) { m, err = g.drv.ModuleLoadData(image); return err })
	})
	if err != nil {
		return 0, fmt.Errorf("loading %s: %w", program, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.modules = append(g.modules, m)
	return m, nil
}

// kernel finds a kernel, and beside it the variables whose sizes tell of it: the driver itself tells the size of a parameter from 12.4 on only, and
// not of dynamic shared memory.
func (g *gpu) kernel(module uintptr, name string) (e entry, err error) {
	var warps, shared int64
	err = g.in(func() error {
		// A driver that loads kernels lazily allocates here, or at the first launch.
		err := g.trimming(func() (err error) { e.handle, err = g.drv.ModuleGetFunction(module, name); return err })
		if err != nil {
			return err
		}
		for beside, size := range map[string]*int64{"_params": &e.takes, "_warps": &warps, "_shared": &shared} {
			if *size, err = g.drv.ModuleGetGlobal(module, name+beside); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return entry{}, fmt.Errorf("kernel %s: %w", name, err)
	}
	e.threads, e.shared = int(32*warps), int(16*(shared-1))
	return e, nil
}

// launch needs no size: the driver knows each kernel's own, which KernelOf has compared with Go's.
func (g *gpu) launch(stream, kernel uintptr, grid Grid, params unsafe.Pointer, bytes int64) error {
	return g.in(func() error {
		if err := g.allow(kernel, grid.Shared); err != nil {
			return err
		}
		return g.trimming(func() error {
			return g.drv.LaunchKernel(kernel, uint32(grid.Blocks), uint32(grid.Threads), uint32(grid.Shared), stream, params)
		})
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
		for _, m := range g.modules {
			err = firstErr(err, g.drv.ModuleUnload(m))
		}
		g.modules = nil
		if p := &g.pool; p.handle() != 0 {
			for _, e := range []error{g.drv.StreamDestroy(p.allocs), g.drv.StreamDestroy(p.frees), g.drv.MemPoolDestroy(p.h)} {
				err = firstErr(err, e)
			}
		}
		return firstErr(err, g.drv.CtxSetCurrent(0))
	})
	// Also where the context is so broken that nothing runs in it.
	err = firstErr(err, g.explain(g.drv.DevicePrimaryCtxRelease(g.dev)))
	if errors.As(err, new(*FaultError)) {
		return nil // whoever waited for the work has heard of it
	}
	return err
}

// rtc compiles with NVRTC for one architecture.
type rtc struct {
	lib     *nvrtc.Library
	arch    string
	shared  int64 // bytes that a block of the GPU can have, which may be newer than arch
	missing error // why there is no lib
	checks  bool  // the front end is enough
	ctx     context.Context
}

var rtcOptions = []string{"--std=c++17"}

// Code for a later link is not optimised yet, nor made machine code.
var checkOptions = append([]string{"--dlink-time-opt"}, rtcOptions...)

// openNVRTC finds the NVRTC at path, or one that compiles for the architecture and the driver (see nvrtc.Find). Errors:
// ErrNoNVRTC, with where it looked.
func openNVRTC(ctx context.Context, path, arch string, driver int) (*rtc, error) {
	quick.Asked()
	lib, target, err := nvrtc.Find(path, arch, driver)
	if err != nil {
		return nil, fmt.Errorf("%w for %s: %v: %s", ErrNoNVRTC, arch, err, installNVRTC)
	}
	return &rtc{lib: lib, arch: target, shared: sharedOf(arch), ctx: ctx}, nil
}

// swap128 tells whether kernels have a 128-bit compare-and-swap. Those in the cache are taken to be of an NVRTC that knows it, as all from 12.3 on do.
func (c *rtc) swap128(arch string) bool {
	return nvrtc.Swaps(arch) && (c.lib == nil || c.lib.Swap128())
}

func (c *rtc) target() string        { return c.arch }
func (c *rtc) options(mode) []string { return rtcOptions }
func (c *rtc) olderToo() []compiler  { return []compiler{c} }

func (c *rtc) ident() string {
	if c.lib == nil {
		return ""
	}
	return c.lib.String()
}

func (c *rtc) extension() string { return "cubin" }

func (c *rtc) failed(src *source, log string) error {
	return &CompileError{src.program, fmt.Sprintf("%v for %s", c.lib, c.arch), log}
}

func (c *rtc) compile(src *source) ([]byte, error) {
	if c.lib == nil {
		return nil, fmt.Errorf("%s is not in the cache of compiled kernels, and cannot be compiled: %w", src.program, c.missing)
	}
	if c.ctx.Err() != nil {
		return nil, fmt.Errorf("compiling %s: %w", src.program, context.Cause(c.ctx))
	}
	headers := make([]nvrtc.Header, len(src.files)-1)
	for i, f := range src.files[1:] {
		headers[i] = nvrtc.Header(f)
	}
	options := rtcOptions
	if c.checks {
		options = checkOptions
	}
	image, err := c.lib.Compile(src.files[0].Name, src.files[0].Text, headers, c.arch, options...)
	if e := (*nvrtc.Error)(nil); errors.As(err, &e) {
		log := e.Log
		if !e.Source() || log == "" {
			log = e.Error()
		}
		return nil, c.failed(src, log)
	}
	if log := misfits(c.arch, c.shared, image); log != "" {
		return nil, c.failed(src, log)
	}
	return image, err
}

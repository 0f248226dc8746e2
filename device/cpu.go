package device

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/dl"
	"github.com/warpmap/warpmap/internal/huge"
	"github.com/warpmap/warpmap/internal/quick"
)

// The CPU device: kernels compiled by the system's C++ compiler and run by kernel/host.cuh, blocks spread over
// threads. Device addresses are addresses of this process.
type cpuBackend struct {
	cfg  *config
	inf  Info
	cxx  *cxx
	seed atomic.Uint64 // of the next launch, in stress mode

	mu      sync.Mutex
	blocks  map[uint64]int64 // allocations and their sizes
	shared  map[uint64]sharedMemory
	used    int64        // the sum of both, less what is of other processes
	kernels []*cpuKernel // handles are indices + 1
	modules []cpuModule  // a module's handle is its index + 1
}

// sharedMemory is a mapping that other processes can have, too.
type sharedMemory struct {
	bytes int64
	fd    int // -1: another process's
}

type cpuModule struct {
	dl    uintptr
	lines *moduleLines // nil where nothing is checked
}

type cpuKernel struct {
	name  string
	entry uintptr
	watch uintptr
	lines *moduleLines
}

// HostLaunch is what a launch gives to kernel/host.cuh. It lies in the region, outside Go's heap.
type HostLaunch struct {
	Params  uint64
	Region  uint64
	Next    uint64 // address of the next block's number, shared by the workers of a launch
	Blocks  uint64
	Seed    uint64
	Threads uint32
	Fault   uint32
	Message [480]uint8
	Model   uint64 // address of a hostModel; 0: accesses are not checked
}

// openCPU opens the CPU as the device of that name.
func openCPU(name string, cfg *config) (backend, error) {
	if errSystem != nil {
		return nil, fmt.Errorf("%s: %w", name, errSystem)
	}
	c, err := findCXX(cfg)
	if err != nil {
		return nil, err
	}
	b := newCPU(name, cfg, c)
	b.inf.Compiler = c.String()
	return b, nil
}

func newCPU(name string, cfg *config, c *cxx) *cpuBackend {
	_, total := hostMemory("/")
	b := &cpuBackend{cfg: cfg, cxx: c, blocks: map[uint64]int64{}, shared: map[uint64]sharedMemory{}}
	b.seed.Store(cfg.seed)
	b.inf = Info{
		Name: name, NUMA: -1, Model: cpuModel(), Arch: runtime.GOARCH,
		Multiprocessors: runtime.NumCPU(), Memory: total, Shared: cmp.Or(quick.Shared, hostSharedBytes), HugePages: hugePages("/"),
		CAS128: true, Stress: cfg.stress,
	}
	return b
}

func (b *cpuBackend) info() Info { return b.inf }

func (b *cpuBackend) memory() (free, total int64, err error) {
	free, _ = hostMemory("/")
	return free, b.inf.Memory, nil
}

func (b *cpuBackend) kernelHeap(int64) error { return nil }

// claim bounds the memory that is promised: the system gives it when it is first touched. What is free now is asked for where it may
// matter only, because that takes a tenth of a millisecond.
func (b *cpuBackend) claim(n int64) error {
	free := b.inf.Memory
	if n >= 1<<20 {
		if now, total := hostMemory("/"); total > 0 { // else no file of the system can be opened, which says nothing of memory
			free = now
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if free = min(free, b.inf.Memory-b.used); b.inf.Memory > 0 && n > free {
		return &OutOfMemoryError{b.inf.Name, n, max(0, free)}
	}
	b.used += n
	return nil
}

func (b *cpuBackend) unclaim(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}

func (b *cpuBackend) alloc(n int64) (uint64, error) {
	if err := b.claim(n); err != nil {
		return 0, err
	}
	mem, err := mmapLarge(n)
	if err != nil {
		b.unclaim(n)
		return 0, &OutOfMemoryError{b.inf.Name, n, 0}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.blocks[uint64(mem)] = n
	return uint64(mem), nil
}

func (b *cpuBackend) free(addr uint64) error {
	b.mu.Lock()
	is, err := b.unmapShared(addr)
	n, ok := b.blocks[addr]
	delete(b.blocks, addr)
	b.used -= n
	b.mu.Unlock()
	switch {
	case is:
		return err
	case !ok:
		return fmt.Errorf("cpu: free of %#x, which is not allocated", addr)
	}
	return munmap(uintptr(addr), n)
}

func (b *cpuBackend) allocPooled(n int64) (uint64, bool, error) {
	addr, err := b.alloc(n)
	return addr, false, err
}

func (b *cpuBackend) freeAfter(addr uint64, _ bool, streams []uintptr, _ uintptr) error {
	for _, st := range streams {
		b.syncStream(st)
	}
	return b.free(addr)
}

// reserve maps addresses that nothing can be read from.
func (b *cpuBackend) reserve(n int64) (addr uint64, granule int64, err error) {
	mem, err := mmapFrom(huge.Page, wholePages(n), false)
	if err != nil {
		return 0, 0, &OutOfMemoryError{"addresses of " + b.inf.Name, n, 0}
	}
	return uint64(mem), int64(os.Getpagesize()), nil
}

func (b *cpuBackend) back(addr uint64, n int64) (uintptr, error) {
	if err := b.claim(n); err != nil {
		return 0, err
	}
	if err := mprotect(uintptr(addr), uintptr(n)); err != nil {
		b.unclaim(n)
		return 0, &OutOfMemoryError{b.inf.Name, n, 0}
	}
	huge.Advise(uintptr(addr), uintptr(n))
	return 0, nil
}

// unback maps the addresses anew, without memory.
func (b *cpuBackend) unback(addr uint64, p part) error {
	if err := mmapAnew(uintptr(addr), p.bytes); err != nil {
		return err
	}
	b.unclaim(p.bytes)
	return nil
}

func (b *cpuBackend) unreserve(addr uint64, n int64) error {
	return munmap(uintptr(addr), wholePages(n))
}

// syncAll has nothing to wait for: the work of a call is done when it returns.
func (b *cpuBackend) syncAll() error { return nil }

func (b *cpuBackend) allocHost(n int64, mapped bool) (unsafe.Pointer, uint64, error) {
	addr, err := b.alloc(n)
	if err != nil {
		return nil, 0, err
	}
	if !mapped {
		return pointer(addr), 0, nil
	}
	return pointer(addr), addr, nil
}

func (b *cpuBackend) freeHost(p unsafe.Pointer) error { return b.free(uint64(uintptr(p))) }

// The streams and events of all CPU devices: one may use another's. What is on a stream runs under its lock, so a stream is in order, and
// a call that waits for a stream need only take it.
var cpuHandles = struct {
	sync.RWMutex
	last    uintptr
	streams map[uintptr]*sync.Mutex
	events  map[uintptr]time.Time // when last recorded
}{streams: map[uintptr]*sync.Mutex{}, events: map[uintptr]time.Time{}}

// on runs work on a stream.
func (b *cpuBackend) on(stream uintptr, work func() error) error {
	cpuHandles.RLock()
	mu := cpuHandles.streams[stream]
	cpuHandles.RUnlock()
	if mu == nil { // its owner has closed what StreamOf was given
		return fmt.Errorf("stream: %w", ErrClosed)
	}
	mu.Lock()
	defer mu.Unlock()
	return work()
}

func (b *cpuBackend) newStream() (uintptr, error) {
	cpuHandles.Lock()
	defer cpuHandles.Unlock()
	cpuHandles.last++
	cpuHandles.streams[cpuHandles.last] = &sync.Mutex{}
	return cpuHandles.last, nil
}

func (b *cpuBackend) newUrgentStream() (uintptr, error) { return b.newStream() }

func (b *cpuBackend) freeStream(stream uintptr) error {
	b.syncStream(stream)
	cpuHandles.Lock()
	defer cpuHandles.Unlock()
	delete(cpuHandles.streams, stream)
	return nil
}

func (b *cpuBackend) syncStream(stream uintptr) error {
	return b.on(stream, func() error { return nil })
}

// lend: nobody else knows the CPU's streams.
func (b *cpuBackend) lend() {}

func (b *cpuBackend) adopt(stream uintptr) error {
	cpuHandles.RLock()
	defer cpuHandles.RUnlock()
	if cpuHandles.streams[stream] == nil {
		return fmt.Errorf("%#x is no Handle of an open stream of a CPU device", stream)
	}
	return nil
}

func (b *cpuBackend) capturing(uintptr) (bool, error) { return false, nil }

func (b *cpuBackend) newEvent() (uintptr, error) {
	cpuHandles.Lock()
	defer cpuHandles.Unlock()
	cpuHandles.last++
	cpuHandles.events[cpuHandles.last] = time.Time{}
	return cpuHandles.last, nil
}

func (b *cpuBackend) freeEvent(event uintptr) error {
	cpuHandles.Lock()
	defer cpuHandles.Unlock()
	delete(cpuHandles.events, event)
	return nil
}

func (b *cpuBackend) record(event, stream uintptr) error {
	return b.on(stream, func() error {
		cpuHandles.Lock()
		defer cpuHandles.Unlock()
		cpuHandles.events[event] = time.Now()
		return nil
	})
}

// What was on a stream before an event is done when the event is recorded.
func (b *cpuBackend) wait(stream, event uintptr) error   { return nil }
func (b *cpuBackend) syncEvent(event uintptr) error      { return nil }
func (b *cpuBackend) passed(event uintptr) (bool, error) { return true, nil }

func (b *cpuBackend) elapsed(from, to uintptr) (time.Duration, error) {
	cpuHandles.RLock()
	defer cpuHandles.RUnlock()
	a, z := cpuHandles.events[from], cpuHandles.events[to]
	if a.IsZero() || z.IsZero() {
		return 0, fmt.Errorf("cpu: an event that was never recorded")
	}
	return z.Sub(a), nil
}

func (b *cpuBackend) copyIn(st uintptr, dst uint64, src unsafe.Pointer, n int64) error {
	return b.on(st, func() error {
		copy(unsafe.Slice((*byte)(pointer(dst)), n), unsafe.Slice((*byte)(src), n))
		return nil
	})
}

func (b *cpuBackend) copyOut(st uintptr, dst unsafe.Pointer, src uint64, n int64) error {
	return b.copyIn(st, uint64(uintptr(dst)), pointer(src), n)
}

func (b *cpuBackend) copyWithin(st uintptr, dst, src uint64, n int64) error {
	return b.copyIn(st, dst, pointer(src), n)
}

// peer lets CPU devices use one another's memory: it is this process's.
func (b *cpuBackend) peer(other backend) (bool, error) {
	_, ok := other.(*cpuBackend)
	return ok, nil
}

func (b *cpuBackend) peerAtomics(other backend) (bool, error) { return b.peer(other) }

func (b *cpuBackend) copyAcross(st uintptr, dst uint64, _ backend, src uint64, _ backend, n int64) error {
	return b.copyWithin(st, dst, src, n)
}

func (b *cpuBackend) fill(st uintptr, dst uint64, v byte, n int64) error {
	return b.on(st, func() error {
		s := unsafe.Slice((*byte)(pointer(dst)), n)
		workers := 1
		if n >= fillAlone && !b.cfg.stress {
			workers = b.workers()
		}
		var next atomic.Int64
		work := func() {
			for to := next.Add(fillPiece); to-fillPiece < n; to = next.Add(fillPiece) {
				fillBytes(s[to-fillPiece:min(to, n)], v)
			}
		}
		var wg crash.WaitGroup
		for range workers - 1 {
			wg.Go(work)
		}
		work()
		wg.Wait()
		return nil
	})
}

// Memory that is new to the process costs the system more than the bytes that are written to it: large fills are shared
// out among threads, by pieces of some huge pages.
const (
	fillAlone = 32 << 20
	fillPiece = 8 << 20
)

// fillBytes copies bytes from where the cache has them.
func fillBytes(s []byte, v byte) {
	if v == 0 {
		clear(s)
		return
	}
	first := s[:min(len(s), 1<<14)]
	for i := range first {
		first[i] = v
	}
	for at := len(first); at < len(s); at += len(first) {
		copy(s[at:], first)
	}
}

// workers is how many threads a launch may take.
func (b *cpuBackend) workers() int { return crash.Threads(b.cfg.workers) }

func (b *cpuBackend) current(call func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return call()
}

func (b *cpuBackend) compiler() compiler { return b.cxx }

func (b *cpuBackend) load(program string, image []byte, file string) (uintptr, error) {
	var h uintptr
	var err error
	if file != "" {
		h, err = dl.OpenLocal(file)
	}
	if h == 0 { // there is no cache, or it lies where nothing may be executed
		var e error
		if h, e = openImage(image); e != nil {
			return 0, fmt.Errorf("loading %s: %w", program, cmp.Or(err, e))
		}
	}
	var lines *moduleLines
	if b.cfg.model {
		lines = &moduleLines{image: image}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.modules = append(b.modules, cpuModule{h, lines})
	return uintptr(len(b.modules)), nil
}

// openImage loads an image from a temporary file, or from memory where no such file can be written, or executed.
func openImage(image []byte) (uintptr, error) {
	h, err := openTemporary(image)
	if err == nil {
		return h, nil
	}
	f := memoryFile()
	if f == nil {
		return 0, err
	}
	if _, e := f.Write(image); e == nil {
		if h, e = dl.OpenLocal(f.Name()); e == nil {
			keptFiles.Store(f, true)
			return h, nil
		}
	}
	f.Close()
	return 0, err
}

func openTemporary(image []byte) (uintptr, error) {
	tmp, err := os.CreateTemp("", "warpmap-*.so")
	if err != nil {
		return 0, fmt.Errorf("it needs a writable directory for temporary files: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(image)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return 0, err
	}
	return dl.OpenLocal(tmp.Name())
}

// keptFiles are files in memory that modules were loaded from. They stay open: their names are those of descriptors, and the
// loader takes a name that it knows for what it has loaded under it.
var keptFiles sync.Map

func (b *cpuBackend) kernel(module uintptr, name string) (entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.modules[module-1]
	h := m.dl
	code, err := dl.Sym(h, name)
	if err != nil {
		return entry{}, fmt.Errorf("no kernel %s in the program: %w", name, err)
	}
	watch, err := dl.Sym(h, "warpmap_watch")
	if err != nil {
		return entry{}, err
	}
	params, err := dl.Sym(h, name+"_params")
	if err != nil {
		return entry{}, err
	}
	b.kernels = append(b.kernels, &cpuKernel{name, code, watch, m.lines})
	return entry{handle: uintptr(len(b.kernels)), takes: *(*int64)(pointer(uint64(params)))}, nil
}

func (b *cpuBackend) launch(stream, kernel uintptr, g Grid, params unsafe.Pointer, n int64) error {
	return b.on(stream, func() error { return b.run(kernel, g, params, n) })
}

// run spreads a kernel's blocks over threads, and returns when all are done.
func (b *cpuBackend) run(kernel uintptr, g Grid, params unsafe.Pointer, n int64) error {
	b.mu.Lock()
	k := b.kernels[kernel-1]
	b.mu.Unlock()
	workers := b.workers()
	if b.cfg.stress {
		workers = 1
	}
	workers = int(min(int64(workers), g.Blocks))
	seed := b.seed.Add(0x9e3779b97f4a7c15)
	var checked *memoryModel
	if b.cfg.model {
		var err error
		if checked, err = beginModel(); err != nil {
			return err
		}
		defer checked.end()
	}

	var room [8]*region
	regions, err := takeRegions(room[:], workers, g.Threads)
	if err != nil {
		return err
	}
	defer releaseRegions(regions)
	for _, r := range regions {
		r.watchedBy(k.watch)
	}
	first := regions[0]
	copy(unsafe.Slice((*byte)(pointer(first.params())), maxParams), unsafe.Slice((*byte)(params), n))
	*first.next() = 0
	for _, r := range regions {
		*r.launch() = HostLaunch{
			Params: first.params(), Region: uint64(r.base), Next: uint64(uintptr(unsafe.Pointer(first.next()))),
			Blocks: uint64(g.Blocks), Seed: seed, Threads: uint32(g.Threads), Model: checked.address(),
		}
	}
	if len(regions) == 1 { // most calls are of few rows
		dl.Call(k.entry, uintptr(unsafe.Pointer(first.launch())))
	} else {
		launchAll(k.entry, regions)
	}
	for _, r := range regions {
		if l := r.launch(); l.Fault != 0 {
			text, _, _ := bytes.Cut(l.Message[:], []byte{0})
			what := string(bytes.TrimRight(text, ";"))
			if found := checked.findings(k); found != "" { // which may be why
				what += "; " + found
			}
			return &FaultError{Device: b.inf.Name, Kernel: k.name, What: what}
		}
	}
	if what := checked.findings(k); what != "" {
		return &FaultError{Device: b.inf.Name, Kernel: k.name, What: what}
	}
	return nil
}

// launchAll runs a kernel in all regions: in the first on the caller's thread.
func launchAll(entry uintptr, regions []*region) {
	var wg crash.WaitGroup
	for _, r := range regions[1:] {
		launch := r.launch()
		wg.Go(func() { dl.Call(entry, uintptr(unsafe.Pointer(launch))) })
	}
	dl.Call(entry, uintptr(unsafe.Pointer(regions[0].launch())))
	wg.Wait()
}

func (b *cpuBackend) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for addr, n := range b.blocks {
		munmap(uintptr(addr), n)
	}
	for addr := range b.shared {
		b.unmapShared(addr)
	}
	b.blocks = nil
	return nil // modules stay loaded: their signal handler may stand in a chain
}

// pointer turns an address of memory outside Go's heap into a pointer.
func pointer(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

func cpuModel() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH + " CPU"
}

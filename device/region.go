package device

import (
	"fmt"
	"os"
	"sync"

	"github.com/warpmap/warpmap/internal/dl"
	"github.com/warpmap/warpmap/internal/huge"
)

// region is the memory of one worker thread of the CPU device: see the picture in kernel/host.cuh. Regions are of the process, are kept
// for the next launch, and are never unmapped, because a module's signal handler knows them.
type region struct {
	base    uintptr
	warps   int // whose stacks are mapped so far
	watched bool
}

const (
	hostRegionBytes = 32 << 20
	hostWorkerBytes = 512 << 10
	hostStackBytes  = 64 << 10
	hostSharedBytes = 64 << 10 // of a block's dynamic shared memory, unless quick.Shared is set

	// hostMaxRegions bounds the threads that run kernels at a time. A region has two mappings for each warp of a block and two more, and
	// Linux gives a process 65,530: all regions together take a seventh of them.
	hostMaxRegions = 512
)

// hostDefines returns the constants of the kernels' vocabulary on the CPU: a block has at most that number of threads and
// of bytes of shared memory.
func hostDefines(threads int, shared int64) []Define {
	return []Define{
		{"HOST_REGION_BYTES", hostRegionBytes},
		{"HOST_WORKER_BYTES", hostWorkerBytes},
		{"HOST_STACK_BYTES", hostStackBytes},
		{"HOST_MAX_REGIONS", hostMaxRegions},
		{"WARPMAP_MAX_THREADS", threads},
		{"WARPMAP_SHARED_BYTES", shared},
	}
}

// Behind the worker's own struct lie, from the end of its part: the launch, the next block's number, the parameters.
func (r *region) launch() *HostLaunch {
	return (*HostLaunch)(pointer(uint64(r.base) + hostWorkerBytes - maxParams - 2048))
}
func (r *region) next() *uint64 {
	return (*uint64)(pointer(uint64(r.base) + hostWorkerBytes - maxParams - 64))
}
func (r *region) params() uint64 { return uint64(r.base) + hostWorkerBytes - maxParams }

var regions = struct {
	sync.Mutex
	returned sync.Cond
	free     []*region
	made     int
}{}

func init() { regions.returned.L = &regions }

// takeRegions gives regions for up to so many workers with blocks of so many threads. Where other launches have them, or the system
// has no more, it gives fewer; it waits for the first. They lie in room where they fit.
func takeRegions(room []*region, workers, threads int) ([]*region, error) {
	regions.Lock()
	for len(regions.free) == 0 && regions.made == hostMaxRegions {
		regions.returned.Wait()
	}
	rest := max(0, len(regions.free)-workers)
	taken := append(room[:0], regions.free[rest:]...)
	regions.free = regions.free[:rest]
	fresh := min(workers-len(taken), hostMaxRegions-regions.made)
	regions.made += fresh
	regions.Unlock()

	var err error
	for ; fresh > 0; fresh-- {
		var r *region
		if r, err = newRegion(); err != nil {
			break
		}
		taken = append(taken, r)
	}
	ready := 0
	for ; ready < len(taken); ready++ {
		if err = taken[ready].stacks(threads); err != nil {
			break
		}
	}
	if fresh > 0 { // which could not be made: who waits for them makes its own, or hears why not
		regions.Lock()
		regions.made -= fresh
		regions.returned.Broadcast()
		regions.Unlock()
	}
	if ready < len(taken) {
		releaseRegions(taken[ready:])
	}
	if ready == 0 {
		return nil, fmt.Errorf("cpu: no memory for a worker's stacks: %w", err)
	}
	return taken[:ready], nil
}

func releaseRegions(done []*region) {
	regions.Lock()
	defer regions.Unlock()
	regions.free = append(regions.free, done...)
	regions.returned.Broadcast()
}

var newRegion = makeRegion // tests have one that fails

// makeRegion reserves a region, and maps the worker's part.
func makeRegion() (*region, error) {
	base, err := mmapFrom(hostRegionBytes, hostRegionBytes, false)
	if err != nil {
		return nil, err
	}
	if err := mprotect(base, hostWorkerBytes); err != nil {
		munmap(base, hostRegionBytes)
		return nil, err
	}
	return &region{base: base}, nil
}

// stacks maps the stacks of a block's lanes; one more before each warp's stays a guard.
func (r *region) stacks(threads int) error {
	const lanes = 32
	for ; r.warps*lanes < threads; r.warps++ {
		at := r.base + hostWorkerBytes + uintptr(r.warps)*(lanes+1)*hostStackBytes
		if err := mprotect(at+hostStackBytes, lanes*hostStackBytes); err != nil {
			return err
		}
	}
	return nil
}

// watcher is the function by which a signal handler learns of a region: that of the module that ran first. It handles the
// faults of all modules, whose workers are alike, so that a fault of Go's own passes one handler, and not hundreds.
var watcher struct {
	sync.Mutex
	watch uintptr
}

// watchedBy makes the signal handler know the region. watch is a module's own, in case that none is there yet.
func (r *region) watchedBy(watch uintptr) {
	if r.watched {
		return
	}
	watcher.Lock()
	defer watcher.Unlock()
	if watcher.watch == 0 {
		watcher.watch = watch
	}
	dl.Call(watcher.watch, r.base)
	r.watched = true
}

// mmapLarge maps memory that begins where a huge page may, and asks for huge pages: a random access then misses the TLB seldom. Systems that have none, or
// no more, give others.
func mmapLarge(n int64) (uintptr, error) {
	if n < huge.Page {
		return mmap(n, true)
	}
	base, err := mmapFrom(huge.Page, wholePages(n), true)
	if err == nil {
		huge.Advise(base, uintptr(n))
	}
	return base, err
}

// mmapFrom is mmap of whole pages to an address that is a multiple of align.
func mmapFrom(align uintptr, n int64, used bool) (uintptr, error) {
	mem, err := mmap(n+int64(align), used)
	if err != nil {
		return 0, err
	}
	base := (mem + align - 1) &^ (align - 1)
	if base > mem {
		munmap(mem, int64(base-mem))
	}
	munmap(base+uintptr(n), int64(mem+align-base))
	return base, nil
}

func wholePages(n int64) int64 {
	page := int64(os.Getpagesize())
	return (n + page - 1) / page * page
}

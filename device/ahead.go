package device

import (
	"fmt"
	"unsafe"
)

// OpenAhead opens a device, where no GPU is, that compiles for GPUs of an architecture such as "sm_90", and runs
// nothing. NVRTC compiles the kernels of whatever is made on it and called, into the cache (see WithCache). A GPU of
// that architecture takes them from there, on a machine that may be without NVRTC. The device's memory is the host's,
// and no kernel changes it: what tables say on it means nothing, and may be an error.
//
// Errors: ErrNoNVRTC; an architecture that this NVRTC makes no machine code for; a cache that cannot be had;
// ErrNoDevices, as Open's.
func OpenAhead(arch string, opts ...Option) (*Device, error) {
	if errSystem != nil {
		return nil, errSystem
	}
	cfg := newConfig(opts)
	comp, err := openNVRTC(cfg.toolchain, arch)
	switch {
	case err != nil:
		return nil, err
	case comp.arch != arch:
		return nil, fmt.Errorf("%v compiles for %s in the place of %s, which a machine without NVRTC would not find: take a newer NVRTC", comp.lib, comp.arch, arch)
	case cfg.cache == "":
		return nil, fmt.Errorf("no cache to compile into: name one that is yours alone to write in (%v)", cfg.uncached)
	}
	host := newCPU("cpu", &cfg, nil) // for its memory alone
	b := &aheadBackend{host, comp}
	// As H100s have, but for a small L2 cache, so that tables need not be large to need the kernels of large ones. Grids follow from it, and no code; but
	// what shared memory there is decides on tiles.
	b.inf = Info{Name: "cuda:ahead-" + arch, Model: "none, compiling for " + arch, Arch: arch, Compiler: comp.ident(), Multiprocessors: 132, Memory: b.inf.Memory,
		L2: 4 << 20, Shared: sharedOf(arch), CAS128: comp.swap128(arch), NUMA: -1}
	return finish(b, cfg, "")
}

// sharedOf is the shared memory that a block may have on an architecture, in bytes (CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability"). One that is not known has what most of its kind have.
func sharedOf(arch string) int64 {
	switch arch {
	case "sm_50", "sm_52", "sm_53", "sm_60", "sm_61", "sm_62":
		return 48 << 10
	case "sm_70", "sm_72":
		return 96 << 10
	case "sm_75":
		return 64 << 10
	case "sm_80", "sm_87":
		return 163 << 10
	case "sm_86", "sm_89", "sm_120", "sm_121":
		return 99 << 10
	}
	return 227 << 10
}

// aheadBackend has memory, streams and events as the CPU device, and a compiler as a GPU. Its kernels do nothing.
type aheadBackend struct {
	*cpuBackend
	comp *rtc
}

func (b *aheadBackend) compiler() compiler         { return b.comp }
func (b *aheadBackend) peer(backend) (bool, error) { return false, nil }

func (b *aheadBackend) load(program string, _ []byte, file string) (uintptr, error) {
	if file == "" {
		return 0, fmt.Errorf("%s is compiled, and cannot be written to the cache: is there room, and may you write there?", program)
	}
	return 1, nil
}

// anyBytes is the parameters of a kernel that nobody has loaded.
const anyBytes = -1

func (b *aheadBackend) kernel(uintptr, string) (entry, error) {
	return entry{handle: 1, takes: anyBytes}, nil
}

func (b *aheadBackend) launch(uintptr, uintptr, Grid, unsafe.Pointer, int64) error { return nil }

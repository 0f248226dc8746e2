package device

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// OpenAhead opens a device that compiles for others and runs nothing. arch is an architecture of GPUs such as "sm_90",
// whether or not a GPU is here; or a level of this machine's kind of processor: "x86-64-v2", "x86-64-v3" and "x86-64-v4"
// on amd64, and "amd64" or "arm64" for what every such processor runs. NVRTC, or the C++ compiler, compiles the kernels
// of whatever is made on the device and called, into the cache (see WithCache), side by side: all are there, and what is
// wrong is told, once Device.Ready or the device's Close has returned. A device of that architecture takes them from
// there, or from WithKernels, on a machine that may be without a compiler. The device's memory is the host's, and no
// kernel changes it: what tables say on it means nothing, and may be an error.
//
// Errors: ErrNoNVRTC and ErrNoCompiler; an architecture that the compiler makes no machine code for; a cache that
// cannot be had; ErrNoDevices, as Open's.
func OpenAhead(arch string, opts ...Option) (*Device, error) {
	if errSystem != nil {
		return nil, errSystem
	}
	cfg := newConfig(opts)
	if l, ok := levelOf(arch); ok {
		return openAheadCPU(l, cfg)
	}
	if !strings.HasPrefix(arch, "sm_") {
		return nil, fmt.Errorf("architecture %q: want one of GPUs, such as sm_90, or of %v", arch, append([]string{runtime.GOARCH}, levelNames()...))
	}
	comp, err := openNVRTC(cfg.ctx, cfg.toolchain, arch, 0)
	switch {
	case err != nil:
		return nil, err
	case comp.arch != arch:
		return nil, fmt.Errorf("%v compiles for %s in the place of %s, which a machine without NVRTC would not find: take a newer NVRTC", comp.lib, comp.arch, arch)
	case cfg.cache == "":
		return nil, noCacheAhead(cfg)
	}
	host := newCPU("cpu", &cfg, nil) // for its memory alone
	b := &aheadBackend{host, comp}
	// As H100s have, but for a small L2 cache, so that tables need not be large to need the kernels of large ones. Grids follow from it, and no code; but
	// what shared memory there is decides on tiles.
	b.inf = Info{Name: "cuda:ahead-" + arch, Model: "none, compiling for " + arch, Arch: arch, Compiler: comp.ident(), Multiprocessors: 132, Memory: b.inf.Memory,
		L2: 4 << 20, Shared: sharedOf(arch), CAS128: comp.swap128(arch), NUMA: -1}
	return finish(b, cfg, "")
}

// openAheadCPU opens a device for processors of a level. Tables take it for the CPU device, whose kernels they need.
func openAheadCPU(l level, cfg config) (*Device, error) {
	if cfg.cache == "" {
		return nil, noCacheAhead(cfg)
	}
	cfg.kernels = nil
	c, err := findCXX(&cfg)
	if err != nil {
		return nil, err
	}
	if len(c.found) == 0 {
		return nil, c.missing(nil)
	}
	c.level = l
	host := newCPU("cpu", &cfg, nil)
	host.inf.Compiler = c.String()
	return finish(&aheadBackend{host, c}, cfg, "")
}

func noCacheAhead(cfg config) error {
	return fmt.Errorf("no cache to compile into: name one that is yours alone to write in (%v)", cfg.uncached)
}

// sharedOf returns the bytes of shared memory that a block can have on an architecture of GPUs (CUDA C++ Programming
// Guide, "Technical Specifications per Compute Capability"). For an architecture that is not listed it returns what
// GPUs of data centers have since 9.0.
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
	comp compiler
}

func (b *aheadBackend) compiler() compiler                { return b.comp }
func (b *aheadBackend) peer(backend) (bool, error)        { return false, nil }
func (b *aheadBackend) peerAtomics(backend) (bool, error) { return false, nil }

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

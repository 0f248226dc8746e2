package slab

import (
	"errors"
	"fmt"
	"sync"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// AllocatorOptions are the options of NewAllocator.
type AllocatorOptions struct {
	// Slabs is the number of slabs of 128 bytes that the allocator begins with.
	Slabs int
	// Light makes one contiguous array (SlabAlloc-light, §V). One addition then finds a slab, but Add returns an error.
	Light bool
}

// Allocator is SlabAlloc on its own (paper, §V), for kernels of your own. Lanes allocate slabs of 128 bytes and give
// them back while the kernel runs, with one atomic operation each. If a lane finds no slab, the kernel says so, and the
// host may Add some.
//
// A kernel of Program includes "alloc.cuh", takes an Alloc among its parameters, and calls
//
//	Resident r;                                                    // of a lane
//	u32 name = SlabAlloc<LIGHT>::allocate(p.alloc, r);             // NONE: there is no slab
//	u64 address = SlabAlloc<LIGHT>::address(p.alloc, name);
//	SlabAlloc<LIGHT>::release(p.alloc, name);
//
// All of these are in namespace slab. A slab that a lane gets is all ones, and must be so again before it is given
// back. A lane that reads a slab by plain loads calls fence() between getting and reading it; the vocabulary's own
// loads need no fence (see kernel/slaballoc.cuh). Calls of the host must not run beside kernels that use the allocator.
type Allocator struct {
	mu     sync.Mutex
	d      *device.Device
	pool   *frame.Slabs
	closed bool
}

// NewAllocator makes an allocator on the device. Errors: a number of slabs that is negative, or too large for names of 32
// bits; *device.OutOfMemoryError.
func NewAllocator(d *device.Device, o AllocatorOptions) (*Allocator, error) {
	if d == nil || d.Stream() == nil {
		return nil, errors.New("slab: no device (see device.Open)")
	}
	if o.Slabs < 0 || o.Slabs > frame.MaxSlabs {
		return nil, fmt.Errorf("slab: %d slabs (want 0 to %d)", o.Slabs, frame.MaxSlabs)
	}
	p, err := frame.NewSlabs(d, o.Light)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.Add(nil, int64(o.Slabs)), d.Stream().Sync()); err != nil {
		return nil, errors.Join(err, p.FreeAfter(nil))
	}
	return &Allocator{d: d, pool: p}, nil
}

const unmadeAllocator = "slab: an Allocator that NewAllocator has not made"

// made is the pool, for methods without an error.
func (a *Allocator) made() *frame.Slabs {
	if a.pool == nil {
		panic(unmadeAllocator)
	}
	return a.pool
}

// Program returns a program for device.Compile, made of the given translation unit and the layouts of its parameter
// structs. It defines SLAB_LIGHT, the LIGHT of this allocator.
func (a *Allocator) Program(name, main string, params ...any) *device.Program {
	return allocatorProgram(a.made().Light(), name, main, params...)
}

func allocatorProgram(light bool, name, main string, params ...any) *device.Program {
	return &device.Program{
		Name:    name,
		Files:   []device.File{{Name: name + ".cu", Text: main}, {Name: "alloc.cuh", Text: allocCUH}},
		Defines: append(defines(), device.Define{Name: "SLAB_LIGHT", Value: light}),
		Layouts: append([]any{Alloc{}}, params...),
	}
}

// Use returns what the parameters of a kernel hold of the allocator. It is good until Add or Close.
func (a *Allocator) Use() Alloc { return a.made().Memory() }

// locked runs f unless the allocator is closed.
func (a *Allocator) locked(f func() error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pool == nil {
		return errors.New(unmadeAllocator)
	}
	if a.closed {
		return errors.New("slab: the allocator is closed")
	}
	return f()
}

// Add makes n more slabs, rounded up to a multiple of 8. They get super blocks of their own. The slabs that are there
// stay where they are.
func (a *Allocator) Add(n int) error {
	if n < 0 {
		return fmt.Errorf("slab: %d slabs to add", n)
	}
	return a.locked(func() error { return errors.Join(a.pool.Add(nil, int64(n)), a.d.Stream().Sync()) })
}

// Slabs returns the number of slabs, taken or not.
func (a *Allocator) Slabs() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return int(a.made().Units())
}

// Reset takes all slabs back, and clears them.
func (a *Allocator) Reset() error {
	return a.locked(func() error { return errors.Join(a.pool.Reset(nil), a.d.Stream().Sync()) })
}

// Check returns an error unless exactly the slabs of the given names are taken, and all others are clear. It is slow,
// because it downloads all slabs.
func (a *Allocator) Check(taken []uint32) error {
	return a.locked(func() error {
		m, err := a.pool.Download(nil)
		if err != nil {
			return err
		}
		used := map[uint32]bool{}
		for _, name := range taken {
			if _, ok := m.Slab(name); !ok {
				return fmt.Errorf("slab: there is no slab %#x", name)
			}
			if used[name] {
				return fmt.Errorf("slab: slab %#x is taken twice", name)
			}
			used[name] = true
		}
		return m.Check(used, func(slab []byte) bool {
			for _, b := range slab {
				if b != 0xff {
					return false
				}
			}
			return true
		})
	})
}

// Close frees the memory. A second call does nothing.
func (a *Allocator) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.pool == nil {
		return nil
	}
	a.closed = true
	if err := a.pool.FreeAfter(nil); !errors.Is(err, device.ErrClosed) {
		return err
	}
	return nil
}
